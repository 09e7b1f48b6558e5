//! What an expression or a statement consists of, in the order of evaluation.

use crate::hir::{Expr, ExprKind, FunctionId, Place, Program, Stmt};

/// The expressions directly inside an expression, indices of its place included.
pub fn operands(expr: &Expr) -> Vec<&Expr> {
    let indices = |place| -> Vec<&Expr> { indices_of(place) };
    match &expr.kind {
        ExprKind::Const(_) | ExprKind::Attr(_) => Vec::new(),
        ExprKind::Load(place) => indices(place),
        ExprKind::Store(place, value) | ExprKind::Update { place, value, .. } => {
            let mut all = indices(place);
            all.push(value);
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

/// The expressions directly inside a statement, and the lists of statements.
pub fn parts(stmt: &Stmt) -> (Vec<&Expr>, Vec<&[Stmt]>) {
    match stmt {
        Stmt::Expr(expr) => (vec![expr], vec![]),
        Stmt::If(condition, yes, no) => (vec![condition], vec![yes, no]),
        Stmt::Loop { condition, step, body, .. } => (condition.iter().chain(step).collect(), vec![body]),
        Stmt::Break | Stmt::Continue => (vec![], vec![]),
        Stmt::Return(value) => (value.iter().collect(), vec![]),
        Stmt::Clear { place, .. } => (indices_of(place), vec![]),
        Stmt::Copy { to, from, .. } => {
            let mut all = indices_of(to);
            all.extend(indices_of(from));
            (all, vec![])
        }
    }
}

fn indices_of(place: &Place) -> Vec<&Expr> {
    place.indices.iter().map(|index| &index.value).collect()
}

/// Calls `visit` with every function that is called by these statements, as often as it is called.
pub fn calls(body: &[Stmt], visit: &mut dyn FnMut(FunctionId)) {
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

/// Whether a function is called in the expression.
pub fn has_call(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Call(..)) || operands(expr).into_iter().any(has_call)
}

/// By function, something that is the sum or the largest of what stands in it, in which a call counts as what its
/// function came to: `combine` sees a function's body and what the functions before it came to.
pub fn by_function(program: &Program, mut combine: impl FnMut(&[Stmt], &[u64]) -> u64) -> Vec<u64> {
    let mut all = Vec::with_capacity(program.functions.len());
    for function in &program.functions {
        let one = combine(&function.body, &all);
        all.push(one);
    }
    all
}
