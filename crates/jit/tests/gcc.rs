//! Runs random programs that are also C: the program compiled by gcc must give the same results as the engines.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use qfabric_ecode::testing::texts::{Text, compiled, event};
use qfabric_ecode::{CallContext, Engine, Interpreter, Limits, Program};
use qfabric_jit::Jit;
use qfabric_types::format::{Format, Kind};

/// Number of programs in one C file.
const BATCH: u64 = 200;
const CALLS: u64 = 3;
/// Enough fuel for every tame program: C has no fuel.
const LIMITS: Limits = Limits { fuel: 1 << 30, emissions: 0 };

const PRELUDE: &str = "#include <stdint.h>\n#include <stdio.h>\n#include <string.h>\n";

/// Reads the event of each call and writes its verdict and output.
const MAIN: &str = "
int main(void) {
    static _Alignas(8) char from[16384], to[16384];
    for (unsigned i = 0; i < sizeof programs / sizeof *programs; i++)
        for (int call = 0; call < CALLS; call++) {
            if (fread(from, 1, programs[i].in, stdin) != programs[i].in) return 1;
            memset(to, 0, sizeof to);
            long verdict = programs[i].run(from, to);
            fwrite(&verdict, 8, 1, stdout);
            fwrite(to, 1, programs[i].out, stdout);
        }
}
";

struct Subject {
    seed: u64,
    text: Text,
    program: Program,
}

impl Subject {
    fn new(seed: u64) -> Option<Subject> {
        let text = Text::random(seed, false);
        let program = compiled(&text.ecode(), seed)?;
        Some(Subject { seed, text, program })
    }

    fn events(&self) -> impl Iterator<Item = Vec<u8>> {
        let bytes = self.program.input.size as usize;
        let first = CALLS * self.seed;
        (first..first + CALLS).map(move |seed| event(seed, bytes))
    }

    /// Verdict and output of each call, in the form that the C program writes.
    fn answers(&self, mut engine: impl Engine) -> Vec<u8> {
        let mut answers = Vec::new();
        for event in self.events() {
            let verdict = engine.call(&event, &CallContext::default(), &mut |_| ());
            let verdict =
                verdict.unwrap_or_else(|fault| panic!("seed {}: {fault:?}\n{}", self.seed, self.text.ecode()));
            answers.extend(verdict.to_le_bytes());
            answers.extend(engine.output());
        }
        answers
    }
}

fn has_gcc() -> bool {
    Command::new("gcc").arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn c_file(subjects: &[Subject]) -> String {
    let mut file = PRELUDE.to_owned();
    subjects.iter().enumerate().for_each(|(number, subject)| file += &subject.text.c(number));
    file += "static struct { long (*run)(const void *, void *); unsigned in, out; } programs[] = {\n";
    for number in 0..subjects.len() {
        file += &format!("{{ p{number}, sizeof(struct in_{number}), sizeof(struct out_{number}) }},\n");
    }
    file + "};\n" + MAIN
}

fn compiled_by_gcc(folder: &Path, subjects: &[Subject]) -> Command {
    let (source, binary) = (folder.join("batch.c"), folder.join("batch"));
    std::fs::write(&source, c_file(subjects)).unwrap();
    let calls = format!("-DCALLS={CALLS}");
    let flags = ["-std=c11", "-O1", "-fwrapv", "-fno-strict-aliasing", "-w", &calls, "-o"];
    let status = Command::new("gcc").args(flags).arg(&binary).arg(&source).status().unwrap();
    assert!(status.success(), "gcc refuses {}", source.display());
    Command::new(binary)
}

fn answers_of_c(mut program: Command, subjects: &[Subject]) -> Vec<u8> {
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let events: Vec<u8> = subjects.iter().flat_map(Subject::events).flatten().collect();
    let writer = std::thread::spawn(move || input.write_all(&events));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    output.stdout
}

#[test]
fn tame_programs_give_the_results_of_gcc() {
    if !has_gcc() {
        return qfabric_linux::testing::skip("no gcc");
    }
    let folder = tempfile::tempdir().unwrap();
    for batch in 0..batches() {
        let subjects: Vec<Subject> = (batch * BATCH..(batch + 1) * BATCH).filter_map(Subject::new).collect();
        let found = answers_of_c(compiled_by_gcc(folder.path(), &subjects), &subjects);
        let mut found = &found[..];
        for subject in &subjects {
            let expected = subject.answers(Interpreter::new(&subject.program, LIMITS));
            let jit = subject.answers(Jit::new(&subject.program, LIMITS).unwrap());
            let (of_c, rest) = found.split_at(expected.len());
            found = rest;
            let output = subject.program.output.as_ref().expect("every random text has an output");
            let [expected, jit, of_c] = [&expected, &jit, of_c].map(|answers| without_padding(answers, output));
            assert_eq!(expected, of_c, "gcc, seed {}\n{}", subject.seed, subject.text.ecode());
            assert_eq!(jit, of_c, "jit, seed {}\n{}", subject.seed, subject.text.ecode());
        }
    }
}

/// The answers without the bytes between members, which C may or may not copy with a structure.
fn without_padding(answers: &[u8], output: &Format) -> Vec<u8> {
    let mut kept = vec![false; output.size as usize];
    mark_members(output, &mut kept);
    let calls = answers.chunks(8 + kept.len());
    let of_call = |call: &[u8]| -> Vec<u8> {
        let members = call[8..].iter().zip(&kept).filter(|(_, kept)| **kept).map(|(byte, _)| *byte);
        call[..8].iter().copied().chain(members).collect()
    };
    calls.flat_map(of_call).collect()
}

fn mark_members(format: &Format, bytes: &mut [bool]) {
    for field in &format.fields {
        let size = match &field.kind {
            Kind::Scalar(scalar) => scalar.bytes(),
            Kind::Struct(inner) => inner.size,
        } as usize;
        let elements = field.dims.iter().product::<u32>() as usize;
        for element in bytes[field.offset as usize..][..size * elements].chunks_mut(size) {
            match &field.kind {
                Kind::Scalar(_) => element.fill(true),
                Kind::Struct(inner) => mark_members(inner, element),
            }
        }
    }
}

fn batches() -> u64 {
    std::env::var("QFABRIC_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .map_or(1, |rounds: u64| rounds.div_ceil(BATCH))
}
