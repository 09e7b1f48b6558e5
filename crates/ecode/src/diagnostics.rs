//! The errors of a source text: each has a message, a place with a label, and a remedy.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};

/// Largest number of errors that one run reports. Further errors are usually consequences of the first ones.
const MOST: usize = 20;

/// A byte range of the source text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }

    /// From the start of `self` to the end of `other`.
    pub(crate) fn to(self, other: Span) -> Span {
        Span { start: self.start, end: other.end.max(self.start) }
    }

    /// The empty range directly after this one.
    pub(crate) fn after(self) -> Span {
        Span { start: self.end, end: self.end }
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    pub(crate) fn of(self, text: &str) -> &str {
        &text[self.range()]
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    message: String,
    span: Span,
    label: String,
    related: Vec<(Span, String)>,
    help: Option<String>,
    line: u32,
    column: u32,
}

impl Diagnostic {
    /// `message` states the error in one line; `label` describes the marked place.
    pub(crate) fn new(span: Span, message: impl Into<String>, label: impl Into<String>) -> Diagnostic {
        let (message, label) = (message.into(), label.into());
        Diagnostic { message, span, label, related: Vec::new(), help: None, line: 0, column: 0 }
    }

    /// Adds the remedy.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    /// Adds a second place with its own label.
    pub(crate) fn related(mut self, span: Span, label: impl Into<String>) -> Diagnostic {
        self.related.push((span, label.into()));
        self
    }

    /// The error in one line.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The description of the marked place; may be empty.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// How to correct the error.
    pub fn remedy(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// Line number, from 1.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// Column in characters, from 1.
    pub fn column(&self) -> u32 {
        self.column
    }

    /// The marked bytes of the source text.
    pub fn range(&self) -> Range<usize> {
        self.span.range()
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)?;
        if !self.label.is_empty() {
            write!(f, ": {}", self.label)?;
        }
        match &self.help {
            Some(help) => write!(f, " (help: {help})"),
            None => Ok(()),
        }
    }
}

/// All errors of a source text, in source order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    /// Number of errors beyond [`MOST`].
    left_out: usize,
}

impl Diagnostics {
    /// The errors in source order. Never empty.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.list.iter()
    }

    /// Renders the errors as a compiler does: source line, marked place, remedy. `name` is the file name, `text`
    /// the compiled source text. `colour` adds escape sequences for terminals.
    pub fn render(&self, name: &str, text: &str, colour: bool) -> String {
        self.render_as((Level::ERROR, "error"), name, text, colour)
    }

    fn render_as(&self, (level, word): (Level<'static>, &str), name: &str, text: &str, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let one = |error| render_one(&renderer, level.clone(), error, name, text);
        let mut shown: Vec<String> = self.list.iter().map(one).collect();
        if self.left_out > 0 {
            shown.push(format!("{word}: {} more {word}s are not shown", self.left_out));
        }
        shown.join("\n\n")
    }
}

/// The places of an accepted text where a C compiler would warn, in source order. May be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warnings(Option<Diagnostics>);

impl Warnings {
    /// The warnings in source order.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.as_ref().map_or_else(|| [].iter(), Diagnostics::iter)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Renders the warnings as [`Diagnostics::render`] renders errors.
    pub fn render(&self, name: &str, text: &str, colour: bool) -> String {
        let render = |list: &Diagnostics| list.render_as((Level::WARNING, "warning"), name, text, colour);
        self.0.as_ref().map_or_else(String::new, render)
    }
}

fn render_one(renderer: &Renderer, level: Level<'static>, error: &Diagnostic, name: &str, text: &str) -> String {
    let title = level.primary_title(&error.message);
    // A source text beyond the limit was not read, so none of its lines is shown.
    let group: Group<'_> = match text.len() > crate::lexer::MAX_SOURCE {
        true => title.element(Origin::path(name)),
        false => title.element(snippet(error, name, text)),
    };
    let group = match &error.help {
        Some(help) => group.element(Level::HELP.message(help)),
        None => group,
    };
    renderer.render(&[group])
}

fn snippet<'a>(error: &'a Diagnostic, name: &'a str, text: &'a str) -> Snippet<'a, Annotation<'a>> {
    let mut snippet = Snippet::source(text)
        .path(name)
        .annotation(AnnotationKind::Primary.span(fit(error.span, text)).label(label(&error.label)));
    for (span, said) in &error.related {
        snippet = snippet.annotation(AnnotationKind::Context.span(fit(*span, text)).label(label(said)));
    }
    snippet
}

fn label(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// The marked bytes if `text` contains them. The caller may have passed a text that differs from the compiled one.
fn fit(span: Span, text: &str) -> Range<usize> {
    let range = span.range();
    if text.get(range.clone()).is_some() { range } else { text.len()..text.len() }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.list.iter().enumerate() {
            let separator = if number == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        match self.left_out {
            0 => Ok(()),
            more => write!(f, "\n{more} more errors are not shown"),
        }
    }
}

impl std::error::Error for Diagnostics {}

/// Collects errors.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    list: Vec<Diagnostic>,
    left_out: usize,
}

impl Sink {
    /// Adds an error. Keeps only the first error at each place, because later ones there are consequences.
    pub(crate) fn push(&mut self, error: Diagnostic) {
        if self.list.iter().any(|known| known.span == error.span) {
            return;
        }
        match self.list.len() < MOST {
            true => self.list.push(error),
            false => self.left_out += 1,
        }
    }

    /// Whether the list is full. A full list also counts the error that the caller is about to report, so that the
    /// caller need not build its message.
    pub(crate) fn is_full(&mut self) -> bool {
        let full = self.list.len() >= MOST;
        self.left_out += usize::from(full);
        full
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len() + self.left_out
    }

    pub(crate) fn finish_warnings(self, text: &str) -> Warnings {
        Warnings((!self.list.is_empty()).then(|| self.finish(text)))
    }

    /// Sorts the errors and fills in their lines and columns. There must be at least one error.
    pub(crate) fn finish(mut self, text: &str) -> Diagnostics {
        debug_assert!(!self.list.is_empty(), "the list of errors is empty");
        self.list.sort_by_key(|error| (error.span.start, error.span.end));
        for error in &mut self.list {
            (error.line, error.column) = line_and_column(text, error.span.start as usize);
        }
        Diagnostics { list: self.list, left_out: self.left_out }
    }
}

/// Line and column, both from 1; the column counts characters.
pub(crate) fn line_and_column(text: &str, at: usize) -> (u32, u32) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    // UTF-8: a byte starts a character unless it is a continuation byte.
    let column = 1 + before[start..].iter().filter(|byte| **byte & 0xc0 != 0x80).count();
    (line as u32, column as u32)
}
