//! Formats a source text: `qfabric ecode fmt`.
//!
//! The printer walks the tokens, including comments, and changes only the white space between them. The tokens
//! alone decide where lines are broken, so formatting a formatted text changes nothing. The author decides only
//! two things: blank lines (at most one in a row), and whether a comment is on its own line.

mod line;
mod spacing;
#[cfg(test)]
mod tests;

use crate::diagnostics::{Diagnostics, Sink};
use crate::lexer::{Token, TokenKind, tokens};
use crate::parser;
use line::{Gap, Lines};

/// Returns the text with one statement per line, indented by its nesting. The meaning and all comments stay.
pub fn pretty(text: &str) -> Result<String, Diagnostics> {
    let mut sink = Sink::default();
    parser::parse(text, &mut sink);
    if !sink.is_empty() {
        return Err(sink.finish(text));
    }
    // The parser has accepted the text, so the structure of the tokens is valid.
    let tokens = tokens(text, &mut sink);
    let mut printer = Printer { tokens, at: 0, lines: Lines::new(text) };
    while printer.kind() != TokenKind::End {
        printer.statement();
    }
    printer.lines.begin();
    printer.flush_comments();
    Ok(printer.lines.finish())
}

struct Printer<'a> {
    tokens: Vec<Token>,
    at: usize,
    lines: Lines<'a>,
}

impl Printer<'_> {
    /// The tokens from the current one on, without comments.
    fn ahead(&self) -> impl Iterator<Item = Token> {
        let comment = |token: &&Token| matches!(token.kind, TokenKind::LineComment | TokenKind::BlockComment);
        self.tokens[self.at..].iter().filter(move |token| !comment(token)).copied()
    }

    fn kind(&self) -> TokenKind {
        self.ahead().next().map_or(TokenKind::End, |token| token.kind)
    }

    fn at_punct(&self, sign: &str) -> bool {
        matches!(self.kind(), TokenKind::Punct(known) if known == sign)
    }

    fn at_keyword(&self, word: &str) -> bool {
        matches!(self.kind(), TokenKind::Keyword(known) if known == word)
    }

    fn flush_comments(&mut self) {
        while let token @ Token { kind: TokenKind::LineComment | TokenKind::BlockComment, .. } = self.tokens[self.at] {
            self.lines.comment(token);
            self.at += 1;
        }
    }

    /// Prints the current token and the comments before it.
    fn take(&mut self) {
        self.flush_comments();
        let token = self.tokens[self.at];
        if token.kind != TokenKind::End {
            self.lines.token(token);
            self.at += 1;
        }
    }

    /// Prints all tokens up to and including the first one outside brackets for which `stop` holds.
    fn take_through(&mut self, stop: impl Fn(TokenKind) -> bool) {
        let mut open = 0usize;
        while self.kind() != TokenKind::End {
            let kind = self.kind();
            match kind {
                TokenKind::Punct("(" | "[" | "{") => open += 1,
                TokenKind::Punct(")" | "]" | "}") => open = open.saturating_sub(1),
                _ => {}
            }
            self.take();
            if open == 0 && stop(kind) {
                return;
            }
        }
    }

    /// Prints a statement, a declaration or a function, and ends its line.
    fn statement(&mut self) {
        self.lines.begin();
        match self.kind() {
            TokenKind::Punct("{") => self.block(),
            TokenKind::Define => self.define(),
            TokenKind::Keyword("if") => self.condition(),
            TokenKind::Keyword("for" | "while") => self.headed(),
            TokenKind::Keyword("do") => self.do_loop(),
            TokenKind::Keyword("switch") => self.switch(),
            _ if self.defines_function() => self.function(),
            _ => self.simple(),
        }
        self.lines.gap(Gap::Line);
    }

    fn define(&mut self) {
        self.take();
        self.take();
        // A value begins. A space must follow the name, because `#define NAME(…` would have parameters in C.
        self.lines.begin();
        self.lines.gap(Gap::Space);
        // `LineEnd` is not printed.
        while self.kind() != TokenKind::LineEnd {
            self.take();
        }
        self.flush_comments();
        self.at += 1;
    }

    /// Prints a declaration or an expression up to its semicolon.
    fn simple(&mut self) {
        while !self.at_punct(";") && self.kind() != TokenKind::End {
            match self.kind() {
                TokenKind::Keyword("struct") => self.structure(),
                TokenKind::Keyword("enum") => self.enumeration(),
                TokenKind::Punct("{") => self.take_through(|kind| kind == TokenKind::Punct("}")),
                _ => self.take(),
            }
        }
        self.take();
    }

    /// Prints `struct NAME` and its members, if any.
    fn structure(&mut self) {
        self.take();
        if self.kind() == TokenKind::Name {
            self.take();
        }
        if self.at_punct("{") {
            self.open();
            while !self.at_punct("}") {
                self.simple();
                self.lines.gap(Gap::Line);
            }
            self.close();
        }
    }

    /// Prints `enum { A, B }` on one line if it fits, otherwise with one constant per line.
    fn enumeration(&mut self) {
        self.take();
        if self.kind() == TokenKind::Name {
            self.take();
        }
        if !self.at_punct("{") {
            return;
        }
        let fits = self.attempt(|printer| {
            printer.take();
            printer.lines.gap(Gap::Space);
            while !printer.at_punct("}") {
                printer.take();
            }
            printer.lines.gap(Gap::Space);
            printer.take();
        });
        if !fits {
            self.open();
            while !self.at_punct("}") {
                self.take_constant();
                self.lines.gap(Gap::Line);
            }
            self.close();
        }
    }

    /// Prints one constant of an enumeration with its comma.
    fn take_constant(&mut self) {
        self.lines.begin();
        let mut open = 0usize;
        while !(open == 0 && self.at_punct("}")) {
            let kind = self.kind();
            match kind {
                TokenKind::Punct("(" | "[") => open += 1,
                TokenKind::Punct(")" | "]") => open = open.saturating_sub(1),
                _ => {}
            }
            self.take();
            if open == 0 && kind == TokenKind::Punct(",") {
                return;
            }
        }
    }

    /// Tries to print on one line. Undoes everything and returns false if the line does not fit.
    fn attempt(&mut self, print: impl FnOnce(&mut Self)) -> bool {
        let (at, before) = (self.at, self.lines.mark());
        print(self);
        let fits = self.lines.still_one_line(&before);
        if !fits {
            self.at = at;
            self.lines.back_to(before);
        }
        fits
    }

    /// Whether a function definition follows: a name with `(`, and `{` after the matching `)`, before any `;` or
    /// `=`.
    fn defines_function(&self) -> bool {
        let mut open = 0usize;
        let mut closed = false;
        for token in self.ahead() {
            match token.kind {
                TokenKind::Punct("(") => open += 1,
                TokenKind::Punct(")") => {
                    open = open.saturating_sub(1);
                    closed = open == 0;
                }
                TokenKind::Punct("{") => return closed,
                TokenKind::Punct(";" | "=") | TokenKind::End => return false,
                _ => {}
            }
        }
        false
    }

    fn function(&mut self) {
        while !self.at_punct("{") {
            self.take();
        }
        self.block();
        self.lines.gap(Gap::Blank);
    }

    fn open(&mut self) {
        self.take();
        self.lines.indent(1);
        self.lines.gap(Gap::Line);
    }

    fn close(&mut self) {
        self.lines.begin();
        self.flush_comments();
        self.lines.indent(-1);
        self.lines.no_blank();
        self.take();
    }

    fn block(&mut self) {
        self.lines.begin();
        if self.ahead().nth(1).is_some_and(|next| next.kind == TokenKind::Punct("}")) && self.no_comment_inside() {
            self.take();
            self.lines.gap(Gap::Nothing);
            self.take();
            return;
        }
        self.open();
        while !self.at_punct("}") && self.kind() != TokenKind::End {
            self.statement();
        }
        self.close();
    }

    /// Whether the current opening brace is directly followed by a closing brace.
    fn no_comment_inside(&self) -> bool {
        let brace = self.tokens[self.at..].iter().position(|token| token.kind == TokenKind::Punct("{"));
        brace.is_some_and(|brace| self.tokens[self.at + brace + 1].kind == TokenKind::Punct("}"))
    }

    /// Prints the keyword and its parenthesis.
    fn head(&mut self) {
        self.take();
        self.take_through(|kind| kind == TokenKind::Punct(")"));
    }

    fn condition(&mut self) {
        self.head();
        let braces = self.at_punct("{");
        self.body(!self.else_follows());
        if self.at_keyword("else") {
            self.lines.gap(if braces { Gap::Space } else { Gap::Line });
            self.take();
            match self.kind() {
                TokenKind::Keyword("if") => {
                    self.lines.gap(Gap::Space);
                    self.condition();
                }
                _ => self.body(false),
            }
        }
    }

    /// Whether the current simple statement is followed by `else`.
    fn else_follows(&self) -> bool {
        let behind = self.ahead().skip_while(|token| token.kind != TokenKind::Punct(";")).nth(1);
        behind.is_some_and(|token| token.kind == TokenKind::Keyword("else"))
    }

    fn headed(&mut self) {
        self.head();
        self.body(true);
    }

    fn do_loop(&mut self) {
        self.take();
        let braces = self.at_punct("{");
        self.body(false);
        self.lines.gap(if braces { Gap::Space } else { Gap::Line });
        self.take_through(|kind| kind == TokenKind::Punct(";"));
    }

    fn switch(&mut self) {
        self.head();
        self.lines.gap(Gap::Space);
        self.open();
        while !self.at_punct("}") {
            if self.at_keyword("case") || self.at_keyword("default") {
                self.flush_comments();
                self.take_label();
                if self.at_punct("{") {
                    self.lines.gap(Gap::Space);
                    self.block();
                }
                self.lines.gap(Gap::Line);
                continue;
            }
            self.lines.indent(1);
            while !(self.at_punct("}") || self.at_keyword("case") || self.at_keyword("default")) {
                self.statement();
            }
            self.lines.indent(-1);
        }
        self.close();
    }

    /// Prints `case X:`. A conditional expression in X contains colons that do not end the label.
    fn take_label(&mut self) {
        self.lines.begin();
        let mut questions = 0usize;
        loop {
            let kind = self.kind();
            match kind {
                TokenKind::Punct("?") => questions += 1,
                TokenKind::Punct(":") if questions == 0 => {
                    self.lines.gap(Gap::Nothing);
                    self.take();
                    return;
                }
                TokenKind::Punct(":") => questions -= 1,
                TokenKind::End => return,
                _ => {}
            }
            self.take();
        }
    }

    /// Prints the statement that an `if` or a loop controls. A block starts on the same line. A simple statement
    /// stays on the same line if `may_stay` holds and it fits; otherwise it moves to the next line.
    fn body(&mut self, may_stay: bool) {
        match self.kind() {
            TokenKind::Punct("{") => {
                self.lines.gap(Gap::Space);
                return self.block();
            }
            TokenKind::Punct(";") => return self.take(),
            _ => {}
        }
        let simple = !matches!(self.kind(), TokenKind::Keyword("if" | "for" | "while" | "do" | "switch"));
        let stays = simple && may_stay && {
            self.lines.gap(Gap::Space);
            self.attempt(|printer| {
                printer.lines.begin();
                printer.simple();
            })
        };
        if !stays {
            self.lines.indent(1);
            self.lines.gap(Gap::Line);
            self.statement();
            self.lines.indent(-1);
        }
    }
}
