//! Decides whether two adjacent tokens are separated by a space.

use crate::lexer::TokenKind;

/// The facts about the previous tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Spacing {
    last: Last,
    /// For each open bracket: whether it belongs to a conversion such as `(int)`.
    brackets: Vec<bool>,
    /// True inside a statement, false between two statements.
    inside: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Start,
    /// A name, a number or a closing bracket: an operator after it is binary.
    Value,
    /// A name: `(` after it begins the arguments of a call.
    Name,
    Sizeof,
    Keyword,
    /// The `)` of a conversion.
    Cast,
    /// The sign of a prefix operator: `++` or `--` before its operand, `-`, `!`, `~`.
    Prefix(u8),
    Open,
    Dot,
    Operator,
    Separator,
    Comment,
}

pub(super) struct Wanted {
    pub space: bool,
    /// The line may be broken before this token.
    pub may_break: bool,
}

impl Spacing {
    /// Takes the next token and returns the space it needs before it.
    pub(super) fn next(&mut self, kind: TokenKind, word: &str) -> Wanted {
        let before = self.last;
        if let (Last::Open, Some(conversion)) = (before, self.brackets.last_mut()) {
            *conversion &= is_type(kind, word);
        }
        self.inside = !matches!(word, ";" | "{" | "}");
        self.last = self.classify(kind, word);
        // A line may be broken after a comma and before a binary operator.
        let may_break = before == Last::Separator || self.last == Last::Operator && word != "=";
        Wanted { space: self.space(before, kind, word), may_break }
    }

    /// Begins a statement.
    pub(super) fn begin(&mut self) {
        self.last = if self.last == Last::Start { Last::Start } else { Last::Keyword };
        self.inside = false;
    }

    pub(super) fn comment(&mut self) {
        if self.last != Last::Start {
            self.last = match self.last {
                // An operator after a value and a comment is still binary.
                Last::Value | Last::Name => Last::Value,
                Last::Cast => Last::Cast,
                _ => Last::Comment,
            };
        }
    }

    /// Whether the last token left a statement unfinished.
    pub(super) fn inside(&self) -> bool {
        self.inside
    }

    fn classify(&mut self, kind: TokenKind, word: &str) -> Last {
        let value_before = matches!(self.last, Last::Value | Last::Name);
        match (kind, word) {
            (TokenKind::Name, _) => Last::Name,
            (TokenKind::Number | TokenKind::Character | TokenKind::Text, _) => Last::Value,
            (TokenKind::Keyword("sizeof"), _) => Last::Sizeof,
            (TokenKind::Keyword(_) | TokenKind::Define, _) => Last::Keyword,
            (_, "(" | "[" | "{") => {
                // The first token inside the bracket decides whether it is a conversion.
                self.brackets.push(word == "(" && !value_before && self.last != Last::Sizeof);
                Last::Open
            }
            (_, ")" | "]" | "}") => match self.brackets.pop() {
                Some(true) if word == ")" => Last::Cast,
                _ => Last::Value,
            },
            (_, "++" | "--") if value_before => Last::Value,
            (_, "++" | "--" | "!" | "~") => Last::Prefix(word.as_bytes()[0]),
            (_, "+" | "-") if !value_before => Last::Prefix(word.as_bytes()[0]),
            (_, ".") => Last::Dot,
            (_, "," | ";") => Last::Separator,
            _ => Last::Operator,
        }
    }

    fn space(&self, before: Last, kind: TokenKind, word: &str) -> bool {
        let word = match kind {
            TokenKind::Punct(sign) => sign,
            _ => word,
        };
        match (before, word) {
            (Last::Start, _) => false,
            (_, ")" | "]" | "," | ";" | "." | "}") => false,
            (Last::Name | Last::Sizeof | Last::Value, "(") | (_, "[") => false,
            (Last::Value | Last::Name, "++" | "--") => false,
            (Last::Prefix(sign), next) => next.as_bytes().first() == Some(&sign),
            (Last::Open | Last::Dot | Last::Cast, _) => false,
            _ => true,
        }
    }
}

/// Whether a bracket that starts with this token is a conversion.
fn is_type(kind: TokenKind, word: &str) -> bool {
    let of_stdint = word.ends_with("_t") && (word.starts_with("int") || word.starts_with("uint"));
    matches!(kind, TokenKind::Keyword(word) if word != "sizeof") || of_stdint
}
