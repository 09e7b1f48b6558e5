//! Which two words on a line have a space between them.

use crate::lexer::TokenKind;

/// What is known of the words before.
#[derive(Clone, Debug, Default)]
pub(super) struct Spacing {
    last: Last,
    /// For each open bracket: whether it opened a conversion, `(int)`.
    brackets: Vec<bool>,
    /// Within a statement, not between two.
    inside: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Start,
    /// A name, a number, a closing bracket: an operator behind it takes two sides.
    Value,
    /// A name, so that `(` behind it is a call.
    Name,
    /// `sizeof`.
    Sizeof,
    /// A word of the language.
    Keyword,
    /// A conversion's `)`.
    Cast,
    /// `++` or `--` before its operand, `-`, `!`, `~`: the sign.
    Prefix(u8),
    /// `(`, `[`, `{`.
    Open,
    /// `.`
    Dot,
    /// Other operators.
    Operator,
    /// `,` and `;`.
    Separator,
    Comment,
}

pub(super) struct Wanted {
    pub space: bool,
    /// A line may end before this word.
    pub may_break: bool,
}

impl Spacing {
    /// Takes the next word and says what it wants before it.
    pub fn next(&mut self, kind: TokenKind, word: &str) -> Wanted {
        let before = self.last;
        if let (Last::Open, Some(conversion)) = (before, self.brackets.last_mut()) {
            *conversion &= is_type(kind, word);
        }
        self.inside = !matches!(word, ";" | "{" | "}");
        self.last = self.classify(kind, word);
        // Behind a comma, or before an operator with two sides.
        let may_break = before == Last::Separator || self.last == Last::Operator && word != "=";
        Wanted { space: self.space(before, kind, word), may_break }
    }

    /// A statement begins.
    pub fn begin(&mut self) {
        self.last = if self.last == Last::Start { Last::Start } else { Last::Keyword };
        self.inside = false;
    }

    pub fn comment(&mut self) {
        if self.last != Last::Start {
            self.last = match self.last {
                // What follows a value behind a comment is still an operator of two sides.
                Last::Value | Last::Name => Last::Value,
                Last::Cast => Last::Cast,
                _ => Last::Comment,
            };
        }
    }

    /// Whether the last word left a statement unfinished.
    pub fn inside(&self) -> bool {
        self.inside
    }

    fn classify(&mut self, kind: TokenKind, word: &str) -> Last {
        let value_before = matches!(self.last, Last::Value | Last::Name);
        match (kind, word) {
            (TokenKind::Name, _) => Last::Name,
            (TokenKind::Number | TokenKind::Character, _) => Last::Value,
            (TokenKind::Keyword("sizeof"), _) => Last::Sizeof,
            (TokenKind::Keyword(_) | TokenKind::Define, _) => Last::Keyword,
            (_, "(" | "[" | "{") => {
                // Whether it is a conversion is seen when its first word comes.
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

/// Whether a bracket that begins with this word is a conversion.
fn is_type(kind: TokenKind, word: &str) -> bool {
    let of_stdint = word.ends_with("_t") && (word.starts_with("int") || word.starts_with("uint"));
    matches!(kind, TokenKind::Keyword(word) if word != "sizeof") || of_stdint
}
