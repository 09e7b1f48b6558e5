//! Runs tests under Miri, which interprets a program and reports undefined behaviour and data races. Each seed is another
//! order of the threads and another choice of the values that relaxed loads may read.
//!
//! Miri knows no shared mappings, no Unix sockets and no code that was written at run time. So the mappings of `shm`, the
//! machine code of `jit` and the system calls of `linux` are out of its reach; models (`tests/models`) and
//! ThreadSanitizer (`races.rs`) cover them.

use anyhow::{Result, ensure};
use clap::Args;
use xshell::{Shell, cmd};

use crate::tools::target;

/// Miri needs the nightly compiler.
const TOOLCHAIN: &str = "+nightly";
/// Rooms, and parts of the names of their unit tests; none: all. The layouts and protocols of the memory that `shm` maps
/// are in `types`.
const ROOMS: [(&str, &[&str]); 3] =
    [("types", &["ring", "wire", "memory", "format"]), ("ecode", &[]), ("ffi", &["ladder"])];
/// Tests that take more than five minutes: they repeat an exchange, or make a whole message ring for each case.
const TOO_LONG: [&str; 4] = [
    "concurrent_writer_and_reader_never_mix_two_events",
    "a_message_in_two_pieces",
    "messages_of_any_length",
    "garbage_from_a_hostile_writer",
];
/// Without isolation, because tests read the clock.
const FLAGS: &str = "-Zmiri-disable-isolation -Zmiri-strict-provenance";

/// Options of `xtask miri`.
#[derive(Args)]
pub(crate) struct Options {
    /// Number of seeds
    #[arg(long, default_value_t = 4)]
    seeds: u32,
    /// Room to test, instead of all
    #[arg(long, value_name = "ROOM", value_parser = ["types", "ecode", "ffi"])]
    only: Option<String>,
}

/// Runs the tests of the rooms, interpreted.
pub(crate) fn run(sh: &Shell, options: &Options) -> Result<()> {
    ensure!(
        cmd!(sh, "cargo {TOOLCHAIN} miri --version").quiet().ignore_stdout().ignore_stderr().run().is_ok(),
        "Miri is not installed; run `rustup toolchain install nightly --component miri,rust-src`"
    );
    let folder = target(sh)?.join("miri");
    let (seeds, flags) = (options.seeds, FLAGS);
    let left_out = &TOO_LONG.iter().flat_map(|test| ["--skip", test]).collect::<Vec<_>>();
    let _variables = [
        sh.push_env("MIRIFLAGS", format!("{flags} -Zmiri-many-seeds=0..{seeds}")),
        // Interpreted, a case takes some hundred times as long.
        sh.push_env("PROPTEST_CASES", "4"),
    ];
    for (room, names) in ROOMS.into_iter().filter(|(room, _)| options.only.as_ref().is_none_or(|only| only == room)) {
        let tests = ["miri", "test", "--locked", "--package", &format!("qfabric-{room}"), "--lib"];
        cmd!(sh, "cargo {TOOLCHAIN} {tests...} --target-dir {folder} -- {names...} {left_out...}").run()?;
    }
    Ok(())
}
