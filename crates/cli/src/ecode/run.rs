//! `qfabric ecode run`: runs a program on given events, with any of the three engines.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use qfabric_ecode::{CallContext, Engine, Environment, Interpreter, Limits, Program};
use qfabric_jit::Jit;
use qfabric_linux::clock;
use qfabric_linux::ecalls::KernelEngine;
use qfabric_types::event_json::{decode, encode};
use serde_json::{Map, Value, json};

use super::source::{Source, attribute, format_of};
use crate::exit::{Advice, Done, Failure, Outcome};
use crate::output;

/// Bytes of input that are read at most.
const MAX_INPUT_BYTES: u64 = 16 << 20;

/// Runs E-code on events that you give as JSON.
///
/// Prints the verdict, the output and the emissions for each event, and the attributes at the end. Ends with 1 if a
/// call faults, with 2 if the text does not compile or an event does not fit its format, and with 4 if the engine is
/// not available here.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric ecode run f.ec --input in.json
          echo '[{\"a\": 3}, {\"a\": 4}]' | qfabric ecode run f.ec --input - --engine kernel --json")]
pub(super) struct Args {
    /// File with E-code; - is the standard input
    file: Option<PathBuf>,
    /// E-code as text, instead of a file
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    code: Option<String>,
    /// Events: a JSON object, or a list of objects, at most 16 MiB; - is the standard input [default: one event of
    /// zeros]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Engine that runs the program; the results are the same
    #[arg(long, default_value = "interp")]
    engine: EngineName,
    /// Function to call [default: main, or the statements outside functions]
    #[arg(long, value_name = "FUNCTION")]
    call: Option<String>,
    /// Initial value of an attribute, a whole number of 64 bits; may be repeated
    #[arg(long = "attr", value_name = "NAME=VALUE", value_parser = attribute)]
    attributes: Vec<(String, i64)>,
    /// Service whose events are the input; `qfabric services` lists them [default: the text declares `struct input`]
    #[arg(long)]
    service: Option<String>,
    /// Fuel: number of instructions that the loops of one call may execute
    #[arg(long, default_value_t = Limits::default().fuel)]
    fuel: u32,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Path of the daemon's socket [default: $QFABRIC_SOCKET; else $XDG_RUNTIME_DIR/qfabric/qfabric.sock, then
    /// /run/qfabric/qfabric.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EngineName {
    /// Interpreter
    Interp,
    /// Machine code in user space
    Jit,
    /// BPF program in the kernel
    Kernel,
}

pub(super) fn run(args: Args) -> Outcome {
    let source = Source::of(args.file.as_deref(), args.code.as_deref())?;
    let input = args.service.as_ref().map(|service| format_of(service, args.socket.as_ref())).transpose()?;
    let environment = Environment { input, entry: args.call.clone(), ..Environment::default() };
    let program = source.compile(&environment)?;
    let events = events(args.input.as_deref(), &program)?;
    let mut engine = engine(args.engine, &program, Limits { fuel: args.fuel, ..Limits::default() })?;
    set(&program, &mut *engine, &args.attributes)?;
    let mut prints = 0;
    let calls: Vec<_> = events.iter().map(|event| call(&program, &mut *engine, event, &mut prints)).collect();
    let attributes: Map<String, Value> =
        program.attributes.iter().cloned().zip(engine.attributes().iter().map(|value| json!(value))).collect();
    let report = json!({ "engine": engine.name(), "calls": calls, "attributes": attributes });
    match args.json {
        true => output::print_json(&report)?,
        false => output::print(&text(&report))?,
    }
    Ok(Done(u8::from(calls.iter().any(|call| call["fault"].is_string()))))
}

fn engine(name: EngineName, program: &Program, limits: Limits) -> Result<Box<dyn Engine>, Failure> {
    Ok(match name {
        EngineName::Interp => Box::new(Interpreter::new(program, limits)),
        EngineName::Jit => {
            Box::new(Jit::new(program, limits).map_err(|error| Failure::unavailable(Advice(&error.problem())))?)
        }
        EngineName::Kernel => Box::new(
            KernelEngine::new(program, limits).map_err(|error| Failure::unavailable(Advice(&error.problem())))?,
        ),
    })
}

fn set(program: &Program, engine: &mut dyn Engine, values: &[(String, i64)]) -> Result<(), Failure> {
    for (name, value) in values {
        let number = program.attributes.iter().position(|known| known == name);
        let unknown =
            || Failure::usage(format!("the program has no attribute {name}; it has {}", program.attributes.join(", ")));
        engine.attributes()[number.ok_or_else(unknown)?] = *value;
    }
    Ok(())
}

/// The events as bytes in the layout of the program's input.
fn events(input: Option<&Path>, program: &Program) -> Result<Vec<Vec<u8>>, Failure> {
    let Some(path) = input else { return Ok(vec![vec![0; program.input.size as usize]]) };
    let wrong = |why: &dyn std::fmt::Display| Failure::usage(format!("{}: {why}", path.display()));
    let mut text = String::new();
    // One byte more than is allowed, so that an input that is too long is refused and not cut.
    let most = MAX_INPUT_BYTES + 1;
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().take(most).read_to_string(&mut text),
        false => std::fs::File::open(path).and_then(|file| file.take(most).read_to_string(&mut text)),
    };
    if read.map_err(|error| wrong(&error))? as u64 > MAX_INPUT_BYTES {
        return Err(wrong(&"the input is longer than 16 MiB"));
    }
    let list = match serde_json::from_str(&text).map_err(|error| wrong(&error))? {
        Value::Array(list) => list,
        one => vec![one],
    };
    let bytes = |(number, event): (usize, &Value)| match event {
        Value::Object(fields) => {
            encode(&program.input, fields).map_err(|why| wrong(&format!("event {}: {why}", number + 1)))
        }
        other => Err(wrong(&format!("event {} is {other}; write an object with its fields", number + 1))),
    };
    list.iter().enumerate().map(bytes).collect()
}

/// `prints`: the calls of `printf` until now.
fn call(program: &Program, engine: &mut dyn Engine, event: &[u8], prints: &mut u64) -> Value {
    let format = program.output.as_ref().unwrap_or(&program.input);
    let mut emitted = Vec::new();
    let context = CallContext { now: clock::now().get(), pid: std::process::id() as i32, cpu: 0 };
    let verdict = engine.call(event, &context, &mut |data| emitted.push(Value::Object(decode(format, data))));
    let output = program.output.as_ref().map(|format| decode(format, engine.output()));
    let printed = new_lines(program, engine.statics(), prints);
    match verdict {
        Ok(verdict) => json!({ "verdict": verdict, "output": output, "emitted": emitted, "printed": printed }),
        Err(fault) => json!({ "fault": fault.to_string(), "emitted": emitted, "printed": printed }),
    }
}

/// The lines printed since there were `seen` calls of `printf`; a program keeps the last 16.
fn new_lines(program: &Program, statics: &[u8], seen: &mut u64) -> Vec<String> {
    let word = |at: u32| u64::from_le_bytes(*statics[at as usize..].first_chunk().expect("the ring is in the statics"));
    let (calls, mut lines) = program.uses.prints.read(word);
    let new = usize::try_from(calls - std::mem::replace(seen, calls)).unwrap_or(usize::MAX);
    lines.drain(..lines.len().saturating_sub(new));
    lines
}

fn text(report: &Value) -> String {
    let mut text = String::new();
    for call in report["calls"].as_array().into_iter().flatten() {
        text += &match call["fault"].as_str() {
            Some(fault) => format!("fault: {fault}\n"),
            None => format!("verdict {}\n", call["verdict"]),
        };
        for line in call["printed"].as_array().into_iter().flatten() {
            text += &format!("  printed {}\n", line.as_str().unwrap_or_default());
        }
        for emitted in call["emitted"].as_array().into_iter().flatten() {
            text += &format!("  emitted {emitted}\n");
        }
        if call["output"].is_object() {
            text += &format!("  output {}\n", call["output"]);
        }
    }
    for (name, value) in report["attributes"].as_object().into_iter().flatten() {
        text += &format!("attr.{name} = {value}\n");
    }
    text
}
