//! Finds the parts of its input that a program reads; only these parts are fetched.

use qfabric_ecode::Program;
use qfabric_ecode::hir::{Base, Expr, ExprKind, Place, Stmt};

/// Summary of a program's accesses to the event and the attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct InputUse {
    /// Byte ranges of the input that are read: start and exclusive end.
    pub reads: Vec<(u32, u32)>,
    pub attributes: bool,
}

impl InputUse {
    pub(super) fn of(program: &Program) -> InputUse {
        let mut found = InputUse::default();
        for function in &program.functions {
            found.block(&function.body, program.input.size);
        }
        found
    }

    /// True if any byte from `from` up to and excluding `to` is read.
    pub(super) fn reads(&self, from: u32, to: u32) -> bool {
        self.reads.iter().any(|&(first, end)| first < to && from < end)
    }

    fn block(&mut self, block: &[Stmt], input: u32) {
        block.iter().for_each(|statement| self.statement(statement, input));
    }

    fn statement(&mut self, statement: &Stmt, input: u32) {
        match statement {
            Stmt::Expr(expr) | Stmt::Return(Some(expr)) => self.expr(expr, input),
            Stmt::If(condition, then, otherwise) => {
                self.expr(condition, input);
                self.block(then, input);
                self.block(otherwise, input);
            }
            Stmt::Loop { condition, step, body, .. } => {
                condition.iter().chain(step).for_each(|expr| self.expr(expr, input));
                self.block(body, input);
            }
            Stmt::Clear { place, .. } => self.place(place, 0, input),
            Stmt::Break | Stmt::Continue | Stmt::Return(None) => {}
        }
    }

    /// `bytes` are read at the place. With an index, any byte from the offset on may be read.
    fn place(&mut self, place: &Place, bytes: u32, input: u32) {
        place.indices.iter().for_each(|index| self.expr(&index.value, input));
        if place.base == Base::Input && bytes > 0 {
            let end = if place.indices.is_empty() { place.offset + bytes } else { end_of(place, bytes).min(input) };
            self.reads.push((place.offset, end));
        }
    }

    fn expr(&mut self, expr: &Expr, input: u32) {
        match &expr.kind {
            ExprKind::Const(_) => {}
            ExprKind::Attr(_) => self.attributes = true,
            ExprKind::Load(place) => self.place(place, place.ty.bytes(), input),
            ExprKind::Store(place, value) => {
                self.place(place, 0, input);
                self.expr(value, input);
            }
            ExprKind::Copy { to, from, bytes } => {
                self.place(to, 0, input);
                self.place(from, *bytes, input);
            }
            ExprKind::Update { place, value, .. } => {
                self.place(place, place.ty.bytes(), input);
                self.expr(value, input);
            }
            ExprKind::SetAttr(_, value) | ExprKind::AddAttr(_, value) => {
                self.attributes = true;
                self.expr(value, input);
            }
            ExprKind::Neg(a) | ExprKind::Not(a) | ExprKind::Cast(a) => self.expr(a, input),
            ExprKind::Binary { left: a, right: b, .. }
            | ExprKind::Compare(_, a, b)
            | ExprKind::And(a, b)
            | ExprKind::Or(a, b)
            | ExprKind::Comma(a, b) => [a, b].into_iter().for_each(|part| self.expr(part, input)),
            ExprKind::Select(a, b, c) => [a, b, c].into_iter().for_each(|part| self.expr(part, input)),
            ExprKind::Call(_, arguments) | ExprKind::Builtin(_, arguments) => {
                arguments.iter().for_each(|argument| self.expr(argument, input));
            }
        }
    }
}

/// Exclusive end of the bytes that the place's indices can reach.
fn end_of(place: &Place, bytes: u32) -> u32 {
    let reach: u32 = place.indices.iter().map(|index| index.count.saturating_sub(1).saturating_mul(index.stride)).sum();
    place.offset.saturating_add(reach).saturating_add(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_ecode::{Environment, compile};

    fn use_of(body: &str) -> InputUse {
        let text = format!(
            "struct part {{ int x; int y; }}; struct input {{ int a; long b; struct part c[4]; int d; }}; {body}"
        );
        InputUse::of(&compile(&text, &Environment::default()).unwrap())
    }

    #[test]
    fn only_named_fields_are_read() {
        let found = use_of("if (input.a > 3 && input.d) return 1; return 0;");
        assert!(found.reads(0, 4) && found.reads(48, 52) && !found.reads(4, 48), "{found:?}");
        assert!(!found.attributes);
    }

    #[test]
    fn an_indexed_access_may_read_every_element() {
        let found = use_of("int i = input.a; return input.c[i].y;");
        assert!(found.reads(20, 48) && !found.reads(8, 16) && !found.reads(48, 52), "{found:?}");
    }

    #[test]
    fn a_copy_reads_all_bytes_and_called_functions_are_included() {
        assert!(use_of("output = input; return 1;").reads(8, 16));
        let found = use_of("int f(void) { attr.n += input.d; return 0; } return f();");
        assert!(found.attributes && found.reads(48, 52), "{found:?}");
    }
}
