//! Splits a source text into tokens. Comments are tokens too: the pretty printer keeps them, the parser skips
//! them.

use crate::diagnostics::{Diagnostic, Sink, Span};

/// Longest accepted source text, in bytes.
pub(crate) const MAX_SOURCE: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Name,
    Keyword(&'static str),
    Punct(&'static str),
    /// An integer with its suffix. The parser reads the value.
    Number,
    Character,
    /// A string in quotes.
    Text,
    /// `#define`.
    Define,
    /// The end of a line that began with `#define`.
    LineEnd,
    /// `// …`, without its newline.
    LineComment,
    /// `/* … */`.
    BlockComment,
    End,
}

/// The keywords. Some are listed only so that the parser can refuse them with a clear message.
const KEYWORDS: &[&str] = &[
    "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "float", "for", "goto",
    "if", "int", "long", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union",
    "unsigned", "void", "while",
];

/// Longest first, so that the first match is the right one.
const PUNCTUATION: &[&str] = &[
    "<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=", "/=",
    "%=", "&=", "^=", "|=", "(", ")", "[", "]", "{", "}", ".", "&", "*", "+", "-", "~", "!", "/", "%", "<", ">", "^",
    "|", "?", ":", ";", "=", ",",
];

/// Returns all tokens of a text, closed by a [`TokenKind::End`]. Reports and skips characters that form no token.
pub(crate) fn tokens(text: &str, sink: &mut Sink) -> Vec<Token> {
    if text.len() > MAX_SOURCE {
        sink.push(too_long(text));
        return vec![Token { kind: TokenKind::End, span: Span::new(0, 0) }];
    }
    // A byte order mark, which some editors put at the start of a file.
    let at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut lexer = Lexer { text, at, in_define: false, tokens: Vec::new(), sink };
    while lexer.step() {}
    lexer.tokens
}

fn too_long(text: &str) -> Diagnostic {
    let message = format!("the text has {} bytes, the limit is {MAX_SOURCE}", text.len());
    Diagnostic::new(Span::new(0, 0), message, "this text is too long")
        .help("split the program into several handlers and install each of them for its own service")
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    in_define: bool,
    tokens: Vec<Token>,
    sink: &'a mut Sink,
}

impl Lexer<'_> {
    /// Reads one token, or the white space between two. Returns false after the last token.
    fn step(&mut self) -> bool {
        let rest = &self.text.as_bytes()[self.at..];
        match rest {
            [] => return self.end(),
            [b'\n', ..] => self.newline(),
            [b'\\', b'\n', ..] => self.at += 2,
            [b'\\', b'\r', b'\n', ..] => self.at += 3,
            [b' ' | b'\t' | b'\r' | 0x0b | 0x0c, ..] => self.at += 1,
            [b'/', b'/', ..] => self.line_comment(),
            [b'/', b'*', ..] => self.block_comment(),
            [b'#', ..] => self.directive(),
            [b'\'', ..] => self.character(),
            [b'"', ..] => self.string(),
            [b'.', b'0'..=b'9', ..] | [b'0'..=b'9', ..] => self.number(),
            [first, ..] if is_name_byte(*first) => self.name(),
            _ => self.punctuation(),
        }
        true
    }

    fn push(&mut self, kind: TokenKind, end: usize) -> Span {
        let span = Span::new(self.at, end);
        self.tokens.push(Token { kind, span });
        self.at = end;
        span
    }

    fn end(&mut self) -> bool {
        if self.in_define {
            self.push(TokenKind::LineEnd, self.at);
        }
        self.push(TokenKind::End, self.at);
        false
    }

    fn newline(&mut self) {
        if std::mem::take(&mut self.in_define) {
            self.push(TokenKind::LineEnd, self.at);
        }
        self.at += 1;
    }

    /// Returns the end of the bytes, starting at `from`, for which `belongs` holds.
    fn run(&self, from: usize, belongs: impl Fn(u8) -> bool) -> usize {
        let bytes = &self.text.as_bytes()[from..];
        from + bytes.iter().position(|byte| !belongs(*byte)).unwrap_or(bytes.len())
    }

    fn line_comment(&mut self) {
        let end = self.run(self.at, |byte| byte != b'\n');
        let trimmed = self.text[self.at..end].trim_end().len();
        self.push(TokenKind::LineComment, self.at + trimmed);
        self.at = end;
    }

    fn block_comment(&mut self) {
        match self.text[self.at + 2..].find("*/") {
            Some(length) => {
                self.push(TokenKind::BlockComment, self.at + 2 + length + 2);
            }
            None => {
                let open = Span::new(self.at, self.at + 2);
                self.sink
                    .push(Diagnostic::new(open, "this comment has no end", "it starts here").help("end it with `*/`"));
                self.at = self.text.len();
            }
        }
    }

    fn directive(&mut self) {
        let end = self.run(self.at + 1, is_name_byte);
        if &self.text[self.at..end] == "#define" {
            self.push(TokenKind::Define, end);
            self.in_define = true;
            return;
        }
        let line = self.run(self.at, |byte| byte != b'\n');
        let error = Diagnostic::new(
            Span::new(self.at, end),
            format!("`{}` is not supported", &self.text[self.at..end]),
            "the only directive is `#define NAME constant`",
        );
        self.sink.push(error.help("write the declarations into this text"));
        self.at = line;
    }

    fn character(&mut self) {
        let mut end = self.at + 1;
        let bytes = self.text.as_bytes();
        while end < bytes.len() && bytes[end] != b'\'' && bytes[end] != b'\n' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        if end >= bytes.len() || bytes[end] != b'\'' {
            let open = Span::new(self.at, self.at + 1);
            let error = Diagnostic::new(open, "this character has no closing `'`", "it starts here");
            self.sink.push(error.help("write one character between two quotes, such as 'a' or '\\n'"));
            self.at = self.run(self.at, |byte| byte != b'\n');
            return;
        }
        self.push(TokenKind::Character, end + 1);
    }

    fn string(&mut self) {
        let mut end = self.at + 1;
        let bytes = self.text.as_bytes();
        while end < bytes.len() && bytes[end] != b'"' && bytes[end] != b'\n' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        if end >= bytes.len() || bytes[end] != b'"' {
            let open = Span::new(self.at, self.at + 1);
            let error = Diagnostic::new(open, "this string has no closing `\"`", "it starts here");
            self.sink.push(error.help("end it with `\"` on the same line"));
            self.at = self.run(self.at, |byte| byte != b'\n');
            return;
        }
        self.push(TokenKind::Text, end + 1);
    }

    fn number(&mut self) {
        let mut end = self.at;
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(end) {
            let exponent = matches!(byte, b'+' | b'-')
                && matches!(bytes[end - 1], b'e' | b'E' | b'p' | b'P')
                && is_float(&self.text[self.at..end]);
            if !(is_name_byte(*byte) || *byte == b'.' || exponent) {
                break;
            }
            end += 1;
        }
        self.push(TokenKind::Number, end);
    }

    fn name(&mut self) {
        let end = self.run(self.at, is_name_byte);
        let word = &self.text[self.at..end];
        let keyword = KEYWORDS.binary_search(&word).ok().map(|place| TokenKind::Keyword(KEYWORDS[place]));
        self.push(keyword.unwrap_or(TokenKind::Name), end);
    }

    fn punctuation(&mut self) {
        let rest = &self.text[self.at..];
        if let Some(punct) = PUNCTUATION.iter().find(|punct| rest.starts_with(**punct)) {
            self.push(TokenKind::Punct(punct), self.at + punct.len());
            return;
        }
        self.unknown();
    }

    fn unknown(&mut self) {
        let first = self.text[self.at..].chars().next().expect("the text goes on");
        if first.is_alphanumeric() {
            return self.foreign_letters();
        }
        let end = self.at + first.len_utf8();
        let message = format!("`{}` is not a character of E-code", first.escape_debug());
        let error = Diagnostic::new(Span::new(self.at, end), message, "this character");
        self.sink.push(match quote(first) {
            Some(plain) => error.help(format!("it looks like a typographic sign; write `{plain}`")),
            None => error.help("only ASCII characters are allowed outside comments: remove it"),
        });
        self.at = end;
    }

    /// Letters of other alphabets. They become part of a name, because the author meant a name.
    fn foreign_letters(&mut self) {
        let rest = &self.text[self.at..];
        let length = rest.find(|letter: char| !(letter.is_alphanumeric() || letter == '_')).unwrap_or(rest.len());
        let span = Span::new(self.at, self.at + length);
        let message = format!("`{}` cannot be part of a name", span.of(self.text));
        let error = Diagnostic::new(span, message, "not a letter from a to z");
        self.sink.push(error.help("a name consists of the letters a to z and A to Z, digits and _"));
        match self.tokens.last_mut().filter(|last| last.kind == TokenKind::Name && last.span.end == span.start) {
            Some(name) => name.span.end = span.end,
            None => self.tokens.push(Token { kind: TokenKind::Name, span }),
        }
        self.at = span.end as usize;
    }
}

/// The ASCII sign that a word processor replaced with this typographic one.
fn quote(typographic: char) -> Option<char> {
    match typographic {
        '‘' | '’' | '`' | '´' => Some('\''),
        '“' | '”' | '„' | '«' | '»' => Some('"'),
        '–' | '—' | '−' => Some('-'),
        _ => None,
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether a number has a fraction or an exponent.
pub(crate) fn is_float(word: &str) -> bool {
    let hex = word.starts_with("0x") || word.starts_with("0X");
    word.contains('.') || word.contains(if hex { ['p', 'P'] } else { ['e', 'E'] })
}
