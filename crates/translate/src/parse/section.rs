//! Typed access to the tables of a document, with the place of each value.

use std::str::FromStr;

use qfabric_types::channel::Name;
use qfabric_types::{Bytes, Nanos};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{InvalidStream, Mistake};
use crate::rate::Fraction;
use crate::suggest::nearest;

/// One table of a document.
#[derive(Clone, Copy)]
pub(super) struct Section<'a> {
    text: &'a str,
    /// `""` for the keys outside all tables.
    path: &'static str,
    table: &'a DeTable<'a>,
    /// Byte at which the table begins.
    at: usize,
}

/// A value with its key.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    text: &'a str,
    key: &'a str,
    value: &'a Spanned<DeValue<'a>>,
}

/// The refusal at a byte of the text.
pub(super) fn invalid(text: &str, at: usize, mistake: Mistake) -> InvalidStream {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = before[line_start..].chars().count() + 1;
    InvalidStream { line: before.matches('\n').count() + 1, column, mistake }
}

pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

impl<'a> Section<'a> {
    pub(super) fn root(text: &'a str, table: &'a DeTable<'a>) -> Section<'a> {
        Section { text, path: "", table, at: 0 }
    }

    fn place(&self) -> String {
        if self.path.is_empty() { "the file".to_owned() } else { format!("[{}]", self.path) }
    }

    /// Refuses keys that are not in `known`.
    pub(super) fn check_keys(&self, known: &[&str]) -> Result<(), InvalidStream> {
        let unknown = self.table.iter().filter(|(key, _)| !known.contains(&key.get_ref().as_ref()));
        // The first one of the text: the table is sorted by name.
        let Some((key, _)) = unknown.min_by_key(|(key, _)| key.span().start) else { return Ok(()) };
        let name = key.get_ref().as_ref();
        let mistake = Mistake::UnknownKey {
            key: excerpt(name),
            place: self.place(),
            nearest: nearest(name, known).map(str::to_owned),
            known: known.join(", "),
        };
        Err(invalid(self.text, key.span().start, mistake))
    }

    pub(super) fn get(&self, key: &str) -> Option<Item<'a>> {
        let (key, value) = self.table.iter().find(|(found, _)| found.get_ref().as_ref() == key)?;
        Some(Item { text: self.text, key: key.get_ref().as_ref(), value })
    }

    pub(super) fn require(&self, key: &str, example: &'static str) -> Result<Item<'a>, InvalidStream> {
        self.get(key).ok_or_else(|| self.missing(key, example))
    }

    pub(super) fn missing(&self, key: &str, example: &'static str) -> InvalidStream {
        invalid(self.text, self.at, Mistake::Missing { key: key.to_owned(), place: self.place(), example })
    }

    /// The table below this one; `None` if it is absent.
    pub(super) fn section(&self, path: &'static str) -> Result<Option<Section<'a>>, InvalidStream> {
        self.get(path).map(|item| item.section(path)).transpose()
    }
}

impl<'a> Item<'a> {
    pub(super) fn section(&self, path: &'static str) -> Result<Section<'a>, InvalidStream> {
        let table = self.value.get_ref().as_table().ok_or_else(|| self.value("a table"))?;
        Ok(Section { text: self.text, path, table, at: self.value.span().start })
    }

    pub(super) fn is_table(&self) -> bool {
        self.value.get_ref().is_table()
    }

    fn printed(&self) -> String {
        let source = self.text.get(self.value.span()).unwrap_or_default();
        excerpt(source.lines().next().unwrap_or_default())
    }

    fn invalid(&self, mistake: Mistake) -> InvalidStream {
        invalid(self.text, self.value.span().start, mistake)
    }

    /// The refusal of a value of the wrong kind or form.
    pub(super) fn value(&self, expected: impl Into<String>) -> InvalidStream {
        let (key, value) = (excerpt(self.key), self.printed());
        self.invalid(Mistake::Value { key, value, expected: expected.into() })
    }

    /// The refusal of a value outside its limits.
    pub(super) fn outside(&self, limits: impl Into<String>) -> InvalidStream {
        let (key, value) = (excerpt(self.key), self.printed());
        self.invalid(Mistake::Limit { key, value, limits: limits.into() })
    }

    pub(super) fn conflict(&self, reason: &'static str, next_step: &'static str) -> InvalidStream {
        self.invalid(Mistake::Conflict { key: excerpt(self.key), reason, next_step })
    }

    pub(super) fn truth(&self) -> Result<bool, InvalidStream> {
        self.value.get_ref().as_bool().ok_or_else(|| self.value("true or false"))
    }

    pub(super) fn text(&self, expected: &str) -> Result<&'a str, InvalidStream> {
        self.value.get_ref().as_str().ok_or_else(|| self.value(expected))
    }

    /// A text of one of the given words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, InvalidStream> {
        let expected = words.iter().map(|(word, _)| format!("{word:?}")).collect::<Vec<_>>().join(" or ");
        let text = self.text(&expected)?;
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| *value).ok_or_else(|| self.value(expected))
    }

    pub(super) fn parsed<T: FromStr>(&self, expected: &str) -> Result<T, InvalidStream> {
        self.text(expected)?.parse().map_err(|_| self.value(expected))
    }

    pub(super) fn name(&self) -> Result<Name, InvalidStream> {
        self.parsed("a name of up to 64 letters, digits, '.', '_' and '-' in quotes, such as \"film\"")
    }

    /// A whole or decimal number; NaN and infinity are outside all limits.
    pub(super) fn number_within(&self, least: f64, most: f64) -> Result<f64, InvalidStream> {
        let value = match self.value.get_ref() {
            DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n as f64),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        let value = value.ok_or_else(|| self.value(format!("a number from {least} to {most}")))?;
        if (least..=most).contains(&value) { Ok(value) } else { Err(self.outside(format!("{least} to {most}"))) }
    }

    pub(super) fn fraction(&self) -> Result<Fraction, InvalidStream> {
        let value = self.number_within(0.0, 1.0)?;
        Fraction::from_f64(value).ok_or_else(|| self.outside("0 to 1"))
    }

    /// A time with its unit; zero is refused.
    pub(super) fn time_up_to(&self, most: Nanos) -> Result<Nanos, InvalidStream> {
        let time: Nanos = self.parsed("a time with its unit in quotes, such as \"40ms\"")?;
        let is_within = time > Nanos::ZERO && time <= most;
        is_within.then_some(time).ok_or_else(|| self.outside(format!("1ns to {}", most.exact())))
    }

    pub(super) fn size_within(&self, (least, most): (u64, u64)) -> Result<Bytes, InvalidStream> {
        let size: Bytes = self.parsed("a size with its unit in quotes, such as \"20kB\"")?;
        let is_within = (least..=most).contains(&size.get());
        is_within.then_some(size).ok_or_else(|| self.outside(format!("{} to {}", Bytes::new(least), Bytes::new(most))))
    }
}
