//! Generates random checked programs, including programs that no text produces.

use qfabric_ecode::hir::*;
use qfabric_ecode::{CallContext, Engine};
use qfabric_types::format::{Format, Scalar};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const TYPES: [Scalar; 8] =
    [Scalar::I8, Scalar::U8, Scalar::I16, Scalar::U16, Scalar::I32, Scalar::U32, Scalar::I64, Scalar::U64];
const OPS: [BinaryOp; 10] = [
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Rem,
    BinaryOp::And,
    BinaryOp::Or,
    BinaryOp::Xor,
    BinaryOp::Shl,
    BinaryOp::Shr,
];
const COMPARISONS: [CompareOp; 6] =
    [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];
/// Bytes of the input, of the output, of the statics, and of each frame.
const BYTES: u32 = 64;

struct Maker {
    rng: ChaCha8Rng,
    /// Number of functions that may be called.
    callable: usize,
    functions: Vec<Function>,
    in_loop: bool,
    is_void: bool,
    line: u32,
    loops: Vec<Repetition>,
}

impl Maker {
    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.random_range(0..from.len())]
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn line(&mut self) -> u32 {
        self.line += 1;
        self.line
    }

    fn constant(&mut self, ty: Scalar) -> Expr {
        let value = match self.rng.random_range(0..6) {
            0 => self.rng.random_range(-3..4),
            1 => self.rng.random_range(0..100),
            2 => 1 << self.rng.random_range(0..63),
            3 => self.pick(&[i64::MIN, i64::MAX, i32::MIN as i64, i32::MAX as i64, u32::MAX as i64, -1, 0x80, 0x8000]),
            _ => self.rng.next_u64() as i64 >> self.rng.random_range(0..60),
        };
        Expr { kind: ExprKind::Const(ty.wrap(value)), ty }
    }

    fn place(&mut self, ty: Scalar, writable: bool, depth: u32) -> Place {
        let bases = [Base::Output, Base::Static, Base::Local, Base::Input];
        let base = self.pick(&bases[..if writable { 3 } else { 4 }]);
        let (offset, indices) = match self.rng.random_range(0..10) {
            0..2 if depth > 0 => (0, vec![self.index(8, 8, depth)]),
            2 if depth > 0 => (16, vec![self.index(3, 16, depth), self.index(2, 8, depth)]),
            3 if depth > 0 && ty.bits == 8 => {
                (1, vec![self.index(3, 20, depth), self.index(2, 10, depth), self.index(5, 2, depth)])
            }
            _ => (self.rng.random_range(0..BYTES / ty.bytes()) * ty.bytes(), vec![]),
        };
        Place { base, offset, indices, ty }
    }

    fn index(&mut self, count: u32, stride: u32, depth: u32) -> Index {
        let ty = self.pick(&TYPES);
        let any = self.expr(ty, depth - 1);
        let value = match self.chance(85) {
            true => {
                let mask = Expr { kind: ExprKind::Const((count - 1) as i64 & 2), ty };
                let kind = ExprKind::Binary { op: BinaryOp::And, left: any.into(), right: mask.into(), line: 0 };
                Expr { kind, ty }
            }
            false => any,
        };
        let wide = self.pick(&[true, false]);
        let value = if wide { Expr { kind: ExprKind::Cast(value.into()), ty: Scalar::I64 } } else { value };
        Index { value, count, stride, line: self.line() }
    }

    fn expr(&mut self, ty: Scalar, depth: u32) -> Expr {
        let Some(next) = depth.checked_sub(1) else {
            return match self.chance(40) {
                true => self.constant(ty),
                false => Expr { kind: ExprKind::Load(self.place(ty, false, 0)), ty },
            };
        };
        let kind = match self.rng.random_range(0..24) {
            0 => return self.constant(ty),
            1..4 => ExprKind::Load(self.place(ty, false, depth)),
            4 => ExprKind::Store(self.place(ty, true, depth), self.expr(ty, next).into()),
            5..7 => self.update(ty, depth),
            7 => ExprKind::Neg(self.expr(ty, next).into()),
            8 => ExprKind::Not(self.expr(ty, next).into()),
            9..15 => self.binary(ty, next),
            15 => ExprKind::Select(self.any(next).into(), self.expr(ty, next).into(), self.expr(ty, next).into()),
            16 => ExprKind::Comma(self.any(next).into(), self.expr(ty, next).into()),
            17 if self.callable > 0 => return self.call(ty, next),
            18 | 19 => return self.word(ty, next),
            20 | 21 => return self.truth(ty, next),
            _ => ExprKind::Cast(self.any(next).into()),
        };
        Expr { kind, ty }
    }

    fn any(&mut self, depth: u32) -> Expr {
        let ty = self.pick(&TYPES);
        self.expr(ty, depth)
    }

    fn cast(&mut self, inner: Expr, ty: Scalar) -> Expr {
        Expr { kind: ExprKind::Cast(inner.into()), ty }
    }

    fn binary(&mut self, ty: Scalar, depth: u32) -> ExprKind {
        let op = self.pick(&OPS);
        let right = if matches!(op, BinaryOp::Shl | BinaryOp::Shr) { self.pick(&TYPES) } else { ty };
        let right = if self.chance(30) { self.constant(right) } else { self.expr(right, depth) };
        ExprKind::Binary { op, left: self.expr(ty, depth).into(), right: right.into(), line: self.line() }
    }

    fn update(&mut self, ty: Scalar, depth: u32) -> ExprKind {
        let op = self.pick(&OPS);
        let wide = self.pick(&TYPES);
        let wide = if wide.bits < ty.bits { ty } else { wide };
        let right = if matches!(op, BinaryOp::Shl | BinaryOp::Shr) { self.pick(&TYPES) } else { wide };
        let value = if self.chance(40) { self.constant(right) } else { self.expr(right, depth - 1) };
        let (place, post) = (self.place(ty, true, depth), self.chance(50));
        ExprKind::Update { place, op, wide, value: value.into(), post, line: self.line() }
    }

    /// An expression of type `int`, converted to the required type.
    fn truth(&mut self, ty: Scalar, depth: u32) -> Expr {
        let of = self.pick(&TYPES);
        let kind = match self.rng.random_range(0..5) {
            0 => ExprKind::And(self.any(depth).into(), self.any(depth).into()),
            1 => ExprKind::Or(self.any(depth).into(), self.any(depth).into()),
            2 => {
                let zero = Expr { kind: ExprKind::Const(0), ty: of };
                let op = self.pick(&COMPARISONS);
                ExprKind::Compare(op, self.expr(of, depth).into(), zero.into())
            }
            3 if of.bits == 64 => {
                let from = self.pick(&[Scalar::I32, Scalar::U32]);
                let (left, right) = (self.expr(from, depth), self.expr(from, depth));
                let right = if self.chance(50) { self.constant(of) } else { self.cast(right, of) };
                ExprKind::Compare(self.pick(&COMPARISONS), self.cast(left, of).into(), right.into())
            }
            _ => {
                let op = self.pick(&COMPARISONS);
                ExprKind::Compare(op, self.expr(of, depth).into(), self.expr(of, depth).into())
            }
        };
        let truth = Expr { kind, ty: Scalar::I32 };
        self.cast(truth, ty)
    }

    /// An expression of type `long`, converted to the required type.
    fn word(&mut self, ty: Scalar, depth: u32) -> Expr {
        let number = self.rng.random_range(0..3);
        let kind = match self.rng.random_range(0..7) {
            0 => ExprKind::Attr(number),
            1 => ExprKind::SetAttr(number, self.expr(Scalar::I64, depth).into()),
            2 => ExprKind::AddAttr(number, self.expr(Scalar::I64, depth).into()),
            3 => ExprKind::Builtin(Builtin::Now, vec![]),
            4 => return self.builtin(Builtin::Pid, ty),
            5 => return self.builtin(Builtin::Cpu, ty),
            _ => return self.builtin(Builtin::Emit, ty),
        };
        self.cast(Expr { kind, ty: Scalar::I64 }, ty)
    }

    fn builtin(&mut self, what: Builtin, ty: Scalar) -> Expr {
        self.cast(Expr { kind: ExprKind::Builtin(what, vec![]), ty: Scalar::I32 }, ty)
    }

    fn call(&mut self, ty: Scalar, depth: u32) -> Expr {
        let function = self.rng.random_range(0..self.callable);
        let types: Vec<Scalar> = self.functions[function].parameters.iter().map(|place| place.ty).collect();
        let arguments = types.into_iter().map(|ty| self.expr(ty, depth)).collect();
        let result = self.functions[function].result.unwrap_or(Scalar::I64);
        self.cast(Expr { kind: ExprKind::Call(FunctionId(function as u32), arguments), ty: result }, ty)
    }

    fn block(&mut self, depth: u32) -> Vec<Stmt> {
        (0..self.rng.random_range(1..5)).map(|_| self.stmt(depth)).collect()
    }

    fn stmt(&mut self, depth: u32) -> Stmt {
        match self.rng.random_range(0..20) {
            0..3 if depth > 0 => {
                let no = if self.chance(50) { self.block(depth - 1) } else { vec![] };
                Stmt::If(self.any(2), self.block(depth - 1), no)
            }
            3..5 if depth > 0 => self.repeat(depth - 1),
            5 if self.in_loop && self.chance(40) => Stmt::Break,
            6 if self.in_loop && self.chance(40) => Stmt::Continue,
            7 if self.is_void && self.chance(30) => Stmt::Return(None),
            7 if !self.is_void && self.chance(30) => Stmt::Return(Some(self.expr(Scalar::I64, 3))),
            8 => Stmt::Clear { place: self.place(Scalar::I64, true, 0), bytes: self.rng.random_range(1..9) },
            9 => self.copy(),
            _ => Stmt::Expr(self.any(4)),
        }
    }

    fn copy(&mut self) -> Stmt {
        let (to, from) = match self.chance(50) {
            true => (Base::Output, Base::Input),
            false => (Base::Static, Base::Local),
        };
        let mut place = |base| match self.chance(30) {
            true => Place { base, offset: 0, indices: vec![self.index(4, 16, 2)], ty: Scalar::U8 },
            false => Place { base, offset: self.rng.random_range(0..40), indices: vec![], ty: Scalar::U8 },
        };
        let (to, from) = (place(to), place(from));
        let bytes = self.rng.random_range(1..17);
        let kind = ExprKind::Copy { to: Box::new(to), from: Box::new(from), bytes };
        Stmt::Expr(Expr { kind, ty: Scalar::I32 })
    }

    fn repeat(&mut self, depth: u32) -> Stmt {
        let (outer, condition) = (std::mem::replace(&mut self.in_loop, true), self.any(2));
        let body = self.block(depth);
        self.in_loop = outer;
        let step = if self.chance(50) { Some(self.any(2)) } else { None };
        let condition = if self.chance(90) { Some(condition) } else { None };
        let number = self.loops.len() as u32;
        self.loops.push(Repetition { turns: Repetition::UNKNOWN, cost: 1 });
        Stmt::Loop { condition, tests_after: self.chance(30), step, body, number, line: self.line() }
    }

    fn function(&mut self, callable: usize) -> Function {
        self.callable = callable;
        self.is_void = callable < 2 && self.chance(15);
        let parameters: Vec<Place> = (0..self.rng.random_range(0..4))
            .map(|i| Place { base: Base::Local, offset: 8 * i, indices: vec![], ty: self.pick(&TYPES) })
            .collect();
        let rest = Place { base: Base::Local, offset: 24, indices: vec![], ty: Scalar::U8 };
        let first = Place { base: Base::Local, offset: 0, indices: vec![], ty: Scalar::U8 };
        let mut body = vec![Stmt::Clear { place: rest, bytes: BYTES - 24 }];
        for parameter in 0..3 {
            let bytes = parameters.get(parameter).map_or(0, |place| place.ty.bytes());
            let offset = 8 * parameter as u32 + bytes;
            body.push(Stmt::Clear { place: Place { offset, ..first.clone() }, bytes: 8 - bytes });
        }
        body.extend(self.block(if callable == 0 { 1 } else { 2 }));
        let result = (!self.is_void).then_some(Scalar::I64);
        Function { name: String::new(), result, parameters, frame: BYTES, body }
    }

    fn all(seed: u64) -> Program {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let mut maker =
            Maker { rng, callable: 0, functions: vec![], in_loop: false, is_void: false, line: 0, loops: vec![] };
        for number in 0..3 {
            let mut function = maker.function(number);
            if number == 2 {
                (function.parameters, function.result) = (vec![], Some(Scalar::I64));
                let all = Place { base: Base::Local, offset: 0, indices: vec![], ty: Scalar::U8 };
                function.body.insert(0, Stmt::Clear { place: all, bytes: BYTES });
            }
            maker.functions.push(function);
        }
        let format = Format { name: "event".into(), size: BYTES, align: 8, fields: vec![] };
        let mut statics = vec![0; BYTES as usize];
        maker.rng.fill_bytes(&mut statics);
        let mut program = Program {
            input: format.clone(),
            output: Some(format),
            statics,
            attributes: vec!["a".into(), "b".into(), "c".into()],
            functions: maker.functions,
            loops: maker.loops,
            writes_shared: true,
            has_loops: true,
            uses: Default::default(),
        };
        program.charge();
        program
    }
}

/// Generates the program of a seed.
pub(crate) fn program(seed: u64) -> Program {
    Maker::all(seed)
}

/// Returns all visible results of some calls.
pub(crate) fn seen(engine: &mut dyn Engine, seed: u64) -> Vec<String> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let context = CallContext { now: rng.next_u64(), pid: -77, cpu: 3 };
    let mut calls = Vec::new();
    for _ in 0..3 {
        let mut input = [0; BYTES as usize];
        rng.fill_bytes(&mut input);
        let mut emitted = Vec::new();
        let verdict = engine.call(&input, &context, &mut |event| emitted.push(event.to_vec()));
        let (output, statics) = (engine.output().to_vec(), engine.statics().to_vec());
        calls.push(format!("{verdict:?} {output:x?} {statics:x?} {:x?} {emitted:x?}", engine.attributes()));
    }
    calls
}
