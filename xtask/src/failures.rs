//! What failed in a run of all tests, in a few lines that are printed last: of a long log, often only the end is kept.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Lines kept of one failed test: where it panicked, and what it said.
const OF_ONE_TEST: usize = 6;
/// Characters kept of one line.
const WIDTH: usize = 300;

/// The failures that the lines of `cargo test`, libtest and pytest report.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    out: Mutex<Output>,
    errors: Mutex<Vec<String>>,
    read: AtomicU64,
}

impl Failures {
    /// Starts a command whose lines are passed on as they come, and searched. The copying ends with the command's streams.
    pub(crate) fn spawn<'s>(
        &'s self,
        mut command: Command,
        copies: &'s thread::Scope<'s, '_>,
    ) -> std::io::Result<Child> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(out) = child.stdout.take() {
            copies.spawn(move || self.each_line(out, |line| self.out_line(line)));
        }
        if let Some(err) = child.stderr.take() {
            copies.spawn(move || self.each_line(err, |line| self.err_line(line)));
        }
        Ok(child)
    }

    fn each_line(&self, from: impl Read, mut line: impl FnMut(&str)) {
        let mut from = BufReader::new(from);
        let mut bytes = Vec::new();
        while from.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
            self.read.fetch_add(1, Ordering::Relaxed);
            line(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']));
            bytes.clear();
        }
    }

    /// The number of lines so far.
    pub(crate) fn lines_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    fn out_line(&self, line: &str) {
        println!("{line}");
        self.out.lock().unwrap_or_else(PoisonError::into_inner).line(line);
    }

    /// Cargo ends with `error: 2 targets failed:` and a line for each.
    fn err_line(&self, line: &str) {
        eprintln!("{line}");
        if line.starts_with("error") || line.starts_with("    `-p ") {
            self.errors.lock().unwrap_or_else(PoisonError::into_inner).push(short(line));
        }
    }

    /// A few lines for each failure.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = self.out.lock().unwrap_or_else(PoisonError::into_inner).lines();
        lines.extend(self.errors.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        lines
    }
}

fn short(line: &str) -> String {
    line.chars().take(WIDTH).collect()
}

/// Finds the failed tests in the standard output of test programs.
#[derive(Debug, Default)]
struct Output {
    found: Vec<Vec<String>>,
    /// Lines still wanted of the last test found; `None` outside its section.
    section: Option<Section>,
}

#[derive(Debug)]
enum Section {
    BeforePanic,
    Panic,
    Backtrace,
}

impl Output {
    fn line(&mut self, line: &str) {
        let name = line.strip_prefix("---- ").and_then(|line| line.strip_suffix(" stdout ----"));
        if let Some(name) = name {
            self.found.push(vec![name.to_owned()]);
            self.section = Some(Section::BeforePanic);
        } else if line == "failures:" || line.starts_with("test result:") {
            self.section = None;
        } else if line.starts_with("FAILED ") || line.starts_with("ERROR ") {
            self.found.push(vec![short(line)]); // pytest's summary
        } else if let (Some(section), Some(lines)) = (&mut self.section, self.found.last_mut()) {
            section.line(line, lines);
        }
    }

    fn lines(&self) -> Vec<String> {
        let first = |text: &[String]| text.first().map(|name| format!("- {name}"));
        let rest = |text: &[String]| text.iter().skip(1).map(|line| format!("    {line}")).collect::<Vec<_>>();
        self.found.iter().flat_map(|text| first(text).into_iter().chain(rest(text))).collect()
    }
}

impl Section {
    /// Before a panic the last line is kept; from the panic on, the first few.
    fn line(&mut self, line: &str, lines: &mut Vec<String>) {
        if line.trim().is_empty() || line.starts_with("note: run with") {
            return;
        }
        if line == "stack backtrace:" {
            *self = Self::Backtrace;
        }
        if line.starts_with("thread '") && line.contains("panicked at") {
            lines.truncate(1);
            *self = Self::Panic;
        }
        match self {
            Self::BeforePanic => lines.truncate(1),
            Self::Panic if lines.len() > OF_ONE_TEST => return,
            Self::Panic => {}
            Self::Backtrace => return,
        }
        lines.push(short(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBTEST: &str = "
running 3 tests
test a ... ok
test b ... FAILED
test c ... FAILED

failures:

---- b stdout ----
seed 7

thread 'b' (12) panicked at src/lib.rs:3:5:
assertion `left == right` failed
  left: 1
 right: 2
stack backtrace:
   0: std::panicking
note: run with `RUST_BACKTRACE=full` for a verbose backtrace

---- c stdout ----
Error: \"first\"
Error: \"no such host\"


failures:
    b
    c

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out
FAILED bindings/python/tests/test_x.py::test_y - assert 1 == 2";

    #[test]
    fn each_failed_test_is_told_with_its_panic_or_its_last_line() {
        let mut output = Output::default();
        LIBTEST.lines().for_each(|line| output.line(line));
        let expected = [
            "- b",
            "    thread 'b' (12) panicked at src/lib.rs:3:5:",
            "    assertion `left == right` failed",
            "      left: 1",
            "     right: 2",
            "- c",
            "    Error: \"no such host\"",
            "- FAILED bindings/python/tests/test_x.py::test_y - assert 1 == 2",
        ];
        assert_eq!(output.lines(), expected);
    }

    #[test]
    fn a_run_without_failures_has_nothing_to_tell() {
        let mut output = Output::default();
        "running 1 test\ntest a ... ok\ntest result: ok. 1 passed; 0 failed".lines().for_each(|line| output.line(line));
        assert!(output.lines().is_empty());
    }

    #[test]
    fn both_streams_of_a_command_are_searched() {
        let failures = Failures::default();
        let mut command = Command::new("sh");
        command.args(["-c", "echo '---- t stdout ----'; echo last; echo 'error: 1 target failed:' >&2"]);
        thread::scope(|copies| failures.spawn(command, copies).unwrap().wait().unwrap());
        assert_eq!(failures.lines(), ["- t", "    last", "error: 1 target failed:"]);
        assert_eq!(failures.lines_read(), 3);
    }
}
