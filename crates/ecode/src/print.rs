//! `printf`: the format in a text, and the lines that a host reads.
//!
//! A call stores its values in a ring in the program's statics, so every engine prints without code of its own, and a
//! handler at any hook prints at the cost of a few stores. The host formats the records when a user asks for them.
//! Nothing waits and nothing grows: the ring keeps the last [`Prints::KEPT`] calls.

use std::fmt::Write;

use qfabric_types::text::is_plain;

/// The calls of `printf` of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prints {
    /// Place of the ring in the statics: the number of calls so far, then the records.
    pub(crate) offset: u32,
    /// By the number of the call in the text.
    pub(crate) sites: Vec<Vec<Piece>>,
}

/// A part of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    Value(Conversion),
}

/// `%-08.3lf` and its like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conversion {
    left: bool,
    zeros: bool,
    plus: bool,
    width: u8,
    pub(crate) precision: Option<u8>,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Signed,
    Unsigned,
    Hex,
    UpperHex,
    Octal,
    Character,
    /// The characters of an array up to the first zero, at most this number of bytes. The checker sets the number.
    Text(u8),
    Fixed,
    Exponent,
    General,
}

/// Largest width and precision.
const MOST_WIDTH: u32 = 64;
/// Longest line that a host shows, in characters.
const MOST_CHARACTERS: usize = 256;

impl Prints {
    /// Number of calls whose records the ring keeps.
    pub const KEPT: u32 = 16;
    /// Largest number of values of a call, and of the words that they take.
    pub(crate) const MOST_VALUES: usize = 6;
    /// Largest number of bytes of a string that a call shows.
    pub(crate) const MOST_BYTES: u8 = 8 * Self::MOST_VALUES as u8;
    /// Bytes of a record: the tag and the values.
    pub(crate) const RECORD: u32 = 8 * (1 + Self::MOST_VALUES as u32);
    /// Bytes of the ring.
    pub(crate) const BYTES: u32 = 8 + Self::KEPT * Self::RECORD;
    /// Bits of a tag for the number of the call in the text. The others are the number of the call since the start, plus
    /// 1. While a record is written, its tag is 0.
    pub(crate) const SITE_BITS: u32 = 8;

    /// Whether the program prints.
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// The number of calls so far, and the lines of the last ones. `word` reads eight bytes of the statics. A record that
    /// is written at the same time is left out.
    pub fn read(&self, word: impl Fn(u32) -> u64) -> (u64, Vec<String>) {
        if self.is_empty() {
            return (0, Vec::new());
        }
        let calls = word(self.offset);
        let first = calls.saturating_sub(Self::KEPT.into());
        (calls, (first..calls).filter_map(|call| self.line(call, &word)).collect())
    }

    fn line(&self, call: u64, word: &impl Fn(u32) -> u64) -> Option<String> {
        let record = self.offset + 8 + (call % u64::from(Self::KEPT)) as u32 * Self::RECORD;
        let tag = word(record);
        let values: Vec<u64> = (1..=Self::MOST_VALUES as u32).map(|value| word(record + 8 * value)).collect();
        let is_whole = tag >> Self::SITE_BITS == call + 1 && word(record) == tag;
        let site = self.sites.get((tag & ((1 << Self::SITE_BITS) - 1)) as usize)?;
        is_whole.then(|| shown(site, &values))
    }
}

/// The line of a record, without characters that change a terminal and without a line end.
fn shown(site: &[Piece], values: &[u64]) -> String {
    let mut values = values.iter().copied();
    let mut line = String::new();
    for piece in site {
        match piece {
            Piece::Text(text) => line += text,
            Piece::Value(conversion) => {
                let words: Vec<u64> = values.by_ref().take(conversion.kind.words()).collect();
                conversion.append(&mut line, &words);
            }
        }
    }
    let line = line.strip_suffix('\n').unwrap_or(&line);
    line.chars().map(|c| if is_plain(c) { c } else { '?' }).take(MOST_CHARACTERS).collect()
}

/// The parts of a format; the error is the reason for a refusal.
pub(crate) fn parse(format: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut text, mut left) = (Vec::new(), String::new(), format);
    while let Some(c) = left.chars().next() {
        left = &left[c.len_utf8()..];
        if c != '%' {
            text.push(c);
        } else if let Some(rest) = left.strip_prefix('%') {
            text.push('%');
            left = rest;
        } else {
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(Piece::Value(conversion(&mut left)?));
        }
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

/// Reads a conversion behind its `%`.
fn conversion(left: &mut &str) -> Result<Conversion, String> {
    let flags = taken(left, |c| "-0+".contains(c));
    let width = number(taken(left, |c| c.is_ascii_digit()), "width")?.unwrap_or(0);
    let precision = match left.strip_prefix('.') {
        Some(rest) => {
            *left = rest;
            Some(number(taken(left, |c| c.is_ascii_digit()), "precision")?.unwrap_or(0))
        }
        None => None,
    };
    // A value carries its own size.
    taken(left, |c| "hlzj".contains(c));
    let letter = left.chars().next();
    let kind = match letter {
        Some('d' | 'i') => Kind::Signed,
        Some('u') => Kind::Unsigned,
        Some('x') => Kind::Hex,
        Some('X') => Kind::UpperHex,
        Some('o') => Kind::Octal,
        Some('c') => Kind::Character,
        Some('s') => Kind::Text(0),
        Some('f') => Kind::Fixed,
        Some('e') => Kind::Exponent,
        Some('g') => Kind::General,
        Some(other) => return Err(format!("`%{other}` is not offered")),
        None => return Err("the format ends within a conversion".to_owned()),
    };
    *left = &left[1..];
    let has = |flag: char| flags.contains(flag);
    Ok(Conversion { left: has('-'), zeros: has('0') && !has('-'), plus: has('+'), width, precision, kind })
}

/// Takes the characters for which `is` holds from the start.
fn taken<'a>(left: &mut &'a str, is: impl Fn(char) -> bool) -> &'a str {
    let end = left.find(|c: char| !is(c)).unwrap_or(left.len());
    let (taken, rest) = left.split_at(end);
    *left = rest;
    taken
}

fn number(digits: &str, what: &str) -> Result<Option<u8>, String> {
    if digits.is_empty() {
        return Ok(None);
    }
    match digits.parse::<u32>() {
        Ok(number) if number <= MOST_WIDTH => Ok(Some(number as u8)),
        _ => Err(format!("the {what} {digits} exceeds the limit, {MOST_WIDTH}")),
    }
}

impl Kind {
    pub(crate) fn is_float(self) -> bool {
        matches!(self, Kind::Fixed | Kind::Exponent | Kind::General)
    }

    /// Number of words of a record that the value takes.
    fn words(self) -> usize {
        if let Kind::Text(bytes) = self { usize::from(bytes).div_ceil(8).max(1) } else { 1 }
    }
}

impl Conversion {
    /// Appends the value. Its word is what the checker's conversion makes: a `long`, or the bits of a `double`. A
    /// string may have several words.
    fn append(&self, line: &mut String, words: &[u64]) {
        let word = words.first().copied().unwrap_or_default();
        let float = f64::from_bits(word);
        let (negative, digits) = match self.kind {
            Kind::Signed => ((word as i64) < 0, self.digits((word as i64).unsigned_abs().to_string())),
            Kind::Unsigned => (false, self.digits(word.to_string())),
            Kind::Hex => (false, self.digits(format!("{word:x}"))),
            Kind::UpperHex => (false, self.digits(format!("{word:X}"))),
            Kind::Octal => (false, self.digits(format!("{word:o}"))),
            Kind::Character => (false, char::from(word as u8).to_string()),
            Kind::Text(bytes) => (false, characters(words, bytes)),
            _ => (float.is_sign_negative() && !float.is_nan(), self.float(float.abs())),
        };
        let has_sign = self.plus && (self.kind == Kind::Signed || self.kind.is_float());
        let sign = if negative {
            "-"
        } else if has_sign {
            "+"
        } else {
            ""
        };
        let fill = usize::from(self.width).saturating_sub(sign.len() + digits.chars().count());
        let zeros = self.zeros
            && !matches!(self.kind, Kind::Character | Kind::Text(_))
            && match self.kind.is_float() {
                true => float.is_finite(),
                false => self.precision.is_none(),
            };
        let (before, between, after) = match (self.left, zeros) {
            (true, _) => (0, 0, fill),
            (false, true) => (0, fill, 0),
            (false, false) => (fill, 0, 0),
        };
        // Writing into a string cannot fail.
        let _ = write!(line, "{:before$}{sign}{:0<between$}{digits}{:after$}", "", "", "");
    }

    /// The precision of an integer is its least number of digits.
    fn digits(&self, digits: String) -> String {
        format!("{digits:0>least$}", least = usize::from(self.precision.unwrap_or(1)))
    }

    fn float(&self, value: f64) -> String {
        if !value.is_finite() {
            return if value.is_nan() { "nan" } else { "inf" }.to_owned();
        }
        let precision = usize::from(self.precision.unwrap_or(6));
        match self.kind {
            Kind::Fixed => format!("{value:.precision$}"),
            Kind::Exponent => scientific(value, precision).0,
            _ => general(value, precision.max(1)),
        }
    }
}

/// The characters before the first zero byte, at most `bytes` bytes.
fn characters(words: &[u64], bytes: u8) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).take(bytes.into());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `1.5e+03`, and the exponent.
fn scientific(value: f64, precision: usize) -> (String, i32) {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    (format!("{digits}e{sign}{:02}", exponent.unsigned_abs()), exponent)
}

/// `%g`: the shorter form, without zeros at the end of the fraction.
fn general(value: f64, precision: usize) -> String {
    let (text, exponent) = scientific(value, precision - 1);
    let short = |digits: &str| match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    if exponent < -4 || exponent >= precision as i32 {
        let (digits, power) = text.split_once('e').unwrap_or((&text, ""));
        return format!("{}e{power}", short(digits));
    }
    short(&format!("{value:.fraction$}", fraction = (precision as i32 - 1 - exponent) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(format: &str, values: &[u64]) -> String {
        shown(&parse(format).unwrap(), values)
    }

    #[test]
    fn integers_are_shown_as_c_shows_them() {
        let minus = -5_i64 as u64;
        assert_eq!(
            line("%d %i %u %x %X %o %c%%", &[minus, 7, 8, 255, 255, 8]),
            "-5 7 8 ff FF 10 \0%".replace('\0', "?")
        );
        assert_eq!(
            line("[%5d][%-5d][%05d][%+d][%.3d]", &[minus, minus, minus, 5, 5]),
            "[   -5][-5   ][-0005][+5][005]"
        );
        assert_eq!(line("%ld %lld %hhu %zx %c", &[i64::MIN as u64, 1, 2, 3, 65]), "-9223372036854775808 1 2 3 A");
    }

    #[test]
    fn numbers_with_a_fraction_are_shown_as_c_shows_them() {
        let all = |value: f64| line("%f|%.2e|%g|%8.1f", &[value.to_bits(); 4]);
        assert_eq!(all(1500.25), "1500.250000|1.50e+03|1500.25|  1500.2");
        assert_eq!(all(-0.00001), "-0.000010|-1.00e-05|-1e-05|    -0.0");
        assert_eq!(all(1e6), "1000000.000000|1.00e+06|1e+06|1000000.0");
        assert_eq!(all(f64::NAN), "nan|nan|nan|     nan");
        assert_eq!(line("%05g %g %g", &[f64::INFINITY, 0.0, 100_000.0].map(f64::to_bits)), "  inf 0 100000");
    }

    #[test]
    fn strings_end_at_their_zero_or_at_their_last_byte() {
        let text = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let shown = |format: &str, most: u8, words: &[u64]| {
            let mut pieces = parse(format).unwrap();
            for piece in &mut pieces {
                if let Piece::Value(conversion) = piece {
                    conversion.kind = Kind::Text(most);
                }
            }
            super::shown(&pieces, words)
        };
        assert_eq!(shown("[%s]", 8, &[text(b"abc\0efgh")]), "[abc]");
        assert_eq!(shown("[%5s][%-5s][%05s]", 3, &[text(b"abcdefgh"); 3]), "[  abc][abc  ][  abc]");
        let long = [text(b"abcdefgh"), text(b"ijklmnop"), text(b"k\0\0\0\0\0\0\0"), 0];
        assert_eq!(shown("%s|%s", 9, &long), "abcdefghi|k");
        assert_eq!(shown("%s", 8, &[text(b"a\x1b[2J\xff\0\0")]), "a?[2J\u{fffd}");
    }

    #[test]
    fn a_line_is_cut_and_changes_no_terminal() {
        assert_eq!(line("\x1b[2J%c\n", &[7]), "?[2J?");
        assert_eq!(line(&"x".repeat(1000), &[]).len(), MOST_CHARACTERS);
    }

    #[test]
    fn wrong_formats_are_refused_with_the_reason() {
        for (format, why) in [("%p", "`%p`"), ("%", "ends within"), ("%65d", "65"), ("%.99f", "99"), ("%é", "`%é`")] {
            assert!(parse(format).unwrap_err().contains(why), "{format}");
        }
    }

    #[test]
    fn a_record_that_is_being_written_is_left_out() {
        let prints = Prints { offset: 0, sites: vec![parse("%d").unwrap()] };
        let mut words = vec![0; Prints::BYTES as usize / 8];
        words[0] = 20;
        for call in 4..20_u64 {
            let at = 1 + 7 * (call % 16) as usize;
            (words[at], words[at + 1]) = ((call + 1) << 8, call);
        }
        words[1 + 7 * 5] = 0;
        let (calls, lines) = prints.read(|at| words[at as usize / 8]);
        assert_eq!((calls, lines.len(), &*lines[0], &*lines[14]), (20, 15, "4", "19"));
    }
}
