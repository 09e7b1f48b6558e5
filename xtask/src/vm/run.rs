//! `xtask vm run`: boots once, runs commands, and prints their output.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use qfabric_vm_init::{BootScript, Command};
use xshell::Shell;

use super::image::Image;
use super::kernels::Cache;
use super::matrix;
use super::qemu::{End, Machine};
use super::session::{Outcome, Session, build_init, interruption};

/// Separator between two commands of one boot.
const NEXT: &str = "::";

/// How to boot and what to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Kernel, by its name in tests/vm/kernels.toml
    #[arg(short, long, default_value = "7.3")]
    kernel: String,
    /// Number of processors
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Memory in MiB
    #[arg(long, default_value_t = 1024)]
    memory: u32,
    /// Make guest time a function of executed instructions
    #[arg(long)]
    icount: bool,
    /// Load this module and the modules that it needs
    #[arg(long = "module", value_name = "NAME", value_delimiter = ',')]
    modules: Vec<String>,
    /// Add this file or folder, at the same path or at PLACE
    #[arg(long = "file", value_name = "PATH[:PLACE]")]
    files: Vec<String>,
    /// Add this program
    #[arg(long = "program", value_name = "NAME", value_delimiter = ',')]
    programs: Vec<String>,
    /// Set a variable for the commands
    #[arg(long = "env", value_name = "NAME=VALUE")]
    variables: Vec<String>,
    /// Words added to the kernel's command line
    #[arg(long, value_name = "WORDS")]
    append: Vec<String>,
    /// Give the machine this ACPI table of tests/vm/acpi, without `.asl`
    #[arg(long, value_name = "NAME")]
    firmware: Option<String>,
    /// Seconds without output after which the machine is switched off
    #[arg(long, default_value_t = 120)]
    timeout: u64,
    /// Folder for files that commands leave in /out
    #[arg(long, default_value = "out/vm")]
    out: PathBuf,
    /// Treat the arguments as one line for busybox' shell
    #[arg(long)]
    shell: bool,
    /// A command and its arguments; `::` between two commands
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<String>,
}

/// Returns the exit code of the last command that failed.
pub(super) fn run(sh: &Shell, root: &Path, options: &Options) -> Result<ExitCode> {
    let cache = Cache::open(sh)?;
    let kernel = cache.get(matrix::find(&matrix::read(root)?, &options.kernel)?)?;
    let mut image = Image::new(sh, &build_init(sh, &cache)?);
    let script = BootScript { modules: Vec::new(), commands: commands(&mut image, options)? };
    take_along(&mut image, options)?;
    let (cpus, memory, icount) = (options.cpus, options.memory, options.icount);
    let (append, firmware) = (options.append.clone(), options.firmware.clone());
    let machine = Machine { cpus, memory, icount, append, firmware };
    let limit = Duration::from_secs(options.timeout);
    let session =
        Session { kernel: &kernel, machine: &machine, modules: &options.modules, script, limit, out: &options.out };
    let (outcomes, end) = session.run(image, &interruption()?)?;
    if let End::Broken(why) = end {
        anyhow::bail!("the boot of Linux {} failed: {why}", kernel.release);
    }
    let code = |outcome: &Outcome| outcome.code.filter(|code| *code != 0);
    Ok(outcomes.iter().rev().find_map(code).map_or(ExitCode::SUCCESS, ExitCode::from))
}

fn take_along(image: &mut Image, options: &Options) -> Result<()> {
    for file in &options.files {
        let (from, to) = file.split_once(':').map_or((file.as_str(), None), |(from, to)| (from, Some(to)));
        image.add(Path::new(from), to)?;
    }
    options.programs.iter().try_for_each(|program| image.add_program(program))
}

fn commands(image: &mut Image, options: &Options) -> Result<Vec<Command>> {
    if options.shell {
        image.add_shell()?;
        let argv = ["/bin/sh", "-c", &options.command.join(" ")].map(str::to_owned).into();
        return Ok(vec![command(argv, options)]);
    }
    let parts = options.command.split(|word| word == NEXT);
    parts.map(|part| Ok(command(with_program(image, part)?, options))).collect()
}

fn command(argv: Vec<String>, options: &Options) -> Command {
    let own = ["QFABRIC_VM=1".to_owned(), format!("QFABRIC_VM_KERNEL={}", options.kernel)];
    let variables = own.into_iter().chain(options.variables.iter().cloned()).collect();
    Command { argv, folder: "/".to_owned(), variables }
}

/// Adds the program itself: a file, or a program found by the search path.
fn with_program(image: &mut Image, words: &[String]) -> Result<Vec<String>> {
    ensure!(!words.is_empty(), "there is no command between two {NEXT}");
    let mut argv = words.to_vec();
    if Path::new(&argv[0]).is_file() {
        argv[0] = std::path::absolute(&argv[0])?.display().to_string();
        image.add(Path::new(&argv[0]), None)?;
    } else {
        image.add_program(&argv[0])?;
    }
    Ok(argv)
}
