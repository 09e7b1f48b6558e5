//! Stored profiles of trial executions, by program, parameters, processor and kernel (QualMan §3.4).

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Profile;
use crate::api::Problem;

/// The part of a profile's key that the application chooses: the program, and the parameters on which its computation
/// times depend. Written `player,fps=25,size=640x480`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileName {
    program: String,
    parameters: BTreeMap<String, String>,
}

/// The part of a profile's key that the host gives: computation times hold for one processor and one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// The model of the processor.
    pub cpu: String,
    /// The release of the kernel.
    pub kernel: String,
}

/// A text is not the name of a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
#[allow(missing_docs)] // the messages explain the fields
pub enum InvalidProfileName {
    Program { program: String },
    Parameter { text: String },
    Twice { name: String },
    TooMany,
}

impl InvalidProfileName {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        let (message, next_step) = match self {
            Self::Program { program } => (
                format!("{program:?} names no program"),
                "use 1 to 64 characters without /, comma and control characters",
            ),
            Self::Parameter { text } => (
                format!("{text:?} is no parameter"),
                "write NAME=VALUE, each of 1 to 64 characters without spaces, comma, = and control characters, such as \
                 size=640x480",
            ),
            Self::Twice { name } => (format!("the parameter {name} is given twice"), "give it once"),
            Self::TooMany => (
                format!("there are more than {} parameters", ProfileName::MOST),
                "name those on which the computation times depend",
            ),
        };
        Problem::new("invalid_profile_name", message, next_step)
    }
}

impl ProfileName {
    /// Largest number of parameters.
    pub const MOST: usize = 16;
    /// Most characters of a program, and of the name and of the value of a parameter.
    const LONGEST: usize = 64;

    /// A name without parameters.
    ///
    /// # Errors
    /// `program` is empty, too long, or could not be the name of a file.
    pub fn new(program: &str) -> Result<ProfileName, InvalidProfileName> {
        let usable = |c: char| !c.is_control() && !"/,".contains(c);
        let fits = (1..=Self::LONGEST).contains(&program.chars().count()) && ![".", ".."].contains(&program);
        if !fits || !program.chars().all(usable) {
            let program = program.chars().take(2 * Self::LONGEST).collect();
            return Err(InvalidProfileName::Program { program });
        }
        Ok(ProfileName { program: program.to_owned(), parameters: BTreeMap::new() })
    }

    /// The same name with a further parameter, such as the size of a picture or the frame rate.
    ///
    /// # Errors
    /// The parameter is there already, or its name or value has characters that a name cannot have.
    pub fn with(mut self, name: &str, value: impl Display) -> Result<ProfileName, InvalidProfileName> {
        let value = value.to_string();
        let usable = |c: char| !c.is_control() && !c.is_whitespace() && !",=".contains(c);
        let fits = |text: &str| (1..=Self::LONGEST).contains(&text.chars().count()) && text.chars().all(usable);
        if !fits(name) || !fits(&value) {
            let text = format!("{name}={value}").chars().take(2 * Self::LONGEST).collect();
            return Err(InvalidProfileName::Parameter { text });
        }
        if self.parameters.len() == Self::MOST {
            return Err(InvalidProfileName::TooMany);
        }
        match self.parameters.insert(name.to_owned(), value) {
            None => Ok(self),
            Some(_) => Err(InvalidProfileName::Twice { name: name.to_owned() }),
        }
    }

    /// The program, which also names the file of its profiles.
    pub fn program(&self) -> &str {
        &self.program
    }
}

impl FromStr for ProfileName {
    type Err = InvalidProfileName;

    fn from_str(text: &str) -> Result<ProfileName, InvalidProfileName> {
        let (program, parameters) = text.split_once(',').map_or((text, None), |(program, rest)| (program, Some(rest)));
        let named = ProfileName::new(program)?;
        parameters.into_iter().flat_map(|rest| rest.split(',')).try_fold(named, |name, part| {
            let (parameter, value) = part.split_once('=').unwrap_or((part, ""));
            name.with(parameter, value)
        })
    }
}

impl Display for ProfileName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.program)?;
        self.parameters.iter().try_for_each(|(name, value)| write!(f, ",{name}={value}"))
    }
}

/// All stored profiles of one program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileBook {
    /// At most [`ProfileBook::MOST`], the latest last.
    entries: Vec<ProfileEntry>,
}

/// A profile with the rest of its key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileEntry {
    cpu: String,
    kernel: String,
    #[serde(default)]
    parameters: BTreeMap<String, String>,
    profile: Profile,
}

impl ProfileEntry {
    fn has(&self, name: &ProfileName, platform: &Platform) -> bool {
        self.parameters == name.parameters && self.cpu == platform.cpu && self.kernel == platform.kernel
    }
}

impl ProfileBook {
    /// Largest number of profiles of one program; a further one replaces the one that was stored first.
    pub const MOST: usize = 64;

    /// The profile with exactly this key.
    pub fn find(&self, name: &ProfileName, platform: &Platform) -> Option<&Profile> {
        self.entries.iter().find(|entry| entry.has(name, platform)).map(|entry| &entry.profile)
    }

    /// Stores a profile, in place of an earlier one with the same key.
    pub fn store(&mut self, name: &ProfileName, platform: &Platform, profile: Profile) {
        self.entries.retain(|entry| !entry.has(name, platform));
        let surplus = (self.entries.len() + 1).saturating_sub(Self::MOST);
        self.entries.drain(..surplus);
        let (Platform { cpu, kernel }, parameters) = (platform.clone(), name.parameters.clone());
        self.entries.push(ProfileEntry { cpu, kernel, parameters, profile });
    }

    /// The keys of the stored profiles of `program`, the latest first, for an error message.
    pub fn keys(&self, program: &str) -> impl Iterator<Item = String> {
        self.entries.iter().rev().map(move |ProfileEntry { cpu, kernel, parameters, .. }| {
            let name = ProfileName { program: program.to_owned(), parameters: parameters.clone() };
            format!("{name} on {cpu}, kernel {kernel}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nanos;

    fn name(text: &str) -> ProfileName {
        text.parse().unwrap()
    }

    fn platform(cpu: &str, kernel: &str) -> Platform {
        Platform { cpu: cpu.to_owned(), kernel: kernel.to_owned() }
    }

    fn profile(ms: u64) -> Profile {
        Profile { costs: vec![Nanos::from_millis(ms)], hints: Vec::new() }
    }

    #[test]
    fn the_order_of_the_parameters_does_not_matter() {
        let made = ProfileName::new("player").unwrap().with("size", "640x480").unwrap().with("fps", 25).unwrap();
        assert_eq!(made, name("player,size=640x480,fps=25"));
        assert_eq!(made.to_string(), "player,fps=25,size=640x480");
        assert_eq!((name("mpv"), name("my prog").program()), (ProfileName::new("mpv").unwrap(), "my prog"));
    }

    #[test]
    fn a_name_that_is_none_is_refused_with_its_value() {
        let long = "x".repeat(65);
        let many = (0..17).fold("p".to_owned(), |text, k| format!("{text},k{k}=1"));
        for (text, named) in [
            ("", "1 to 64"),
            ("..", "\"..\""),
            ("a/b", "\"a/b\""),
            ("a\nb", "without /"),
            (long.as_str(), "1 to 64"),
            ("p,", "NAME=VALUE"),
            ("p,size", "\"size=\""),
            ("p,size=1=2", "size=1=2"),
            ("p,size=1 2", "without spaces"),
            ("p,a=1,a=2", "a is given twice"),
            (many.as_str(), "more than 16"),
        ] {
            let refusal = text.parse::<ProfileName>().unwrap_err().to_string();
            assert!(refusal.contains(named), "{text}: {refusal}");
        }
    }

    #[test]
    fn a_profile_is_found_by_its_whole_key_only() {
        let (here, mut book) = (platform("Ultra-1", "7.3"), ProfileBook::default());
        for (parameters, host, ms) in [
            ("d,size=352x240", &here, 40),
            ("d,size=704x480", &here, 90),
            ("d,size=352x240", &platform("SPARCstation-10", "7.3"), 80),
            ("d,size=352x240", &platform("Ultra-1", "7.4"), 41),
        ] {
            book.store(&name(parameters), host, profile(ms));
        }
        let text = serde_json::to_string(&book).unwrap();
        assert_eq!(serde_json::from_str::<ProfileBook>(&text).unwrap(), book);
        assert_eq!(book.find(&name("d,size=352x240"), &here), Some(&profile(40)));
        assert_eq!((book.find(&name("d"), &here), book.find(&name("d,size=1x1"), &here)), (None, None));
        book.store(&name("d,size=352x240"), &here, profile(42));
        assert_eq!(book.find(&name("d,size=352x240"), &here), Some(&profile(42)));
        let keys: Vec<String> = book.keys("d").collect();
        assert_eq!((keys.len(), keys[0].as_str()), (4, "d,size=352x240 on Ultra-1, kernel 7.3"));
    }

    #[test]
    fn a_book_is_bounded_and_forgets_the_profile_that_was_stored_first() {
        let (here, mut book) = (platform("Ultra-1", "7.3"), ProfileBook::default());
        let key = |k: usize| name(&format!("d,size={k}"));
        for k in 0..=ProfileBook::MOST {
            book.store(&key(k), &here, profile(1));
        }
        assert_eq!(book.keys("d").count(), ProfileBook::MOST);
        assert_eq!((book.find(&key(0), &here), book.find(&key(1), &here)), (None, Some(&profile(1))));
    }
}
