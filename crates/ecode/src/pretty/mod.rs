//! Lays a text out: `ecode fmt`.
//!
//! It walks the tokens, comments among them, and changes nothing but the white space between them. Where lines are
//! broken depends on the tokens alone, so that a text that has been laid out stays as it is; only blank lines (one at
//! most) and whether a comment stands behind something or on a line of its own are the author's.

mod line;
mod spacing;
#[cfg(test)]
mod tests;

use crate::diagnostics::{Diagnostics, Sink};
use crate::lexer::{Token, TokenKind, tokens};
use crate::parser;
use line::{Gap, Lines};

/// The text with one statement a line, indented by its nesting. What it means stays the same, comments stay.
pub fn pretty(text: &str) -> Result<String, Diagnostics> {
    let mut sink = Sink::default();
    parser::parse(text, &mut sink);
    if !sink.is_empty() {
        return Err(sink.finish(text));
    }
    // The parser has taken it: from here on its structure is known to be right.
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
    /// The tokens from here on, without comments.
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

    /// Prints the token at hand, with the comments before it.
    fn take(&mut self) {
        self.flush_comments();
        let token = self.tokens[self.at];
        if token.kind != TokenKind::End {
            self.lines.token(token);
            self.at += 1;
        }
    }

    /// Prints everything up to the token at which `stop` says so, outside of all brackets, and that one too.
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

    /// A statement, a declaration or a function, and the end of its line.
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
        // A value begins; and `#define NAME(…` would have parameters in C.
        self.lines.begin();
        self.lines.gap(Gap::Space);
        // The end of the line is no word.
        while self.kind() != TokenKind::LineEnd {
            self.take();
        }
        self.flush_comments();
        self.at += 1;
    }

    /// A declaration or an expression, up to its semicolon.
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

    /// `struct NAME`, and its members if they follow.
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

    /// `enum { A, B }` on one line if it fits, else a line for each.
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

    /// One constant of an enumeration, with its comma.
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

    /// Tries to print on one line; takes everything back where it does not fit.
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

    /// Whether a name with `(` and, behind the matching `)`, a `{` comes before any `;` or `=`.
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

    /// Whether nothing at all lies between the brace at hand and the next one.
    fn no_comment_inside(&self) -> bool {
        let brace = self.tokens[self.at..].iter().position(|token| token.kind == TokenKind::Punct("{"));
        brace.is_some_and(|brace| self.tokens[self.at + brace + 1].kind == TokenKind::Punct("}"))
    }

    /// The keyword and its parenthesis.
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

    /// Whether the one simple statement at hand is followed by `else`.
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

    /// `case X:`; a conditional expression in it has colons of its own.
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

    /// What an `if` or a loop governs: a block behind it; a simple statement behind it too, if it may and fits; else on
    /// the next line.
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
