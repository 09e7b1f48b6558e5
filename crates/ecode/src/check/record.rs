//! Structures and arrays as values: copies, and the parameters and results of functions.
//!
//! A value that is not in a variable gets a temporary place in the frame. Parameters and results that are
//! structures are copied from frame to frame ([`Base::Frame`]): parameters directly before the call, the result
//! directly after it.

use qfabric_types::format::Scalar;

use super::expr::{Value, arity};
use super::fold::{self, cast, constant, known};
use super::loops::changes_nothing;
use super::place::{Location, article};
use super::types::Type;
use super::{Checked, Checker, Findings, Signature};
use crate::ast::{Expr, Ident, Stmt};
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::{self, Base, Place};

impl Checker<'_> {
    /// Copies a whole structure or array to a place of the same type.
    pub(super) fn copy(
        &mut self,
        to: Location,
        from: Location,
        to_span: Span,
        from_span: Span,
        body: &mut Vec<hir::Stmt>,
    ) -> Checked<()> {
        let copy = self.copied(to, from, (to_span, from_span))?;
        body.push(hir::Stmt::Expr(copy));
        Ok(())
    }

    /// The expression that copies. Its value is 0.
    fn copied(&mut self, to: Location, mut from: Location, (to_span, from_span): (Span, Span)) -> Checked<hir::Expr> {
        if !to.ty.same(&from.ty) {
            let message = format!("`{}` cannot be assigned to `{}`", from.ty, to.ty);
            let error = Diagnostic::new(from_span, message, format!("`{}`", from.ty));
            let error = if to_span == from_span { error } else { error.related(to_span, format!("`{}`", to.ty)) };
            return self.findings.fail(error.help("their members or lengths differ: assign the members one by one"));
        }
        let Some(before) = from.before.take() else { return Ok(copy_of(to, from)) };
        // The indices of the left side are evaluated before the right side.
        let (first, to) = self.settled(to, to_span)?;
        Ok(fold::comma(first, fold::comma(*before, copy_of(to, from))))
    }

    /// Evaluates the indices of a place: the place afterwards reads them from temporaries.
    pub(super) fn settled(&mut self, mut place: Location, span: Span) -> Checked<(hir::Expr, Location)> {
        let mut first = constant(0, Scalar::I32);
        for index in &mut place.indices {
            let ty = index.value.ty;
            let kept = self.frame.temporary(ty, span, &mut self.findings)?;
            let load = hir::Expr { kind: hir::ExprKind::Load(kept.clone()), ty };
            let value = Box::new(std::mem::replace(&mut index.value, load));
            first = fold::comma(first, hir::Expr { kind: hir::ExprKind::Store(kept, value), ty });
        }
        Ok((first, place))
    }

    /// `a = b` for structures and arrays. If `used` is false, the result is only evaluated for its effect.
    pub(super) fn assign_record(
        &mut self,
        to: Location,
        from: Location,
        spans: (Span, Span),
        used: bool,
    ) -> Checked<Location> {
        let (first, to) = if used { self.settled(to, spans.0)? } else { (constant(0, Scalar::I32), to) };
        let copy = self.copied(to.clone(), from, spans)?;
        Ok(Location { is_const: true, before: Some(Box::new(fold::comma(first, copy))), ..to })
    }

    /// A place for a value without a variable.
    fn record_temporary(&mut self, ty: &Type, span: Span) -> Checked<Location> {
        let offset = self.frame.allocate(ty.size(), ty.align(), "an intermediate value", span, &mut self.findings)?;
        Ok(Location::at(Base::Local, offset, ty.clone(), true))
    }

    /// `c ? a : b`.
    pub(super) fn conditional(&mut self, condition: &Expr, yes: &Expr, no: &Expr, span: Span) -> Checked<Value> {
        let condition = self.number(condition)?;
        let (a, b) = (self.value(yes)?, self.value(no)?);
        match (a, b) {
            (Value::Whole(a), Value::Whole(b)) if a.ty.same(&b.ty) => {
                let result = self.record_temporary(&a.ty, span)?;
                let a = self.copied(result.clone(), a, (span, yes.span))?;
                let b = self.copied(result.clone(), b, (span, no.span))?;
                Ok(Value::Whole(result.after(fold::select(condition, a, b))))
            }
            (Value::Whole(a), Value::Whole(b)) => {
                let message = format!("the values of `? :` differ: {} and {}", article(&a.ty), article(&b.ty));
                let error = Diagnostic::new(no.span, message, format!("`{}`", b.ty));
                self.findings.fail(error.related(yes.span, format!("`{}`", a.ty)).help("use `if` and `else`"))
            }
            (Value::Nothing(a), Value::Nothing(b)) => Ok(Value::Nothing(fold::select(condition, a, b))),
            (a, b) => {
                let (a, b) = (self.as_number(a, yes)?, self.as_number(b, no)?);
                Ok(Value::Number(fold::select(condition, a, b)))
            }
        }
    }

    pub(super) fn call(&mut self, name: &Ident, arguments: &[Expr], span: Span) -> Checked<Value> {
        let Some(signature) = self.signature_of(&name.name)? else {
            return match self.queue_call(name, arguments, span)? {
                Some(value) => Ok(value),
                None => self.builtin(name, arguments, span).map(Value::Number),
            };
        };
        let values: Vec<Checked<Value>> = arguments.iter().map(|argument| self.value(argument)).collect();
        if arguments.len() != signature.parameters.len() {
            let taken: Vec<&str> = signature.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
            let message = arity(&name.name, &taken, arguments.len());
            let error = Diagnostic::new(span, message, "wrong number of arguments");
            let head = self.functions[&name.name].head.span;
            return self.findings.fail(error.related(head, "declared here"));
        }
        let (first, numbers) = self.passed(&signature, values, arguments)?;
        let ty = if let Some(Type::Scalar(ty)) = signature.result { ty } else { Scalar::I32 };
        let call = hir::Expr { kind: hir::ExprKind::Call(signature.id, numbers), ty };
        let call = fold::comma(first, call);
        match signature.result {
            None => Ok(Value::Nothing(call)),
            Some(Type::Scalar(_)) => Ok(Value::Number(call)),
            Some(record) => {
                let result = self.record_temporary(&record, span)?;
                let from = Location::at(Base::Frame(signature.id), 0, record, true);
                let copy = copy_of(result.clone(), from);
                Ok(Value::Whole(result.after(fold::comma(call, copy))))
            }
        }
    }

    /// Passes the arguments: the copies of structures to the function's frame, and the numbers for the call. The
    /// copies come directly before the call, because the evaluation of another argument may call the same function.
    fn passed(
        &mut self,
        signature: &Signature,
        values: Vec<Checked<Value>>,
        written: &[Expr],
    ) -> Checked<(hir::Expr, Vec<hir::Expr>)> {
        let values = values.into_iter().collect::<Checked<Vec<Value>>>()?;
        let has_records = signature.parameters.iter().any(|parameter| !matches!(parameter.ty, Type::Scalar(_)));
        let last_effect = values.iter().rposition(|value| !is_calm(value));
        let (mut first, mut copies) = (constant(0, Scalar::I32), constant(0, Scalar::I32));
        let mut numbers = Vec::new();
        for (number, (parameter, value)) in signature.parameters.iter().zip(values).enumerate() {
            let argument = &written[number];
            // What is evaluated later may change this value, so it is kept in a temporary.
            let is_kept = has_records && last_effect.is_some_and(|last| number <= last);
            match (&parameter.ty, value) {
                (Type::Scalar(ty), value) => {
                    let value = cast(self.as_number(value, argument)?, *ty);
                    let (kept, value) = if is_kept { self.kept(value, argument.span)? } else { (None, value) };
                    first = kept.into_iter().fold(first, fold::comma);
                    numbers.push(value);
                }
                (ty, Value::Whole(mut from)) => {
                    let spans = (argument.span, argument.span);
                    if is_kept && from.ty.same(ty) {
                        let kept = self.record_temporary(ty, argument.span)?;
                        first = fold::comma(first, self.copied(kept.clone(), from, spans)?);
                        from = kept;
                    }
                    let to = Location::at(Base::Frame(signature.id), parameter.offset, ty.clone(), false);
                    copies = fold::comma(copies, self.copied(to, from, spans)?);
                }
                (ty, _) => return self.findings.fail_needs_record(ty, argument),
            }
        }
        Ok((fold::comma(first, copies), numbers))
    }

    /// Makes a number independent of what is evaluated after it.
    pub(super) fn kept(&mut self, value: hir::Expr, span: Span) -> Checked<(Option<hir::Expr>, hir::Expr)> {
        if known(&value).is_some() {
            return Ok((None, value));
        }
        let ty = value.ty;
        let place: Place = self.frame.temporary(ty, span, &mut self.findings)?;
        let load = hir::Expr { kind: hir::ExprKind::Load(place.clone()), ty };
        Ok((Some(hir::Expr { kind: hir::ExprKind::Store(place, Box::new(value)), ty }), load))
    }

    /// Reserves the place of a result that is a structure, and sets it to zero for a function that may reach its end.
    pub(super) fn result_record(&mut self, result: Option<Type>, written: &[Stmt], body: &mut Vec<hir::Stmt>) {
        let Some(ty @ Type::Struct(_)) = result else { return };
        let place = self.frame.allocate(ty.size(), ty.align(), "the result", Span::default(), &mut self.findings);
        debug_assert_eq!(place.ok(), Some(0), "the result is at the start of the frame");
        if !super::switch::ends(written) {
            let place = Location::at(Base::Local, 0, ty.clone(), false).place();
            body.push(hir::Stmt::Clear { place, bytes: ty.size() });
        }
    }

    /// `return` of a structure.
    pub(super) fn return_record(&mut self, to: Location, value: &Expr, body: &mut Vec<hir::Stmt>) -> Checked<()> {
        match self.value(value)? {
            Value::Whole(from) => self.copy(to, from, value.span, value.span, body),
            _ => self.findings.fail_needs_record(&to.ty, value),
        }
    }
}

impl Findings<'_> {
    fn fail_needs_record<T>(&mut self, ty: &Type, argument: &Expr) -> Checked<T> {
        let message = format!("`{}` is a number, but {} is needed", self.quote(argument.span), article(ty));
        self.fail(Diagnostic::new(argument.span, message, "not a structure"))
    }
}

/// Whether evaluating the value changes nothing.
fn is_calm(value: &Value) -> bool {
    match value {
        Value::Number(number) | Value::Nothing(number) => changes_nothing(number),
        Value::Whole(place) => {
            place.before.is_none() && place.indices.iter().all(|index| changes_nothing(&index.value))
        }
    }
}

fn copy_of(to: Location, from: Location) -> hir::Expr {
    let bytes = to.ty.size();
    let kind = hir::ExprKind::Copy { to: Box::new(to.place()), from: Box::new(from.place()), bytes };
    hir::Expr { kind, ty: Scalar::I32 }
}
