//! A checked program: every name resolved, every conversion explicit, every address a base and an offset.
//!
//! The front end (parser, checker) makes it, the engines (interpreter, code generator) take it; nothing in it can
//! be ill-typed. Evaluation is left to right everywhere. All values are 64-bit words that hold a value of the
//! expression's type, sign- or zero-extended ([`Scalar::wrap`]).

use std::collections::BTreeSet;

use qfabric_types::format::{Format, Scalar};

/// A whole checked program.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Layout of an event; size 0 where the program takes none.
    pub input: Format,
    /// Layout of what it makes; none: the input is passed on as it is.
    pub output: Option<Format>,
    /// First contents of the variables that persist between calls.
    pub statics: Vec<u8>,
    /// Names of the attributes it uses; an attribute's number is its place here.
    pub attributes: Vec<String>,
    /// Callees before callers; the last one is the entry. There is no recursion.
    pub functions: Vec<Function>,
    /// Whether anything persists or is shared: statics written, or attributes set.
    pub writes_shared: bool,
    /// Its loops, by [`Stmt::Loop`]'s number.
    pub loops: Vec<Repetition>,
    /// Whether it contains a loop.
    pub has_loops: bool,
    /// What its text names.
    pub uses: Uses,
}

/// What a text names beside its own variables; comments do not count. Its attributes are [`Program::attributes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Constants of the environment.
    pub constants: BTreeSet<String>,
    /// Members of `input`; all of them where it is copied whole.
    pub inputs: BTreeSet<String>,
    /// Members of `output`; all of them where it is copied whole.
    pub outputs: BTreeSet<String>,
}

/// What is known of a loop before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// Turns each time the loop is come to, at most; [`Repetition::UNKNOWN`] where only fuel says.
    pub turns: u64,
    /// Instructions of one turn, without those of the loops inside: what the turn takes of the fuel. Measured on the
    /// generated code, the same for all engines.
    pub cost: u32,
}

impl Program {
    /// Measures what a turn of each loop costs.
    pub fn charge(&mut self) {
        let costs = crate::bpf::costs(self);
        self.loops.iter_mut().zip(costs).for_each(|(known, cost)| known.cost = cost);
    }
}

impl Repetition {
    /// Nothing in the text bounds the number of turns.
    pub const UNKNOWN: u64 = u64::MAX;
}

/// A function. The entry takes no parameters: its input is the event.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name; the entry's may be empty.
    pub name: String,
    /// What it returns; none for `void`. The entry returns a `long`: the verdict.
    pub result: Option<Scalar>,
    /// Where its parameters lie in its frame, in order.
    pub parameters: Vec<Place>,
    /// Bytes of its frame: parameters and all locals.
    pub frame: u32,
    /// What it does. Falling off its end returns 1 from the entry, 0 from any other function.
    pub body: Vec<Stmt>,
}

/// A function's place in [`Program::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionId(pub u32);

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub enum Stmt {
    /// Evaluate and forget.
    Expr(Expr),
    /// `if`.
    If(Expr, Vec<Stmt>, Vec<Stmt>),
    /// `while` (no `step`) and `for`; `do … while` tests `after` the body. A turn takes [`Repetition::cost`] of
    /// the fuel.
    Loop {
        /// Goes on while this is not zero; none: for ever, until `break` or `return`.
        condition: Option<Expr>,
        /// The condition is tested after the body, not before.
        tests_after: bool,
        /// Done after the body, and by `continue`.
        step: Option<Expr>,
        /// What is repeated.
        body: Vec<Stmt>,
        /// Its place in [`Program::loops`].
        number: u32,
        /// The line of the keyword, for the fault.
        line: u32,
    },
    /// `break`.
    Break,
    /// `continue`.
    Continue,
    /// `return`, with a value of the function's type.
    Return(Option<Expr>),
    /// A local comes into being: its bytes become zero.
    Clear {
        /// Where.
        place: Place,
        /// How many bytes.
        bytes: u32,
    },
    /// One structure or array is copied whole; both places are of this many bytes and do not overlap.
    Copy {
        /// Where to.
        to: Place,
        /// Where from.
        from: Place,
        /// How many bytes.
        bytes: u32,
    },
}

/// Where a value lies: a base, a fixed offset, and an index for each array on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// In which memory.
    pub base: Base,
    /// Bytes from the base.
    pub offset: u32,
    /// Evaluated in order; checked in order when the place is accessed: after the value of a store, or the right side
    /// of an update, has been evaluated. Constant indices are in the offset already.
    pub indices: Vec<Index>,
    /// What lies there ([`Stmt::Copy`] and [`Stmt::Clear`] do not look at it).
    pub ty: Scalar,
}

/// One array index.
#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    /// Its value, taken as a signed 64-bit number (an `unsigned long` above 2^63 is out of range like a negative one).
    pub value: Expr,
    /// Elements there are; anything else is [`FaultKind::Index`].
    pub count: u32,
    /// Bytes from one to the next.
    pub stride: u32,
    /// The source line, for the fault.
    pub line: u32,
}

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The event. Never written.
    Input,
    /// What is made of it. All zeros at the beginning of a call.
    Output,
    /// What persists.
    Static,
    /// The frame of the function at hand.
    Local,
}

/// An expression and its type.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// The type of its value.
    pub ty: Scalar,
}

/// What an expression is. Operands have been converted already, as C says.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// A value, wrapped to the type.
    Const(i64),
    /// What lies there.
    Load(Place),
    /// Stores a value of the place's type; gives it.
    Store(Place, Box<Expr>),
    /// `a op= b`, `++a`, `a++`: the place is evaluated once; its value, converted to `wide`, is combined with the
    /// right side (of type `wide`; a shift's count is of its own type), converted back and stored.
    Update {
        /// What is changed.
        place: Place,
        /// How.
        op: BinaryOp,
        /// In which type it is computed.
        wide: Scalar,
        /// With what. Evaluated after the place's indices, before the place is read.
        value: Box<Expr>,
        /// Gives the former value (`a++`) instead of the new one.
        post: bool,
        /// The source line, for a division's fault.
        line: u32,
    },
    /// An attribute: a signed 64-bit word by its number.
    Attr(u32),
    /// Sets an attribute to an `long`; gives it.
    SetAttr(u32, Box<Expr>),
    /// Adds a `long` to an attribute in one step that nothing can come between; gives the new value (`attr.x += 1`).
    AddAttr(u32, Box<Expr>),
    /// `-a`, wrapping.
    Neg(Box<Expr>),
    /// `~a`.
    Not(Box<Expr>),
    /// Both operands and the result are of one type, but for shifts.
    Binary {
        /// What is done.
        op: BinaryOp,
        /// First.
        left: Box<Expr>,
        /// Second.
        right: Box<Expr>,
        /// The source line, for a division's fault.
        line: u32,
    },
    /// 0 or 1 (`int`); both operands are of one type, whose sign decides how they are compared.
    Compare(CompareOp, Box<Expr>, Box<Expr>),
    /// `a && b`: 0 or 1; `b` is evaluated only if `a` is not zero.
    And(Box<Expr>, Box<Expr>),
    /// `a || b`: 0 or 1; `b` is evaluated only if `a` is zero.
    Or(Box<Expr>, Box<Expr>),
    /// `c ? a : b`; `c` of any type.
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `a, b`.
    Comma(Box<Expr>, Box<Expr>),
    /// Wraps the value into this expression's type.
    Cast(Box<Expr>),
    /// A call; the function stands before the one at hand. One that returns nothing gives 0.
    Call(FunctionId, Vec<Expr>),
    /// What the host offers.
    Builtin(Builtin, Vec<Expr>),
}

/// Two operands, one result, wrapping. `Div` and `Rem` truncate towards zero and fault on zero; the smallest
/// number divided by −1 is itself, its remainder 0. A shift's count is taken modulo the type's bits; `Shr` of a
/// signed number keeps the sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // C's operators
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
    Xor,
    Shl,
    Shr,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // C's operators
pub enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl BinaryOp {
    /// What it gives for two values of `ty` (a shift's count may be of any type); none: it faults.
    pub fn apply(self, ty: Scalar, a: i64, b: i64) -> Option<i64> {
        let count = b as u32 & (u32::from(ty.bits) - 1);
        let value = match self {
            BinaryOp::Add => a.wrapping_add(b),
            BinaryOp::Sub => a.wrapping_sub(b),
            BinaryOp::Mul => a.wrapping_mul(b),
            BinaryOp::Div | BinaryOp::Rem if b == 0 => return None,
            BinaryOp::Div if ty.signed => a.wrapping_div(b),
            BinaryOp::Div => (a as u64 / b as u64) as i64,
            BinaryOp::Rem if ty.signed => a.wrapping_rem(b),
            BinaryOp::Rem => (a as u64 % b as u64) as i64,
            BinaryOp::And => a & b,
            BinaryOp::Or => a | b,
            BinaryOp::Xor => a ^ b,
            BinaryOp::Shl => a << count,
            BinaryOp::Shr if ty.signed => a >> count,
            BinaryOp::Shr => (a as u64 >> count) as i64,
        };
        Some(ty.wrap(value))
    }
}

impl CompareOp {
    /// Whether it holds for two values of one type.
    pub fn holds(self, ty: Scalar, a: i64, b: i64) -> bool {
        let order = if ty.signed { a.cmp(&b) } else { (a as u64).cmp(&(b as u64)) };
        match self {
            CompareOp::Eq => order.is_eq(),
            CompareOp::Ne => order.is_ne(),
            CompareOp::Lt => order.is_lt(),
            CompareOp::Le => order.is_le(),
            CompareOp::Gt => order.is_gt(),
            CompareOp::Ge => order.is_ge(),
        }
    }
}

/// What the host offers. `min`, `max`, `clamp`, `abs` and the fixed-point helpers are not here: the front end
/// makes functions of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// `now()`: nanoseconds of CLOCK_MONOTONIC (`unsigned long`).
    Now,
    /// `pid()`: the process on this CPU (`int`).
    Pid,
    /// `cpu()`: the CPU it runs on (`int`).
    Cpu,
    /// `emit()`: delivers the output (the input, where there is none) as it is now; 1, or 0 where the call's
    /// emissions are used up ([`crate::Limits::emissions`]).
    Emit,
}

/// Why a call was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum FaultKind {
    /// Division, or remainder, by zero.
    #[error("division by zero")]
    Division = 1,
    /// An index outside of its array.
    #[error("an index out of range")]
    Index = 2,
    /// More turns of loops than a call may take.
    #[error("more turns of loops than a call may take")]
    Fuel = 3,
}

/// A call was ended before its end. What it had stored in statics and attributes stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} in line {line}")]
pub struct Fault {
    /// Why.
    pub kind: FaultKind,
    /// Line of the source, from 1.
    pub line: u32,
}

impl Fault {
    /// One word for both, never 0: the line in the upper bits, the kind in the lower 8.
    pub const fn code(self) -> u32 {
        (self.line << 8) | self.kind as u32
    }

    /// The fault of a code; none for 0 and for nonsense.
    pub const fn from_code(code: u32) -> Option<Fault> {
        let kind = match code & 0xff {
            1 => FaultKind::Division,
            2 => FaultKind::Index,
            3 => FaultKind::Fuel,
            _ => return None,
        };
        Some(Fault { kind, line: code >> 8 })
    }
}
