//! The checked program: all names are resolved, all conversions are explicit, and each address is a base plus an
//! offset.
//!
//! The front end (parser and checker) builds it; the engines (interpreter and code generator) run it. The checker
//! guarantees that all types match. Evaluation goes from left to right everywhere. All values are 64-bit words
//! that hold a value of the expression's type, sign-extended or zero-extended ([`Scalar::wrap`]).

use std::collections::BTreeSet;

use qfabric_types::format::{Format, Scalar};

use crate::print::Prints;

#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Layout of an event; its size is 0 if the program takes no events.
    pub input: Format,
    /// Layout of the output. If `None`, the program passes its input on unchanged.
    pub output: Option<Format>,
    /// Initial contents of the variables that persist between calls.
    pub statics: Vec<u8>,
    /// Names of the attributes in use; an attribute's number is its index in this list.
    pub attributes: Vec<String>,
    /// Callees come before their callers; the last function is the entry. There is no recursion.
    pub functions: Vec<Function>,
    /// True if the program writes a persistent variable or sets an attribute.
    pub writes_shared: bool,
    /// The loops, indexed by [`Stmt::Loop`]'s `number`.
    pub loops: Vec<Repetition>,
    pub has_loops: bool,
    pub uses: Uses,
}

/// The names that a text uses besides its own variables. Names in comments do not count. Attributes are in
/// [`Program::attributes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// Constants of the environment.
    pub constants: BTreeSet<String>,
    /// Members of `input`; all of them if the program copies `input` as a whole.
    pub inputs: BTreeSet<String>,
    /// Members of `output`; all of them if the program copies `output` as a whole.
    pub outputs: BTreeSet<String>,
    /// Functions of the host.
    pub builtins: BTreeSet<Builtin>,
    /// Calls of `printf`.
    pub prints: Prints,
    /// Bytes of the queues of its inputs, in the statics.
    pub queues: u32,
}

/// Static facts about one loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repetition {
    /// Largest number of iterations per execution of the loop statement; [`Repetition::UNKNOWN`] if only fuel bounds
    /// the loop.
    pub turns: u64,
    /// Fuel that one iteration uses: its instructions without those of inner loops. Measured on the generated
    /// code, and the same for all engines.
    pub cost: u32,
}

impl Program {
    /// Measures the fuel that one iteration of each loop uses.
    pub fn charge(&mut self) {
        let costs = crate::bpf::costs(self);
        self.loops.iter_mut().zip(costs).for_each(|(known, cost)| known.cost = cost);
    }
}

impl Repetition {
    /// The text does not bound the number of iterations.
    pub const UNKNOWN: u64 = u64::MAX;
}

/// A function. The entry takes no parameters, because its input is the event.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// The name of the entry may be empty.
    pub name: String,
    /// The result type; `None` for `void`, and for a structure ([`Base::Frame`]). The entry returns a `long`, the verdict.
    pub result: Option<Scalar>,
    /// The places of the parameters that are numbers, in the function's frame, in order.
    pub parameters: Vec<Place>,
    /// Bytes of the frame: the parameters and all locals.
    pub frame: u32,
    /// If control reaches the end of the body, the entry returns 1 and any other function returns 0.
    pub body: Vec<Stmt>,
}

/// The index of a function in [`Program::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionId(pub u32);

#[derive(Clone, Debug, PartialEq)]
pub enum Stmt {
    /// Evaluates the expression and discards its value.
    Expr(Expr),
    /// Condition, then branch, else branch.
    If(Expr, Vec<Stmt>, Vec<Stmt>),
    /// `while` (`step` is `None`), `for` and `do … while`. One iteration uses [`Repetition::cost`] of the fuel.
    Loop {
        /// The loop continues while this value is not zero. `None`: the loop runs until `break` or `return`.
        condition: Option<Expr>,
        /// True for `do … while`: the condition is tested after the body instead of before it.
        tests_after: bool,
        /// Runs after the body and after `continue`.
        step: Option<Expr>,
        body: Vec<Stmt>,
        /// The loop's index in [`Program::loops`].
        number: u32,
        /// The line of the keyword, for the fault.
        line: u32,
    },
    Break,
    Continue,
    /// The value has the function's result type.
    Return(Option<Expr>),
    /// Sets the bytes of a local to zero at its declaration.
    Clear {
        place: Place,
        bytes: u32,
    },
}

/// The address of a value: a base, a fixed offset, and one index per array on the path.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub base: Base,
    /// Bytes from the start of the base.
    pub offset: u32,
    /// Evaluated in order. The bounds are checked in order when the place is accessed: after the value of a store,
    /// or the right side of an update, has been evaluated. Constant indices are already part of the offset.
    pub indices: Vec<Index>,
    /// The type of the value. [`ExprKind::Copy`] and [`Stmt::Clear`] ignore it.
    pub ty: Scalar,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Index {
    /// Read as a signed 64-bit number: an `unsigned long` above 2^63 is out of range, as a negative number is.
    pub value: Expr,
    /// Number of elements; any other index causes [`FaultKind::Index`].
    pub count: u32,
    /// Bytes from one element to the next.
    pub stride: u32,
    /// The source line, for the fault.
    pub line: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The event. Read-only.
    Input,
    /// The output. All zeros at the start of a call.
    Output,
    /// Variables that persist between calls.
    Static,
    /// The frame of the current function.
    Local,
    /// The frame of a function that the current function calls: its structure parameters before the call, and its
    /// structure result, at offset 0, after the call. Any other call may overwrite them.
    Frame(FunctionId),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    pub kind: ExprKind,
    pub ty: Scalar,
}

/// The form of an expression. C's conversions of the operands are already in the tree.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// A constant, wrapped to the type.
    Const(i64),
    /// Reads the place.
    Load(Place),
    /// Stores a value of the place's type; the result is this value.
    Store(Place, Box<Expr>),
    /// Copies a whole structure or array; the result is 0. Both places have this number of bytes. They are equal or do
    /// not overlap. The indices of `to` are evaluated before those of `from`.
    Copy { to: Box<Place>, from: Box<Place>, bytes: u32 },
    /// `a op= b`, `++a`, `a++`. The place is evaluated once. Its value is converted to `wide`, combined with the
    /// right side (of type `wide`; a shift count keeps its own type), converted back, and stored.
    Update {
        place: Place,
        op: BinaryOp,
        /// The type of the computation.
        wide: Scalar,
        /// The right side. Evaluated after the indices of the place and before the place is read.
        value: Box<Expr>,
        /// The result is the former value (`a++`) instead of the new value.
        post: bool,
        /// The source line, for the fault of a division.
        line: u32,
    },
    /// Reads an attribute, a signed 64-bit word, by its number.
    Attr(u32),
    /// Sets an attribute to a `long`; the result is this value.
    SetAttr(u32, Box<Expr>),
    /// Adds a `long` to an attribute in one atomic step; the result is the new value (`attr.x += 1`).
    AddAttr(u32, Box<Expr>),
    /// `-a`, wrapping.
    Neg(Box<Expr>),
    /// `~a`.
    Not(Box<Expr>),
    /// Both operands and the result have one type. A shift count may have another type.
    Binary {
        op: BinaryOp,
        left: Box<Expr>,
        right: Box<Expr>,
        /// The source line, for the fault of a division.
        line: u32,
    },
    /// 0 or 1 (`int`). Both operands have one type, whose sign decides how they are compared.
    Compare(CompareOp, Box<Expr>, Box<Expr>),
    /// `a && b`: 0 or 1; `b` is evaluated only if `a` is not zero.
    And(Box<Expr>, Box<Expr>),
    /// `a || b`: 0 or 1; `b` is evaluated only if `a` is zero.
    Or(Box<Expr>, Box<Expr>),
    /// `c ? a : b`; `c` of any type.
    Select(Box<Expr>, Box<Expr>, Box<Expr>),
    /// `a, b`.
    Comma(Box<Expr>, Box<Expr>),
    /// Wraps the value to this expression's type.
    Cast(Box<Expr>),
    /// A call of a function that precedes the current one, with its arguments that are numbers. A `void` function yields 0.
    Call(FunctionId, Vec<Expr>),
    /// A call of a function that the host provides.
    Builtin(Builtin, Vec<Expr>),
}

/// An operator with two operands; the result wraps. `Div` and `Rem` truncate towards zero and fault on zero. The
/// smallest number divided by −1 is itself, with remainder 0. A shift count is taken modulo the bits of the type;
/// `Shr` of a signed number keeps the sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl BinaryOp {
    /// The result for two values of `ty` (a shift count may have any type); `None` if the operation faults.
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
    /// Whether the comparison holds for two values of type `ty`.
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

/// A function that the host provides. `min`, `max`, `clamp`, `abs` and the fixed-point functions are not listed,
/// because the front end turns them into expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Builtin {
    /// `now()`: nanoseconds of CLOCK_MONOTONIC (`unsigned long`).
    Now,
    /// `pid()`: the process that runs on this CPU (`int`).
    Pid,
    /// `cpu()`: the CPU of the call (`int`).
    Cpu,
    /// `emit()`: delivers the current output, or the input if the program has no output. Returns 1, or 0 if the
    /// call has used up its emissions ([`crate::Limits::emissions`]).
    Emit,
}

/// The reason for which a call ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum FaultKind {
    /// Division or remainder by zero.
    #[error("division by zero")]
    Division = 1,
    /// An index outside its array.
    #[error("index out of range")]
    Index = 2,
    /// The loops of the call used up its fuel.
    #[error("the loops of this call have used up its fuel")]
    Fuel = 3,
    /// The kernel refused to run the program. Only the engine that runs programs in the kernel on demand has this fault.
    #[error("the kernel refused the call")]
    Refused = 4,
}

/// A call ended early. Values that it stored in statics and attributes stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}{}", in_line(*.line))]
pub struct Fault {
    pub kind: FaultKind,
    /// Source line, from 1; 0: no line is at fault.
    pub line: u32,
}

fn in_line(line: u32) -> String {
    if line == 0 { String::new() } else { format!(" in line {line}") }
}

impl Fault {
    /// The kernel refused the call; it gives no reason for a program that it has loaded.
    pub const REFUSED: Fault = Fault { kind: FaultKind::Refused, line: 0 };

    /// Both fields in one word that is never 0: the line in the upper 24 bits, the kind in the lower 8 bits.
    pub const fn code(self) -> u32 {
        (self.line << 8) | self.kind as u32
    }

    /// The fault of a code; `None` for 0 and for invalid codes.
    pub const fn from_code(code: u32) -> Option<Fault> {
        let kind = match code & 0xff {
            1 => FaultKind::Division,
            2 => FaultKind::Index,
            3 => FaultKind::Fuel,
            4 => FaultKind::Refused,
            _ => return None,
        };
        Some(Fault { kind, line: code >> 8 })
    }
}
