//! The conformance suite of all engines: programs with the results that each engine must give.

use crate::{CallContext, Engine, Environment, Fault, FaultKind, Program, compile};

use super::table;

/// A claim, with a program and calls that test it.
pub struct Case {
    pub(super) claim: &'static str,
    pub(super) text: &'static str,
    pub(super) calls: Vec<Call>,
}

/// One call and its expected results. `None`: the result is not checked.
pub struct Call {
    input: Vec<u8>,
    answer: Result<i64, Fault>,
    output: Option<Vec<u8>>,
    emitted: Vec<Vec<u8>>,
    attributes: Option<Vec<i64>>,
    printed: Option<Vec<&'static str>>,
}

/// A call that must return a verdict.
pub(super) fn gives(verdict: i64) -> Call {
    Call { input: vec![], answer: Ok(verdict), output: None, emitted: vec![], attributes: None, printed: None }
}

/// A call that must end with a fault in this line.
pub(super) fn faults(kind: FaultKind, line: u32) -> Call {
    Call { answer: Err(Fault { kind, line }), ..gives(0) }
}

impl Call {
    /// Sets the event, given as `int`s.
    pub(super) fn of(self, ints: &[i32]) -> Self {
        Call { input: bytes(ints), ..self }
    }

    /// Expects this output, given as `int`s.
    pub(super) fn makes(self, ints: &[i32]) -> Self {
        Call { output: Some(bytes(ints)), ..self }
    }

    /// Expects one more emitted event.
    pub(super) fn emits(mut self, ints: &[i32]) -> Self {
        self.emitted.push(bytes(ints));
        self
    }

    /// Expects these attributes after the call.
    pub(super) fn leaves(self, attributes: &[i64]) -> Self {
        Call { attributes: Some(attributes.to_vec()), ..self }
    }

    /// Expects these lines of `printf` after the call, of this and earlier calls.
    pub(super) fn prints(self, lines: &[&'static str]) -> Self {
        Call { printed: Some(lines.to_vec()), ..self }
    }

    fn check(&self, program: &Program, engine: &mut dyn Engine) -> Result<(), String> {
        let mut emitted = Vec::new();
        let answer = engine.call(&self.input, &CONTEXT, &mut |event| emitted.push(event.to_vec()));
        same("answer", &self.answer, &answer)?;
        same("emitted events", &self.emitted, &emitted)?;
        if let Some(output) = &self.output {
            same("output", &output[..], engine.output())?;
        }
        if let Some(printed) = &self.printed {
            let statics = engine.statics();
            let word = |at: u32| u64::from_le_bytes(*statics[at as usize..].first_chunk().expect("a word of the ring"));
            let (_, lines) = program.uses.prints.read(word);
            same("printed lines", &printed[..], &lines.iter().map(String::as_str).collect::<Vec<_>>()[..])?;
        }
        match &self.attributes {
            Some(attributes) => same("attributes", &attributes[..], engine.attributes()),
            None => Ok(()),
        }
    }
}

/// The values of the host, for engines that accept a choice.
const CONTEXT: CallContext = CallContext { now: 1_000_000_007, pid: 4242, cpu: 1 };

fn bytes(ints: &[i32]) -> Vec<u8> {
    ints.iter().flat_map(|int| int.to_le_bytes()).collect()
}

fn same<T: PartialEq + std::fmt::Debug + ?Sized>(what: &str, expected: &T, found: &T) -> Result<(), String> {
    match expected == found {
        true => Ok(()),
        false => Err(format!("{what}: expected {expected:?}, found {found:?}")),
    }
}

/// Runs the whole suite on the engines that `make` creates.
///
/// # Panics
/// If any claim fails; the message lists all failed claims.
pub fn run(make: &mut dyn FnMut(&Program) -> Box<dyn Engine>) {
    let cases = table::cases();
    let failures: Vec<String> = cases.iter().filter_map(|case| check(case, make).err()).collect();
    assert!(failures.is_empty(), "{} of {} claims failed\n{}", failures.len(), cases.len(), failures.join("\n"));
}

fn check(case: &Case, make: &mut dyn FnMut(&Program) -> Box<dyn Engine>) -> Result<(), String> {
    let refused = |errors: crate::Diagnostics| errors.render("case.ec", case.text, false);
    let program = compile(case.text, &Environment::default()).map_err(refused)?;
    let mut engine = make(&program);
    for (number, call) in case.calls.iter().enumerate() {
        let checked = call.check(&program, &mut *engine);
        checked.map_err(|why| format!("{}: {}: call {number}: {why}", engine.name(), case.claim))?;
    }
    Ok(())
}
