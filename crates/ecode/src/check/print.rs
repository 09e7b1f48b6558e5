//! `printf`: stores its values in the ring of [`Prints`].

use qfabric_types::format::Scalar;

use super::expr::Value;
use super::fold::{self, cast, constant};
use super::{Checked, Checker};
use crate::ast::{Expr, ExprKind};
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::{self, Base, BinaryOp, Index, Place};
use crate::print::{Conversion, Kind, Piece, Prints, parse};

/// Largest number of calls of `printf` in a text.
const MOST_SITES: usize = 64;

impl Checker<'_> {
    /// `printf(format, values…)`. The values are computed before the record is begun, so a fault leaves no part of one.
    pub(super) fn print(&mut self, arguments: &[Expr], span: Span) -> Checked<hir::Expr> {
        let (pieces, values) = self.format_and_values(arguments, span)?;
        let site = self.uses.prints.sites.len();
        if site >= MOST_SITES {
            let message = format!("this is call {} of `printf`, the limit is {MOST_SITES}", site + 1);
            let error = Diagnostic::new(span, message, "too many calls");
            return self.findings.fail(error.help("put the call into a function, and call the function"));
        }
        if self.uses.prints.is_empty() {
            self.uses.prints.offset =
                self.statics.allocate(Prints::BYTES, 8, "the ring of `printf`", span, &mut self.findings)?;
        }
        self.uses.prints.sites.push(pieces);
        self.record(site, values, span)
    }

    /// The parts of the format, and the words of the values.
    fn format_and_values(&mut self, arguments: &[Expr], span: Span) -> Checked<(Vec<Piece>, Vec<hir::Expr>)> {
        let Some((Expr { kind: ExprKind::Text(format), span: place, .. }, written)) = arguments.split_first() else {
            let error = Diagnostic::new(span, "`printf` needs a format in quotes", "no format");
            return self.findings.fail(error.help("write the format first: `printf(\"%d bytes\", input.len)`"));
        };
        let mut pieces = match parse(&String::from_utf8_lossy(format)) {
            Ok(pieces) => pieces,
            Err(why) => {
                let error = Diagnostic::new(*place, why, "wrong format");
                return self.findings.fail(error.help("use %d %i %u %x %X %o %c %s %f %e %g and %%, such as `%-8.3f`"));
            }
        };
        let wants = pieces.iter().filter(|piece| matches!(piece, Piece::Value(_))).count();
        let (has, most) = (written.len(), Prints::MOST_VALUES);
        if wants != has || has > most {
            let message = format!("the format shows {wants} values, the call has {has}; the limit is {most}");
            let error = Diagnostic::new(span, message, "wrong number of values");
            return self.findings.fail(error.help("write one value for each conversion; `%%` shows a per cent sign"));
        }
        let conversions = pieces.iter_mut().filter_map(Piece::conversion);
        let values: Vec<_> = conversions.zip(written).map(|(how, value)| self.printed(how, value)).collect();
        let words: Vec<hir::Expr> = values.into_iter().collect::<Checked<Vec<_>>>()?.concat();
        if words.len() > most {
            let message = format!("the values take {} words of 8 bytes, the limit is {most}", words.len());
            let error = Diagnostic::new(span, message, "too many bytes");
            return self.findings.fail(error.help("show less of a string, as in `%.8s`, or write several calls"));
        }
        Ok((pieces, words))
    }

    /// The value as words of the record: a `long`, a `double`, or the characters of a string.
    fn printed(&mut self, how: &mut Conversion, written: &Expr) -> Checked<Vec<hir::Expr>> {
        if let Kind::Text(_) = how.kind {
            let (bytes, words) = self.printed_text(*how, written)?;
            how.kind = Kind::Text(bytes);
            return Ok(words);
        }
        let value = fold::promote(self.number(written)?);
        if how.kind.is_float() {
            return Ok(vec![cast(value, Scalar::F64)]);
        }
        if value.ty.float {
            let message =
                format!("`{}` has a fraction, but the format shows an integer", self.findings.quote(written.span));
            let error = Diagnostic::new(written.span, message, "not an integer");
            return self.findings.fail(error.help("use %f, %e or %g, or convert the value: `(long)x`"));
        }
        let value = match how.kind {
            Kind::Signed => value,
            Kind::Character => cast(value, Scalar::U8),
            _ if value.ty.bits == 32 => cast(value, Scalar::U32),
            _ => cast(value, Scalar::U64),
        };
        Ok(vec![cast(value, Scalar::I64)])
    }

    /// The number of bytes of a string that are shown, and its words. The first word is evaluated first: it copies the
    /// characters into a temporary.
    fn printed_text(&mut self, how: Conversion, written: &Expr) -> Checked<(u8, Vec<hir::Expr>)> {
        let Value::Whole(mut from) = self.value(written)? else { return self.findings.fail_no_string(written, None) };
        if !from.ty.is_text() {
            return self.findings.fail_no_string(written, Some(&from.ty));
        }
        let bytes = from.ty.size().min(how.precision.map_or(u32::MAX, u32::from));
        let most = Prints::MOST_BYTES;
        let Some(shown) = u8::try_from(bytes).ok().filter(|shown| *shown <= most) else {
            let message =
                format!("`{}` has {bytes} bytes, `printf` shows at most {most}", self.findings.quote(written.span));
            let error = Diagnostic::new(written.span, message, "too long");
            return self.findings.fail(error.help("show the first of them, as in `%.16s`"));
        };
        let words = bytes.div_ceil(8).max(1);
        let offset = self.frame.allocate(8 * words, 8, "an intermediate value", written.span, &mut self.findings)?;
        let place = |number: u32, ty| Place { base: Base::Local, offset: offset + 8 * number, indices: Vec::new(), ty };
        let before = from.before.take().map_or_else(|| constant(0, Scalar::I32), |before| *before);
        // The copy may leave the end of the last word as it is.
        let clear = store(place(words - 1, Scalar::U64), constant(0, Scalar::U64));
        let (to, from) = (Box::new(place(0, Scalar::U8)), Box::new(from.place()));
        let copy = hir::Expr { kind: hir::ExprKind::Copy { to, from, bytes }, ty: Scalar::I32 };
        let first = load(place(0, Scalar::U64));
        let first = fold::comma(before, fold::comma(clear, fold::comma(copy, first)));
        let rest = (1..words).map(|number| load(place(number, Scalar::U64)));
        Ok((shown, std::iter::once(first).chain(rest).collect()))
    }

    /// Writes the record: the tag 0, the values, the tag, the number of calls.
    fn record(&mut self, site: usize, values: Vec<hir::Expr>, span: Span) -> Checked<hir::Expr> {
        let (line, ring, ty) = (self.findings.line(span), self.uses.prints.offset, Scalar::U64);
        let mut steps = Vec::new();
        let mut kept = Vec::new();
        for value in values {
            let place = self.frame.temporary(value.ty, span, &mut self.findings)?;
            kept.push(load(place.clone()));
            steps.push(store(place, value));
        }
        let calls = Place { base: Base::Static, offset: ring, indices: Vec::new(), ty };
        let binary = |op, left, right| fold::binary(op, left, constant(right, Scalar::U64), line);
        let slot = self.frame.temporary(ty, span, &mut self.findings)?;
        steps.push(store(slot.clone(), binary(BinaryOp::And, load(calls.clone()), i64::from(Prints::KEPT) - 1)));
        let word = |number: usize, ty| {
            let (value, count, stride) = (cast(load(slot.clone()), Scalar::I64), Prints::KEPT, Prints::RECORD);
            let indices = vec![Index { value, count, stride, line }];
            Place { base: Base::Static, offset: ring + 8 + 8 * number as u32, indices, ty }
        };
        steps.push(store(word(0, ty), constant(0, ty)));
        steps.extend(kept.into_iter().enumerate().map(|(number, value)| store(word(1 + number, value.ty), value)));
        let next = binary(BinaryOp::Add, load(calls.clone()), 1);
        let tag = fold::binary(BinaryOp::Shl, next.clone(), constant(Prints::SITE_BITS.into(), Scalar::I32), line);
        steps.push(store(word(0, ty), binary(BinaryOp::Or, tag, site as i64)));
        steps.push(store(calls, next));
        Ok(steps.into_iter().rev().fold(constant(0, Scalar::I32), |after, step| fold::comma(step, after)))
    }
}

impl Piece {
    fn conversion(&mut self) -> Option<&mut Conversion> {
        if let Piece::Value(conversion) = self { Some(conversion) } else { None }
    }
}

fn load(place: Place) -> hir::Expr {
    let ty = place.ty;
    hir::Expr { kind: hir::ExprKind::Load(place), ty }
}

fn store(place: Place, value: hir::Expr) -> hir::Expr {
    let ty = place.ty;
    hir::Expr { kind: hir::ExprKind::Store(place, Box::new(value)), ty }
}
