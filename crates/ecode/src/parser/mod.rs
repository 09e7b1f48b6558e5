//! Parses tokens into the syntax tree, by recursive descent. After an error the parser continues with the next
//! statement, so that one run shows several errors.

mod declaration;
mod expression;
mod literal;
mod statement;
mod typedefs;

use crate::ast::{Ident, Text};
use crate::diagnostics::{Diagnostic, Sink, Span};
use crate::lexer::{Token, TokenKind, tokens};
use typedefs::Typedefs;

/// Deepest nesting of statements, and separately of expressions. Every walk over the tree recurs to this depth. A
/// chain of operators counts as nested.
pub(crate) const MAX_NESTING: u32 = 128;

/// An error has been reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

pub(crate) type Parsed<T> = Result<T, Failed>;

/// Returns the tree of a text. Reports parts with syntax errors and leaves them out of the tree.
pub(crate) fn parse(text: &str, sink: &mut Sink) -> Text {
    let tokens = tokens(text, sink)
        .into_iter()
        .filter(|token| !matches!(token.kind, TokenKind::LineComment | TokenKind::BlockComment))
        .collect();
    Parser { text, tokens, at: 0, depth: 0, too_deep: false, calls: Vec::new(), typedefs: Typedefs::default(), sink }
        .text()
}

struct Parser<'a> {
    text: &'a str,
    /// The tokens without comments; the last one is [`TokenKind::End`].
    tokens: Vec<Token>,
    at: usize,
    depth: u32,
    /// Set when nesting exceeds the limit, so that the outer levels do not report the same error.
    too_deep: bool,
    /// Names of the called functions since the list was last taken.
    calls: Vec<Ident>,
    typedefs: Typedefs,
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

    /// The token before the current one.
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

    /// Takes the punctuation, or reports what stands in its place. `why` names its purpose.
    fn expect(&mut self, punct: &str, why: &str) -> Parsed<Span> {
        if self.at_punct(punct) {
            return Ok(self.advance().span);
        }
        let message = format!("`{punct}` is missing {why}");
        let found = self.found();
        // At the end of a line, mark the place after the last token: the next token may be several lines below.
        let place = if self.starts_new_line() { self.last_span().after() } else { self.span() };
        self.fail(Diagnostic::new(place, message, format!("expected `{punct}`, found {found}")))
    }

    fn starts_new_line(&self) -> bool {
        let between = self.last_span().end as usize..self.span().start as usize;
        self.kind() == TokenKind::End || self.text.get(between).is_some_and(|gap| gap.contains('\n'))
    }

    /// The current token, for a message.
    fn found(&self) -> String {
        match self.kind() {
            TokenKind::End => "the end of the text".to_owned(),
            TokenKind::LineEnd => "the end of the line".to_owned(),
            TokenKind::Name => format!("the name `{}`", self.span().of(self.text)),
            _ => format!("`{}`", self.span().of(self.text)),
        }
    }

    fn report(&mut self, error: Diagnostic) {
        // After nesting beyond the limit the rest of the text is skipped, so errors there would be consequences.
        if !self.too_deep {
            self.sink.push(error);
        }
    }

    fn fail<T>(&mut self, error: Diagnostic) -> Parsed<T> {
        self.report(error);
        Err(Failed)
    }

    /// Runs `inner` one level deeper, or fails at the limit.
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
        let error = Diagnostic::new(span, message, "this level exceeds the limit");
        self.report(error.help("store a part in a variable, `long part = …;`, or move it into a function"));
        self.too_deep = true;
        // Skip the rest of the text: its structure is unknown.
        self.at = self.tokens.len() - 1;
        Err(Failed)
    }
}
