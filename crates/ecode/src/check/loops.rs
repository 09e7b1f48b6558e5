//! Refuses a loop without a visible end. A loop has a visible end if its condition reads something that the loop
//! changes, or calls a function that may return another value each time, or if the body leaves the loop. This
//! check finds only certain mistakes; at run time, fuel ends a loop that does not end by itself.

use super::fold::known;
use crate::hir::{Base, Expr, ExprKind, Place, Stmt};

/// A checked loop before it becomes a statement.
pub(super) struct Turns {
    pub condition: Option<Expr>,
    pub tests_after: bool,
    pub step: Option<Expr>,
    pub body: Vec<Stmt>,
}

impl Turns {
    /// Returns the loop statement, or `None` if the condition is false from the start.
    pub(super) fn statement(self, number: u32, line: u32) -> Option<Stmt> {
        let Turns { condition, tests_after, step, body } = self;
        let condition = match condition.as_ref().and_then(known) {
            Some(0) if !tests_after => return None,
            Some(0) | None => condition,
            Some(_) => None,
        };
        Some(Stmt::Loop { condition, tests_after, step, body, number, line })
    }

    pub(super) fn end_is_visible(&self) -> bool {
        match self.condition.as_ref().map(|condition| (condition, known(condition))) {
            Some((_, Some(0))) => true,
            Some((condition, None)) => self.may_change(condition) || leaves(&self.body),
            Some((_, Some(_))) | None => leaves(&self.body),
        }
    }

    /// Whether these statements or expressions may write to the variable at `place`.
    pub(super) fn changes<'e>(&self, place: &Place, body: &[Stmt], exprs: impl Iterator<Item = &'e Expr>) -> bool {
        let mut touched = Touched::default();
        touched.stmts(body);
        touched.exprs(exprs);
        touched.may_write(&extent(place, place.ty.bytes()))
    }

    fn may_change(&self, condition: &Expr) -> bool {
        let mut read = Touched::default();
        read.expr(condition);
        let mut turn = Touched::default();
        turn.stmts(&self.body);
        turn.exprs(self.step.iter());
        turn.expr(condition);
        // A function may return another value each time, and may change persistent variables.
        read.calls || read.read.iter().any(|place| turn.may_write(place))
    }
}

/// Whether the body contains a `break` of its loop, or a `return`.
fn leaves(body: &[Stmt]) -> bool {
    body.iter().any(|statement| match statement {
        Stmt::Break | Stmt::Return(_) => true,
        Stmt::If(_, then, otherwise) => leaves(then) || leaves(otherwise),
        Stmt::Loop { body, .. } => returns(body),
        _ => false,
    })
}

fn returns(body: &[Stmt]) -> bool {
    body.iter().any(|statement| match statement {
        Stmt::Return(_) => true,
        Stmt::If(_, then, otherwise) => returns(then) || returns(otherwise),
        Stmt::Loop { body, .. } => returns(body),
        _ => false,
    })
}

/// The bytes of one memory that an access may touch, from the first to the last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Bytes(Base, u32, u32),
    Attribute(u32),
}

/// The places that some code reads and writes.
#[derive(Default)]
struct Touched {
    read: Vec<Extent>,
    written: Vec<Extent>,
    calls: bool,
}

impl Touched {
    fn may_write(&self, read: &Extent) -> bool {
        let shared =
            |place: &Extent| matches!(place, Extent::Bytes(Base::Static | Base::Output, ..) | Extent::Attribute(_));
        self.calls && shared(read) || self.written.iter().any(|written| written.overlaps(read))
    }

    fn stmts(&mut self, statements: &[Stmt]) {
        for statement in statements {
            self.stmt(statement);
        }
    }

    fn stmt(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Expr(expr) => self.expr(expr),
            Stmt::If(condition, then, otherwise) => {
                self.expr(condition);
                self.stmts(then);
                self.stmts(otherwise);
            }
            Stmt::Loop { condition, step, body, .. } => {
                self.exprs(condition.iter().chain(step));
                self.stmts(body);
            }
            Stmt::Return(value) => self.exprs(value.iter()),
            Stmt::Clear { place, bytes } => self.write(place, *bytes),
            Stmt::Break | Stmt::Continue => {}
        }
    }

    fn exprs<'e>(&mut self, list: impl Iterator<Item = &'e Expr>) {
        for expr in list {
            self.expr(expr);
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Const(_) => {}
            ExprKind::Load(place) => self.read(place, place.ty.bytes()),
            ExprKind::Store(place, value) => {
                self.write(place, place.ty.bytes());
                self.expr(value);
            }
            ExprKind::Update { place, value, .. } => {
                self.read(place, place.ty.bytes());
                self.write(place, place.ty.bytes());
                self.expr(value);
            }
            ExprKind::Copy { to, from, bytes } => {
                self.write(to, *bytes);
                self.read(from, *bytes);
            }
            ExprKind::Attr(number) => self.read.push(Extent::Attribute(*number)),
            ExprKind::SetAttr(number, value) | ExprKind::AddAttr(number, value) => {
                self.written.push(Extent::Attribute(*number));
                self.expr(value);
            }
            ExprKind::Neg(a) | ExprKind::Not(a) | ExprKind::Cast(a) => self.expr(a),
            ExprKind::Binary { left: a, right: b, .. }
            | ExprKind::Compare(_, a, b)
            | ExprKind::And(a, b)
            | ExprKind::Or(a, b)
            | ExprKind::Comma(a, b) => {
                self.expr(a);
                self.expr(b);
            }
            ExprKind::Select(a, b, c) => self.exprs([&**a, b, c].into_iter()),
            ExprKind::Call(_, arguments) | ExprKind::Builtin(_, arguments) => {
                self.calls = true;
                self.exprs(arguments.iter());
            }
        }
    }

    fn read(&mut self, place: &Place, bytes: u32) {
        self.read.push(extent(place, bytes));
        self.exprs(place.indices.iter().map(|index| &index.value));
    }

    fn write(&mut self, place: &Place, bytes: u32) {
        self.written.push(extent(place, bytes));
        self.exprs(place.indices.iter().map(|index| &index.value));
    }
}

fn extent(place: &Place, bytes: u32) -> Extent {
    let reach: u32 = place.indices.iter().map(|index| (index.count - 1) * index.stride).sum();
    Extent::Bytes(place.base, place.offset, place.offset + reach + bytes)
}

impl Extent {
    fn overlaps(&self, other: &Extent) -> bool {
        match (self, other) {
            (Extent::Bytes(a, a_start, a_end), Extent::Bytes(b, b_start, b_end)) => {
                a == b && a_start < b_end && b_start < a_end
            }
            _ => self == other,
        }
    }
}

/// Whether these statements write to persistent variables or attributes.
pub(super) fn writes_shared(body: &[Stmt]) -> bool {
    let mut touched = Touched::default();
    touched.stmts(body);
    touched.written.iter().any(|place| matches!(place, Extent::Bytes(Base::Static, ..) | Extent::Attribute(_)))
}

/// Whether evaluating the expression only reads.
pub(super) fn changes_nothing(expr: &Expr) -> bool {
    let mut touched = Touched::default();
    touched.expr(expr);
    touched.written.is_empty() && !touched.calls
}

pub(super) fn has_loops(body: &[Stmt]) -> bool {
    body.iter().any(|statement| match statement {
        Stmt::Loop { .. } => true,
        Stmt::If(_, then, otherwise) => has_loops(then) || has_loops(otherwise),
        _ => false,
    })
}
