//! Lines under construction: what has been printed, and what is to come between it and the next word.

use super::spacing::Spacing;
use crate::lexer::{Token, TokenKind};

/// Longest line, where it can be broken.
const WIDTH: usize = 100;
const INDENT: &str = "    ";

/// What comes before the next word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// As the two words want it.
    Words,
    Nothing,
    Space,
    /// A new line; a blank one more, if the author left one.
    Line,
    /// A new line without a blank one.
    NoBlank,
    /// A blank line.
    Blank,
}

#[derive(Clone)]
pub(super) struct Lines<'a> {
    text: &'a str,
    out: String,
    indent: usize,
    gap: Gap,
    spacing: Spacing,
    /// Where the last word, or comment, ended in the text.
    end: usize,
    /// It opened a block.
    opened: bool,
    /// Where the line at hand begins in `out`.
    line: usize,
}

/// A state to come back to.
pub(super) struct Mark {
    length: usize,
    indent: usize,
    gap: Gap,
    spacing: Spacing,
    end: usize,
    opened: bool,
    line: usize,
}

impl<'a> Lines<'a> {
    pub fn new(text: &'a str) -> Lines<'a> {
        let spacing = Spacing::default();
        Lines { text, out: String::new(), indent: 0, gap: Gap::Nothing, spacing, end: 0, opened: true, line: 0 }
    }

    pub fn finish(mut self) -> String {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.out
    }

    /// Changes the indentation by so many levels.
    pub fn indent(&mut self, by: isize) {
        self.indent = self.indent.saturating_add_signed(by);
    }

    /// A wider gap than the one that is wanted already is kept.
    pub fn gap(&mut self, gap: Gap) {
        self.gap = match (self.gap, gap) {
            (Gap::Blank, Gap::Line) => Gap::Blank,
            // A comment that ends its line has made it a new one.
            (Gap::Line | Gap::Blank, Gap::Space | Gap::Nothing) if self.after_line_comment() => self.gap,
            _ => gap,
        };
    }

    fn after_line_comment(&self) -> bool {
        self.out[self.line..].contains("//")
    }

    /// A statement begins: nothing of the words before matters to it.
    pub fn begin(&mut self) {
        self.spacing.begin();
    }

    /// No blank line before what comes.
    pub fn no_blank(&mut self) {
        if matches!(self.gap, Gap::Line | Gap::Blank) {
            self.gap = Gap::NoBlank;
        }
    }

    pub fn token(&mut self, token: Token) {
        let word = token.span.of(self.text);
        let inside = self.spacing.inside();
        let wanted = self.spacing.next(token.kind, word);
        match self.gap {
            Gap::Words if wanted.space && wanted.may_break && self.column() + 1 + word.len() > WIDTH => {
                self.new_line(1);
            }
            Gap::Words if wanted.space => self.space(),
            Gap::Words | Gap::Nothing => {}
            Gap::Space => self.space(),
            gap => self.new_line_for(gap, token, inside),
        }
        self.out.push_str(word);
        self.end = token.span.end as usize;
        self.opened = token.kind == TokenKind::Punct("{");
        self.gap = Gap::Words;
    }

    /// A comment: behind what it stands behind, or on a line of its own.
    pub fn comment(&mut self, token: Token) {
        let alone = !self.out.is_empty() && self.text[self.end..token.span.start as usize].contains('\n');
        let new_line = matches!(self.gap, Gap::Line | Gap::NoBlank | Gap::Blank);
        match (new_line && alone, self.out.is_empty()) {
            (_, true) => {}
            (true, _) => self.new_line_for(self.gap, token, self.spacing.inside()),
            (false, _) => self.space(),
        }
        self.out.push_str(token.span.of(self.text));
        self.end = token.span.end as usize;
        self.opened = false;
        self.spacing.comment();
        let ends_line = token.kind == TokenKind::LineComment;
        self.gap = match self.gap {
            Gap::Blank if !alone => Gap::Blank,
            _ if new_line || ends_line || self.out.len() == token.span.of(self.text).len() => Gap::Line,
            _ => Gap::Space,
        };
    }

    fn column(&self) -> usize {
        self.out[self.line..].chars().count()
    }

    fn space(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with(['\n', ' ']) {
            self.out.push(' ');
        }
    }

    /// `inside`: it continues a statement, behind a comment in its middle.
    fn new_line_for(&mut self, gap: Gap, token: Token, inside: bool) {
        if self.out.is_empty() {
            return;
        }
        let between = &self.text[self.end..token.span.start as usize];
        let left_blank = between.bytes().filter(|byte| *byte == b'\n').count() > 1 && !self.opened;
        if gap == Gap::Blank || gap == Gap::Line && left_blank {
            self.out.push('\n');
        }
        self.new_line(usize::from(inside));
    }

    fn new_line(&mut self, more: usize) {
        self.out.push('\n');
        self.line = self.out.len();
        for _ in 0..self.indent + more {
            self.out.push_str(INDENT);
        }
    }

    pub fn mark(&self) -> Mark {
        Mark {
            length: self.out.len(),
            indent: self.indent,
            gap: self.gap,
            spacing: self.spacing.clone(),
            end: self.end,
            opened: self.opened,
            line: self.line,
        }
    }

    /// Whether everything since then stands on the same line, within its width.
    pub fn still_one_line(&self, mark: &Mark) -> bool {
        self.line == mark.line && self.column() <= WIDTH && !matches!(self.gap, Gap::Line | Gap::Blank | Gap::NoBlank)
    }

    pub fn back_to(&mut self, mark: Mark) {
        self.out.truncate(mark.length);
        self.indent = mark.indent;
        self.gap = mark.gap;
        self.spacing = mark.spacing;
        self.end = mark.end;
        self.opened = mark.opened;
        self.line = mark.line;
    }
}
