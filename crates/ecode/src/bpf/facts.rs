//! Facts about expressions that the generator needs before it generates code.

use super::walk;
use crate::hir::{BinaryOp, Expr, ExprKind, Place, Program, Stmt};
use qfabric_types::format::Scalar;

/// Scratch registers, r0–r5.
pub(super) const SCRATCH: u32 = 6;

/// Largest number of results of one expression, each from its own path, that may reach a join in a register. More
/// results go through the frame: there the kernel's verifier sees one unknown number instead of each constant.
const MOST_FLOWS: u64 = 4;

/// Scratch registers that the expression needs if no value waits in the frame. [`SCRATCH`] or more means: all
/// scratch registers must be free at its start, because it contains jumps, calls of the host, or more values than
/// registers.
pub(super) fn registers(expr: &Expr) -> u32 {
    match &expr.kind {
        ExprKind::Const(_) | ExprKind::Attr(_) => 1,
        ExprKind::Load(place) => registers_of_place(place).max(1),
        ExprKind::Neg(one) | ExprKind::Not(one) | ExprKind::Cast(one) | ExprKind::SetAttr(_, one) => registers(one),
        ExprKind::Binary { op, left, right, .. } => {
            let beside = if immediate(right, left.ty).is_some() { 0 } else { 1 + registers(right) };
            let own = if matches!(op, BinaryOp::Div | BinaryOp::Rem) { 4 } else { 2 };
            registers(left).max(beside).max(own)
        }
        _ => SCRATCH,
    }
}

/// The same number for the indices of a place, each of which waits for the next.
pub(super) fn registers_of_place(place: &Place) -> u32 {
    let each = place.indices.iter().zip(0..);
    each.map(|(index, waiting)| waiting + registers(&index.value)).max().unwrap_or(0)
}

/// The constant in the form that an instruction on numbers of that type accepts.
pub(super) fn immediate(expr: &Expr, ty: Scalar) -> Option<i32> {
    match expr.kind {
        ExprKind::Const(value) if ty.bits < 64 => Some(value as i32),
        ExprKind::Const(value) => i32::try_from(value).ok(),
        _ => None,
    }
}

/// The smallest and the largest possible value. The real range may be smaller.
pub(super) fn range(expr: &Expr) -> (i128, i128) {
    range_to(expr, 6)
}

pub(super) fn never_negative(expr: &Expr) -> bool {
    range(expr).0 >= 0
}

/// The smallest and the largest value of a type.
fn whole(ty: Scalar) -> (i128, i128) {
    match ty.signed {
        true => (-(1 << (ty.bits - 1)), (1 << (ty.bits - 1)) - 1),
        false => (0, (1 << ty.bits) - 1),
    }
}

fn range_to(expr: &Expr, depth: u32) -> (i128, i128) {
    let whole = whole(expr.ty);
    let fitting = |(low, high): (i128, i128)| if low >= whole.0 && high <= whole.1 { (low, high) } else { whole };
    let Some(depth) = depth.checked_sub(1) else { return whole };
    let of = |expr: &Expr| range_to(expr, depth);
    match &expr.kind {
        ExprKind::Const(value) if expr.ty.signed => (i128::from(*value), i128::from(*value)),
        ExprKind::Const(value) => (i128::from(*value as u64), i128::from(*value as u64)),
        ExprKind::Cast(one) => fitting(of(one)),
        ExprKind::Compare(..) | ExprKind::And(..) | ExprKind::Or(..) => (0, 1),
        ExprKind::Select(_, yes, no) => union(of(yes), of(no)),
        ExprKind::Comma(_, last) => of(last),
        ExprKind::Binary { op, left, right, .. } => fitting(combined(*op, of(left), of(right), whole)),
        _ => whole,
    }
}

fn union(a: (i128, i128), b: (i128, i128)) -> (i128, i128) {
    (a.0.min(b.0), a.1.max(b.1))
}

fn combined(op: BinaryOp, a: (i128, i128), b: (i128, i128), whole: (i128, i128)) -> (i128, i128) {
    let both_positive = a.0 >= 0 && b.0 >= 0;
    match op {
        BinaryOp::Add => (a.0 + b.0, a.1 + b.1),
        BinaryOp::Sub => (a.0 - b.1, a.1 - b.0),
        BinaryOp::Mul if both_positive => (a.0.saturating_mul(b.0), a.1.saturating_mul(b.1)),
        BinaryOp::And if both_positive => (0, a.1.min(b.1)),
        BinaryOp::And if a.0 >= 0 => (0, a.1),
        BinaryOp::And if b.0 >= 0 => (0, b.1),
        BinaryOp::Rem if both_positive => (0, a.1.min((b.1 - 1).max(0))),
        BinaryOp::Div | BinaryOp::Shr if a.0 >= 0 && both_positive => (0, a.1),
        _ => whole,
    }
}

/// For each function: the number of results that it may return to its caller, each from its own path.
pub(super) fn flows_of_functions(program: &Program) -> Vec<u64> {
    // Reaching the end of the body adds one result.
    walk::by_function(program, |body, known| 1 + returned_flows(body, known))
}

fn returned_flows(body: &[Stmt], known: &[u64]) -> u64 {
    let of_stmt = |stmt: &Stmt| match stmt {
        Stmt::Return(value) => value.as_ref().map_or(1, |value| flows(value, known)),
        other => walk::parts(other).1.into_iter().map(|block| returned_flows(block, known)).sum(),
    };
    body.iter().map(of_stmt).fold(0, u64::saturating_add)
}

/// The number of different results, each from its own path, that an expression may leave in its register.
pub(super) fn flows(expr: &Expr, functions: &[u64]) -> u64 {
    match &expr.kind {
        ExprKind::Compare(..) | ExprKind::And(..) | ExprKind::Or(..) => 2,
        ExprKind::Builtin(..) => 2,
        ExprKind::Select(_, yes, no) => in_register(flows(yes, functions) + flows(no, functions)).unwrap_or(1),
        ExprKind::Call(function, _) => in_register(functions[function.0 as usize]).unwrap_or(1),
        ExprKind::Neg(one) | ExprKind::Not(one) | ExprKind::Cast(one) | ExprKind::SetAttr(_, one) => {
            flows(one, functions)
        }
        ExprKind::Store(_, value) => flows(value, functions),
        ExprKind::Comma(_, last) => flows(last, functions),
        ExprKind::Binary { left, right, .. } => flows(left, functions).max(flows(right, functions)),
        _ => 1,
    }
}

/// Returns the number of flows if they may arrive in a register; `None` if they must go through the frame.
pub(super) fn in_register(flows: u64) -> Option<u64> {
    (flows <= MOST_FLOWS).then_some(flows)
}

/// For a 64-bit comparison that the lower halves decide: both halves and the type to compare them in.
pub(super) fn as_halves<'a>(left: &'a Expr, right: &'a Expr) -> Option<(&'a Expr, &'a Expr, Scalar)> {
    let from = widened(left)?;
    let (least, most) = whole(from.ty);
    let fits = |(low, high)| low >= least && high <= most;
    let other = match (widened(right), &right.kind) {
        (Some(other), _) if other.ty == from.ty => other,
        (None, ExprKind::Const(_)) if fits(range(right)) => right,
        _ => return None,
    };
    Some((from, other, Scalar { bits: 32, signed: from.ty.signed && left.ty.signed, float: false }))
}

/// The 32-bit expression from which a 64-bit expression was widened.
fn widened(expr: &Expr) -> Option<&Expr> {
    match &expr.kind {
        ExprKind::Cast(one) if expr.ty.bits == 64 && one.ty.bits == 32 => Some(one),
        _ => None,
    }
}
