//! Strings: arrays of characters that end at the first zero byte, or at the end of the array. A string in quotes is
//! a constant array in the statics.
//!
//! The functions look at one character after the other, at most up to the end of the array, without a loop. So they
//! take no fuel, and every access is inside an array.

use qfabric_types::format::Scalar;

use super::expr::Value;
use super::fold::{self, cast, constant};
use super::place::{Location, Target, article};
use super::types::Type;
use super::{Checked, Checker, Findings, Statics};
use crate::ast::Expr;
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::{self, BinaryOp, CompareOp, Place};

/// Longest array that the functions accept, in bytes: the code has some instructions for each.
const MAX_STRING: u32 = 256;
/// Largest number of characters that all calls of one text look at. More would exceed the limit of instructions, and
/// the tree would need much memory before that limit is checked.
const MAX_CHARACTERS: u32 = 4096;

impl Checker<'_> {
    /// The place of the characters, with indices evaluated by the first expression.
    fn characters(&mut self, written: &Expr) -> Checked<(hir::Expr, Location)> {
        let Value::Whole(mut place) = self.value(written)? else { return self.findings.fail_no_string(written, None) };
        self.check_string(&place.ty, written)?;
        let before = place.before.take();
        let (first, place) = self.settled(place, written.span)?;
        let before = before.map_or_else(|| constant(0, Scalar::I32), |before| *before);
        Ok((fold::comma(before, first), place))
    }

    fn check_string(&mut self, ty: &Type, written: &Expr) -> Checked<()> {
        match ty {
            _ if !ty.is_text() => self.findings.fail_no_string(written, Some(ty)),
            Type::Array(_, count) if *count > MAX_STRING => {
                let message =
                    format!("`{}` has {count} bytes, the limit is {MAX_STRING}", self.findings.quote(written.span));
                let error = Diagnostic::new(written.span, message, "too long for the functions of strings");
                self.findings.fail(error.help("use a shorter array, or write a loop"))
            }
            _ => self.count_characters(count(ty), written.span),
        }
    }

    fn count_characters(&mut self, more: u32, span: Span) -> Checked<()> {
        self.characters += more;
        if self.characters <= MAX_CHARACTERS {
            return Ok(());
        }
        let message =
            format!("the functions of strings look at {} characters, the limit is {MAX_CHARACTERS}", self.characters);
        let error = Diagnostic::new(span, message, "all calls of the text together");
        self.findings.fail(error.help("put the call into a loop, or use shorter arrays"))
    }

    /// `strlen(text)`.
    pub(super) fn string_length(&mut self, text: &Expr) -> Checked<hir::Expr> {
        let (first, place) = self.characters(text)?;
        let (length, most) = (self.frame.temporary(Scalar::I64, text.span, &mut self.findings)?, count(&place.ty));
        let ends = |number: u32| {
            let end = set(&length, constant(i64::from(number), Scalar::I64));
            fold::and(fold::is_zero(self.statics.character(&place, number)), end)
        };
        let found = any((0..most).map(ends).collect());
        let length = hir::Expr { kind: hir::ExprKind::Load(length.clone()), ty: Scalar::I64 };
        Ok(fold::comma(first, fold::select(found, length, constant(i64::from(most), Scalar::I64))))
    }

    /// `strcmp(a, b)` and `strncmp(a, b, most)`: the difference of the first characters that differ.
    pub(super) fn string_compare(&mut self, a: &Expr, b: &Expr, most: Option<&Expr>, span: Span) -> Checked<hir::Expr> {
        let (first_a, a) = self.characters(a)?;
        let (first_b, b) = self.characters(b)?;
        let most = match most {
            Some(most) => u32::try_from(self.constant(most)?.clamp(0, i64::from(MAX_STRING))).unwrap_or_default(),
            None => u32::MAX,
        };
        let (line, place) = (self.findings.line(span), self.frame.temporary(Scalar::I32, span, &mut self.findings)?);
        let both = count(&a.ty).min(count(&b.ty)).min(most);
        let decides = |number: u32| {
            let (x, y) = (self.statics.character(&a, number), self.statics.character(&b, number));
            let differ = fold::compare(CompareOp::Ne, x.clone(), y.clone());
            let differ = fold::and(differ, set(&place, fold::binary(BinaryOp::Sub, x.clone(), y, line)));
            fold::or(differ, fold::and(fold::is_zero(x), set(&place, constant(0, Scalar::I32))))
        };
        let decided = any((0..both).map(decides).collect());
        // Behind the end of the shorter array is, as it were, a zero.
        let rest = match () {
            () if both < count(&a.ty).min(most) => self.statics.character(&a, both),
            () if both < count(&b.ty).min(most) => fold::negate(self.statics.character(&b, both)),
            () => constant(0, Scalar::I32),
        };
        let result = hir::Expr { kind: hir::ExprKind::Load(place.clone()), ty: Scalar::I32 };
        let result = fold::select(decided, result, rest);
        Ok(fold::comma(first_a, fold::comma(first_b, result)))
    }

    /// `strcpy(to, from)`: copies as much as `to` can hold, with a zero at the end.
    pub(super) fn string_copy(&mut self, to: &Expr, from: &Expr, span: Span) -> Checked<hir::Expr> {
        let target = match self.target(to)? {
            Target::Memory(place) => place,
            Target::Attribute(_) => return self.findings.fail_no_string(to, Some(&Type::Scalar(Scalar::I64))),
        };
        self.check_string(&target.ty, to)?;
        let (first_to, target) = self.settled(target, span)?;
        let (first_from, source) = self.characters(from)?;
        let copied = (count(&target.ty) - 1).min(count(&source.ty));
        let store = |number: u32, value| {
            let at = Location { offset: target.offset + number, ty: Type::Scalar(Scalar::U8), ..target.clone() };
            let value = Box::new(cast(value, Scalar::U8));
            hir::Expr { kind: hir::ExprKind::Store(at.place(), value), ty: Scalar::U8 }
        };
        let moves = |number: u32| fold::is_zero(store(number, self.statics.character(&source, number)));
        let end = fold::comma(store(copied, constant(0, Scalar::U8)), constant(1, Scalar::I32));
        let copy = any((0..copied).map(moves).chain([end]).collect());
        let copy = fold::comma(copy, constant(0, Scalar::I32));
        Ok(fold::comma(first_to, fold::comma(first_from, copy)))
    }
}

impl Statics {
    /// The character as a number from 0 to 255.
    fn character(&self, place: &Location, number: u32) -> hir::Expr {
        let ty = Scalar::U8;
        let at = Location { offset: place.offset + number, ty: Type::Scalar(ty), ..place.clone() };
        if let Some(value) = self.known(&at, ty) {
            return constant(value, Scalar::I32);
        }
        cast(hir::Expr { kind: hir::ExprKind::Load(at.place()), ty }, Scalar::I32)
    }
}

impl Findings<'_> {
    pub(super) fn fail_no_string<T>(&mut self, written: &Expr, ty: Option<&Type>) -> Checked<T> {
        let what = ty.map_or_else(|| "a number".to_owned(), article);
        let message = format!("`{}` is {what}, but a string is needed", self.quote(written.span));
        let error = Diagnostic::new(written.span, message, "not an array of `char`");
        self.fail(error.help("pass an array of `char`, such as `char name[16]`, or a string in quotes"))
    }
}

/// Number of elements of an array.
fn count(ty: &Type) -> u32 {
    if let Type::Array(_, count) = ty { *count } else { 0 }
}

/// Stores a value; the result is 1.
fn set(place: &Place, value: hir::Expr) -> hir::Expr {
    let (ty, place) = (place.ty, place.clone());
    let store = hir::Expr { kind: hir::ExprKind::Store(place, Box::new(cast(value, ty))), ty };
    fold::comma(store, constant(1, Scalar::I32))
}

/// Whether any condition holds. Evaluated in order up to the first that holds, and nested only to the logarithm of
/// their number.
fn any(mut conditions: Vec<hir::Expr>) -> hir::Expr {
    match conditions.len() {
        0 => constant(0, Scalar::I32),
        1 => conditions.remove(0),
        several => {
            let rest = conditions.split_off(several / 2);
            fold::or(any(conditions), any(rest))
        }
    }
}
