//! `lrand48` and its like: the generator of POSIX, `x = (0x5deece66d · x + 11) mod 2^48`. Its state is a static
//! variable, so each handler has its own sequence, and all engines compute the same numbers.

use qfabric_types::format::Scalar;

use super::fold::{self, cast, constant};
use super::{Checked, Checker};
use crate::diagnostics::Span;
use crate::hir::{self, BinaryOp};

const FACTOR: i64 = 0x5_deec_e66d;
const ADDEND: i64 = 11;
const MASK: i64 = (1 << 48) - 1;
/// The lower 16 bits of a state that `srand48` sets.
const SEEDED: i64 = 0x330e;
/// The state before the first `srand48`: the one of BSD and musl.
const INITIAL: i64 = 0x1234_abcd_330e;

impl Checker<'_> {
    /// The next number: the upper bits of the next state from this bit on, converted to `ty` and then to `long`.
    pub(super) fn random(&mut self, from_bit: i64, ty: Scalar, span: Span) -> Checked<hir::Expr> {
        let (place, line) = (self.statics.random_state(INITIAL, span, &mut self.findings)?, self.findings.line(span));
        let word = |value| constant(value, Scalar::U64);
        let state = hir::Expr { kind: hir::ExprKind::Load(place.clone()), ty: Scalar::U64 };
        let product = fold::binary(BinaryOp::Mul, state, word(FACTOR), line);
        let sum = fold::binary(BinaryOp::Add, product, word(ADDEND), line);
        let next = fold::binary(BinaryOp::And, sum, word(MASK), line);
        let next = hir::Expr { kind: hir::ExprKind::Store(place, Box::new(next)), ty: Scalar::U64 };
        let bits = fold::binary(BinaryOp::Shr, next, constant(from_bit, Scalar::I32), line);
        Ok(cast(cast(bits, ty), Scalar::I64))
    }

    /// `srand48(seed)`: begins the sequence of the seed.
    pub(super) fn seed(&mut self, seed: hir::Expr, span: Span) -> Checked<hir::Expr> {
        let (place, line) = (self.statics.random_state(INITIAL, span, &mut self.findings)?, self.findings.line(span));
        let shifted = fold::binary(BinaryOp::Shl, cast(seed, Scalar::U64), constant(16, Scalar::I32), line);
        let state = fold::binary(BinaryOp::Add, shifted, constant(SEEDED, Scalar::U64), line);
        let store = hir::Expr { kind: hir::ExprKind::Store(place, Box::new(state)), ty: Scalar::U64 };
        Ok(fold::comma(store, constant(0, Scalar::I32)))
    }
}
