//! `float` and `double`. The engines have only integers: an expression of a floating-point type is a word with the
//! bits of the number, and an operation is a call of a function in `float.ec`. So all engines give the same results.
//! A `float` is computed as a `double` and rounded; for one operation the result is that of IEEE 754, because 53 bits
//! are at least twice 24 bits plus two.

use std::sync::OnceLock;

use qfabric_types::format::Scalar;

use super::fold::{self, constant, known, truth};
use crate::hir::{BinaryOp, CompareOp, Expr, ExprKind, Function, FunctionId};
use crate::{Environment, compile};

/// The functions of this text are part of every program that uses them.
const TEXT: &str = include_str!("../float.ec");
/// The number of the first function of [`TEXT`], until the program is assembled.
const FIRST: u32 = 1 << 30;

/// The functions of [`TEXT`], callees first.
fn library() -> &'static [Function] {
    static LIBRARY: OnceLock<Vec<Function>> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let calls = "add(1, 2); subtract(1, 2); multiply(1, 2); divide(1, 2); less(1, 2); at_most(1, 2);
            greater(1, 2); at_least(1, 2); equal(1, 2); not_equal(1, 2); from_unsigned(1); from_signed(1);
            to_unsigned(1); to_signed(1); widened(1); narrowed(1); single_from_unsigned(1); single_from_signed(1);";
        let text = format!("{TEXT}\n{calls}");
        let program = compile(&text, &Environment::default());
        let mut functions =
            program.unwrap_or_else(|errors| panic!("{}", errors.render("float.ec", &text, false))).functions;
        functions.pop();
        functions
    })
}

fn call(name: &str, arguments: Vec<Expr>, ty: Scalar) -> Expr {
    let place = library().iter().position(|function| function.name == name).expect("`float.ec` defines it");
    Expr { kind: ExprKind::Call(FunctionId(FIRST + place as u32), arguments), ty }
}

/// The number of a constant.
fn number(bits: i64, ty: Scalar) -> f64 {
    match (ty.float, ty.bits, ty.signed) {
        (true, 32, _) => f64::from(f32::from_bits(bits as u32)),
        (true, ..) => f64::from_bits(bits as u64),
        (false, _, true) => bits as f64,
        (false, _, false) => bits as u64 as f64,
    }
}

/// The constant of a number; every NaN has the same bits.
fn bits(number: f64, ty: Scalar) -> Expr {
    const NAN: [i64; 2] = [0x7fc0_0000, 0x7ff8_0000_0000_0000];
    let bits = match ty.bits {
        _ if number.is_nan() => NAN[usize::from(ty.bits == 64)],
        32 => i64::from((number as f32).to_bits()),
        _ => number.to_bits() as i64,
    };
    constant(bits, ty)
}

/// C's conversion if one of the types is a floating-point type. A number outside an integer type becomes the nearest
/// `long` (or `unsigned long`), which is then converted as integers are.
pub(super) fn cast(expr: Expr, ty: Scalar) -> Expr {
    let from = expr.ty;
    if let Some(value) = known(&expr) {
        return constant_cast(value, from, ty);
    }
    match (from.float, ty.float) {
        (true, true) if ty.bits == 64 => call("widened", vec![expr], ty),
        (true, true) => call("narrowed", vec![expr], ty),
        (true, false) => {
            let double = fold::cast(expr, Scalar::F64);
            let (name, whole) =
                if ty == Scalar::U64 { ("to_unsigned", Scalar::U64) } else { ("to_signed", Scalar::I64) };
            fold::cast(call(name, vec![double], whole), ty)
        }
        (false, _) => {
            let whole = if from == Scalar::U64 { Scalar::U64 } else { Scalar::I64 };
            let name = match (ty.bits, whole.signed) {
                (64, true) => "from_signed",
                (64, false) => "from_unsigned",
                (_, true) => "single_from_signed",
                (_, false) => "single_from_unsigned",
            };
            call(name, vec![fold::cast(expr, whole)], ty)
        }
    }
}

fn constant_cast(value: i64, from: Scalar, ty: Scalar) -> Expr {
    match (from.float, ty.float) {
        (true, false) if ty == Scalar::U64 => constant(number(value, from) as u64 as i64, ty),
        (true, false) => constant(number(value, from) as i64, ty),
        // Directly, because a conversion through `double` would round twice.
        (false, true) if ty.bits == 32 && from.signed => constant(i64::from((value as f32).to_bits()), ty),
        (false, true) if ty.bits == 32 => constant(i64::from((value as u64 as f32).to_bits()), ty),
        _ => bits(number(value, from), ty),
    }
}

/// The same bits as another type of the same size.
fn as_word(expr: Expr, ty: Scalar) -> Expr {
    match expr.kind {
        ExprKind::Const(value) => constant(value, ty),
        _ => Expr { kind: ExprKind::Cast(Box::new(expr)), ty },
    }
}

fn word_of(ty: Scalar) -> Scalar {
    Scalar { float: false, ..ty }
}

/// Combines the word of a number with a constant.
fn with_bits(op: BinaryOp, expr: Expr, mask: i64) -> Expr {
    let (ty, word) = (expr.ty, word_of(expr.ty));
    as_word(fold::binary(op, as_word(expr, word), constant(mask, word), 0), ty)
}

/// `-a`: the number with the other sign.
pub(super) fn negate(expr: Expr) -> Expr {
    let sign = 1 << (expr.ty.bits - 1);
    with_bits(BinaryOp::Xor, expr, sign)
}

/// `a` without its sign.
pub(super) fn absolute(expr: Expr) -> Expr {
    let mask = (1u64 << (expr.ty.bits - 1)) - 1;
    with_bits(BinaryOp::And, expr, mask as i64)
}

/// `a op b` for two numbers of one floating-point type.
pub(super) fn binary(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    let ty = left.ty;
    let (name, compute): (_, fn(f64, f64) -> f64) = match op {
        BinaryOp::Sub => ("subtract", |a, b| a - b),
        BinaryOp::Mul => ("multiply", |a, b| a * b),
        BinaryOp::Div => ("divide", |a, b| a / b),
        // The checker has refused all other operators but `+`.
        _ => ("add", |a, b| a + b),
    };
    if let Some((a, b)) = known(&left).zip(known(&right)) {
        return bits(compute(number(a, ty), number(b, ty)), ty);
    }
    let both = vec![fold::cast(left, Scalar::F64), fold::cast(right, Scalar::F64)];
    fold::cast(call(name, both, Scalar::F64), ty)
}

pub(super) fn compare(op: CompareOp, left: Expr, right: Expr) -> Expr {
    if let Some((a, b)) = known(&left).zip(known(&right)) {
        let (a, b) = (number(a, left.ty), number(b, right.ty));
        return truth(match op {
            CompareOp::Eq => a == b,
            CompareOp::Ne => a != b,
            CompareOp::Lt => a < b,
            CompareOp::Le => a <= b,
            CompareOp::Gt => a > b,
            CompareOp::Ge => a >= b,
        });
    }
    let name = match op {
        CompareOp::Eq => "equal",
        CompareOp::Ne => "not_equal",
        CompareOp::Lt => "less",
        CompareOp::Le => "at_most",
        CompareOp::Gt => "greater",
        CompareOp::Ge => "at_least",
    };
    call(name, vec![fold::cast(left, Scalar::F64), fold::cast(right, Scalar::F64)], Scalar::I32)
}

/// Puts the functions of `float.ec` that the program calls before its own, and numbers all functions. Returns how many
/// were added.
pub(super) fn link(functions: &mut Vec<Function>) -> usize {
    let mut called = Vec::new();
    for function in functions.iter() {
        crate::bpf::calls(&function.body, &mut |id| called.extend(id.0.checked_sub(FIRST)));
    }
    if called.is_empty() {
        return 0;
    }
    let mut wanted = vec![false; library().len()];
    called.into_iter().for_each(|place| wanted[place as usize] = true);
    for place in (0..wanted.len()).rev().filter(|place| wanted[*place]).collect::<Vec<_>>() {
        mark_callees(place, &mut wanted);
    }
    let mut places = vec![0; wanted.len()];
    let mut linked = Vec::new();
    for (place, function) in library().iter().enumerate().filter(|(place, _)| wanted[*place]) {
        places[place] = linked.len() as u32;
        linked.push(function.clone());
    }
    let added = linked.len();
    for function in &mut linked {
        super::renumber::functions(&mut function.body, &|id| FunctionId(places[id.0 as usize]));
    }
    let own = |id: FunctionId| match id.0.checked_sub(FIRST) {
        Some(place) => FunctionId(places[place as usize]),
        None => FunctionId(id.0 + added as u32),
    };
    functions.iter_mut().for_each(|function| super::renumber::functions(&mut function.body, &own));
    linked.append(functions);
    *functions = linked;
    added
}

fn mark_callees(place: usize, wanted: &mut [bool]) {
    crate::bpf::calls(&library()[place].body, &mut |id| {
        if !wanted[id.0 as usize] {
            wanted[id.0 as usize] = true;
            mark_callees(id.0 as usize, wanted);
        }
    });
}
