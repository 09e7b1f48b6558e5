//! Attributes that E-code computes from other attributes.
//!
//! ```c
//! struct input { long cpu_run_queue; long cpu_utilization; };   // attributes, with `_` for `.` and `-`
//! struct output { long value; };
//! output.value = input.cpu_run_queue * input.cpu_utilization;   // `return 0;`: no reading this time
//! ```
//! Totals among the inputs are values since the last look, as for a watcher. Variables declared `static` keep their
//! values from look to look; the attributes of the code (`get_attribute`) are its parameters.

use qfabric_ecode::{CallContext, Engine, Environment, Program, compile};
use qfabric_types::event_json::scalar;
use qfabric_types::format::{Field, Format, Kind, Scalar};
use qfabric_types::monitor::{Attribute, AttributeId, HOST, Readers, Shape};
use qfabric_types::{AppId, Instant};

use super::base::Steps;
use super::words::Source;

/// Largest number of input attributes of one derived attribute.
const MAX_INPUTS: usize = 64;

/// Creates an engine for a program, or returns the reason why it cannot.
pub type Make<'a> = dyn FnMut(&Program) -> Result<Box<dyn Engine + Send>, String> + 'a;

/// An attribute that E-code computes.
pub struct Derived {
    engine: Box<dyn Engine + Send>,
    inputs: Vec<Input>,
    /// The input event of the code, filled again at every look.
    event: Vec<u8>,
    /// The place of the value in the output.
    value: (usize, Scalar),
    /// The application for attributes `app.…`.
    application: AppId,
    faults: u64,
}

struct Input {
    attribute: AttributeId,
    shape: Shape,
    steps: Steps,
    offset: usize,
    ty: Scalar,
}

/// The reason why a text cannot be a derived attribute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DerivedError {
    /// The text is not valid E-code.
    #[error("{0}")]
    Text(String),
    /// Its structures do not name attributes.
    #[error("{0}")]
    Formats(String),
    /// The engine refused the program.
    #[error("{0}")]
    Engine(String),
}

impl Derived {
    /// Compiles a text with the attributes of `readers` as inputs. `application`: the application for `app.…`
    /// attributes, or [`HOST`]. `make` creates the engine: the interpreter, or machine code.
    pub fn new(
        text: &str,
        application: AppId,
        readers: &dyn Readers,
        make: &mut Make<'_>,
    ) -> Result<Derived, DerivedError> {
        let program =
            compile(text, &Environment::default()).map_err(|errors| DerivedError::Text(errors.to_string()))?;
        let value = output_of(&program).map_err(DerivedError::Formats)?;
        let inputs = inputs_of(&program.input, application, readers.attributes()).map_err(DerivedError::Formats)?;
        let event = vec![0; program.input.size as usize];
        let engine = make(&program).map_err(DerivedError::Engine)?;
        Ok(Derived { engine, inputs, event, value, application, faults: 0 })
    }

    /// The engine, whose attributes are the parameters of the code.
    pub fn engine(&mut self) -> &mut dyn Engine {
        &mut *self.engine
    }

    /// Number of calls that ended with a fault and gave no reading.
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// Fills the event. `None` if an input cannot be read, or is a total at its first look.
    fn gather(&mut self, now: Instant, others: &mut dyn Readers) -> Option<()> {
        let mut all = Some(());
        for input in &mut self.inputs {
            let raw = others.read(input.attribute, self.application, now);
            let step = raw.and_then(|raw| input.steps.step(input.shape, raw, now));
            match step {
                Some((value, _)) => put(&mut self.event, input, value),
                None => all = None,
            }
        }
        all
    }
}

impl Source for Derived {
    fn read(&mut self, _: AppId, now: Instant, others: &mut dyn Readers) -> Option<i64> {
        self.gather(now, others)?;
        let context = CallContext { now: now.get(), ..CallContext::default() };
        match self.engine.call(&self.event, &context, &mut |_| {}) {
            Ok(0) => None,
            Ok(_) => Some(scalar(self.value.1, self.engine.output().get(self.value.0..)?)),
            Err(_) => {
                self.faults += 1;
                None
            }
        }
    }
}

/// Writes a value; one beyond the range of its field becomes the nearest value in the range.
fn put(event: &mut [u8], input: &Input, value: i64) {
    let value = saturated(input.ty, value);
    let size = input.ty.bytes() as usize;
    event[input.offset..input.offset + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

fn saturated(ty: Scalar, value: i64) -> i64 {
    let (low, high) = match (ty.signed, ty.bits) {
        (true, bits) => (-1i128 << (bits - 1), (1i128 << (bits - 1)) - 1),
        (false, bits) => (0, (1i128 << bits) - 1),
    };
    i128::from(value).clamp(low, high) as i64
}

fn output_of(program: &Program) -> Result<(usize, Scalar), String> {
    let field = program.output.as_ref().and_then(|output| output.field("value"));
    match field.map(|field| (field, &field.kind, field.dims.is_empty())) {
        Some((field, Kind::Scalar(scalar), true)) if !scalar.float => Ok((field.offset as usize, *scalar)),
        _ => Err("the code needs an output: declare `struct output { long value; };` and set output.value".to_owned()),
    }
}

fn inputs_of(input: &Format, application: AppId, known: &[Attribute]) -> Result<Vec<Input>, String> {
    if input.fields.is_empty() || input.fields.len() > MAX_INPUTS {
        let count = input.fields.len();
        return Err(format!(
            "the input has {count} attributes; name 1 to {MAX_INPUTS}: `struct input {{ long cpu_run_queue; }};`"
        ));
    }
    input.fields.iter().map(|field| input_of(field, application, known)).collect()
}

fn input_of(field: &Field, application: AppId, known: &[Attribute]) -> Result<Input, String> {
    let name = &field.name;
    let (Kind::Scalar(ty @ Scalar { float: false, .. }), true) = (&field.kind, field.dims.is_empty()) else {
        return Err(format!("`{name}` of the input must be an integer"));
    };
    let mut found = known.iter().filter(|attribute| c_name(attribute.name.as_str()) == *name);
    let attribute = match (found.next(), found.next()) {
        (Some(attribute), None) => attribute,
        (Some(one), Some(two)) => {
            return Err(format!("`{name}` may be {} or {}; both have this name with `_`", one.name, two.name));
        }
        _ => {
            return Err(format!(
                "this host has no attribute `{name}` (with `_` for `.` and `-`); list them with `qfabric monitor ls`"
            ));
        }
    };
    if attribute.is_of_application() && application == HOST {
        return Err(format!("{} is an attribute of applications; name the application", attribute.name));
    }
    let (attribute, shape) = (attribute.id(), attribute.shape);
    Ok(Input { attribute, shape, steps: Steps::default(), offset: field.offset as usize, ty: *ty })
}

/// An attribute's name as a field name in C.
fn c_name(name: &str) -> String {
    name.replace(['.', '-'], "_")
}
