//! A handler that the daemon runs: the same E-code as in the kernel, as machine code in user space.

use std::sync::Arc;

use qfabric_ecode::{CallContext, Engine, Fault, Interpreter, Limits, Prints, Program};
use qfabric_linux::clock;

use super::memory::Down;

/// One handler, with its state between calls.
pub(crate) struct Handler {
    engine: Box<dyn Engine + Send>,
    makes_output: bool,
    down: Arc<Down>,
    /// The values of the attributes before the call.
    before: Vec<i64>,
    prints: Prints,
}

/// The result of one call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Made {
    /// The emitted events, in order, including those before a fault.
    pub emitted: Vec<Vec<u8>>,
    /// The event that continues in the chain: the handler's output, or the event itself. `None`: blocked.
    pub passed: Result<Option<Vec<u8>>, Fault>,
}

impl Handler {
    /// For a checked program.
    pub(super) fn new(program: &Program, limits: Limits, down: Arc<Down>) -> Handler {
        let engine = engine(program, limits);
        let (makes_output, before) = (program.output.is_some(), vec![0; program.attributes.len()]);
        Handler { engine, makes_output, down, before, prints: program.uses.prints.clone() }
    }

    /// Calls the handler once.
    pub(super) fn call(&mut self, event: &[u8]) -> Made {
        self.fetch_attributes();
        let mut emitted = Vec::new();
        let verdict = self.engine.call(event, &context(), &mut |data| emitted.push(data.to_vec()));
        self.store_attributes();
        let event = || match self.makes_output {
            true => self.engine.output().to_vec(),
            false => event.to_vec(),
        };
        Made { emitted, passed: verdict.map(|verdict| (verdict != 0).then(event)) }
    }

    /// The number of calls of `printf`, and the last lines.
    pub(super) fn printed(&self) -> (u64, Vec<String>) {
        let statics = self.engine.statics();
        self.prints.read(|at| {
            statics.get(at as usize..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
        })
    }

    fn fetch_attributes(&mut self) {
        let words = self.down.words();
        for (number, (value, before)) in self.engine.attributes().iter_mut().zip(&mut self.before).enumerate() {
            *value = words.attribute(number);
            *before = *value;
        }
    }

    /// Stores assigned attributes. Adds the changes of the others, because the application and handlers in the
    /// kernel may have changed them, too.
    fn store_attributes(&mut self) {
        let words = self.down.words();
        let assigned = self.engine.assigned();
        for (number, (value, before)) in self.engine.attributes().iter().zip(&self.before).enumerate() {
            if assigned >> number & 1 == 1 {
                words.set_attribute(number, *value);
            } else if value != before {
                words.add_attribute(number, value.wrapping_sub(*before));
            }
        }
    }
}

/// Compiles to machine code. If that is not possible (another processor, no executable memory), uses the
/// interpreter, which gives the same results.
fn engine(program: &Program, limits: Limits) -> Box<dyn Engine + Send> {
    match qfabric_jit::Jit::new(program, limits) {
        Ok(jit) => Box::new(jit),
        Err(error) => {
            tracing::warn!(%error, "cannot compile a handler to machine code; it is interpreted, which is slower");
            Box::new(Interpreter::new(program, limits))
        }
    }
}

fn context() -> CallContext {
    CallContext { now: clock::now().get(), pid: std::process::id() as i32, cpu: rustix::thread::sched_getcpu() as i32 }
}

#[cfg(test)]
pub(super) mod testing {
    use std::sync::mpsc::{Receiver, Sender};

    use super::*;

    /// Panics, as only a defect of the service would.
    struct Broken;

    impl Engine for Broken {
        fn name(&self) -> &'static str {
            "broken"
        }

        fn call(&mut self, _: &[u8], _: &CallContext, _: &mut dyn FnMut(&[u8])) -> Result<i64, Fault> {
            panic!("a mistake in the engine")
        }

        fn output(&self) -> &[u8] {
            &[]
        }

        fn statics(&self) -> &[u8] {
            &[]
        }

        fn attributes(&mut self) -> &mut [i64] {
            &mut []
        }
    }

    /// Reports the name and the nice value of the thread that runs it, and waits until `hold` is closed.
    struct Reporting {
        to: Sender<(String, i32)>,
        hold: Receiver<()>,
    }

    impl Engine for Reporting {
        fn name(&self) -> &'static str {
            "reporting"
        }

        fn call(&mut self, _: &[u8], _: &CallContext, _: &mut dyn FnMut(&[u8])) -> Result<i64, Fault> {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            let nice = rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap();
            self.to.send((name, nice)).unwrap();
            // Fails when the other end is dropped, which is the purpose.
            let _ = self.hold.recv();
            Ok(1)
        }

        fn output(&self) -> &[u8] {
            &[]
        }

        fn statics(&self) -> &[u8] {
            &[]
        }

        fn attributes(&mut self) -> &mut [i64] {
            &mut []
        }
    }

    /// A handler that reports its thread to `to`, and returns when the other end of `hold` is dropped.
    pub(crate) fn reporting(down: Arc<Down>, to: Sender<(String, i32)>, hold: Receiver<()>) -> Handler {
        Handler {
            engine: Box::new(Reporting { to, hold }),
            makes_output: false,
            down,
            before: Vec::new(),
            prints: Prints::default(),
        }
    }

    /// A handler that panics when it is called.
    pub(crate) fn broken(down: Arc<Down>) -> Handler {
        Handler { engine: Box::new(Broken), makes_output: false, down, before: Vec::new(), prints: Prints::default() }
    }
}

#[cfg(test)]
mod tests {
    use qfabric_ecode::{Environment, compile};

    use super::*;

    /// Another handler sets both attributes to 100 while the handler runs.
    struct Beside {
        engine: Box<dyn Engine + Send>,
        down: Arc<Down>,
    }

    impl Engine for Beside {
        fn name(&self) -> &'static str {
            "beside"
        }

        fn call(&mut self, input: &[u8], how: &CallContext, sink: &mut dyn FnMut(&[u8])) -> Result<i64, Fault> {
            let verdict = self.engine.call(input, how, sink);
            assert!((0..2).all(|number| self.down.words().set_attribute(number, 100)));
            verdict
        }

        fn output(&self) -> &[u8] {
            self.engine.output()
        }

        fn statics(&self) -> &[u8] {
            self.engine.statics()
        }

        fn attributes(&mut self) -> &mut [i64] {
            self.engine.attributes()
        }

        fn assigned(&self) -> u64 {
            self.engine.assigned()
        }
    }

    #[test]
    fn events_emitted_before_a_fault_are_kept() {
        let text = "struct output { long n; }; output.n = 5; emit(); return 1 / (attr.zero - attr.zero);";
        let environment = Environment { attributes: vec!["zero".to_owned()], ..Environment::default() };
        let program = compile(text, &environment).unwrap();
        let mut handler = Handler::new(&program, Limits::default(), Arc::new(Down::new(false).unwrap()));
        let made = handler.call(&[]);
        assert_eq!((made.emitted, made.passed.is_err()), (vec![5_i64.to_le_bytes().to_vec()], true));
    }

    #[test]
    fn an_assigned_attribute_is_stored_and_an_increment_is_added() {
        let attributes = vec!["level".to_owned(), "calls".to_owned()];
        let environment = Environment { attributes, ..Environment::default() };
        let program = compile("attr.level = 5; attr.calls += 1; return 1;", &environment).unwrap();
        let engines: [Box<dyn Engine + Send>; 2] =
            [engine(&program, Limits::default()), Box::new(Interpreter::new(&program, Limits::default()))];
        for engine in engines {
            let down = Arc::new(Down::new(false).unwrap());
            let name = engine.name();
            let engine = Box::new(Beside { engine, down: down.clone() });
            let mut handler = Handler {
                engine,
                makes_output: false,
                down: down.clone(),
                before: vec![0; 2],
                prints: Prints::default(),
            };
            assert!(handler.call(&[]).passed.is_ok());
            let now = [0, 1].map(|number| down.words().attribute(number));
            assert_eq!(now, [5, 101], "{name}: the handler in the kernel stores and adds the same");
        }
    }
}
