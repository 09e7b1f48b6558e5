//! Tokens to the syntax tree, by recursive descent. An error is reported where it is found; the parser then goes on
//! with the next statement, so that one run shows several.

mod declaration;
mod expression;
mod literal;
mod statement;

use crate::ast::{Ident, Text};
use crate::diagnostics::{Diagnostic, Sink, Span};
use crate::lexer::{Token, TokenKind, tokens};

/// How deep statements, and again expressions, may be nested. Whoever walks the tree, in whichever engine, recurs that
/// deep; a chain of as many operators counts as nested.
pub(crate) const MAX_NESTING: u32 = 128;

/// It has been reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

pub(crate) type Parsed<T> = Result<T, Failed>;

/// The tree of a text. What could not be parsed is reported, and missing in it.
pub(crate) fn parse(text: &str, sink: &mut Sink) -> Text {
    let tokens = tokens(text, sink)
        .into_iter()
        .filter(|token| !matches!(token.kind, TokenKind::LineComment | TokenKind::BlockComment))
        .collect();
    Parser { text, tokens, at: 0, depth: 0, too_deep: false, calls: Vec::new(), sink }.text()
}

struct Parser<'a> {
    text: &'a str,
    /// Without comments; the last one is the end.
    tokens: Vec<Token>,
    at: usize,
    depth: u32,
    /// Reported once: the levels above fail for the same reason.
    too_deep: bool,
    /// What has been called since this was taken last.
    calls: Vec<Ident>,
    sink: &'a mut Sink,
}

impl Parser<'_> {
    fn kind(&self) -> TokenKind {
        self.tokens[self.at].kind
    }

    fn kind_after(&self, more: usize) -> TokenKind {
        self.tokens[(self.at + more).min(self.tokens.len() - 1)].kind
    }

    fn span(&self) -> Span {
        self.tokens[self.at].span
    }

    /// The token before the one at hand.
    fn last_span(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    fn since(&self, start: Span) -> Span {
        start.to(self.last_span())
    }

    fn advance(&mut self) -> Token {
        let token = self.tokens[self.at];
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn at_punct(&self, punct: &str) -> bool {
        matches!(self.kind(), TokenKind::Punct(sign) if sign == punct)
    }

    fn at_keyword(&self, keyword: &str) -> bool {
        matches!(self.kind(), TokenKind::Keyword(word) if word == keyword)
    }

    fn take_punct(&mut self, punct: &str) -> bool {
        let there = self.at_punct(punct);
        if there {
            self.advance();
        }
        there
    }

    fn take_keyword(&mut self, keyword: &str) -> bool {
        let there = self.at_keyword(keyword);
        if there {
            self.advance();
        }
        there
    }

    /// Takes the punctuation or says what stands there in its place; `why` is what it is for.
    fn expect(&mut self, punct: &str, why: &str) -> Parsed<Span> {
        if self.at_punct(punct) {
            return Ok(self.advance().span);
        }
        let message = format!("`{punct}` is missing {why}");
        let found = self.found();
        // A closing sign is missed behind the last word, not before the next one, which may be lines below.
        let place = if self.starts_new_line() { self.last_span().after() } else { self.span() };
        self.fail(Diagnostic::new(place, message, format!("expected `{punct}`, found {found}")))
    }

    fn starts_new_line(&self) -> bool {
        let between = self.last_span().end as usize..self.span().start as usize;
        self.kind() == TokenKind::End || self.text.get(between).is_some_and(|gap| gap.contains('\n'))
    }

    /// The token at hand, for a message.
    fn found(&self) -> String {
        match self.kind() {
            TokenKind::End => "the end of the text".to_owned(),
            TokenKind::LineEnd => "the end of the line".to_owned(),
            TokenKind::Name => format!("the name `{}`", self.span().of(self.text)),
            _ => format!("`{}`", self.span().of(self.text)),
        }
    }

    fn report(&mut self, error: Diagnostic) {
        // Nothing is read behind what was too deep: what is missing there is not missed.
        if !self.too_deep {
            self.sink.push(error);
        }
    }

    fn fail<T>(&mut self, error: Diagnostic) -> Parsed<T> {
        self.report(error);
        Err(Failed)
    }

    /// Goes one level down for `inner`, unless that is too deep.
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_NESTING {
            return self.fail_too_deep(self.span());
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn fail_too_deep<T>(&mut self, span: Span) -> Parsed<T> {
        let message = format!("nested more than {MAX_NESTING} levels deep");
        let error = Diagnostic::new(span, message, "one level too many");
        self.report(error.help("give a part a name of its own: `long part = …;`, or make a function of it"));
        self.too_deep = true;
        // Nothing behind it would be read as it was meant.
        self.at = self.tokens.len() - 1;
        Err(Failed)
    }
}
