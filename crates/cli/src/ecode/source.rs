//! A program's text: from a file, from the command line, for a service or for none.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use qfabric_daemon::EcallsConfig;
use qfabric_ecode::{Diagnostics, Environment, Program};
use qfabric_linux::ecalls::Kernel;
use qfabric_types::api::ecalls::Origin;
use qfabric_types::format::Format;

use crate::exit::Failure;
use crate::{connect, services};

/// Longest text read: more than the compiler takes, so that its refusal is the one that is shown.
const MOST: u64 = 1 << 20;

/// The text, and what it is called in messages.
pub struct Source {
    pub name: String,
    pub text: String,
}

impl Source {
    /// From a file; `-` is the standard input.
    pub fn read(path: &Path) -> Result<Source, Failure> {
        let unreadable = |error: std::io::Error| Failure::usage(format!("cannot read {}: {error}", path.display()));
        let mut text = String::new();
        if path.as_os_str() == "-" {
            std::io::stdin().take(MOST).read_to_string(&mut text).map_err(unreadable)?;
        } else {
            std::fs::File::open(path).map_err(unreadable)?.take(MOST).read_to_string(&mut text).map_err(unreadable)?;
        }
        Ok(Source { name: path.display().to_string(), text })
    }

    /// From a file or from the command line; exactly one is given.
    pub fn of(file: Option<&Path>, code: Option<&str>) -> Result<Source, Failure> {
        match (file, code) {
            (Some(path), None) => Source::read(path),
            (None, Some(code)) => Ok(Source { name: "--code".to_owned(), text: code.to_owned() }),
            _ => Err(Failure::usage("name a file with E-code, or give it with --code")),
        }
    }

    /// Compiles it, or shows what is wrong with it.
    pub fn compile(&self, environment: &Environment) -> Result<Program, Failure> {
        qfabric_ecode::compile(&self.text, environment).map_err(|wrong| self.failure(&wrong))
    }

    /// What is wrong with it, as compilers show it.
    pub fn failure(&self, wrong: &Diagnostics) -> Failure {
        let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Failure::usage(format!("{} does not compile\n{}", self.name, wrong.render(&self.name, &self.text, colour)))
    }
}

/// What a handler of a service gets, and how long it may be.
pub struct Events {
    pub format: Format,
    /// Instructions for one event.
    pub max_instructions: u32,
}

/// What the events of a service look like: asked of the daemon, or of the kernel where none runs.
pub fn format_of(service: &str, socket: Option<&PathBuf>) -> Result<Format, Failure> {
    events_of(service, socket).map(|events| events.format)
}

/// The same with the daemon's limit; without a daemon, with the one that it has by default.
pub fn events_of(service: &str, socket: Option<&PathBuf>) -> Result<Events, Failure> {
    if let Ok(client) = connect::daemon(socket.map(PathBuf::as_path)) {
        let list = client.services().map_err(connect::failure)?;
        let found = services::find(&list, service)?;
        return Ok(Events { format: found.format.clone(), max_instructions: found.max_instructions });
    }
    let known = match Kernel::open() {
        Ok(kernel) => kernel.services().to_vec(),
        Err(why) => Kernel::services_without(&why),
    };
    let names = || known.iter().map(|service| service.name).collect::<Vec<_>>().join(", ");
    let (max_instructions, _) = EcallsConfig::default().instructions_at(service, Origin::Kernel);
    let found = known.iter().find(|known| known.name == service);
    found
        .map(|known| Events { format: known.format.clone(), max_instructions })
        .ok_or_else(|| Failure::usage(format!("there is no service {service:?} in the kernel; there are: {}", names())))
}

/// `name=value`, with a whole number.
pub fn attribute(text: &str) -> Result<(String, i64), String> {
    let (name, value) = pair(text)?;
    let value = value.parse().map_err(|_| format!("{value:?} is no whole number of 64 bits"))?;
    Ok((name, value))
}

/// `name=value`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    let found = text.split_once('=').filter(|(name, _)| !name.is_empty());
    found.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| "write NAME=VALUE".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_have_a_name_and_numbers_are_whole() {
        assert_eq!(attribute("x=-3"), Ok(("x".into(), -3)));
        assert_eq!(pair("interface=lo=1"), Ok(("interface".into(), "lo=1".into())));
        assert!(pair("=1").is_err() && pair("x").is_err() && attribute("x=1.5").is_err());
    }
}
