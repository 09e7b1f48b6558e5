//! Gives the functions in a checked body other numbers.

use crate::hir::{Base, Expr, ExprKind, FunctionId, Place, Stmt};

type Number<'a> = &'a dyn Fn(FunctionId) -> FunctionId;

pub(super) fn functions(body: &mut [Stmt], number: Number<'_>) {
    for stmt in body {
        match stmt {
            Stmt::Expr(one) => expr(one, number),
            Stmt::If(condition, yes, no) => {
                expr(condition, number);
                functions(yes, number);
                functions(no, number);
            }
            Stmt::Loop { condition, step, body, .. } => {
                condition.iter_mut().chain(step).for_each(|one| expr(one, number));
                functions(body, number);
            }
            Stmt::Return(value) => value.iter_mut().for_each(|one| expr(one, number)),
            Stmt::Clear { place: at, .. } => place(at, number),
            Stmt::Break | Stmt::Continue => {}
        }
    }
}

fn place(place: &mut Place, number: Number<'_>) {
    if let Base::Frame(function) = &mut place.base {
        *function = number(*function);
    }
    place.indices.iter_mut().for_each(|index| expr(&mut index.value, number));
}

fn expr(one: &mut Expr, number: Number<'_>) {
    match &mut one.kind {
        ExprKind::Const(_) | ExprKind::Attr(_) => {}
        ExprKind::Load(at) => place(at, number),
        ExprKind::Store(at, value) | ExprKind::Update { place: at, value, .. } => {
            place(at, number);
            expr(value, number);
        }
        ExprKind::Copy { to, from, .. } => {
            place(to, number);
            place(from, number);
        }
        ExprKind::SetAttr(_, a) | ExprKind::AddAttr(_, a) => expr(a, number),
        ExprKind::Neg(a) | ExprKind::Not(a) | ExprKind::Cast(a) => expr(a, number),
        ExprKind::Binary { left: a, right: b, .. }
        | ExprKind::Compare(_, a, b)
        | ExprKind::And(a, b)
        | ExprKind::Or(a, b)
        | ExprKind::Comma(a, b) => {
            expr(a, number);
            expr(b, number);
        }
        ExprKind::Select(a, b, c) => [a, b, c].into_iter().for_each(|one| expr(one, number)),
        ExprKind::Call(function, arguments) => {
            *function = number(*function);
            arguments.iter_mut().for_each(|one| expr(one, number));
        }
        ExprKind::Builtin(_, arguments) => arguments.iter_mut().for_each(|one| expr(one, number)),
    }
}
