//! The output of the pretty printer: the finished lines, and the gap before the next token.

use super::spacing::Spacing;
use crate::lexer::{Token, TokenKind};

/// Longest line in characters, if the line can be broken.
const WIDTH: usize = 100;
const INDENT: &str = "    ";

/// The white space before the next token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Gap {
    /// The spacing rules for the two tokens apply.
    Words,
    #[default]
    Nothing,
    Space,
    /// A new line, after a blank line if the author left one.
    Line,
    /// A new line, without a blank line before it.
    NoBlank,
    /// A blank line.
    Blank,
}

#[derive(Clone)]
pub(super) struct Lines<'a> {
    text: &'a str,
    out: String,
    at: State,
}

/// The facts that decide how the next token is printed.
#[derive(Clone, Default)]
struct State {
    indent: usize,
    gap: Gap,
    spacing: Spacing,
    /// Where the last token or comment ended in the source text.
    end: usize,
    /// The last token opened a block.
    opened: bool,
    /// Where the current line starts in `out`.
    line: usize,
}

/// A saved state for [`Lines::back_to`].
pub(super) struct Mark {
    length: usize,
    at: State,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Lines<'a> {
        Lines { text, out: String::new(), at: State { opened: true, ..State::default() } }
    }

    pub(super) fn finish(mut self) -> String {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.out
    }

    /// Changes the indentation by `by` levels.
    pub(super) fn indent(&mut self, by: isize) {
        self.at.indent = self.at.indent.saturating_add_signed(by);
    }

    /// Sets the gap before the next token. Keeps a wider gap that is already set.
    pub(super) fn gap(&mut self, gap: Gap) {
        self.at.gap = match (self.at.gap, gap) {
            (Gap::Blank, Gap::Line) => Gap::Blank,
            // A line comment before this gap already forces a new line.
            (Gap::Line | Gap::Blank, Gap::Space | Gap::Nothing) if self.after_line_comment() => self.at.gap,
            _ => gap,
        };
    }

    fn after_line_comment(&self) -> bool {
        self.out[self.at.line..].contains("//")
    }

    /// Begins a statement: the spacing rules forget the previous tokens.
    pub(super) fn begin(&mut self) {
        self.at.spacing.begin();
    }

    /// Suppresses a blank line before the next token.
    pub(super) fn no_blank(&mut self) {
        if matches!(self.at.gap, Gap::Line | Gap::Blank) {
            self.at.gap = Gap::NoBlank;
        }
    }

    pub(super) fn token(&mut self, token: Token) {
        let word = token.span.of(self.text);
        let inside = self.at.spacing.inside();
        let wanted = self.at.spacing.next(token.kind, word);
        match self.at.gap {
            Gap::Words if wanted.space && wanted.may_break && self.column() + 1 + word.len() > WIDTH => {
                self.new_line(1);
            }
            Gap::Words if wanted.space => self.space(),
            Gap::Words | Gap::Nothing => {}
            Gap::Space => self.space(),
            gap => self.new_line_for(gap, token, inside),
        }
        self.out.push_str(word);
        self.at.end = token.span.end as usize;
        self.at.opened = token.kind == TokenKind::Punct("{");
        self.at.gap = Gap::Words;
    }

    /// Prints a comment on its own line, or after the token that it follows.
    pub(super) fn comment(&mut self, token: Token) {
        let alone = !self.out.is_empty() && self.text[self.at.end..token.span.start as usize].contains('\n');
        let new_line = matches!(self.at.gap, Gap::Line | Gap::NoBlank | Gap::Blank);
        match (new_line && alone, self.out.is_empty()) {
            (_, true) => {}
            (true, _) => self.new_line_for(self.at.gap, token, self.at.spacing.inside()),
            (false, _) => self.space(),
        }
        self.out.push_str(token.span.of(self.text));
        self.at.end = token.span.end as usize;
        self.at.opened = false;
        self.at.spacing.comment();
        let ends_line = token.kind == TokenKind::LineComment;
        self.at.gap = match self.at.gap {
            Gap::Blank if !alone => Gap::Blank,
            _ if new_line || ends_line || self.out.len() == token.span.of(self.text).len() => Gap::Line,
            _ => Gap::Space,
        };
    }

    fn column(&self) -> usize {
        self.out[self.at.line..].chars().count()
    }

    fn space(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with(['\n', ' ']) {
            self.out.push(' ');
        }
    }

    /// `inside`: the line continues a statement after a comment.
    fn new_line_for(&mut self, gap: Gap, token: Token, inside: bool) {
        if self.out.is_empty() {
            return;
        }
        let between = &self.text[self.at.end..token.span.start as usize];
        let left_blank = between.bytes().filter(|byte| *byte == b'\n').count() > 1 && !self.at.opened;
        if gap == Gap::Blank || gap == Gap::Line && left_blank {
            self.out.push('\n');
        }
        self.new_line(usize::from(inside));
    }

    fn new_line(&mut self, more: usize) {
        self.out.push('\n');
        self.at.line = self.out.len();
        for _ in 0..self.at.indent + more {
            self.out.push_str(INDENT);
        }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { length: self.out.len(), at: self.at.clone() }
    }

    /// Whether everything printed since `mark` is on one line within its width.
    pub(super) fn still_one_line(&self, mark: &Mark) -> bool {
        self.at.line == mark.at.line
            && self.column() <= WIDTH
            && !matches!(self.at.gap, Gap::Line | Gap::Blank | Gap::NoBlank)
    }

    pub(super) fn back_to(&mut self, mark: Mark) {
        self.out.truncate(mark.length);
        self.at = mark.at;
    }
}
