//! Generates calls by inlining the body of the called function.

use super::arith::Need;
use super::generate::{FRAME, Generator, Leave};
use super::{Reg, Size, facts, walk};
use crate::hir::{Expr, FunctionId, Place};

impl Generator<'_> {
    /// Leaves the result in r0 if `need` is set. May change all scratch registers.
    pub(super) fn call(&mut self, function: FunctionId, arguments: &[Expr], need: Option<Need>) {
        let before = self.waiting;
        let function = function.0 as usize;
        self.arguments(function, arguments);
        let is_void = self.program.functions[function].result.is_none();
        let wanted = need.is_some();
        let need = need.filter(|_| !is_void);
        let slot = match facts::in_register(self.flows[function]) {
            None if need.is_some() => Some(self.temporary()),
            _ => None,
        };
        let leave = Leave { to: self.asm.label(), need, slot };
        match &mut self.tally {
            Some(tally) if self.asm.is_reachable() => tally.call(function),
            Some(_) => {}
            None => self.inline(function, leave),
        }
        if let Some(slot) = slot {
            self.asm.load(Size::D, Reg::R0, FRAME, slot);
        }
        if is_void && wanted {
            self.asm.mov(Reg::R0, 0);
        }
        self.waiting = before;
    }

    fn inline(&mut self, function: usize, leave: Leave) {
        let turns = std::mem::take(&mut self.turns);
        let caller = (std::mem::replace(&mut self.function, function), std::mem::replace(&mut self.leave, leave));
        let program = self.program;
        self.function(&program.functions[function], 0);
        self.asm.bind(leave.to);
        (self.function, self.leave) = caller;
        self.turns = turns;
    }

    /// Stores the arguments in the frame of the called function. Arguments before an argument with a call wait in
    /// temporaries, because that call may be of the same function, or of a function that shares its memory.
    fn arguments(&mut self, function: usize, arguments: &[Expr]) {
        let program = self.program;
        let parameters = &program.functions[function].parameters;
        let first_direct = arguments.iter().rposition(walk::has_call).unwrap_or(0);
        let mut waiting = Vec::new();
        for (parameter, argument) in parameters.iter().zip(arguments).take(first_direct) {
            self.value(argument, 0, Need::Low(parameter.ty.bits));
            waiting.push((parameter, self.put_aside(Reg::R0)));
        }
        for (parameter, argument) in parameters.iter().zip(arguments).skip(first_direct) {
            self.argument(function, parameter, argument);
        }
        for (parameter, slot) in waiting {
            self.asm.load(Size::D, Reg::R0, FRAME, slot);
            self.set_parameter(function, parameter);
        }
    }

    fn argument(&mut self, function: usize, parameter: &Place, argument: &Expr) {
        if let Some(imm) = facts::immediate(argument, parameter.ty) {
            let at = self.near(FRAME, self.layout.functions[function] + parameter.offset, 1);
            return self.asm.store_imm(Size::of_bits(parameter.ty.bits), at.base, at.offset, imm);
        }
        self.value(argument, 0, Need::Low(parameter.ty.bits));
        self.set_parameter(function, parameter);
    }

    /// Stores r0 as the parameter.
    fn set_parameter(&mut self, function: usize, parameter: &Place) {
        let at = self.near(FRAME, self.layout.functions[function] + parameter.offset, 1);
        self.asm.store(Size::of_bits(parameter.ty.bits), at.base, at.offset, Reg::R0);
    }
}
