//! `xtask vm test`: runs the plan, boot by boot, and prints a table of results.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;
use qfabric_vm_init::{BootScript, Command};
use xshell::{Shell, cmd};

use super::image::Image;
use super::kernels::{Cache, Kernel};
use super::matrix::{self, Entry};
use super::plan::{self, Test};
use super::qemu::{End, QEMU};
use super::session::{Outcome, Session, build_init, interruption};
use super::targets::{self, Programs};

/// On a host with other work, an emulated machine takes at most this many times its time on an idle host.
const SLOWER: u32 = 10;

/// Selection from the plan.
#[derive(Args, Default)]
pub(crate) struct Options {
    /// Use only these kernels, separated by commas; without names, all of the plan that are not extra
    #[arg(long, env = "KERNELS", value_delimiter = ',')]
    kernel: Vec<String>,
    /// Run only tests whose `package target` contains this text
    #[arg(long, default_value = "")]
    only: String,
    /// Make the short run, as in `make test`
    #[arg(long)]
    short: bool,
}

/// The short run as a part of all tests. Without QEMU it prints a note and is skipped, except in CI.
pub(crate) fn short(sh: &Shell, root: &Path) -> Result<()> {
    let has_qemu = cmd!(sh, "{QEMU} --version").quiet().ignore_stdout().ignore_stderr().run().is_ok();
    if !has_qemu && sh.var("CI").ok().as_deref() != Some("true") {
        println!("vm: skipped, {QEMU} is not installed (`make setup` installs it)");
        return Ok(());
    }
    ensure!(has_qemu, "{QEMU} is not installed, and CI must not skip the tests in the machine");
    run(sh, root, &Options { short: true, ..Options::default() })
}

/// Runs the selection; an error if a test failed.
pub(super) fn run(sh: &Shell, root: &Path, options: &Options) -> Result<()> {
    let kernels = matrix::read(root)?;
    let asked: Vec<String> = options.kernel.iter().filter(|name| !name.is_empty()).cloned().collect();
    let tests = options.choose(plan::read(root, &kernels)?);
    let chosen = chosen(matrix::choose(kernels, &asked)?, &tests, options);
    ensure!(!chosen.is_empty(), "the plan has no test for this selection; see tests/vm/plan.toml");
    let cache = Cache::open(sh)?;
    let programs = targets::build(root, &tests)?;
    let init = build_init(sh, &cache)?;
    let runner = Runner { sh, root, programs, init, interrupted: interruption()?, out: root.join("out/vm") };
    let mut rows = Vec::new();
    for (entry, tests) in chosen {
        rows.extend(runner.kernel(&cache.get(&entry)?, tests)?);
    }
    conclude(&rows)
}

impl Options {
    fn choose(&self, mut tests: Vec<Test>) -> Vec<Test> {
        tests.retain(|test| format!("{} {}", test.package, test.target).contains(&self.only));
        tests.retain(|test| !self.short || !test.short.is_empty());
        tests
    }

    fn wants(&self, test: &Test, kernel: &str) -> bool {
        if self.short { &test.short } else { &test.kernels }.iter().any(|name| name == kernel)
    }
}

/// Each kernel with its tests; kernels without tests are not fetched.
fn chosen(kernels: Vec<Entry>, tests: &[Test], options: &Options) -> Vec<(Entry, Vec<Test>)> {
    let of = |entry: &Entry| tests.iter().filter(|test| options.wants(test, &entry.name)).cloned().collect();
    let all = kernels.into_iter().map(|entry| (entry.clone(), of(&entry)));
    all.filter(|(_, tests): &(Entry, Vec<Test>)| !tests.is_empty()).collect()
}

/// One row of the table.
struct Row {
    kernel: String,
    test: String,
    outcome: Outcome,
}

impl Row {
    /// False for a test program that ran no test, because it has shown nothing.
    fn is_good(&self) -> bool {
        self.outcome.code == Some(0) && self.outcome.passed.is_some_and(|passed| passed > 0)
    }

    fn verdict(&self) -> String {
        match (self.outcome.code, self.outcome.passed) {
            (None, _) => "no result".to_owned(),
            (Some(0), None | Some(0)) => "ran no test".to_owned(),
            (Some(0), Some(passed)) => format!("{passed} passed"),
            (Some(code), passed) => format!("FAILED ({code}), {} passed", passed.unwrap_or(0)),
        }
    }
}

fn conclude(rows: &[Row]) -> Result<()> {
    println!("\nvm: kernel    test                                       result");
    for row in rows {
        let seconds = row.outcome.time.as_secs_f64();
        println!("vm: {:9} {:42} {} in {seconds:.1} s", row.kernel, row.test, row.verdict());
    }
    let bad = rows.iter().filter(|row| !row.is_good()).count();
    println!("{} passed, {bad} failed", rows.len() - bad);
    if bad > 0 {
        bail!("{bad} of {} programs of tests failed in the machine", rows.len());
    }
    Ok(())
}

struct Runner<'a> {
    sh: &'a Shell,
    root: &'a Path,
    programs: Programs,
    init: PathBuf,
    interrupted: Arc<AtomicBool>,
    out: PathBuf,
}

impl Runner<'_> {
    fn kernel(&self, kernel: &Kernel, tests: Vec<Test>) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for boot in plan::boots(tests) {
            rows.extend(self.boot(kernel, &boot)?);
        }
        Ok(rows)
    }

    fn boot(&self, kernel: &Kernel, tests: &[Test]) -> Result<Vec<Row>> {
        let machine = tests[0].machine();
        let time = if machine.icount { ", time by instructions" } else { "" };
        println!("vm: {}: {} CPUs, {} MiB{time}", kernel.name, machine.cpus, machine.memory);
        let mut image = Image::new(self.sh, &self.init);
        let commands = tests.iter().map(|test| self.command(&mut image, kernel, test)).collect::<Result<_>>()?;
        let modules: Vec<_> = tests.iter().flat_map(|test| test.modules.iter().cloned()).collect();
        let limit = SLOWER * Duration::from_secs(tests.iter().map(|test| test.timeout).max().unwrap_or_default());
        let script = BootScript { modules: Vec::new(), commands };
        let out = self.out.join(&kernel.name);
        let session = Session { kernel, machine: &machine, modules: &modules, script, limit, out: &out };
        let (outcomes, end) = session.run(image, &self.interrupted)?;
        if let End::Broken(why) = end {
            println!("vm: {}: {why}", kernel.name);
        }
        let name = |test: &Test| format!("{} {}", test.package, test.target);
        let row = |(test, outcome)| Row { kernel: kernel.name.clone(), test: name(test), outcome };
        Ok(tests.iter().zip(outcomes).map(row).collect())
    }

    /// The command starts in the folder of its package, with the variables that cargo would set.
    fn command(&self, image: &mut Image, kernel: &Kernel, test: &Test) -> Result<Command> {
        let program = self.programs.of(test)?;
        image.add(program, None)?;
        self.programs.called_by(test).iter().try_for_each(|called| image.add(called, None))?;
        test.files.iter().try_for_each(|file| image.add(&self.root.join(file), None))?;
        test.programs.iter().try_for_each(|program| image.add_program(program))?;
        let folder = self.package_folder(&test.package)?.display().to_string();
        image.folder(&folder);
        let one_by_one = ["--test-threads=1".to_owned()].into_iter().chain(test.filter.iter().cloned());
        let skipped = test.skip.iter().flat_map(|name| ["--skip".to_owned(), name.clone()]);
        let argv = [program.display().to_string()].into_iter().chain(one_by_one).chain(skipped).collect();
        let own = ["QFABRIC_VM=1", "RUST_BACKTRACE=1"].map(str::to_owned).into_iter();
        let more = [format!("QFABRIC_VM_KERNEL={}", kernel.name), format!("CARGO_MANIFEST_DIR={folder}")];
        Ok(Command { argv, folder, variables: own.chain(more).chain(test.variables.iter().cloned()).collect() })
    }

    fn package_folder(&self, package: &str) -> Result<PathBuf> {
        let metadata = cargo_metadata::MetadataCommand::new().current_dir(self.root).no_deps().exec()?;
        let package = metadata.packages.into_iter().find(|own| own.name == package);
        let manifest = package.and_then(|package| package.manifest_path.parent().map(PathBuf::from));
        manifest.ok_or_else(|| anyhow::anyhow!("cargo does not know the package"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(code: Option<u8>, passed: Option<u32>) -> Row {
        let outcome = Outcome { code, passed, ..Outcome::default() };
        Row { kernel: "7.3".to_owned(), test: "t".to_owned(), outcome }
    }

    #[test]
    fn a_missing_result_and_a_run_without_tests_are_failures() {
        assert!(conclude(&[row(Some(0), Some(1))]).is_ok());
        for bad in [row(None, None), row(Some(0), Some(0)), row(Some(0), None), row(Some(101), Some(3))] {
            assert!(!bad.is_good(), "{}", bad.verdict());
            assert!(conclude(&[row(Some(0), Some(1)), bad]).is_err());
        }
    }
}
