//! Parses integer and character literals, with the types that C gives them on LP64.

use qfabric_types::format::Scalar;

use super::Parser;
use crate::ast::{Expr, ExprKind};
use crate::diagnostics::{Diagnostic, Span};
use crate::lexer::{TokenKind, is_float};

impl Parser<'_> {
    /// Parses the current number. An invalid number is reported and becomes 0, so that parsing can continue.
    pub(super) fn number(&mut self) -> Expr {
        let span = self.advance().span;
        let word = span.of(self.text);
        let read = if is_float(word) { float(word) } else { integer(word) };
        let (value, ty) = read.unwrap_or_else(|(message, help)| {
            self.report(Diagnostic::new(span, message, "this number").help(help));
            (0, Scalar::I32)
        });
        Expr::new(ExprKind::Int(value, ty), span)
    }

    pub(super) fn character(&mut self) -> Expr {
        let span = self.advance().span;
        let quoted = span.of(self.text);
        let value = character(&quoted[1..quoted.len() - 1]).unwrap_or_else(|| {
            let error = Diagnostic::new(span, format!("{quoted} is not one character"), "expected one character");
            self.report(error.help("write one ASCII character, or one of \\n \\t \\r \\0 \\\\ \\' \\xHH"));
            0
        });
        Expr::new(ExprKind::Int(value, Scalar::I32), span)
    }
}

impl Parser<'_> {
    /// Parses strings in quotes, one or several in a row.
    pub(super) fn string(&mut self) -> Expr {
        let start = self.span();
        let mut text = Vec::new();
        while self.kind() == TokenKind::Text {
            let span = self.advance().span;
            let quoted = span.of(self.text);
            let mut rest = &quoted[1..quoted.len() - 1];
            while let Some(length) = next_character(rest) {
                let (one, after) = rest.split_at(length);
                match one.as_bytes() {
                    [b'\\', ..] => match character(one) {
                        Some(value) => text.push(value as u8),
                        None => self.refuse_escape(span, one),
                    },
                    plain => text.extend(plain),
                }
                rest = after;
            }
        }
        Expr::new(ExprKind::Text(text), self.since(start))
    }

    fn refuse_escape(&mut self, span: Span, escape: &str) {
        let error = Diagnostic::new(span, format!("`{escape}` is not an escape sequence"), "in this string");
        self.report(error.help("write \\n, \\t, \\r, \\0, \\\\, \\\" or \\xHH"));
    }
}

/// Length of the first character or escape sequence; `None` at the end.
fn next_character(text: &str) -> Option<usize> {
    let mut letters = text.chars();
    let first = letters.next()?;
    if first != '\\' {
        return Some(first.len_utf8());
    }
    let digits = |radix: u32, from: usize, most: usize| {
        let digits = text[from..].bytes().take(most);
        from + digits.take_while(|digit| char::from(*digit).is_digit(radix)).count()
    };
    Some(match letters.next() {
        Some('x') => digits(16, 2, 2),
        Some('0'..='7') => digits(8, 1, 3),
        Some(other) => 1 + other.len_utf8(),
        None => 1,
    })
}

type Wrong = (String, String);

/// A `double`, or a `float` with the suffix `f`: the nearest number of its type.
fn float(word: &str) -> Result<(i64, Scalar), Wrong> {
    let malformed = || {
        let help = "numbers with a fraction are decimal: 0.5, 1e-3, 2.5f; a number in the form 0x1p3 is not supported";
        (format!("`{word}` is not a number"), help.to_owned())
    };
    if word.starts_with("0x") || word.starts_with("0X") {
        return Err(malformed());
    }
    match word.strip_suffix(['f', 'F']) {
        Some(digits) => {
            let number: f32 = digits.parse().map_err(|_| malformed())?;
            Ok((i64::from(number.to_bits()), Scalar::F32))
        }
        None => {
            let number: f64 = word.parse().map_err(|_| malformed())?;
            Ok((number.to_bits() as i64, Scalar::F64))
        }
    }
}

fn integer(word: &str) -> Result<(i64, Scalar), Wrong> {
    let lower = word.to_ascii_lowercase();
    let digits = lower.trim_end_matches(['u', 'l']);
    let (unsigned, long) = suffix(&lower[digits.len()..]).ok_or_else(|| malformed(word))?;
    let (radix, digits) = radix(digits);
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(malformed(word));
    }
    let value = u64::from_str_radix(digits, radix).map_err(|_| too_large(word))?;
    let ty = literal_type(value, radix == 10, unsigned, long).ok_or_else(|| needs_suffix(word))?;
    Ok((value as i64, ty))
}

/// Returns whether the suffix means unsigned, and whether it means long.
fn suffix(suffix: &str) -> Option<(bool, bool)> {
    match suffix {
        "" => Some((false, false)),
        "u" => Some((true, false)),
        "l" | "ll" => Some((false, true)),
        "ul" | "lu" | "ull" | "llu" => Some((true, true)),
        _ => None,
    }
}

fn radix(digits: &str) -> (u32, &str) {
    match digits.as_bytes() {
        [b'0', b'x', ..] => (16, &digits[2..]),
        [b'0', b'b', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    }
}

/// The first type in C's list (C11 6.4.4.1) that can hold the value.
fn literal_type(value: u64, decimal: bool, unsigned: bool, long: bool) -> Option<Scalar> {
    let fits = |ty: &Scalar| if ty.signed { value >> (ty.bits - 1) == 0 } else { value >> (ty.bits - 1) <= 1 };
    let candidates = [Scalar::I32, Scalar::U32, Scalar::I64, Scalar::U64];
    let allowed = |ty: &&Scalar| {
        (!long || ty.bits == 64) && (!unsigned || !ty.signed) && (ty.signed || unsigned || !decimal) && fits(ty)
    };
    candidates.iter().find(allowed).copied()
}

fn malformed(word: &str) -> Wrong {
    let help = "numbers are decimal (42), hexadecimal (0x2a), octal (052) or binary (0b101010); a suffix is u, l or ul";
    (format!("`{word}` is not a number"), help.to_owned())
}

fn too_large(word: &str) -> Wrong {
    (format!("`{word}` does not fit into 64 bits"), "the largest number is 18446744073709551615ul".to_owned())
}

fn needs_suffix(word: &str) -> Wrong {
    let help = format!("write an unsigned number: `{word}ul`");
    (format!("`{word}` does not fit into a `long`, whose largest value is 9223372036854775807"), help)
}

/// The value of the text between the quotes, as a signed `char`.
fn character(quoted: &str) -> Option<i64> {
    let value = match quoted.as_bytes() {
        [plain @ 0x20..=0x7e] if *plain != b'\\' => *plain,
        [b'\\', b'x', hex @ ..] => u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?,
        [b'\\', octal @ (b'0'..=b'7'), rest @ ..] if rest.len() < 3 => {
            let digits = quoted.get(1..).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))?;
            u8::from_str_radix(digits, 8).ok().filter(|_| *octal <= b'7')?
        }
        [b'\\', letter] => escape(*letter)?,
        _ => return None,
    };
    Some(i64::from(value as i8))
}

fn escape(letter: u8) -> Option<u8> {
    Some(match letter {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'v' => 11,
        b'\\' | b'\'' | b'"' | b'?' => letter,
        _ => return None,
    })
}
