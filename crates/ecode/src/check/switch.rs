//! `switch`: compares the value with each `case` in turn. Each section except the last must end with `break`,
//! `return` or `continue`, because falling through is usually a mistake.

use std::collections::HashSet;

use super::fold::{self, constant};
use super::stmt::push_if;
use super::{Around, Checked, Checker, Findings};
use crate::ast::{Expr, Section, Stmt, StmtKind};
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::{self, CompareOp};
use qfabric_types::format::Scalar;

impl Checker<'_> {
    pub(super) fn switch(
        &mut self,
        keyword: Span,
        value: &Expr,
        sections: &[Section],
        body: &mut Vec<hir::Stmt>,
    ) -> Checked<()> {
        self.findings.refuse_falling_through(keyword, sections);
        let value = fold::promote(self.integer(value)?);
        let ty = value.ty;
        let place = self.frame.temporary(ty, keyword, &mut self.findings)?;
        body.push(hir::Stmt::Expr(hir::Expr { kind: hir::ExprKind::Store(place.clone(), Box::new(value)), ty }));
        let value = hir::Expr { kind: hir::ExprKind::Load(place), ty };
        let branches = self.branches(&value, sections)?;
        let mut chosen = Vec::new();
        for (condition, statements) in branches.into_iter().rev() {
            let mut next = Vec::new();
            push_if(condition, statements, chosen, &mut next);
            chosen = next;
        }
        body.extend(chosen);
        Ok(())
    }

    /// The condition and the statements of each section. The section with `default` comes last.
    fn branches(&mut self, value: &hir::Expr, sections: &[Section]) -> Checked<Vec<(hir::Expr, Vec<hir::Stmt>)>> {
        let mut seen: Vec<(Option<i64>, Span)> = Vec::new();
        let (mut branches, mut default) = (Vec::new(), None);
        for section in sections {
            let condition = self.section_condition(value, section, &mut seen);
            let statements = self.section_body(&section.body);
            match condition? {
                Some(condition) => branches.push((condition, statements)),
                None => default = Some((constant(1, Scalar::I32), statements)),
            }
        }
        branches.extend(default);
        Ok(branches)
    }

    /// Returns `None` for the section with `default`.
    fn section_condition(
        &mut self,
        value: &hir::Expr,
        section: &Section,
        seen: &mut Vec<(Option<i64>, Span)>,
    ) -> Checked<Option<hir::Expr>> {
        let mut condition = Some(constant(0, Scalar::I32));
        for (label, span) in &section.labels {
            let label = match label {
                Some(label) => Some(value.ty.wrap(self.constant(label)?)),
                None => None,
            };
            if let Some((_, before)) = seen.iter().find(|(known, _)| *known == label) {
                let error = Diagnostic::new(*span, "this `switch` has the same label twice", "second label");
                return self.findings.fail(error.related(*before, "first label").help("remove one of them"));
            }
            seen.push((label, *span));
            condition = match (condition, label) {
                (Some(condition), Some(label)) => {
                    let equal = fold::compare(CompareOp::Eq, value.clone(), constant(label, value.ty));
                    Some(fold::or(condition, equal))
                }
                _ => None,
            };
        }
        Ok(condition)
    }

    fn section_body(&mut self, statements: &[Stmt]) -> Vec<hir::Stmt> {
        let before = std::mem::take(&mut self.frame.ending_breaks);
        ending_breaks(statements, &mut self.frame.ending_breaks);
        self.frame.around.push(Around::Switch);
        let mut body = Vec::new();
        self.block(statements, &mut body);
        self.frame.around.pop();
        self.frame.ending_breaks = before;
        body
    }
}

impl Findings<'_> {
    fn refuse_falling_through(&mut self, keyword: Span, sections: &[Section]) {
        for section in sections.iter().rev().skip(1) {
            if !ends(&section.body) {
                let span = section.labels.last().map_or(keyword, |(_, span)| *span);
                let error = Diagnostic::new(span, "this `case` falls through to the next one", "no `break` at its end");
                self.report(
                    error.help("end it with `break;`, or put both labels before one section: `case 1: case 2:`"),
                );
            }
        }
    }
}

/// Whether control never continues after these statements.
pub(super) fn ends(statements: &[Stmt]) -> bool {
    statements.last().is_some_and(|last| match &last.kind {
        StmtKind::Break | StmtKind::Continue | StmtKind::Return(_) => true,
        StmtKind::Block(inner) => ends(inner),
        StmtKind::If { then, otherwise: Some(otherwise), .. } => {
            ends(std::slice::from_ref(&**then)) && ends(std::slice::from_ref(&**otherwise))
        }
        _ => false,
    })
}

/// Finds the `break`s after which no statement of the section follows.
fn ending_breaks(statements: &[Stmt], found: &mut HashSet<Span>) {
    let Some((last, before)) = statements.split_last() else { return };
    match &last.kind {
        StmtKind::Break => {
            found.insert(last.span);
            // A `break` directly before the last one also ends the section.
            ending_breaks(before, found);
        }
        StmtKind::Block(inner) => ending_breaks(inner, found),
        StmtKind::If { then, otherwise, .. } => {
            ending_breaks(std::slice::from_ref(&**then), found);
            if let Some(otherwise) = otherwise {
                ending_breaks(std::slice::from_ref(&**otherwise), found);
            }
        }
        _ => {}
    }
}
