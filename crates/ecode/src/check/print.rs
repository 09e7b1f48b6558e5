//! `printf`: stores its values in the ring of [`Prints`].

use qfabric_types::format::Scalar;

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
            return self.fail(error.help("put the call into a function, and call the function"));
        }
        if self.uses.prints.is_empty() {
            self.uses.prints.offset = self.allocate_static(Prints::BYTES, 8, "the ring of `printf`", span)?;
        }
        self.uses.prints.sites.push(pieces);
        self.record(site, values, span)
    }

    fn format_and_values(&mut self, arguments: &[Expr], span: Span) -> Checked<(Vec<Piece>, Vec<hir::Expr>)> {
        let Some((Expr { kind: ExprKind::Text(format), span: place, .. }, written)) = arguments.split_first() else {
            let error = Diagnostic::new(span, "`printf` needs a format in quotes", "no format");
            return self.fail(error.help("write the format first: `printf(\"%d bytes\", input.len)`"));
        };
        let pieces = match parse(&String::from_utf8_lossy(format)) {
            Ok(pieces) => pieces,
            Err(why) => {
                let error = Diagnostic::new(*place, why, "wrong format");
                return self.fail(error.help("use %d %i %u %x %X %o %c %f %e %g and %%, such as `%-8.3f`"));
            }
        };
        let conversions: Vec<Conversion> = pieces.iter().filter_map(Piece::conversion).collect();
        let most = Prints::MOST_VALUES;
        if conversions.len() != written.len() || written.len() > most {
            let (wants, has) = (conversions.len(), written.len());
            let message = format!("the format shows {wants} values, the call has {has}; the limit is {most}");
            let error = Diagnostic::new(span, message, "wrong number of values");
            return self.fail(error.help("write one value for each conversion; `%%` shows a per cent sign"));
        }
        let values: Vec<_> = conversions.iter().zip(written).map(|(how, value)| self.printed(*how, value)).collect();
        Ok((pieces, values.into_iter().collect::<Checked<_>>()?))
    }

    /// The value as the word of the record: a `long`, or a `double`.
    fn printed(&mut self, how: Conversion, written: &Expr) -> Checked<hir::Expr> {
        let value = fold::promote(self.number(written)?);
        if how.kind.is_float() {
            return Ok(cast(value, Scalar::F64));
        }
        if value.ty.float {
            let message = format!("`{}` has a fraction, but the format shows an integer", self.quote(written.span));
            let error = Diagnostic::new(written.span, message, "not an integer");
            return self.fail(error.help("use %f, %e or %g, or convert the value: `(long)x`"));
        }
        let value = match how.kind {
            Kind::Signed => value,
            Kind::Character => cast(value, Scalar::U8),
            _ if value.ty.bits == 32 => cast(value, Scalar::U32),
            _ => cast(value, Scalar::U64),
        };
        Ok(cast(value, Scalar::I64))
    }

    /// Writes the record: the tag 0, the values, the tag, the number of calls.
    fn record(&mut self, site: usize, values: Vec<hir::Expr>, span: Span) -> Checked<hir::Expr> {
        let (line, ring, ty) = (self.line(span), self.uses.prints.offset, Scalar::U64);
        let mut steps = Vec::new();
        let mut kept = Vec::new();
        for value in values {
            let place = self.temporary(value.ty, span)?;
            kept.push(load(place.clone()));
            steps.push(store(place, value));
        }
        let calls = Place { base: Base::Static, offset: ring, indices: Vec::new(), ty };
        let binary = |op, left, right| fold::binary(op, left, constant(right, Scalar::U64), line);
        let slot = self.temporary(ty, span)?;
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
    fn conversion(&self) -> Option<Conversion> {
        if let Piece::Value(conversion) = self { Some(*conversion) } else { None }
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
