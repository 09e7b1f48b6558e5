//! The syntax tree of a source text. The parser builds it; the checker gives it meaning.

use qfabric_types::format::Scalar;

use crate::diagnostics::Span;
use crate::hir::{BinaryOp, CompareOp};

#[derive(Debug)]
pub(crate) struct Text {
    pub functions: Vec<Function>,
    /// Declarations and statements in source order, without functions.
    pub statements: Vec<Stmt>,
    /// Function names that the statements call.
    pub calls: Vec<Ident>,
}

#[derive(Clone, Debug)]
pub(crate) struct Ident {
    pub name: String,
    pub span: Span,
}

#[derive(Debug)]
pub(crate) struct Function {
    pub result: TypeName,
    pub name: Ident,
    pub parameters: Vec<Parameter>,
    pub body: Vec<Stmt>,
    /// Function names that the body calls.
    pub calls: Vec<Ident>,
    /// From the result type to the closing parenthesis of the parameters.
    pub head: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub ty: TypeName,
    pub declarator: Declarator,
}

/// The type in front of the declared names.
#[derive(Clone, Debug)]
pub(crate) struct TypeName {
    pub kind: TypeKind,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum TypeKind {
    Void,
    Scalar(Scalar),
    Struct {
        tag: Option<Ident>,
        members: Option<Vec<Member>>,
    },
    /// A name that `typedef` declared.
    Named(Ident),
    Enum {
        constants: Option<Vec<(Ident, Option<Expr>)>>,
    },
}

/// One member line of a structure: `int a, b[3];`.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub ty: TypeName,
    pub declarators: Vec<Declarator>,
}

/// A declared name with its dimensions and initial value: `b[3] = {1, 2, 3}`.
#[derive(Clone, Debug)]
pub(crate) struct Declarator {
    pub name: Ident,
    /// `None` stands for `[]`.
    pub dims: Vec<Option<Expr>>,
    pub init: Option<Init>,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(crate) enum Init {
    Value(Expr),
    List(Vec<Init>, Span),
}

#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    pub is_typedef: bool,
    pub is_static: bool,
    pub is_const: bool,
    pub ty: TypeName,
    pub declarators: Vec<Declarator>,
}

impl Declaration {
    /// Whether this is `struct NAME;`.
    pub(crate) fn announces(&self) -> bool {
        self.declarators.is_empty() && matches!(self.ty.kind, TypeKind::Struct { members: None, .. })
    }
}

#[derive(Debug)]
pub(crate) struct Stmt {
    pub kind: StmtKind,
    pub span: Span,
}

#[derive(Debug)]
pub(crate) enum StmtKind {
    Empty,
    Expr(Expr),
    Declare(Declaration),
    Define(Ident, Expr),
    Block(Vec<Stmt>),
    If {
        condition: Expr,
        then: Box<Stmt>,
        otherwise: Option<Box<Stmt>>,
    },
    /// In a `while` loop, `first` and `step` are `None`.
    Loop {
        keyword: Span,
        first: Option<Box<Stmt>>,
        condition: Option<Expr>,
        tests_after: bool,
        step: Option<Expr>,
        body: Box<Stmt>,
    },
    Switch {
        keyword: Span,
        value: Expr,
        sections: Vec<Section>,
    },
    Break,
    Continue,
    Return(Option<Expr>),
}

/// The labels of a `switch` section and the statements after them.
#[derive(Debug)]
pub(crate) struct Section {
    /// The value of `default` is `None`.
    pub labels: Vec<(Option<Expr>, Span)>,
    pub body: Vec<Stmt>,
}

#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub kind: ExprKind,
    pub span: Span,
    /// Nodes on the longest path down, including this node. A walk over the tree recurs to this depth.
    pub depth: u32,
}

impl Expr {
    pub(crate) fn new(kind: ExprKind, span: Span) -> Expr {
        let depth = 1 + kind.children().map(|child| child.depth).max().unwrap_or(0);
        Expr { kind, span, depth }
    }

    /// Whether this is a string in quotes.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.kind, ExprKind::Text(_))
    }
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    /// The value in the literal's own type.
    Int(i64, Scalar),
    /// The bytes of a string in quotes, without the zero at its end.
    Text(Vec<u8>),
    Name(String),
    Unary(UnaryOp, Box<Expr>),
    Binary(Operator, Span, Box<Expr>, Box<Expr>),
    /// The operator of a plain `=` is `None`.
    Assign(Option<BinaryOp>, Span, Box<Expr>, Box<Expr>),
    /// `++` and `--`.
    Step {
        add: bool,
        post: bool,
        operand: Box<Expr>,
    },
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
    Comma(Box<Expr>, Box<Expr>),
    Call(Ident, Vec<Expr>),
    Index(Box<Expr>, Box<Expr>),
    Member(Box<Expr>, Ident),
    Cast(TypeName, Box<Expr>),
    SizeofType(TypeName),
    SizeofValue(Box<Expr>),
}

impl ExprKind {
    pub(crate) fn children(&self) -> impl Iterator<Item = &Expr> {
        let (fixed, list): ([Option<&Expr>; 3], &[Expr]) = match self {
            ExprKind::Int(..) | ExprKind::Text(_) | ExprKind::Name(_) | ExprKind::SizeofType(_) => ([None; 3], &[]),
            ExprKind::Unary(_, a)
            | ExprKind::Step { operand: a, .. }
            | ExprKind::Member(a, _)
            | ExprKind::Cast(_, a)
            | ExprKind::SizeofValue(a) => ([Some(a), None, None], &[]),
            ExprKind::Binary(_, _, a, b)
            | ExprKind::Assign(_, _, a, b)
            | ExprKind::Comma(a, b)
            | ExprKind::Index(a, b) => ([Some(a), Some(b), None], &[]),
            ExprKind::Conditional(a, b, c) => ([Some(a), Some(b), Some(c)], &[]),
            ExprKind::Call(_, arguments) => ([None; 3], arguments),
        };
        fixed.into_iter().flatten().chain(list)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnaryOp {
    Plus,
    Minus,
    Complement,
    Not,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Value(BinaryOp),
    Compare(CompareOp),
    And,
    Or,
}
