//! The counters while a function is measured: instructions that are counted instead of generated, and the
//! instructions that loop iterations may add.
//!
//! The range of a loop is its test, its body and its step. A call of a program executes its code once. It executes
//! code more often only in loop iterations, each of which was charged beforehand. So a call executes at most
//! *code + charges* instructions. The final test of an inner loop runs once more than the loop has iterations; it counts
//! towards the iteration of the enclosing loop.

use std::cell::Cell;

/// The result for one function.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// Instructions, including those of the called functions.
    pub code: u64,
    /// The part of `code` that loop iterations are charged for.
    pub charged: u64,
    /// Largest number of instructions of all loop iterations; `u64::MAX` if the text does not bound them.
    pub turns: u64,
}

pub(super) struct Tally<'a> {
    /// Results of the functions before this one.
    pub known: &'a [Size],
    /// Largest number of iterations of each loop.
    pub turns: &'a [u64],
    /// Cost of one iteration of each loop.
    pub costs: &'a mut [u32],
    /// Instructions that the host would emit.
    pub host: &'a Cell<u64>,
    /// Instructions of called functions.
    called: u64,
    charged: u64,
    all_turns: u64,
}

/// A loop whose code is being generated.
pub(super) struct Open {
    began: u64,
    tested: u64,
    charged: u64,
    all_turns: u64,
}

impl<'a> Tally<'a> {
    pub(super) fn new(known: &'a [Size], turns: &'a [u64], costs: &'a mut [u32], host: &'a Cell<u64>) -> Self {
        Tally { known, turns, costs, host, called: 0, charged: 0, all_turns: 0 }
    }

    /// Adds the result of a called function.
    pub(super) fn call(&mut self, function: usize) {
        let callee = self.known[function];
        self.called = self.called.saturating_add(callee.code);
        self.charged = self.charged.saturating_add(callee.charged);
        self.all_turns = self.all_turns.saturating_add(callee.turns);
    }

    /// Begins a loop's range after `made` instructions of the function.
    pub(super) fn begin(&mut self, made: usize) -> Open {
        let began = self.reached(made);
        let (charged, all_turns) = (std::mem::take(&mut self.charged), std::mem::take(&mut self.all_turns));
        Open { began, tested: began, charged, all_turns }
    }

    /// Marks the end of the test at the loop's head.
    pub(super) fn tested(&self, open: &mut Open, made: usize) {
        open.tested = self.reached(made);
    }

    /// Ends a loop's range and sets the loop's cost.
    pub(super) fn end(&mut self, open: Open, number: u32, made: usize) {
        let end = self.reached(made);
        // Plus one: a jump that was removed here may be needed where the function is inlined.
        let cost = (end - open.began).saturating_sub(self.charged).saturating_add(1);
        self.costs[number as usize] = u32::try_from(cost).unwrap_or(u32::MAX);
        let turn = cost.saturating_add(self.all_turns);
        self.all_turns = open.all_turns.saturating_add(turn.saturating_mul(self.turns[number as usize]));
        self.charged = open.charged.saturating_add(end - open.tested);
    }

    /// The result for a function with `made` generated instructions.
    pub(super) fn size(&self, made: usize) -> Size {
        Size { code: self.reached(made), charged: self.charged, turns: self.all_turns }
    }

    fn reached(&self, made: usize) -> u64 {
        (made as u64).saturating_add(self.called).saturating_add(self.host.get())
    }
}
