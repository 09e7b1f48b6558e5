//! Warnings, where C compilers warn: the text means something, but probably not what its author meant.

use super::{Checked, Checker};
use crate::ast::{Expr, ExprKind, Operator, Stmt, StmtKind};
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::{self, BinaryOp};

impl Checker<'_> {
    /// Checks the condition of `if` or of a loop.
    pub(super) fn condition(&mut self, expr: &Expr) -> Checked<hir::Expr> {
        if let ExprKind::Assign(None, sign, left, right) = &expr.kind
            && is_bare(expr, left, right)
        {
            let warning = Diagnostic::new(*sign, "this condition is an assignment", "assigns a value");
            let help = "write `==` to compare; if you mean the assignment, put a second pair of parentheses around it";
            self.warnings.push(warning.help(help));
        }
        self.number(expr).map(super::fold::condition)
    }

    /// `if (…);`: the branch is empty.
    pub(super) fn warn_empty_branch(&mut self, then: &Stmt) {
        if matches!(then.kind, StmtKind::Empty) {
            let warning = Diagnostic::new(then.span, "this `if` does nothing", "an empty statement");
            self.warnings.push(warning.help("remove the `;`, or write `{ }` if you mean it"));
        }
    }

    pub(super) fn warn_without_effect(&mut self, expr: &Expr) {
        if !has_effect(expr) {
            let warning = Diagnostic::new(expr.span, "this statement has no effect", "its value is not used");
            self.warnings.push(warning.help("remove it, or assign the value"));
        }
    }

    /// Operators whose grouping surprises: `a < b < c`, `a & b == c`, `a || b && c`.
    pub(super) fn warn_grouping(&mut self, op: Operator, sign: Span, left: &Expr, right: &Expr) {
        for side in [left, right] {
            let ExprKind::Binary(inner, inner_sign, a, b) = &side.kind else { continue };
            if !is_bare(side, a, b) {
                continue;
            }
            let (message, help) = match (op, inner) {
                (Operator::Compare(_), Operator::Compare(_)) => {
                    ("this compares the result of a comparison, 0 or 1", "write `a < b && b < c`")
                }
                (Operator::Value(BinaryOp::And | BinaryOp::Or | BinaryOp::Xor), Operator::Compare(_)) => {
                    ("the comparison binds tighter than this operator", "write `(a & b) == c`")
                }
                (Operator::Or, Operator::And) => ("`&&` binds tighter than `||`", "write `a || (b && c)`"),
                _ => continue,
            };
            let warning = Diagnostic::new(sign, message, "").related(*inner_sign, "evaluated first");
            self.warnings.push(warning.help(format!("put parentheses around the part that you mean: {help}")));
        }
    }
}

/// Whether no parentheses enclose an expression with these two operands.
fn is_bare(expr: &Expr, left: &Expr, right: &Expr) -> bool {
    (expr.span.start, expr.span.end) == (left.span.start, right.span.end)
}

fn has_effect(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Assign(..) | ExprKind::Step { .. } | ExprKind::Call(..) => true,
        // The author writes `(void)x` to say that the value is not used.
        ExprKind::Cast(..) => true,
        _ => expr.kind.children().any(has_effect),
    }
}
