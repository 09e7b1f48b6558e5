//! The reference engine: interprets the checked program directly. All other engines must give the same results.

use crate::bpf::Layout;
use crate::engine::{CallContext, Engine, Limits};
use crate::hir::{Base, BinaryOp, Builtin, Expr, ExprKind, Fault, FaultKind, FunctionId, Place, Program, Stmt};
use qfabric_types::format::Scalar;

/// Runs a program by walking its tree.
#[derive(Clone, Debug)]
pub struct Interpreter {
    program: Program,
    layout: Layout,
    limits: Limits,
    frame: Vec<u8>,
    statics: Vec<u8>,
    attributes: Vec<i64>,
    assigned: u64,
    /// Fuel and emissions that the last call left.
    left: Limits,
}

impl Interpreter {
    /// Creates an engine with the initial values of the statics and with all attributes 0.
    pub fn new(program: &Program, limits: Limits) -> Self {
        let layout = Layout::of(program);
        let (frame, statics) = (vec![0; layout.size as usize], program.statics.clone());
        let attributes = vec![0; program.attributes.len()];
        let (program, left) = (program.clone(), limits);
        Interpreter { program, layout, limits, frame, statics, attributes, assigned: 0, left }
    }
}

impl Engine for Interpreter {
    fn name(&self) -> &'static str {
        "interp"
    }

    fn call(&mut self, input: &[u8], context: &CallContext, sink: &mut dyn FnMut(&[u8])) -> Result<i64, Fault> {
        let layout = &self.layout;
        assert_eq!(input.len(), layout.input_bytes as usize, "an event has the length of the input format");
        self.frame[layout.input as usize..][..input.len()].copy_from_slice(input);
        if self.program.output.is_some() {
            self.frame[layout.output as usize..][..layout.output_bytes as usize].fill(0);
        }
        (self.assigned, self.left) = (0, self.limits);
        let call = Call {
            program: &self.program,
            layout,
            frame: &mut self.frame,
            statics: &mut self.statics,
            attributes: &mut self.attributes,
            assigned: &mut self.assigned,
            context,
            sink,
            left: &mut self.left,
        };
        call.run()
    }

    fn output(&self) -> &[u8] {
        match self.program.output {
            Some(_) => &self.frame[self.layout.output as usize..][..self.layout.output_bytes as usize],
            None => &[],
        }
    }

    fn statics(&self) -> &[u8] {
        &self.statics
    }

    fn attributes(&mut self) -> &mut [i64] {
        &mut self.attributes
    }

    fn assigned(&self) -> u64 {
        self.assigned
    }

    fn looped(&self) -> u32 {
        self.limits.fuel - self.left.fuel
    }
}

/// The state of one call.
struct Call<'a> {
    program: &'a Program,
    layout: &'a Layout,
    frame: &'a mut [u8],
    statics: &'a mut [u8],
    attributes: &'a mut [i64],
    assigned: &'a mut u64,
    context: &'a CallContext,
    sink: &'a mut dyn FnMut(&[u8]),
    /// Fuel and emissions that remain.
    left: &'a mut Limits,
}

enum Flow {
    Next,
    Break,
    Continue,
    Return(i64),
}

/// A place after its indices have been evaluated. An index out of range is reported only when the place is
/// accessed.
struct Located {
    at: usize,
    fault: Option<Fault>,
}

type Done<T> = Result<T, Fault>;

impl Call<'_> {
    fn run(mut self) -> Done<i64> {
        let entry = self.program.functions.len() - 1;
        self.function(entry, 1)
    }

    fn function(&mut self, function: usize, fallen_off: i64) -> Done<i64> {
        let program = self.program;
        match self.block(&program.functions[function].body, function)? {
            Flow::Return(value) => Ok(value),
            _ => Ok(fallen_off),
        }
    }

    fn block(&mut self, body: &[Stmt], f: usize) -> Done<Flow> {
        for stmt in body {
            match self.stmt(stmt, f)? {
                Flow::Next => {}
                other => return Ok(other),
            }
        }
        Ok(Flow::Next)
    }

    fn stmt(&mut self, stmt: &Stmt, f: usize) -> Done<Flow> {
        match stmt {
            Stmt::Expr(expr) => {
                self.eval(expr, f)?;
            }
            Stmt::If(condition, yes, no) => {
                let taken = if self.eval(condition, f)? != 0 { yes } else { no };
                return self.block(taken, f);
            }
            Stmt::Loop { condition, tests_after, step, body, number, line } => {
                let cost = self.program.loops[*number as usize].cost;
                let turn = Turn { condition: condition.as_ref(), step: step.as_ref(), body, cost, line: *line };
                return self.repeat(turn, *tests_after, f);
            }
            Stmt::Break => return Ok(Flow::Break),
            Stmt::Continue => return Ok(Flow::Continue),
            Stmt::Return(Some(value)) => return Ok(Flow::Return(self.eval(value, f)?)),
            Stmt::Return(None) => return Ok(Flow::Return(0)),
            Stmt::Clear { place, bytes } => {
                let at = self.locate(place, f)?.checked()?;
                self.memory(place.base)[at..][..*bytes as usize].fill(0);
            }
        }
        Ok(Flow::Next)
    }

    fn repeat(&mut self, turn: Turn, tests_after: bool, f: usize) -> Done<Flow> {
        let mut tests = !tests_after;
        loop {
            if tests && !self.holds(turn.condition, f)? {
                return Ok(Flow::Next);
            }
            tests = true;
            let empty = Fault { kind: FaultKind::Fuel, line: turn.line };
            self.left.fuel = self.left.fuel.checked_sub(turn.cost).ok_or(empty)?;
            match self.block(turn.body, f)? {
                Flow::Next | Flow::Continue => {}
                Flow::Break => return Ok(Flow::Next),
                leaving => return Ok(leaving),
            }
            if let Some(step) = turn.step {
                self.eval(step, f)?;
            }
        }
    }

    fn holds(&mut self, condition: Option<&Expr>, f: usize) -> Done<bool> {
        condition.map_or(Ok(true), |condition| Ok(self.eval(condition, f)? != 0))
    }

    /// The value of the expression is 0.
    fn copy(&mut self, to: &Place, from: &Place, bytes: usize, f: usize) -> Done<i64> {
        let (target, source) = (self.locate(to, f)?, self.locate(from, f)?);
        let (target, source) = (target.checked()?, source.checked()?);
        match (to.base == Base::Static, from.base == Base::Static) {
            (true, true) => self.statics.copy_within(source..source + bytes, target),
            (false, false) => self.frame.copy_within(source..source + bytes, target),
            (true, false) => self.statics[target..][..bytes].copy_from_slice(&self.frame[source..][..bytes]),
            (false, true) => self.frame[target..][..bytes].copy_from_slice(&self.statics[source..][..bytes]),
        }
        Ok(0)
    }

    fn eval(&mut self, expr: &Expr, f: usize) -> Done<i64> {
        let ty = expr.ty;
        Ok(match &expr.kind {
            ExprKind::Const(value) => *value,
            ExprKind::Load(place) => self.load(place, f)?,
            ExprKind::Compare(op, left, right) => {
                let (a, b) = (self.eval(left, f)?, self.eval(right, f)?);
                i64::from(op.holds(left.ty, a, b))
            }
            ExprKind::Cast(one) => ty.wrap(self.eval(one, f)?),
            ExprKind::Binary { op, left, right, line } => {
                let (a, b) = (self.eval(left, f)?, self.eval(right, f)?);
                binary(*op, ty, a, b, *line)?
            }
            ExprKind::Store(place, value) => {
                let located = self.locate(place, f)?;
                let value = self.eval(value, f)?;
                self.set(place.base, located.checked()?, place.ty, value);
                value
            }
            ExprKind::Update { place, op, wide, value, post, line } => {
                let located = self.locate(place, f)?;
                let right = self.eval(value, f)?;
                let at = located.checked()?;
                let former = self.get(place.base, at, place.ty);
                let value = place.ty.wrap(binary(*op, *wide, wide.wrap(former), right, *line)?);
                self.set(place.base, at, place.ty, value);
                if *post { former } else { value }
            }
            ExprKind::Copy { to, from, bytes } => self.copy(to, from, *bytes as usize, f)?,
            ExprKind::Attr(number) => self.attributes[*number as usize],
            ExprKind::SetAttr(number, value) => {
                let value = self.eval(value, f)?;
                self.assign(*number, value)
            }
            ExprKind::AddAttr(number, value) => {
                let value = self.eval(value, f)?;
                let attribute = &mut self.attributes[*number as usize];
                *attribute = attribute.wrapping_add(value);
                *attribute
            }
            ExprKind::Neg(one) => ty.wrap(self.eval(one, f)?.wrapping_neg()),
            ExprKind::Not(one) => ty.wrap(!self.eval(one, f)?),
            ExprKind::And(left, right) => i64::from(self.eval(left, f)? != 0 && self.eval(right, f)? != 0),
            ExprKind::Or(left, right) => i64::from(self.eval(left, f)? != 0 || self.eval(right, f)? != 0),
            ExprKind::Select(condition, yes, no) => {
                let taken = if self.eval(condition, f)? != 0 { yes } else { no };
                self.eval(taken, f)?
            }
            ExprKind::Comma(first, last) => {
                self.eval(first, f)?;
                self.eval(last, f)?
            }
            ExprKind::Call(function, arguments) => self.call(*function, arguments, f)?,
            ExprKind::Builtin(what, _) => self.builtin(*what),
        })
    }

    /// Assigns the attribute and returns the value.
    fn assign(&mut self, number: u32, value: i64) -> i64 {
        self.attributes[number as usize] = value;
        *self.assigned |= 1u64.checked_shl(number).unwrap_or(0);
        value
    }

    fn call(&mut self, function: FunctionId, arguments: &[Expr], f: usize) -> Done<i64> {
        let (program, function) = (self.program, function.0 as usize);
        self.pass(&program.functions[function].parameters, arguments, function, f)?;
        self.function(function, 0)
    }

    /// Evaluates all arguments before it stores the first one, because an argument may call the same function.
    fn pass(&mut self, parameters: &[Place], arguments: &[Expr], function: usize, f: usize) -> Done<()> {
        let ([parameter, parameters @ ..], [argument, arguments @ ..]) = (parameters, arguments) else {
            return Ok(());
        };
        let value = self.eval(argument, f)?;
        self.pass(parameters, arguments, function, f)?;
        let at = self.layout.functions[function] + parameter.offset;
        self.set(Base::Local, at as usize, parameter.ty, value);
        Ok(())
    }

    fn builtin(&mut self, what: Builtin) -> i64 {
        match what {
            Builtin::Now => self.context.now as i64,
            Builtin::Pid => i64::from(self.context.pid),
            Builtin::Cpu => i64::from(self.context.cpu),
            Builtin::Emit => match self.left.emissions.checked_sub(1) {
                None => 0,
                Some(left) => {
                    self.left.emissions = left;
                    (self.sink)(&self.frame[self.layout.output as usize..][..self.layout.output_bytes as usize]);
                    1
                }
            },
        }
    }

    fn locate(&mut self, place: &Place, f: usize) -> Done<Located> {
        let base = match place.base {
            Base::Input => self.layout.input,
            Base::Output => self.layout.output,
            Base::Static => 0,
            Base::Local => self.layout.functions[f],
            Base::Frame(function) => self.layout.functions[function.0 as usize],
        };
        let mut located = Located { at: (base + place.offset) as usize, fault: None };
        for index in &place.indices {
            let value = self.eval(&index.value, f)? as u64;
            if value < u64::from(index.count) {
                located.at += value as usize * index.stride as usize;
            } else {
                located.fault = located.fault.or(Some(Fault { kind: FaultKind::Index, line: index.line }));
            }
        }
        Ok(located)
    }

    fn load(&mut self, place: &Place, f: usize) -> Done<i64> {
        let at = self.locate(place, f)?.checked()?;
        Ok(self.get(place.base, at, place.ty))
    }

    fn get(&mut self, base: Base, at: usize, ty: Scalar) -> i64 {
        let bytes = &self.memory(base)[at..];
        let word = match ty.bits {
            8 => u64::from(bytes[0]),
            16 => u64::from(u16::from_le_bytes(head(bytes))),
            32 => u64::from(u32::from_le_bytes(head(bytes))),
            _ => u64::from_le_bytes(head(bytes)),
        };
        ty.wrap(word as i64)
    }

    fn set(&mut self, base: Base, at: usize, ty: Scalar, value: i64) {
        let size = ty.bytes() as usize;
        self.memory(base)[at..][..size].copy_from_slice(&value.to_le_bytes()[..size]);
    }

    fn memory(&mut self, base: Base) -> &mut [u8] {
        if base == Base::Static { self.statics } else { self.frame }
    }
}

struct Turn<'a> {
    condition: Option<&'a Expr>,
    step: Option<&'a Expr>,
    body: &'a [Stmt],
    cost: u32,
    line: u32,
}

impl Located {
    fn checked(self) -> Done<usize> {
        self.fault.map_or(Ok(self.at), Err)
    }
}

fn head<const N: usize>(bytes: &[u8]) -> [u8; N] {
    *bytes.first_chunk().expect("a checked place lies within its memory")
}

fn binary(op: BinaryOp, ty: Scalar, a: i64, b: i64, line: u32) -> Done<i64> {
    op.apply(ty, a, b).ok_or(Fault { kind: FaultKind::Division, line })
}
