//! Lists the parts of expressions and statements, in order of evaluation.

use crate::hir::{Expr, ExprKind, FunctionId, Place, Program, Stmt};

/// The direct operands of an expression, including the indices of its place.
pub(super) fn operands(expr: &Expr) -> Vec<&Expr> {
    let indices = |place| -> Vec<&Expr> { indices_of(place) };
    match &expr.kind {
        ExprKind::Const(_) | ExprKind::Attr(_) => Vec::new(),
        ExprKind::Load(place) => indices(place),
        ExprKind::Store(place, value) | ExprKind::Update { place, value, .. } => {
            let mut all = indices(place);
            all.push(value);
            all
        }
        ExprKind::Copy { to, from, .. } => {
            let mut all = indices(to);
            all.extend(indices(from));
            all
        }
        ExprKind::SetAttr(_, one) | ExprKind::AddAttr(_, one) => vec![one],
        ExprKind::Neg(one) | ExprKind::Not(one) | ExprKind::Cast(one) => vec![one],
        ExprKind::Binary { left, right, .. } => vec![left, right],
        ExprKind::Compare(_, left, right) | ExprKind::And(left, right) => vec![left, right],
        ExprKind::Or(left, right) | ExprKind::Comma(left, right) => vec![left, right],
        ExprKind::Select(condition, yes, no) => vec![condition, yes, no],
        ExprKind::Call(_, arguments) | ExprKind::Builtin(_, arguments) => arguments.iter().collect(),
    }
}

/// The direct expressions and statement lists of a statement.
pub(super) fn parts(stmt: &Stmt) -> (Vec<&Expr>, Vec<&[Stmt]>) {
    match stmt {
        Stmt::Expr(expr) => (vec![expr], vec![]),
        Stmt::If(condition, yes, no) => (vec![condition], vec![yes, no]),
        Stmt::Loop { condition, step, body, .. } => (condition.iter().chain(step).collect(), vec![body]),
        Stmt::Break | Stmt::Continue => (vec![], vec![]),
        Stmt::Return(value) => (value.iter().collect(), vec![]),
        Stmt::Clear { place, .. } => (indices_of(place), vec![]),
    }
}

fn indices_of(place: &Place) -> Vec<&Expr> {
    place.indices.iter().map(|index| &index.value).collect()
}

/// Calls `visit` for each call in these statements.
pub(crate) fn calls(body: &[Stmt], visit: &mut dyn FnMut(FunctionId)) {
    for stmt in body {
        let (exprs, blocks) = parts(stmt);
        exprs.into_iter().for_each(|expr| calls_in(expr, visit));
        blocks.into_iter().for_each(|block| calls(block, visit));
    }
}

fn calls_in(expr: &Expr, visit: &mut dyn FnMut(FunctionId)) {
    operands(expr).into_iter().for_each(|operand| calls_in(operand, visit));
    if let ExprKind::Call(function, _) = expr.kind {
        visit(function);
    }
}

/// Whether the expression contains a call.
pub(super) fn has_call(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Call(..)) || operands(expr).into_iter().any(has_call)
}

/// Computes one number per function, callees first. `combine` receives a function's body and the results of all
/// functions before it, and counts a call as the result of the called function.
pub(super) fn by_function(program: &Program, mut combine: impl FnMut(&[Stmt], &[u64]) -> u64) -> Vec<u64> {
    let mut all = Vec::with_capacity(program.functions.len());
    for function in &program.functions {
        let one = combine(&function.body, &all);
        all.push(one);
    }
    all
}
