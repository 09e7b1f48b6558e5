//! A handler that the daemon runs: the same text as in the kernel, as machine code in user space.

use std::sync::Arc;

use qfabric_ecode::{Engine, Fault, Limits, Program, World};
use qfabric_linux::clock;

use super::memory::Down;

/// One handler with what persists between its calls.
pub(crate) struct Handler {
    engine: Box<dyn Engine + Send>,
    makes_output: bool,
    down: Arc<Down>,
    /// The attributes as they were before the call.
    before: Vec<i64>,
}

/// What a call made of an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Made {
    /// What it emitted, in order.
    pub emitted: Vec<Vec<u8>>,
    /// What goes on: the output, or the event itself; none: blocked.
    pub passed: Option<Vec<u8>>,
}

impl Handler {
    /// Of a checked program.
    pub fn new(program: &Program, limits: Limits, down: Arc<Down>) -> Result<Handler, String> {
        let engine = engine(program, limits)?;
        let (makes_output, before) = (program.output.is_some(), vec![0; program.attributes.len()]);
        Ok(Handler { engine, makes_output, down, before })
    }

    /// One call.
    pub fn call(&mut self, event: &[u8]) -> Result<Made, Fault> {
        self.fetch_attributes();
        let mut emitted = Vec::new();
        let verdict = self.engine.call(event, &world(), &mut |data| emitted.push(data.to_vec()));
        self.store_attributes();
        let passed = (verdict? != 0).then(|| match self.makes_output {
            true => self.engine.output().to_vec(),
            false => event.to_vec(),
        });
        Ok(Made { emitted, passed })
    }

    fn fetch_attributes(&mut self) {
        let words = self.down.words();
        for (number, (value, before)) in self.engine.attributes().iter_mut().zip(&mut self.before).enumerate() {
            *value = words.attribute(number);
            *before = *value;
        }
    }

    /// Adds what the call changed: others (the application, handlers in the kernel) may have changed it, too.
    fn store_attributes(&mut self) {
        let words = self.down.words();
        for (number, (value, before)) in self.engine.attributes().iter().zip(&self.before).enumerate() {
            if value != before {
                words.add_attribute(number, value.wrapping_sub(*before));
            }
        }
    }
}

fn engine(program: &Program, limits: Limits) -> Result<Box<dyn Engine + Send>, String> {
    qfabric_jit::Jit::new(program, limits).map(|jit| Box::new(jit) as Box<dyn Engine + Send>).map_err(|e| e.to_string())
}

fn world() -> World {
    World { now: clock::now().get(), pid: std::process::id() as i32, cpu: rustix::thread::sched_getcpu() as i32 }
}
