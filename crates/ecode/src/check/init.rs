//! Lists of initial values: `{1, 2, 3}`, `{{0, 1}, {2, 3}}`. Omitted values are zero.

use super::expr::Value;
use super::fold::cast;
use super::place::{Location, article};
use super::types::Type;
use super::{Checked, Checker};
use crate::ast::Init;
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::{self, Stmt};

impl Checker<'_> {
    /// Writes the initial contents of a `static` variable at its offset.
    pub(super) fn static_init(&mut self, offset: u32, ty: &Type, init: &Init) -> Checked<()> {
        match (ty, init) {
            (Type::Scalar(ty), Init::Value(value)) => {
                let value = ty.wrap(self.constant(value)?);
                let bytes = ty.bytes() as usize;
                self.statics[offset as usize..][..bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
                Ok(())
            }
            (_, Init::List(list, span)) => {
                for (part, init) in self.parts(ty, list, *span)?.into_iter().zip(list) {
                    self.static_init(offset + part.0, &part.1, init)?;
                }
                Ok(())
            }
            (_, Init::Value(value)) => self.fail_no_list(ty, value.span),
        }
    }

    /// Stores the initial values of a local that has been cleared.
    pub(super) fn local_list(&mut self, to: &Location, list: &[Init], span: Span, body: &mut Vec<Stmt>) -> Checked<()> {
        for ((offset, ty), init) in self.parts(&to.ty, list, span)?.into_iter().zip(list) {
            let part = Location { offset: to.offset + offset, ty, ..to.clone() };
            match init {
                Init::List(list, span) => self.local_list(&part, list, *span, body)?,
                Init::Value(value) => {
                    let from = self.value(value)?;
                    self.store_part(part, from, value.span, body)?;
                }
            }
        }
        Ok(())
    }

    fn store_part(&mut self, part: Location, value: Value, span: Span, body: &mut Vec<Stmt>) -> Checked<()> {
        match (&part.ty, value) {
            (Type::Scalar(ty), Value::Number(value)) => {
                let ty = *ty;
                let value = Box::new(cast(value, ty));
                body.push(Stmt::Expr(hir::Expr { kind: hir::ExprKind::Store(part.place(), value), ty }));
                Ok(())
            }
            (_, Value::Whole(from)) => self.copy(part, from, span, span, body),
            (ty, _) => self.fail_no_list(&ty.clone(), span),
        }
    }

    fn fail_no_list<T>(&mut self, ty: &Type, span: Span) -> Checked<T> {
        let error = Diagnostic::new(span, format!("{} needs a list of values", article(ty)), "a single value");
        self.fail(error.help("write the values in braces: `{1, 2, 3}`"))
    }

    /// The offsets and types of the parts that a list initialises.
    fn parts(&mut self, ty: &Type, list: &[Init], span: Span) -> Checked<Vec<(u32, Type)>> {
        let parts: Vec<(u32, Type)> = match ty {
            Type::Scalar(_) => vec![(0, ty.clone())],
            Type::Array(element, count) => {
                let shown = (list.len() as u32).min(*count);
                (0..shown).map(|place| (place * element.size(), Type::clone(element))).collect()
            }
            Type::Struct(structure) => {
                structure.members.iter().map(|member| (member.offset, member.ty.clone())).collect()
            }
        };
        if list.len() > parts.len() {
            let message = format!("{} values for {}, which has room for {}", list.len(), article(ty), parts.len());
            return self.fail(Diagnostic::new(span, message, "too many values").help("remove the values at the end"));
        }
        Ok(parts)
    }
}
