//! Statements.

use super::fold::{constant, known};
use super::place::Location;
use super::types::Type;
use super::{Around, Checked, Checker, Findings};
use crate::ast::{Expr, ExprKind, Operator, Stmt, StmtKind};
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::{self, Base, CompareOp, Repetition};
use crate::parser::Failed;
use qfabric_types::format::Scalar;

impl Checker<'_> {
    /// Checks the statements of a block in a new scope.
    pub(super) fn block(&mut self, statements: &[Stmt], body: &mut Vec<hir::Stmt>) {
        let used = self.frame.used;
        self.scopes.enter();
        for statement in statements {
            self.statement(statement, body);
        }
        self.scopes.leave();
        self.frame.used = used;
    }

    /// Checks the single statement of an `if` or a loop.
    fn inner(&mut self, statement: &Stmt) -> Vec<hir::Stmt> {
        let mut body = Vec::new();
        self.block(std::slice::from_ref(statement), &mut body);
        body
    }

    /// Checks a statement. Its errors have been reported when this function returns.
    pub(super) fn statement(&mut self, statement: &Stmt, body: &mut Vec<hir::Stmt>) {
        let used = self.frame.used;
        let _: Result<(), Failed> = self.checked_statement(statement, body);
        if !matches!(statement.kind, StmtKind::Declare(_)) {
            // The temporary variables of the statement are free again.
            self.frame.used = used;
        }
    }

    fn checked_statement(&mut self, statement: &Stmt, body: &mut Vec<hir::Stmt>) -> Checked<()> {
        match &statement.kind {
            StmtKind::Empty => {}
            StmtKind::Expr(expr) => self.expression_statement(expr, body)?,
            StmtKind::Declare(declaration) => self.declaration(declaration, body),
            StmtKind::Define(name, value) => self.define(name, value),
            StmtKind::Block(statements) => self.block(statements, body),
            StmtKind::If { condition, then, otherwise } => {
                self.selection(|checker| checker.if_statement(condition, then, otherwise.as_deref(), body))?;
            }
            StmtKind::Loop { .. } => self.loop_statement(statement, body)?,
            StmtKind::Switch { keyword, value, sections } => {
                self.selection(|checker| checker.switch(*keyword, value, sections, body))?;
            }
            StmtKind::Break => self.break_statement(statement.span, body)?,
            StmtKind::Continue => self.continue_statement(statement.span, body)?,
            StmtKind::Return(value) => self.return_statement(value.as_ref(), statement.span, body)?,
        }
        Ok(())
    }

    /// Checks an `if` or a `switch` in its own scope (C11 6.8.4): a type in its condition is not visible after it.
    fn selection(&mut self, check: impl FnOnce(&mut Self) -> Checked<()>) -> Checked<()> {
        self.scopes.enter();
        let checked = check(self);
        self.scopes.leave();
        checked
    }

    fn if_statement(
        &mut self,
        condition: &Expr,
        then: &Stmt,
        otherwise: Option<&Stmt>,
        body: &mut Vec<hir::Stmt>,
    ) -> Checked<()> {
        let condition = self.condition(condition);
        self.findings.warn_empty_branch(then);
        let then = self.inner(then);
        let otherwise = otherwise.map_or_else(Vec::new, |otherwise| self.inner(otherwise));
        push_if(condition?, then, otherwise, body);
        Ok(())
    }

    fn expression_statement(&mut self, expr: &Expr, body: &mut Vec<hir::Stmt>) -> Checked<()> {
        if let ExprKind::Binary(Operator::Compare(CompareOp::Eq), sign, ..) = &expr.kind {
            let error = Diagnostic::new(*sign, "this comparison has no effect", "compares two values");
            return self.findings.fail(error.help("write `=` to assign"));
        }
        self.findings.warn_without_effect(expr);
        let effect = self.effect(expr)?;
        if known(&effect).is_none() {
            body.push(hir::Stmt::Expr(effect));
        }
        Ok(())
    }

    fn loop_statement(&mut self, statement: &Stmt, body: &mut Vec<hir::Stmt>) -> Checked<()> {
        let StmtKind::Loop { keyword, first, condition, tests_after, step, body: repeated } = &statement.kind else {
            unreachable!("only loops come here")
        };
        let errors_before = self.findings.errors.len();
        self.scopes.enter();
        if let Some(first) = first {
            self.statement(first, body);
        }
        let checked = condition.as_ref().map(|condition| self.condition(condition)).transpose();
        self.frame.around.push(Around::Loop);
        let repeated = self.inner(repeated);
        self.frame.around.pop();
        let step = step.as_ref().map(|step| self.effect(step)).transpose();
        self.scopes.leave();
        let turns = super::loops::Turns { condition: checked?, tests_after: *tests_after, step: step?, body: repeated };
        // A statement with an error is missing from the body. It might have ended the loop, so the check is
        // skipped.
        if self.findings.errors.len() == errors_before && !turns.end_is_visible() {
            return self.findings.fail_endless(*keyword, condition.as_ref(), &turns);
        }
        let (number, line) = (self.loops.len() as u32, self.findings.line(*keyword));
        self.loops.push(Repetition { turns: turns.most(body.last()), cost: 0 });
        body.extend(turns.statement(number, line));
        Ok(())
    }

    fn break_statement(&mut self, span: Span, body: &mut Vec<hir::Stmt>) -> Checked<()> {
        match self.frame.around.last() {
            Some(Around::Loop) => body.push(hir::Stmt::Break),
            Some(Around::Switch) if self.frame.ending_breaks.contains(&span) => {}
            Some(Around::Switch) => {
                let error =
                    Diagnostic::new(span, "a `break` in the middle of a `case`", "`break` may only end the `case`");
                return self
                    .findings
                    .fail(error.help("move the following statements into the `else` of the condition"));
            }
            None => {
                let error = Diagnostic::new(span, "`break` outside a loop", "no loop encloses it");
                return self.findings.fail(error.help("use `return` to end the function or the program"));
            }
        }
        Ok(())
    }

    fn continue_statement(&mut self, span: Span, body: &mut Vec<hir::Stmt>) -> Checked<()> {
        if !self.frame.around.contains(&Around::Loop) {
            let error = Diagnostic::new(span, "`continue` outside a loop", "no loop encloses it");
            return self.findings.fail(error.help("use `return` to end the function or the program"));
        }
        body.push(hir::Stmt::Continue);
        Ok(())
    }

    fn return_statement(&mut self, value: Option<&Expr>, span: Span, body: &mut Vec<hir::Stmt>) -> Checked<()> {
        let is_program = self.frame.is_entry && self.frame.name.is_empty();
        if let Some(value) = value.filter(|_| is_program) {
            self.findings.warn_negative_verdict(value);
        }
        let value = match (value, self.frame.result.clone()) {
            (Some(value), Some(Type::Scalar(ty))) => Some(super::fold::cast(self.number(value)?, ty)),
            (Some(value), Some(ty)) => {
                let result = Location::at(Base::Local, 0, ty, false);
                self.return_record(result, value, body)?;
                None
            }
            (None, None) => None,
            // The statements of the text may end with or without a verdict.
            (None, Some(_)) if self.frame.is_entry && self.frame.name.is_empty() => None,
            (None, Some(_)) => {
                let message = format!("`{}` must return a value", self.frame.name);
                let error = Diagnostic::new(span, message, "expected a value");
                return self.findings.fail(error.help("write `return …;`, or declare the function `void`"));
            }
            (Some(value), None) => {
                let message = format!("`{}` is `void` and returns no value", self.frame.name);
                let error = Diagnostic::new(value.span, message, "a value is not allowed here");
                return self.findings.fail(error.help("declare the function `long` instead of `void`"));
            }
        };
        body.push(hir::Stmt::Return(match value {
            None if self.frame.is_entry => Some(constant(1, Scalar::I64)),
            Some(value) if self.frame.is_entry => Some(super::fold::cast(value, Scalar::I64)),
            value => value,
        }));
        Ok(())
    }
}

impl Findings<'_> {
    fn fail_endless(&mut self, keyword: Span, condition: Option<&Expr>, turns: &super::loops::Turns) -> Checked<()> {
        let word = keyword.of(self.text);
        let error = Diagnostic::new(keyword, format!("this `{word}` loop has no visible end"), "never ends");
        let help = "change a variable of the condition inside the loop, or leave the loop with `break` or `return`";
        self.fail(match condition {
            Some(condition) if turns.condition.as_ref().is_some_and(|value| known(value).is_none()) => {
                error.related(condition.span, "the loop changes no variable that this condition reads").help(help)
            }
            Some(condition) => error.related(condition.span, "always true").help(help),
            None => error.help("add a condition, or leave the loop with `break` or `return`"),
        })
    }
}

/// Adds an `if`. If the condition is constant, adds only the branch that is taken.
pub(super) fn push_if(
    condition: hir::Expr,
    then: Vec<hir::Stmt>,
    otherwise: Vec<hir::Stmt>,
    body: &mut Vec<hir::Stmt>,
) {
    match known(&condition) {
        Some(0) => body.extend(otherwise),
        Some(_) => body.extend(then),
        None => body.push(hir::Stmt::If(condition, then, otherwise)),
    }
}
