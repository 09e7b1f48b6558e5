//! Changes of the link over time, as text:
//!
//! ```text
//! # time    direction   property value …
//! at 40s    both        rate 1M
//! at 60s    up          rate 500k queue 64kB loss ge:1%,30%
//! at 80s                delay 30ms jitter 5ms
//! ```
//! Times count from the start of the command. Without a direction a line changes both. Lines are in the order of time.

use std::str::FromStr;

use qfabric_types::Nanos;

use crate::settings::{LinkChange, LinkDirection, LinkSettings, SettingsError};
use crate::text::{Fault, TextError};

/// Most lines of a schedule.
pub const SCHEDULE_LINES_MAX: usize = 10_000;
/// Latest time of a schedule: one day.
pub const SCHEDULE_TIME_MAX: Nanos = Nanos::from_millis(86_400_000);
/// Characters of a word that an error repeats.
const SHOWN: usize = 40;

/// Changes in the order of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    pub(crate) steps: Vec<Step>,
}

/// A change at a time, for one direction or for both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) at: Nanos,
    pub(crate) directions: Vec<LinkDirection>,
    pub(crate) change: LinkChange,
}

impl Schedule {
    /// Adds a change, which must not be earlier than the changes that were added before.
    pub(crate) fn push(&mut self, at: Nanos, directions: &[LinkDirection], change: LinkChange) {
        debug_assert!(self.steps.last().is_none_or(|last| last.at <= at));
        self.steps.push(Step { at, directions: directions.to_vec(), change });
    }

    /// Divides all times by this factor.
    pub fn shorten(&mut self, factor: u32) {
        self.steps.iter_mut().for_each(|step| step.at = Nanos::new(step.at.get() / u64::from(factor.max(1))));
    }

    /// Reads the text of a schedule.
    pub fn parse(text: &str) -> Result<Schedule, TextError> {
        let mut schedule = Schedule::default();
        for (number, line) in text.lines().enumerate() {
            let mut words = Words::of(line, number + 1);
            if words.peek().is_some() {
                schedule.line(&mut words)?;
            }
        }
        Ok(schedule)
    }

    fn line(&mut self, words: &mut Words<'_>) -> Result<(), TextError> {
        if self.steps.len() == SCHEDULE_LINES_MAX {
            return Err(words.failed(Fault::TooLong { most: SCHEDULE_LINES_MAX }));
        }
        words.expect("at", "at TIME, such as: at 40s rate 1M")?;
        let at = words.value::<Nanos>("at")?;
        self.check_time(at).map_err(|fault| words.failed(fault))?;
        let directions = words.directions();
        let change = words.change()?;
        self.steps.push(Step { at, directions, change });
        Ok(())
    }

    fn check_time(&self, at: Nanos) -> Result<(), Fault> {
        if at > SCHEDULE_TIME_MAX {
            let [value, least, most] = [at, Nanos::ZERO, SCHEDULE_TIME_MAX].map(Nanos::exact);
            return Err(SettingsError { name: "time", value, least, most }.into());
        }
        match self.steps.last() {
            Some(last) if last.at > at => Err(Fault::Earlier { time: at.exact(), before: last.at.exact() }),
            _ => Ok(()),
        }
    }
}

impl FromStr for LinkChange {
    type Err = TextError;

    /// Properties and values of one direction: `rate 1M delay 10ms`.
    fn from_str(text: &str) -> Result<LinkChange, TextError> {
        Words::of(text, 1).change()
    }
}

/// The words of a line, with their columns. A comment ends the line.
struct Words<'a> {
    line: usize,
    rest: std::vec::IntoIter<(usize, &'a str)>,
    /// Column of the word that was taken last.
    column: usize,
}

impl<'a> Words<'a> {
    fn of(text: &'a str, line: usize) -> Words<'a> {
        let text = text.split('#').next().unwrap_or_default();
        let mut words = Vec::new();
        let mut begin = None;
        for (column, (at, c)) in text.char_indices().enumerate() {
            match (begin, c.is_whitespace()) {
                (None, false) => begin = Some((column + 1, at)),
                (Some((column, from)), true) => {
                    words.push((column, &text[from..at]));
                    begin = None;
                }
                _ => {}
            }
        }
        words.extend(begin.map(|(column, from)| (column, &text[from..])));
        Words { line, rest: words.into_iter(), column: 1 }
    }

    fn failed(&self, fault: Fault) -> TextError {
        TextError { line: self.line, column: self.column, fault }
    }

    fn peek(&self) -> Option<&'a str> {
        self.rest.as_slice().first().map(|(_, word)| *word)
    }

    fn take(&mut self) -> Option<&'a str> {
        let (column, word) = self.rest.next()?;
        self.column = column;
        Some(word)
    }

    fn expect(&mut self, word: &str, expected: &'static str) -> Result<(), TextError> {
        match self.take() {
            Some(found) if found == word => Ok(()),
            found => Err(self.failed(Fault::Expected { found: shown(found.unwrap_or_default()), expected })),
        }
    }

    /// The value of a property.
    fn value<T: FromStr>(&mut self, name: &str) -> Result<T, TextError>
    where
        Fault: From<T::Err>,
    {
        let word = self.take().ok_or_else(|| self.failed(Fault::NoValue(name.to_owned())))?;
        let word: String = word.chars().take(SHOWN).collect();
        word.parse().map_err(|error| self.failed(Fault::from(error)))
    }

    fn directions(&mut self) -> Vec<LinkDirection> {
        let directions = match self.peek() {
            Some("up") => vec![LinkDirection::Up],
            Some("down") => vec![LinkDirection::Down],
            Some("both") => LinkDirection::BOTH.to_vec(),
            _ => return LinkDirection::BOTH.to_vec(),
        };
        self.take();
        directions
    }

    /// Properties up to the end of the line, at least one.
    fn change(&mut self) -> Result<LinkChange, TextError> {
        let mut change = LinkChange::default();
        loop {
            let name = self.take();
            match name {
                Some("rate") => self.set(&mut change.rate, "rate")?,
                Some("queue") => self.set(&mut change.queue, "queue")?,
                Some("delay") => self.set(&mut change.delay, "delay")?,
                Some("jitter") => self.set(&mut change.jitter, "jitter")?,
                Some("loss") => self.set(&mut change.loss, "loss")?,
                None if change != LinkChange::default() => return Ok(change),
                found => {
                    let expected = "rate, queue, delay, jitter or loss";
                    return Err(self.failed(Fault::Expected { found: shown(found.unwrap_or_default()), expected }));
                }
            }
            self.check(&change)?;
        }
    }

    fn set<T: FromStr>(&mut self, property: &mut Option<T>, name: &str) -> Result<(), TextError>
    where
        Fault: From<T::Err>,
    {
        if property.is_some() {
            return Err(self.failed(Fault::Twice(name.to_owned())));
        }
        *property = Some(self.value(name)?);
        Ok(())
    }

    /// Refuses a value that is outside its bounds.
    fn check(&self, change: &LinkChange) -> Result<(), TextError> {
        let mut settings = LinkSettings::default();
        change.apply(&mut settings);
        settings.check().map_err(|error| self.failed(Fault::Settings(error)))
    }
}

fn shown(word: &str) -> String {
    word.chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use qfabric_types::{BitRate, Bytes};

    use super::*;
    use crate::loss::LossModel;
    use crate::settings::{LinkRate, QueueLimit};

    #[test]
    fn a_schedule_is_read_with_comments_directions_and_several_properties() {
        let text = "# RFC\nat 40s rate 1M\n\n  at 60s up queue 64kB loss ge:1%,30%  # worse\nat 60s down delay 30ms\n";
        let schedule = Schedule::parse(text).unwrap();
        assert_eq!(schedule.steps.len(), 3);
        let rate = Some(LinkRate::Constant(BitRate::new(1_000_000)));
        assert_eq!(schedule.steps[0].change, LinkChange { rate, ..LinkChange::default() });
        assert_eq!(schedule.steps[0].directions, LinkDirection::BOTH);
        let up = &schedule.steps[1];
        assert_eq!((up.at, &up.directions[..]), (Nanos::from_millis(60_000), &[LinkDirection::Up][..]));
        assert_eq!(up.change.queue, Some(QueueLimit::Bytes(Bytes::new(64_000))));
        assert!(matches!(up.change.loss, Some(LossModel::GilbertElliott { .. })));
        assert_eq!(schedule.steps[2].directions, [LinkDirection::Down]);
    }

    #[test]
    fn a_refusal_names_line_column_value_and_the_accepted_form() {
        let cases = [
            ("at 40s rate 1M\nat 50s rat 1M", "line 2, column 8: \"rat\" instead of rate, queue"),
            ("at 40s", "line 1, column 4: \"\" instead of rate, queue"),
            ("at 40 rate 1M", "line 1, column 4: \"40\" is not a time with its unit"),
            ("at 40s rate", "line 1, column 8: rate has no value"),
            ("   rate 1M", "line 1, column 4: \"rate\" instead of at TIME"),
            ("at 40s rate 1M rate 2M", "line 1, column 16: rate is given twice"),
            ("at 40s rate 1", "line 1, column 13: rate 1 bit/s: the least is 1 kbit/s"),
            ("at 40s loss 101%", "line 1, column 13: \"101%\" is not a loss"),
            ("at 40s rate 1M\nat 39s rate 2M", "line 2, column 4: the time 39s is before 40s"),
            ("at 400000s rate 1M", "line 1, column 4: time 400000s: the least is 0ns, the most is 86400s"),
        ];
        for (text, expected) in cases {
            let refusal = Schedule::parse(text).unwrap_err();
            assert!(refusal.to_string().starts_with(expected), "{text:?}: {refusal}");
            assert!(!refusal.problem().next_step.is_empty());
        }
    }

    #[test]
    fn a_schedule_has_a_largest_number_of_lines() {
        let text = "at 1s rate 1M\n".repeat(SCHEDULE_LINES_MAX + 1);
        let refusal = Schedule::parse(&text).unwrap_err();
        assert_eq!((refusal.line, refusal.fault), (10_001, Fault::TooLong { most: 10_000 }));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,80}|(at |[0-9]{1,4}m?s |up |rate |loss |[0-9]M |[0-9]% |\n){0,30}") {
            if let Err(refusal) = Schedule::parse(&text) {
                prop_assert!(refusal.line >= 1 && refusal.column >= 1);
                prop_assert!(refusal.to_string().chars().count() < 300);
            }
        }
    }
}
