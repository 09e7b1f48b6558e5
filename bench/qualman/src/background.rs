//! The background programs of the paper (§7.1): gcc compiling, a table of sines, a copier of frames.

use std::hint::black_box;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use qfabric_demo::children::{self, ChildGuard};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Program and first words of the processes of this room; the words of [`crate::play`] follow.
pub(crate) type Player = (PathBuf, Vec<String>);

/// Functions in the program that gcc compiles: about a second of work.
const FUNCTIONS: usize = 300;
/// Bytes of a frame that the copier moves, and frames in its ring: beyond the caches.
const FRAME: usize = 1 << 20;
const RING: usize = 32;
/// Terms of the series, and entries of the table.
const TERMS: u32 = 40;
const ENTRIES: u32 = 3_600;

/// One of the three programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Compiler,
    Sines,
    Copier,
}

impl Program {
    const ALL: [Program; 3] = [Program::Compiler, Program::Sines, Program::Copier];

    fn word(self) -> &'static str {
        match self {
            Program::Compiler => "compiler",
            Program::Sines => "sines",
            Program::Copier => "copier",
        }
    }
}

/// Running background programs. Dropping them ends them; the kernel ends them if this process is killed.
pub(crate) struct Background {
    _programs: Vec<ChildGuard>,
}

impl Background {
    /// Starts `count` programs, the three kinds in turn. Without a C compiler, sines replace its part.
    pub(crate) fn start(player: &Player, folder: &Path, count: usize) -> Result<Background> {
        let has_compiler = has_compiler();
        if has_compiler {
            let file = folder.join("program.c");
            std::fs::write(&file, source()).with_context(|| format!("cannot write {}", file.display()))?;
        }
        let kinds = Program::ALL.into_iter().cycle().take(count);
        let start = |kind: Program| {
            let kind = if kind == Program::Compiler && !has_compiler { Program::Sines } else { kind };
            let folder = folder.to_string_lossy();
            children::spawn(command(player, &["background", kind.word(), &folder]))
        };
        Ok(Background { _programs: kinds.map(start).collect::<Result<_>>()? })
    }
}

/// Whether `cc` can be started.
pub(crate) fn has_compiler() -> bool {
    let mut command = Command::new("cc");
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A process of this room, in its own process group, so that Ctrl-C reaches only the conductor.
fn command(player: &Player, words: &[&str]) -> Command {
    let mut command = Command::new(&player.0);
    command.args(&player.1).args(words).arg(std::process::id().to_string()).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Is a background program: never returns without an error.
pub(crate) fn run(kind: &str, folder: &Path, parent: &str) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("PR_SET_PDEATHSIG")?;
    let alive = getppid().is_some_and(|pid| pid.as_raw_nonzero().get().to_string() == parent);
    ensure!(alive, "process {parent}, the parent, ended while this process started");
    match kind {
        "compiler" => compile(folder),
        "sines" => sines(),
        "copier" => copies(),
        other => anyhow::bail!("there is no background program {other:?}; use compiler, sines or copier"),
    }
}

fn compile(folder: &Path) -> Result<()> {
    loop {
        let object = folder.join(format!("program-{}.o", std::process::id()));
        let mut command = Command::new("cc");
        command.arg("-O2").arg("-c").arg(folder.join("program.c")).arg("-o").arg(object);
        let status = command.status().context("cannot start cc")?;
        ensure!(status.success(), "cc: {status}");
    }
}

fn sines() -> ! {
    loop {
        for entry in 0..ENTRIES {
            let angle = f64::from(entry) / f64::from(ENTRIES) * std::f64::consts::TAU;
            black_box((series(angle, 1), series(angle, 0)));
        }
    }
}

/// The infinite series of the sine (`first` = 1) or the cosine (`first` = 0), cut after [`TERMS`].
fn series(angle: f64, first: u32) -> f64 {
    let mut term = if first == 1 { angle } else { 1.0 };
    let mut sum = term;
    for k in 1..TERMS {
        let at = f64::from(2 * k + first);
        term *= -angle * angle / (at * (at - 1.0));
        sum += term;
    }
    sum
}

fn copies() -> ! {
    let mut ring = vec![vec![1_u8; FRAME]; RING];
    for at in (0..RING).cycle() {
        let frame = std::mem::take(&mut ring[at]);
        ring[(at + 1) % RING].copy_from_slice(&frame);
        ring[at] = black_box(frame);
    }
    unreachable!("a cycle has no end")
}

/// A C program of many functions with loops.
fn source() -> String {
    let function = |n: usize| {
        format!(
            "double f{n}(double *a, int n) {{ double s = {n}; for (int i = 1; i < n; i++) \
             {{ a[i] = a[i - 1] * {n}.5 + s; if (a[i] > s) s += a[i] / (i + 1); else a[i] -= s * i; }} return s; }}\n"
        )
    };
    (0..FUNCTIONS).map(function).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_are_sine_and_cosine() {
        for angle in [0.0, 0.5, 3.0, 6.2_f64] {
            assert!((series(angle, 1) - angle.sin()).abs() < 1e-9 && (series(angle, 0) - angle.cos()).abs() < 1e-9);
        }
    }

    #[test]
    fn the_program_for_the_compiler_compiles() {
        if !has_compiler() {
            qfabric_linux::testing::skip("needs a C compiler: apt-get install gcc");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("program.c"), source()).unwrap();
        let mut cc = Command::new("cc");
        let status = cc.arg("-c").arg("program.c").current_dir(folder.path()).status().unwrap();
        assert!(status.success());
    }
}
