//! Builds expressions of the checked program with C's conversions. Constant expressions are computed at once.

use qfabric_types::format::Scalar;

use super::float;
use crate::hir::{BinaryOp, CompareOp, Expr, ExprKind};

pub(crate) fn constant(value: i64, ty: Scalar) -> Expr {
    Expr { kind: ExprKind::Const(ty.wrap(value)), ty }
}

/// The value of a constant expression.
pub(crate) fn known(expr: &Expr) -> Option<i64> {
    match expr.kind {
        ExprKind::Const(value) => Some(value),
        _ => None,
    }
}

/// C's conversion to a type.
pub(crate) fn cast(expr: Expr, ty: Scalar) -> Expr {
    if expr.ty == ty {
        return expr;
    }
    if expr.ty.float || ty.float {
        return float::cast(expr, ty);
    }
    match expr.kind {
        ExprKind::Const(value) => constant(value, ty),
        _ => Expr { kind: ExprKind::Cast(Box::new(expr)), ty },
    }
}

/// The integer promotions (C11 6.3.1.1): a type narrower than `int` becomes `int`.
pub(crate) fn promoted(ty: Scalar) -> Scalar {
    if ty.bits < 32 { Scalar::I32 } else { ty }
}

pub(crate) fn promote(expr: Expr) -> Expr {
    let ty = promoted(expr.ty);
    cast(expr, ty)
}

/// The common type of two operands: C's usual arithmetic conversions (C11 6.3.1.8).
pub(crate) fn common(a: Scalar, b: Scalar) -> Scalar {
    match (a.float, b.float) {
        (false, false) => {}
        (true, true) if a != b => return Scalar::F64,
        (true, _) => return a,
        (false, true) => return b,
    }
    let (a, b) = (promoted(a), promoted(b));
    let bits = a.bits.max(b.bits);
    // The wider type decides. A wider signed type holds all values of a narrower unsigned type.
    let signed = [a, b].iter().all(|ty| ty.signed || ty.bits < bits);
    Scalar { bits, signed, float: false }
}

pub(crate) fn negate(expr: Expr) -> Expr {
    if expr.ty.float {
        return float::negate(expr);
    }
    let (expr, ty) = with_type(promote(expr));
    match expr.kind {
        ExprKind::Const(value) => constant(value.wrapping_neg(), ty),
        _ => Expr { kind: ExprKind::Neg(Box::new(expr)), ty },
    }
}

pub(crate) fn complement(expr: Expr) -> Expr {
    let (expr, ty) = with_type(promote(expr));
    match expr.kind {
        ExprKind::Const(value) => constant(!value, ty),
        _ => Expr { kind: ExprKind::Not(Box::new(expr)), ty },
    }
}

fn with_type(expr: Expr) -> (Expr, Scalar) {
    let ty = expr.ty;
    (expr, ty)
}

/// `a op b` with C's conversions.
pub(crate) fn binary(op: BinaryOp, left: Expr, right: Expr, line: u32) -> Expr {
    let (left, right, ty) = if is_shift(op) {
        let left = promote(left);
        let ty = left.ty;
        (left, promote(right), ty)
    } else {
        let ty = common(left.ty, right.ty);
        (cast(left, ty), cast(right, ty), ty)
    };
    if ty.float {
        return float::binary(op, left, right);
    }
    let folded = known(&left).zip(known(&right)).and_then(|(a, b)| op.apply(ty, a, b));
    match folded {
        Some(value) => constant(value, ty),
        None => Expr { kind: ExprKind::Binary { op, left: Box::new(left), right: Box::new(right), line }, ty },
    }
}

pub(crate) fn is_shift(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Shl | BinaryOp::Shr)
}

pub(crate) fn compare(op: CompareOp, left: Expr, right: Expr) -> Expr {
    let ty = common(left.ty, right.ty);
    let (left, right) = (cast(left, ty), cast(right, ty));
    if ty.float {
        return float::compare(op, left, right);
    }
    match known(&left).zip(known(&right)) {
        Some((a, b)) => truth(op.holds(ty, a, b)),
        None => Expr { kind: ExprKind::Compare(op, Box::new(left), Box::new(right)), ty: Scalar::I32 },
    }
}

/// The condition in a form whose bits are zero only if it does not hold: −0.0 does not hold, NaN does.
pub(crate) fn condition(expr: Expr) -> Expr {
    let zero = constant(0, expr.ty);
    if expr.ty.float { compare(CompareOp::Ne, expr, zero) } else { expr }
}

pub(super) fn truth(holds: bool) -> Expr {
    constant(i64::from(holds), Scalar::I32)
}

/// `!a`.
pub(crate) fn is_zero(expr: Expr) -> Expr {
    let zero = constant(0, expr.ty);
    compare(CompareOp::Eq, expr, zero)
}

/// `a && b`.
pub(crate) fn and(left: Expr, right: Expr) -> Expr {
    let (left, right) = (condition(left), condition(right));
    match (known(&left), known(&right)) {
        (Some(0), _) => truth(false),
        (Some(_), Some(b)) => truth(b != 0),
        _ => Expr { kind: ExprKind::And(Box::new(left), Box::new(right)), ty: Scalar::I32 },
    }
}

/// `a || b`.
pub(crate) fn or(left: Expr, right: Expr) -> Expr {
    let (left, right) = (condition(left), condition(right));
    match (known(&left), known(&right)) {
        (Some(0), Some(b)) => truth(b != 0),
        (Some(a), _) if a != 0 => truth(true),
        _ => Expr { kind: ExprKind::Or(Box::new(left), Box::new(right)), ty: Scalar::I32 },
    }
}

/// `c ? a : b`, with C's conversions of `a` and `b`.
pub(crate) fn select(condition: Expr, yes: Expr, no: Expr) -> Expr {
    let ty = common(yes.ty, no.ty);
    let (yes, no) = (cast(yes, ty), cast(no, ty));
    let condition = self::condition(condition);
    match known(&condition) {
        Some(0) => no,
        Some(_) => yes,
        None => Expr { kind: ExprKind::Select(Box::new(condition), Box::new(yes), Box::new(no)), ty },
    }
}

/// `a, b`.
pub(crate) fn comma(first: Expr, second: Expr) -> Expr {
    let ty = second.ty;
    match known(&first) {
        Some(_) => second,
        None => Expr { kind: ExprKind::Comma(Box::new(first), Box::new(second)), ty },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_are_converted_to_cs_common_type() {
        assert_eq!(common(Scalar::U8, Scalar::I16), Scalar::I32);
        assert_eq!(common(Scalar::I32, Scalar::U32), Scalar::U32);
        assert_eq!(common(Scalar::I64, Scalar::U32), Scalar::I64);
        assert_eq!(common(Scalar::I64, Scalar::U64), Scalar::U64);
        assert_eq!(common(Scalar::U64, Scalar::I8), Scalar::U64);
    }

    #[test]
    fn constants_wrap_at_the_width_of_their_type() {
        let max = constant(i64::from(i32::MAX), Scalar::I32);
        let one = constant(1, Scalar::I32);
        assert_eq!(known(&binary(BinaryOp::Add, max, one, 1)), Some(i64::from(i32::MIN)));
        let minus = constant(-1, Scalar::I32);
        let unsigned = constant(1, Scalar::U32);
        assert_eq!(known(&compare(CompareOp::Lt, minus, unsigned)), Some(0), "-1 becomes the largest unsigned int");
    }

    #[test]
    fn a_constant_division_by_zero_is_not_folded() {
        let quotient = binary(BinaryOp::Div, constant(1, Scalar::I32), constant(0, Scalar::I32), 1);
        assert_eq!(known(&quotient), None);
    }
}
