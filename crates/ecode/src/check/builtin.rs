//! The built-in functions. A function of the text with the same name takes precedence.

use qfabric_types::format::Scalar;

use super::expr::arity;
use super::fold::{self, cast, constant};
use super::{Checked, Checker};
use crate::ast::{Expr, ExprKind, Ident};
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::{self, BinaryOp, Builtin, CompareOp};
use crate::parser::Failed;

/// Names and parameter names.
const BUILTINS: &[(&str, &[&str])] = &[
    ("now", &[]),
    ("pid", &[]),
    ("cpu", &[]),
    ("emit", &[]),
    ("min", &["a", "b"]),
    ("max", &["a", "b"]),
    ("clamp", &["x", "low", "high"]),
    ("abs", &["x"]),
    ("get_attribute", &["name"]),
    ("set_attribute", &["name", "value"]),
    ("fx_from", &["x"]),
    ("fx_to_int", &["x"]),
    ("fx_mul", &["a", "b"]),
    ("fx_div", &["a", "b"]),
    ("mul_div", &["a", "b", "c"]),
    ("lrand48", &[]),
    ("mrand48", &[]),
    ("drand48", &[]),
    ("srand48", &["seed"]),
    ("strlen", &["text"]),
    ("strcmp", &["a", "b"]),
    ("strncmp", &["a", "b", "most"]),
    ("strcpy", &["to", "from"]),
    (PRINTF, &["format", "values…"]),
];

/// Functions of C that E-code does not have, with the way to the same result.
const ELSEWHERE: &[(&str, &str)] = &[
    ("abort", "write `return 0;` to end the call and to drop the event"),
    ("calloc", "declare an array, such as `static int table[64];`"),
    ("clock_gettime", "write `now()`: nanoseconds of CLOCK_MONOTONIC"),
    ("exit", "write `return 0;` to end the call and to drop the event"),
    ("free", "remove the call: variables and arrays end with their block"),
    ("gettimeofday", "write `now()`: nanoseconds of CLOCK_MONOTONIC"),
    ("malloc", "declare an array, such as `static int table[64];`"),
    ("memcpy", "copy structures and arrays of one type with `=`: `a = b;`"),
    ("memset", "declare the variable again in a block: each declaration sets it to zero"),
    ("rand", "write `lrand48()`: a number from 0 to 2147483647"),
    ("random", "write `lrand48()`: a number from 0 to 2147483647"),
    ("srand", "write `srand48(seed)`"),
    ("srandom", "write `srand48(seed)`"),
    ("time", "write `now()`: nanoseconds of CLOCK_MONOTONIC"),
];

/// Takes any number of values.
const PRINTF: &str = "printf";
/// Fractional bits of a fixed-point number (Q16.16).
const POINT: i64 = 16;

pub(super) fn is_builtin(name: &str) -> bool {
    BUILTINS.iter().any(|(known, _)| *known == name)
}

impl Checker<'_> {
    pub(super) fn builtin(&mut self, name: &Ident, arguments: &[Expr], span: Span) -> Checked<hir::Expr> {
        let Some((_, parameters)) = BUILTINS.iter().find(|(known, _)| *known == name.name) else {
            return self.fail_unknown_function(name);
        };
        if name.name == PRINTF {
            return self.print(arguments, span);
        }
        if parameters.len() != arguments.len() {
            let message = arity(&name.name, parameters, arguments.len());
            return self.findings.fail(Diagnostic::new(span, message, "wrong number of arguments"));
        }
        match (name.name.as_str(), arguments) {
            ("get_attribute", [attribute]) => {
                let number = self.attribute_name(attribute)?;
                Ok(word(hir::ExprKind::Attr(number)))
            }
            ("set_attribute", [attribute, value]) => {
                let (number, value) = (self.attribute_name(attribute), self.number(value));
                let value = cast(value?, Scalar::I64);
                Ok(word(hir::ExprKind::SetAttr(number?, Box::new(value))))
            }
            ("strlen", [text]) => self.string_length(text),
            ("strcmp", [a, b]) => self.string_compare(a, b, None, span),
            ("strncmp", [a, b, most]) => self.string_compare(a, b, Some(most), span),
            ("strcpy", [to, from]) => self.string_copy(to, from, span),
            ("lrand48", []) => self.random(17, Scalar::U32, span),
            ("mrand48", []) => self.random(16, Scalar::I32, span),
            ("drand48", []) => {
                // The whole state, as a fraction of 2^48.
                let state = self.random(0, Scalar::U64, span)?;
                let scale = constant((1.0 / (1u64 << 48) as f64).to_bits() as i64, Scalar::F64);
                Ok(fold::binary(BinaryOp::Mul, cast(state, Scalar::F64), scale, self.findings.line(span)))
            }
            ("srand48", [seed]) => {
                let seed = cast(self.number(seed)?, Scalar::U32);
                self.seed(seed, span)
            }
            (known, arguments) => {
                let values: Vec<Checked<hir::Expr>> = arguments.iter().map(|argument| self.number(argument)).collect();
                let values = values.into_iter().collect::<Checked<Vec<_>>>()?;
                self.compute(known, values, arguments, span)
            }
        }
    }

    pub(super) fn host(&mut self, what: Builtin, ty: Scalar) -> hir::Expr {
        self.uses.builtins.insert(what);
        hir::Expr { kind: hir::ExprKind::Builtin(what, Vec::new()), ty }
    }

    fn compute(&mut self, name: &str, values: Vec<hir::Expr>, written: &[Expr], span: Span) -> Checked<hir::Expr> {
        let line = self.findings.line(span);
        let shifted = |op, value| fold::binary(op, value, constant(POINT, Scalar::I32), line);
        let product = |a, b| fold::binary(BinaryOp::Mul, long(a), long(b), line);
        match (name, <[hir::Expr; 3]>::try_from(filled(values)).expect("at most three arguments")) {
            ("now", _) => Ok(self.host(Builtin::Now, Scalar::U64)),
            ("pid", _) => Ok(self.host(Builtin::Pid, Scalar::I32)),
            ("cpu", _) => Ok(self.host(Builtin::Cpu, Scalar::I32)),
            ("emit", _) => Ok(self.host(Builtin::Emit, Scalar::I32)),
            ("min", [a, b, _]) => self.choose(CompareOp::Lt, a, b, span),
            ("max", [a, b, _]) => self.choose(CompareOp::Gt, a, b, span),
            ("clamp", [x, low, high]) => self.clamp(x, low, high, span),
            ("abs", [x, ..]) => self.absolute(x, span),
            ("fx_from", [x, ..]) => Ok(shifted(BinaryOp::Shl, long(x))),
            ("fx_to_int", [x, ..]) => Ok(shifted(BinaryOp::Shr, long(x))),
            ("fx_mul", [a, b, _]) => Ok(shifted(BinaryOp::Shr, product(a, b))),
            ("fx_div", [a, b, _]) => self.divide(shifted(BinaryOp::Shl, long(a)), b, written[1].span, line),
            (_, [a, b, c]) => {
                debug_assert_eq!(name, "mul_div");
                self.divide(product(a, b), c, written[2].span, line)
            }
        }
    }

    fn divide(&mut self, value: hir::Expr, by: hir::Expr, by_span: Span, line: u32) -> Checked<hir::Expr> {
        self.findings.refuse_zero(BinaryOp::Div, &by, by_span)?;
        Ok(fold::binary(BinaryOp::Div, value, long(by), line))
    }

    fn fail_unknown_function<T>(&mut self, name: &Ident) -> Checked<T> {
        if self.findings.errors.is_full() {
            return Err(Failed);
        }
        let message = format!("there is no function `{}`", name.name);
        let known: Vec<&str> =
            self.functions.keys().map(String::as_str).chain(BUILTINS.iter().map(|(known, _)| *known)).collect();
        let help = match (replacement(&name.name), crate::suggest::nearest(&name.name, known)) {
            (Some(replacement), _) => replacement.to_owned(),
            (None, Some(near)) => format!("did you mean `{near}`?"),
            (None, None) => {
                let offered: Vec<&str> = BUILTINS.iter().map(|(known, _)| *known).collect();
                format!("define it in this text; the built-in functions are {}", offered.join(", "))
            }
        };
        self.findings.fail(Diagnostic::new(name.span, message, "unknown function").help(help))
    }

    /// Reads an argument that is the bare name of an attribute.
    fn attribute_name(&mut self, argument: &Expr) -> Checked<u32> {
        let ExprKind::Name(name) = &argument.kind else {
            let error = Diagnostic::new(argument.span, "an attribute's name is needed here", "not a name");
            return self.findings.fail(error.help("write the bare name, without quotes: `get_attribute(threshold)`"));
        };
        self.attribute(&Ident { name: name.clone(), span: argument.span })
    }

    /// Returns `a` if `a op b` holds, otherwise `b`. Each operand is evaluated once.
    fn choose(&mut self, op: CompareOp, a: hir::Expr, b: hir::Expr, span: Span) -> Checked<hir::Expr> {
        let ty = fold::common(a.ty, b.ty);
        let ([keep_a, keep_b], [a, b]) = self.keep_all([cast(a, ty), cast(b, ty)], span)?;
        let chosen = fold::select(fold::compare(op, a.clone(), b.clone()), a, b);
        Ok(after([keep_a, keep_b], chosen))
    }

    /// Returns `low` if `x` is less, `high` if `x` is greater, otherwise `x`.
    fn clamp(&mut self, x: hir::Expr, low: hir::Expr, high: hir::Expr, span: Span) -> Checked<hir::Expr> {
        let ty = fold::common(fold::common(x.ty, low.ty), high.ty);
        let (kept, [x, low, high]) = self.keep_all([cast(x, ty), cast(low, ty), cast(high, ty)], span)?;
        let below = fold::compare(CompareOp::Lt, x.clone(), low.clone());
        let above = fold::compare(CompareOp::Gt, x.clone(), high.clone());
        let chosen = fold::select(below, low, fold::select(above, high, x));
        Ok(after(kept, chosen))
    }

    fn absolute(&mut self, x: hir::Expr, span: Span) -> Checked<hir::Expr> {
        let x = fold::promote(x);
        if x.ty.float {
            return Ok(super::float::absolute(x));
        }
        if !x.ty.signed {
            return Ok(x);
        }
        let (kept, [x]) = self.keep_all([x], span)?;
        let negative = fold::compare(CompareOp::Lt, x.clone(), constant(0, x.ty));
        Ok(after(kept, fold::select(negative, fold::negate(x.clone()), x)))
    }

    /// Makes each value usable twice: stores it in a temporary variable unless it is cheap to read again.
    pub(super) fn keep_all<const N: usize>(&mut self, values: [hir::Expr; N], span: Span) -> Checked<Kept<N>> {
        // If evaluating the values changes nothing, reading one of them twice gives the same result.
        let unchanging = values.iter().all(super::loops::changes_nothing);
        let mut kept = [const { None }; N];
        let mut named = values;
        for (value, kept) in named.iter_mut().zip(&mut kept) {
            if !(unchanging && is_cheap(value)) {
                let ty = value.ty;
                let place = self.frame.temporary(ty, span, &mut self.findings)?;
                let load = hir::Expr { kind: hir::ExprKind::Load(place.clone()), ty };
                let value = Box::new(std::mem::replace(value, load));
                *kept = Some(hir::Expr { kind: hir::ExprKind::Store(place, value), ty });
            }
        }
        Ok((kept, named))
    }
}

/// What to write instead of a function of C, COD or EVPath.
fn replacement(name: &str) -> Option<&'static str> {
    let elsewhere = ELSEWHERE.iter().find(|(known, _)| *known == name);
    let is_attribute = name.starts_with("attr_") || name.starts_with("set_") && name.ends_with("_attr");
    match elsewhere {
        Some((_, help)) => Some(*help),
        None if is_attribute => Some("attributes are numbers: read `attr.NAME`, and set it by `attr.NAME = value;`"),
        None if name.starts_with("EVpresent_") => Some("compare the event's number with `EVcount_NAME()`"),
        None if name.starts_with("EVdiscard_and_submit_") => {
            Some("write `EVsubmit(0, EVdata_NAME(i));`, then `EVdiscard_NAME(i);`")
        }
        None if name.starts_with("EVsubmit_") => Some("write `EVsubmit(0, event)`, or set `output` and `emit();`"),
        None => None,
    }
}

/// The stores into temporary variables, and the expressions that read the values.
pub(super) type Kept<const N: usize> = ([Option<hir::Expr>; N], [hir::Expr; N]);

/// Whether reading the value again costs no more than a temporary variable. Attributes do not qualify, because
/// another event may change them in between.
fn is_cheap(value: &hir::Expr) -> bool {
    match &value.kind {
        hir::ExprKind::Const(_) => true,
        hir::ExprKind::Load(place) => place.indices.is_empty(),
        hir::ExprKind::Cast(inner) => is_cheap(inner),
        _ => false,
    }
}

pub(super) fn after<const N: usize>(kept: [Option<hir::Expr>; N], value: hir::Expr) -> hir::Expr {
    kept.into_iter().rev().flatten().fold(value, |value, first| fold::comma(first, value))
}

/// Pads the list to three values, so that an array pattern can take it apart.
fn filled(mut values: Vec<hir::Expr>) -> Vec<hir::Expr> {
    values.resize(3, constant(0, Scalar::I32));
    values
}

fn long(value: hir::Expr) -> hir::Expr {
    cast(value, Scalar::I64)
}

fn word(kind: hir::ExprKind) -> hir::Expr {
    hir::Expr { kind, ty: Scalar::I64 }
}
