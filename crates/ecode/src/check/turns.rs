//! Computes the largest number of iterations of a loop if the text states it: a local variable that only the
//! loop's step changes, by a constant, and a condition that compares the variable with a value of known range. For
//! all other loops the number is unknown, and fuel bounds them.

use qfabric_types::format::Scalar;

use super::loops::Turns;
use crate::hir::{Base, BinaryOp, CompareOp, Expr, ExprKind, Place, Repetition, Stmt};

impl Turns {
    /// The most iterations per execution of the loop; `before` is the statement directly before the loop.
    pub(super) fn most(&self, before: Option<&Stmt>) -> u64 {
        let bounded = self.condition.as_ref().and_then(|condition| self.by(condition, before));
        bounded.map_or(Repetition::UNKNOWN, |turns| turns.saturating_add(u64::from(self.tests_after)))
    }

    /// The bound from the comparisons of the condition. With `&&`, the lower of the two bounds applies.
    fn by(&self, condition: &Expr, before: Option<&Stmt>) -> Option<u64> {
        match &condition.kind {
            ExprKind::And(a, b) => [a, b].into_iter().filter_map(|one| self.by(one, before)).min(),
            ExprKind::Compare(op, a, b) => {
                let forth = counter(a).and_then(|place| self.counted(place, *op, b, before));
                forth.or_else(|| counter(b).and_then(|place| self.counted(place, turned(*op)?, a, before)))
            }
            _ => None,
        }
    }

    /// The bound from `place op bound` and a step that leads towards the bound.
    fn counted(&self, place: &Place, op: CompareOp, bound: &Expr, before: Option<&Stmt>) -> Option<u64> {
        let step = self.step_of(place)?;
        let (least, most) = range(bound);
        let (lowest, highest) = limits(place.ty);
        // The first value at which the condition must fail. If it lies outside the type's range, the condition may
        // never fail.
        let distance = match op {
            CompareOp::Lt | CompareOp::Le if step > 0 => {
                let end = most + i128::from(op == CompareOp::Le);
                (end - 1 + step <= highest).then(|| end - begins(place, before).unwrap_or(lowest))?
            }
            CompareOp::Gt | CompareOp::Ge if step < 0 => {
                let end = least - i128::from(op == CompareOp::Ge);
                (end + 1 + step >= lowest).then(|| begins(place, before).unwrap_or(highest) - end)?
            }
            _ => return None,
        };
        let step = step.unsigned_abs();
        u64::try_from(u128::try_from(distance).unwrap_or(0).div_ceil(step)).ok()
    }

    /// The amount that each iteration adds to the variable if nothing else changes it: in the loop's step, or in
    /// the last statement of a body without `continue`.
    fn step_of(&self, place: &Place) -> Option<i128> {
        let stays = |body: &[Stmt], step: Option<&Expr>| {
            !self.changes(place, body, step.into_iter().chain(self.condition.as_ref()))
        };
        if let Some(by) = self.step.as_ref().and_then(|step| added(step, place)) {
            return stays(&self.body, None).then_some(by);
        }
        let (Stmt::Expr(last), rest) = self.body.split_last()? else { return None };
        let by = added(last, place)?;
        (stays(rest, self.step.as_ref()) && !goes_on(rest)).then_some(by)
    }
}

/// The local variable that this expression reads without changing the value.
fn counter(expr: &Expr) -> Option<&Place> {
    match &expr.kind {
        ExprKind::Load(place) if place.base == Base::Local && place.indices.is_empty() => Some(place),
        ExprKind::Cast(inner) if range(inner) == range(expr) => counter(inner),
        _ => None,
    }
}

/// The same comparison with exchanged sides.
fn turned(op: CompareOp) -> Option<CompareOp> {
    match op {
        CompareOp::Lt => Some(CompareOp::Gt),
        CompareOp::Le => Some(CompareOp::Ge),
        CompareOp::Gt => Some(CompareOp::Lt),
        CompareOp::Ge => Some(CompareOp::Le),
        CompareOp::Eq | CompareOp::Ne => None,
    }
}

/// The amount that `place += constant` or `place -= constant` adds.
fn added(expr: &Expr, to: &Place) -> Option<i128> {
    let ExprKind::Update { place, op, value, .. } = &expr.kind else { return None };
    let ExprKind::Const(by) = value.kind else { return None };
    match op {
        _ if place != to || by == 0 => None,
        BinaryOp::Add => Some(i128::from(by)),
        BinaryOp::Sub => Some(-i128::from(by)),
        _ => None,
    }
}

/// The constant that the statement assigns to the variable.
fn begins(place: &Place, statement: Option<&Stmt>) -> Option<i128> {
    let Some(Stmt::Expr(Expr { kind: ExprKind::Store(to, value), .. })) = statement else { return None };
    let ExprKind::Const(value) = value.kind else { return None };
    (to == place).then(|| number(place.ty.wrap(value), place.ty))
}

/// The smallest and the largest possible value.
fn range(expr: &Expr) -> (i128, i128) {
    let whole = limits(expr.ty);
    match &expr.kind {
        ExprKind::Const(value) => (number(*value, expr.ty), number(*value, expr.ty)),
        ExprKind::Load(place) => limits(place.ty),
        ExprKind::Cast(inner) => {
            let inner = range(inner);
            if inner.0 >= whole.0 && inner.1 <= whole.1 { inner } else { whole }
        }
        _ => whole,
    }
}

/// The lowest and the highest value of a type.
fn limits(ty: Scalar) -> (i128, i128) {
    let values = 1_i128 << ty.bits;
    if ty.signed { (-values / 2, values / 2 - 1) } else { (0, values - 1) }
}

/// A 64-bit word as the number that it represents.
fn number(word: i64, ty: Scalar) -> i128 {
    if ty.signed { i128::from(word) } else { i128::from(word as u64) }
}

/// Whether the body contains a `continue` of this loop.
fn goes_on(body: &[Stmt]) -> bool {
    body.iter().any(|statement| match statement {
        Stmt::Continue => true,
        Stmt::If(_, then, otherwise) => goes_on(then) || goes_on(otherwise),
        _ => false,
    })
}
