//! What measuring keeps while a function is generated: instructions that are counted instead of made, and what the
//! turns of loops may add to them.
//!
//! The range of a loop is its test, its body and its step. A call of a program executes its code once, and more only
//! by turns, each of which has been charged before: at most *code + charges* instructions. The test that ends an inner
//! loop is executed once more than there are turns; it counts to the turn of the loop around.

use std::cell::Cell;

/// What one function comes to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// Instructions, with those of the functions it calls.
    pub code: u64,
    /// Of these, those that turns of its loops are charged for.
    pub charged: u64,
    /// Instructions that all turns of its loops take, at most; `u64::MAX` where the text does not bound them.
    pub turns: u64,
}

/// The state of measuring one function.
pub(super) struct Tally<'a> {
    /// By function: those before this one.
    pub known: &'a [Size],
    /// By loop: the most turns.
    pub turns: &'a [u64],
    /// By loop: what a turn costs.
    pub costs: &'a mut [u32],
    /// Instructions that the host would add.
    pub host: &'a Cell<u64>,
    /// Instructions of called functions.
    called: u64,
    charged: u64,
    all_turns: u64,
}

/// A loop that is being generated.
pub(super) struct Open {
    began: u64,
    tested: u64,
    charged: u64,
    all_turns: u64,
}

impl<'a> Tally<'a> {
    pub fn new(known: &'a [Size], turns: &'a [u64], costs: &'a mut [u32], host: &'a Cell<u64>) -> Self {
        Tally { known, turns, costs, host, called: 0, charged: 0, all_turns: 0 }
    }

    /// A function is called here.
    pub fn call(&mut self, function: usize) {
        let callee = self.known[function];
        self.called = self.called.saturating_add(callee.code);
        self.charged = self.charged.saturating_add(callee.charged);
        self.all_turns = self.all_turns.saturating_add(callee.turns);
    }

    /// A loop's range begins, `made` instructions after the function's.
    pub fn begin(&mut self, made: usize) -> Open {
        let began = self.reached(made);
        let (charged, all_turns) = (std::mem::take(&mut self.charged), std::mem::take(&mut self.all_turns));
        Open { began, tested: began, charged, all_turns }
    }

    /// The test at the loop's head ends here.
    pub fn tested(&self, open: &mut Open, made: usize) {
        open.tested = self.reached(made);
    }

    /// The loop's range ends.
    pub fn end(&mut self, open: Open, number: u32, made: usize) {
        let end = self.reached(made);
        // One more: a jump that was saved here may be there where the function is put in.
        let cost = (end - open.began).saturating_sub(self.charged).saturating_add(1);
        self.costs[number as usize] = u32::try_from(cost).unwrap_or(u32::MAX);
        let turn = cost.saturating_add(self.all_turns);
        self.all_turns = open.all_turns.saturating_add(turn.saturating_mul(self.turns[number as usize]));
        self.charged = open.charged.saturating_add(end - open.tested);
    }

    /// What the function came to, `made` instructions of its own.
    pub fn size(&self, made: usize) -> Size {
        Size { code: self.reached(made), charged: self.charged, turns: self.all_turns }
    }

    fn reached(&self, made: usize) -> u64 {
        (made as u64).saturating_add(self.called).saturating_add(self.host.get())
    }
}
