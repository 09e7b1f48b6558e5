//! Checks expressions: C's types and conversions, evaluation from left to right.

use qfabric_types::format::Scalar;

use super::fold::{self, cast, constant, known};
use super::place::{Location, Target, article};
use super::types::Type;
use super::{Checked, Checker, Findings};
use crate::ast::{Expr, ExprKind, Operator, UnaryOp};
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::{self, BinaryOp};

/// The result of an expression.
#[derive(Debug)]
pub(super) enum Value {
    Number(hir::Expr),
    /// No value: the call of a `void` function.
    Nothing(hir::Expr),
    /// A whole structure or array.
    Whole(Location),
}

impl Checker<'_> {
    /// Checks an expression that must yield a number.
    pub(super) fn number(&mut self, expr: &Expr) -> Checked<hir::Expr> {
        let value = self.value(expr)?;
        self.as_number(value, expr)
    }

    /// The number of a checked expression.
    pub(super) fn as_number(&mut self, value: Value, expr: &Expr) -> Checked<hir::Expr> {
        match value {
            Value::Number(number) => Ok(number),
            Value::Nothing(_) => {
                let message = format!("`{}` has no value", self.findings.quote(expr.span));
                let error = Diagnostic::new(expr.span, message, "a value is needed here");
                self.findings.fail(error.help("declare the function `long` instead of `void`"))
            }
            Value::Whole(location) => {
                let message = format!(
                    "`{}` is {}, but a number is needed",
                    self.findings.quote(expr.span),
                    article(&location.ty)
                );
                let error = Diagnostic::new(expr.span, message, "not a number");
                self.findings.fail(match location.ty {
                    Type::Array(..) => error.help("choose one of its elements with `[…]`"),
                    _ => error.help("choose one of its members with `.`"),
                })
            }
        }
    }

    /// Checks an expression whose value is not used.
    pub(super) fn effect(&mut self, expr: &Expr) -> Checked<hir::Expr> {
        match &expr.kind {
            ExprKind::Step { add, operand, .. } => self.step(*add, false, operand, expr.span),
            ExprKind::Comma(first, second) => Ok(fold::comma(self.effect(first)?, self.effect(second)?)),
            ExprKind::Assign(None, _, left, right) => Ok(effect_of(self.assign(left, right, false)?)),
            _ => self.value(expr).map(effect_of),
        }
    }

    pub(super) fn value(&mut self, expr: &Expr) -> Checked<Value> {
        let number = match &expr.kind {
            ExprKind::Int(value, ty) => constant(*value, *ty),
            ExprKind::Text(text) => {
                return self.statics.text_constant(text, expr.span, &mut self.findings).map(Value::Whole);
            }
            ExprKind::Name(_) | ExprKind::Member(..) | ExprKind::Index(..) => return self.read(expr),
            ExprKind::Unary(op, operand) => self.unary(*op, operand)?,
            ExprKind::Binary(op, sign, left, right) => self.binary(*op, *sign, left, right)?,
            ExprKind::Assign(None, _, left, right) => return self.assign(left, right, true),
            ExprKind::Assign(Some(op), sign, left, right) => self.update(*op, *sign, left, right)?,
            ExprKind::Step { add, post, operand } => self.step(*add, *post, operand, expr.span)?,
            ExprKind::Conditional(condition, yes, no) => return self.conditional(condition, yes, no, expr.span),
            ExprKind::Comma(first, second) => return self.comma(first, second),
            ExprKind::Call(name, arguments) => return self.call(name, arguments, expr.span),
            ExprKind::Cast(ty, operand) => return self.conversion(ty, operand),
            ExprKind::SizeofType(ty) => {
                let size = self.any_type(ty)?.map_or(1, |ty| ty.size());
                constant(i64::from(size), Scalar::U64)
            }
            ExprKind::SizeofValue(operand) => self.size_of_value(operand)?,
        };
        Ok(Value::Number(number))
    }

    fn size_of_value(&mut self, operand: &Expr) -> Checked<hir::Expr> {
        let size = match self.value(operand)? {
            Value::Number(number) => number.ty.bytes(),
            Value::Nothing(_) => 1,
            Value::Whole(location) => location.ty.size(),
        };
        Ok(constant(i64::from(size), Scalar::U64))
    }

    fn unary(&mut self, op: UnaryOp, operand: &Expr) -> Checked<hir::Expr> {
        let span = operand.span;
        let operand = self.number(operand)?;
        Ok(match op {
            UnaryOp::Plus => fold::promote(operand),
            UnaryOp::Minus => fold::negate(operand),
            UnaryOp::Complement => {
                self.findings.refuse_float(BinaryOp::Xor, &[&operand], span)?;
                fold::complement(operand)
            }
            UnaryOp::Not => fold::is_zero(operand),
        })
    }

    fn binary(&mut self, op: Operator, sign: Span, left: &Expr, right: &Expr) -> Checked<hir::Expr> {
        self.findings.warn_grouping(op, sign, left, right);
        // Both sides are checked even if the left side is wrong, so that one run reports two errors.
        let (a, b) = (self.number(left), self.number(right));
        let (a, b) = (a?, b?);
        Ok(match op {
            Operator::Value(op) => {
                self.findings.refuse_float(op, &[&a, &b], sign)?;
                if !a.ty.float {
                    self.findings.refuse_zero(op, &b, right.span)?;
                }
                fold::binary(op, a, b, self.findings.line(sign))
            }
            Operator::Compare(op) => {
                self.findings.warn_unsigned(op, sign, &a, &b);
                fold::compare(op, a, b)
            }
            Operator::And => fold::and(a, b),
            Operator::Or => fold::or(a, b),
        })
    }

    /// Checks a number that must be an integer.
    pub(super) fn integer(&mut self, expr: &Expr) -> Checked<hir::Expr> {
        let number = self.number(expr)?;
        if !number.ty.float {
            return Ok(number);
        }
        let message =
            format!("`{}` is a `{}`, but an integer is needed", self.findings.quote(expr.span), number.ty.c_name());
        self.findings.fail(Diagnostic::new(expr.span, message, "not an integer").help("convert it: `(long)x`"))
    }

    fn comma(&mut self, first: &Expr, second: &Expr) -> Checked<Value> {
        let first = self.effect(first)?;
        Ok(match self.value(second)? {
            Value::Number(number) => Value::Number(fold::comma(first, number)),
            Value::Nothing(effect) => Value::Nothing(fold::comma(first, effect)),
            Value::Whole(location) => Value::Whole(location.after(first)),
        })
    }

    /// `a = b`. If `used` is false, the result is only evaluated for its effect.
    fn assign(&mut self, left: &Expr, right: &Expr, used: bool) -> Checked<Value> {
        let (target, value) = (self.target(left), self.value(right));
        let (target, value) = (target?, value?);
        match (target, value) {
            (Target::Memory(location), Value::Number(value)) => match location.ty {
                Type::Scalar(ty) => Ok(Value::Number(store(location, ty, value))),
                _ => self.findings.fail_kinds(left, right, &location.ty.to_string(), "a number"),
            },
            (Target::Attribute(number), Value::Number(value)) => {
                let value = Box::new(cast(value, Scalar::I64));
                Ok(Value::Number(hir::Expr { kind: hir::ExprKind::SetAttr(number, value), ty: Scalar::I64 }))
            }
            (Target::Memory(location), Value::Whole(whole)) => match location.ty {
                Type::Scalar(ty) => self.findings.fail_kinds(left, right, ty.c_name(), &article(&whole.ty)),
                _ => self.assign_record(location, whole, (left.span, right.span), used).map(Value::Whole),
            },
            (Target::Attribute(_), Value::Whole(whole)) => {
                self.findings.fail_kinds(left, right, "attribute (a `long`)", &article(&whole.ty))
            }
            (_, Value::Nothing(_)) => self.number(right).map(Value::Number),
        }
    }

    /// `a op= b`.
    fn update(&mut self, op: BinaryOp, sign: Span, left: &Expr, right: &Expr) -> Checked<hir::Expr> {
        let (target, value) = (self.number_target(left), self.number(right));
        let (target, value) = (target?, value?);
        if let NumberTarget::Memory(place, ty) = &target
            && (ty.float || value.ty.float)
        {
            self.findings.refuse_float(op, &[&value, &fold::constant(0, *ty)], sign)?;
            return self.update_float(place.clone(), op, value, false, left.span);
        }
        self.findings.refuse_float(op, &[&value], sign)?;
        self.findings.refuse_zero(op, &value, right.span)?;
        Ok(combine(target, op, value, false, self.findings.line(sign)))
    }

    /// `++a`, `a--` and the like.
    pub(super) fn step(&mut self, add: bool, post: bool, operand: &Expr, span: Span) -> Checked<hir::Expr> {
        let target = self.number_target(operand)?;
        let op = if add { BinaryOp::Add } else { BinaryOp::Sub };
        if let NumberTarget::Memory(place, ty) = &target
            && ty.float
        {
            return self.update_float(place.clone(), op, constant(1, Scalar::I32), post, span);
        }
        Ok(combine(target, op, constant(1, Scalar::I32), post, self.findings.line(span)))
    }

    /// `a op= b`, `a++` with a floating-point number: a load, the operation, and a store.
    fn update_float(
        &mut self,
        mut place: hir::Place,
        op: BinaryOp,
        value: hir::Expr,
        post: bool,
        span: Span,
    ) -> Checked<hir::Expr> {
        let (ty, mut first) = (place.ty, constant(0, Scalar::I32));
        for index in &mut place.indices {
            let value = std::mem::replace(&mut index.value, constant(0, Scalar::I32));
            let (kept, value) = self.kept(value, span)?;
            first = kept.into_iter().fold(first, fold::comma);
            index.value = value;
        }
        let (kept, value) = self.kept(value, span)?;
        first = kept.into_iter().fold(first, fold::comma);
        let load = hir::Expr { kind: hir::ExprKind::Load(place.clone()), ty };
        let (kept, former) = self.kept(load, span)?;
        first = kept.into_iter().fold(first, fold::comma);
        let new = cast(fold::binary(op, former.clone(), value, self.findings.line(span)), ty);
        let store = hir::Expr { kind: hir::ExprKind::Store(place, Box::new(new)), ty };
        Ok(fold::comma(first, if post { fold::comma(store, former) } else { store }))
    }

    /// Checks a target that must hold a number.
    fn number_target(&mut self, expr: &Expr) -> Checked<NumberTarget> {
        match self.target(expr)? {
            Target::Attribute(number) => Ok(NumberTarget::Attribute(number)),
            Target::Memory(location) => match location.ty {
                Type::Scalar(ty) => Ok(NumberTarget::Memory(location.place(), ty)),
                _ => {
                    let message = format!(
                        "`{}` is {}, but a number is needed",
                        self.findings.quote(expr.span),
                        article(&location.ty)
                    );
                    self.findings.fail(Diagnostic::new(expr.span, message, "not a number"))
                }
            },
        }
    }

    fn conversion(&mut self, ty: &crate::ast::TypeName, operand: &Expr) -> Checked<Value> {
        match self.any_type(ty)? {
            None => Ok(Value::Nothing(self.effect(operand)?)),
            Some(Type::Scalar(ty)) => Ok(Value::Number(cast(self.number(operand)?, ty))),
            Some(other) => {
                let message = format!("a value cannot be converted to {}", article(&other));
                self.findings.fail(Diagnostic::new(ty.span, message, "not a number type"))
            }
        }
    }
}

impl Findings<'_> {
    /// Refuses an operator on bits, or a remainder, with a floating-point number.
    fn refuse_float(&mut self, op: BinaryOp, operands: &[&hir::Expr], span: Span) -> Checked<()> {
        let is_arithmetic = matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div);
        if is_arithmetic || operands.iter().all(|operand| !operand.ty.float) {
            return Ok(());
        }
        let error = Diagnostic::new(span, "this operator needs integers", "an operand is a floating-point number");
        self.fail(error.help("convert the operand: `(long)x`"))
    }

    /// Refuses a division whose divisor is the constant 0.
    pub(super) fn refuse_zero(&mut self, op: BinaryOp, divisor: &hir::Expr, span: Span) -> Checked<()> {
        if matches!(op, BinaryOp::Div | BinaryOp::Rem) && known(divisor) == Some(0) && !divisor.ty.float {
            let error = Diagnostic::new(span, "this is a division by zero", "always 0");
            return self.fail(error.help("a division by zero ends the call with a fault: test the divisor first"));
        }
        Ok(())
    }

    fn fail_kinds<T>(&mut self, left: &Expr, right: &Expr, to: &str, from: &str) -> Checked<T> {
        let message = format!("{from} cannot be assigned to the {to} `{}`", self.quote(left.span));
        let error = Diagnostic::new(right.span, message, "a value of another type");
        self.fail(error.related(left.span, "the target of the assignment"))
    }
}

/// The effect of an expression whose value is not used.
fn effect_of(value: Value) -> hir::Expr {
    match value {
        Value::Number(number) | Value::Nothing(number) => number,
        Value::Whole(location) => location.before.map_or_else(|| constant(0, Scalar::I32), |before| *before),
    }
}

enum NumberTarget {
    Memory(hir::Place, Scalar),
    Attribute(u32),
}

/// The message that states the expected parameters and the number of arguments.
pub(super) fn arity(name: &str, taken: &[&str], given: usize) -> String {
    let plural = if taken.len() == 1 { "" } else { "s" };
    let list = if taken.is_empty() { String::new() } else { format!(" ({})", taken.join(", ")) };
    let was = if given == 1 { "was" } else { "were" };
    format!("`{name}` takes {} argument{plural}{list}, but {given} {was} given", taken.len())
}

fn store(location: Location, ty: Scalar, value: hir::Expr) -> hir::Expr {
    hir::Expr { kind: hir::ExprKind::Store(location.place(), Box::new(cast(value, ty))), ty }
}

fn combine(target: NumberTarget, op: BinaryOp, value: hir::Expr, post: bool, line: u32) -> hir::Expr {
    match target {
        NumberTarget::Memory(place, ty) => {
            let shift = fold::is_shift(op);
            let wide = if shift { fold::promoted(ty) } else { fold::common(ty, value.ty) };
            let value = Box::new(if shift { fold::promote(value) } else { cast(value, wide) });
            hir::Expr { kind: hir::ExprKind::Update { place, op, wide, value, post, line }, ty }
        }
        NumberTarget::Attribute(number) => combine_attribute(number, op, value, post, line),
    }
}

/// An addition to an attribute is atomic: no other event comes between its read and its write.
fn combine_attribute(number: u32, op: BinaryOp, value: hir::Expr, post: bool, line: u32) -> hir::Expr {
    let ty = Scalar::I64;
    let add = |value| hir::Expr { kind: hir::ExprKind::AddAttr(number, Box::new(value)), ty };
    let op_of_integers = if value.ty.float { None } else { Some(op) };
    let (new, back) = match op_of_integers {
        Some(BinaryOp::Add) => (add(cast(value.clone(), ty)), BinaryOp::Sub),
        Some(BinaryOp::Sub) => (add(fold::negate(cast(value.clone(), ty))), BinaryOp::Add),
        _ => {
            let old = hir::Expr { kind: hir::ExprKind::Attr(number), ty };
            let new = Box::new(cast(fold::binary(op, old, value, line), ty));
            return hir::Expr { kind: hir::ExprKind::SetAttr(number, new), ty };
        }
    };
    // `a++` yields the former value. Its right side is the constant 1, so it may be evaluated again.
    if post { fold::binary(back, new, cast(value, ty), line) } else { new }
}
