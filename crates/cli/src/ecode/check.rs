//! `qfabric ecode check`: compiles E-code and prints its size and its worst-case number of instructions.

use std::path::PathBuf;

use qfabric_daemon::EcallsConfig;
use qfabric_ecode::{Bound, Diagnostic, Environment, Limits, Program, Warnings, bpf};
use serde_json::json;

use super::source::{Source, events_of};
use crate::exit::{Advice, Done, Failure, Outcome};
use crate::output;

/// Compiles E-code, and prints its errors or its size.
///
/// The kernel accepts a program that passes. Ends with 2 if the text does not compile, and with 3 if one event would
/// take more instructions in the worst case than the service allows.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric ecode check f.ec --service sched.wakeup
          qfabric ecode check --code 'return input.len > 1400;' --service net.rx --asm")]
pub(super) struct Args {
    /// File with E-code; - is the standard input
    file: Option<PathBuf>,
    /// E-code as text, instead of a file
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    code: Option<String>,
    /// Service whose events are the input; `qfabric services` lists them [default: the text declares `struct input`]
    #[arg(long)]
    service: Option<String>,
    /// Also print the generated code; with --json in the key asm
    #[arg(long)]
    asm: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Path of the daemon's socket [default: $QFABRIC_SOCKET; else $XDG_RUNTIME_DIR/qfabric/qfabric.sock, then
    /// /run/qfabric/qfabric.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(super) fn run(args: Args) -> Outcome {
    let source = Source::of(args.file.as_deref(), args.code.as_deref())?;
    let events = args.service.as_ref().map(|service| events_of(service, args.socket.as_ref())).transpose()?;
    let (input, limit) = match events {
        Some(events) => (Some(events.format), events.max_instructions),
        None => (None, EcallsConfig::default().max_instructions),
    };
    let (program, warnings) = source.compile_with_warnings(&Environment { input, ..Environment::default() })?;
    let bound = Bound::of([&program], None, limit);
    let code = args.asm.then(|| qfabric_jit::assemble(&program, Limits::default())).transpose();
    let code = code.map_err(|error| Failure::usage(Advice(&error.problem())))?.map(|code| code.to_string());
    if args.json {
        let mut summary = summary(&program, &warnings, bound, limit);
        if let Some(code) = code {
            summary["asm"] = code.into();
        }
        output::print_json(&summary)?;
    } else {
        let good = if bound.fits(limit) { text(&source.name, &program, bound) } else { String::new() };
        output::print(&(good + &code.unwrap_or_default()))?;
    }
    match bound.fits(limit) || args.service.is_none() {
        true => Ok(Done(0)),
        false => Err(too_long(&source.name, args.service.as_deref().unwrap_or_default(), bound, limit)),
    }
}

fn too_long(name: &str, service: &str, bound: Bound, limit: u32) -> Failure {
    Failure::refused(format!(
        "{name}: one event of {service} would take up to {} instructions; {limit} is the limit\n\
                 try: do less in each turn of a loop, take fewer turns, or ask the administrator to raise the limit under [ecalls] in \
                 daemon.toml",
        bound.instructions
    ))
}

fn summary(program: &Program, warnings: &Warnings, bound: Bound, limit: u32) -> serde_json::Value {
    let measure = bpf::measure(program);
    json!({
        "input_bytes": program.input.size, "output_bytes": program.output.as_ref().map(|format| format.size),
        "static_bytes": program.statics.len(), "frame_bytes": measure.frame, "instructions": measure.instructions,
        "worst_case_instructions": bound.instructions, "limit_instructions": limit, "fuel": bound.fuel,
        "attributes": program.attributes, "loops": program.has_loops, "writes_shared": program.writes_shared,
        "warnings": warnings.iter().map(warning).collect::<Vec<_>>(),
    })
}

fn warning(warning: &Diagnostic) -> serde_json::Value {
    let (line, column) = (warning.line(), warning.column());
    json!({ "line": line, "column": column, "message": warning.message(), "help": warning.remedy() })
}

fn text(name: &str, program: &Program, bound: Bound) -> String {
    let measure = bpf::measure(program);
    let mut text =
        format!("{name}: good; at most {} instructions, {} bytes of frame", measure.instructions, measure.frame);
    if program.has_loops {
        text += &format!("; with all turns of its loops at most {} instructions in a call", bound.instructions);
    }
    if !program.statics.is_empty() {
        text += &format!(", {} bytes that persist", program.statics.len());
    }
    if !program.attributes.is_empty() {
        text += &format!("; attributes: {}", program.attributes.join(", "));
    }
    text + "\n"
}
