//! Warnings, where C compilers warn: the text means something, but probably not what its author meant.

use super::fold::known;
use super::{Checked, Checker, Findings};
use crate::ast::{Expr, ExprKind, Operator, Stmt, StmtKind, UnaryOp};
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::{self, BinaryOp, CompareOp};

impl Checker<'_> {
    /// Checks the condition of `if` or of a loop.
    pub(super) fn condition(&mut self, expr: &Expr) -> Checked<hir::Expr> {
        if let ExprKind::Assign(None, sign, left, right) = &expr.kind
            && is_bare(expr, left, right)
        {
            let warning = Diagnostic::new(*sign, "this condition is an assignment", "assigns a value");
            let help = "write `==` to compare; if you mean the assignment, put a second pair of parentheses around it";
            self.findings.warnings.push(warning.help(help));
        }
        self.number(expr).map(super::fold::condition)
    }
}

impl Findings<'_> {
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

    /// `return -1;` in the statements of a text. In COD, from which users come, it drops the event.
    pub(super) fn warn_negative_verdict(&mut self, value: &Expr) {
        let ExprKind::Unary(UnaryOp::Minus, operand) = &value.kind else { return };
        let is_bare = value.span.end == operand.span.end && matches!(operand.kind, ExprKind::Int(1.., _));
        if is_bare {
            let message = "a negative verdict passes the event, because only 0 drops it";
            let warning = Diagnostic::new(value.span, message, "passes the event");
            let help = "write `return 0;` to drop the event; if you mean to pass it, write `return 1;`";
            self.warnings.push(warning.help(help));
        }
    }

    /// `x < 0` and `x >= 0` for an unsigned `x`.
    pub(super) fn warn_unsigned(&mut self, op: CompareOp, sign: Span, a: &hir::Expr, b: &hir::Expr) {
        let is_zero = |expr: &hir::Expr| known(expr) == Some(0);
        let is_unsigned = |expr: &hir::Expr| !expr.ty.signed && !expr.ty.float && known(expr).is_none();
        let holds = match op {
            CompareOp::Lt if is_unsigned(a) && is_zero(b) => false,
            CompareOp::Gt if is_zero(a) && is_unsigned(b) => false,
            CompareOp::Ge if is_unsigned(a) && is_zero(b) => true,
            CompareOp::Le if is_zero(a) && is_unsigned(b) => true,
            _ => return,
        };
        let message = format!("this comparison {} holds", if holds { "always" } else { "never" });
        let warning = Diagnostic::new(sign, message, "an unsigned number is never below 0");
        self.warnings.push(warning.help("use a signed type, such as `int` or `long`, or remove the comparison"));
    }

    /// `!a == b`: the comparison of a truth value.
    fn warn_negated(&mut self, op: Operator, left: &Expr, right: &Expr) {
        let (Operator::Compare(_), ExprKind::Unary(UnaryOp::Not, operand)) = (op, &left.kind) else { return };
        let is_truth = matches!(
            right.kind,
            ExprKind::Unary(UnaryOp::Not, _)
                | ExprKind::Binary(Operator::Compare(_) | Operator::And | Operator::Or, ..)
        );
        if left.span.end == operand.span.end && !is_truth {
            let warning = Diagnostic::new(left.span, "`!` binds tighter than the comparison", "0 or 1");
            self.warnings.push(warning.help("write `!(a == b)` or `a != b`; if you mean it, write `(!a) == b`"));
        }
    }

    /// Operators whose grouping surprises: `a < b < c`, `a & b == c`, `a || b && c`, `a << b + c`, `!a == b`.
    pub(super) fn warn_grouping(&mut self, op: Operator, sign: Span, left: &Expr, right: &Expr) {
        self.warn_negated(op, left, right);
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
                (Operator::Value(BinaryOp::Shl | BinaryOp::Shr), Operator::Value(BinaryOp::Add | BinaryOp::Sub)) => {
                    ("`+` and `-` bind tighter than a shift", "write `(a << b) + c`")
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
