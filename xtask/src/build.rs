//! Builds that need the program: the demo, its man pages and completions.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use crate::setup;
use crate::tools::target;

/// Folder of the demo's report, unless `--out` is given.
const REPORT: &str = "out/demo";

/// Packages and features of the demo. It does not use the network engine and certificates, which are more than half
/// of the build.
const DEMO: [&str; 5] = ["--no-default-features", "-p", "qfabric-cli", "-p", "qfabric-player"];

/// How cargo builds them.
const BUILD: [&str; 4] = ["build", "--profile", "demo", "--locked"];

/// Builds the program and the player, and runs the demo with `args`.
pub(crate) fn demo(sh: &Shell, args: &[String]) -> Result<()> {
    if !setup::is_done_for_the_demo(sh) {
        println!("packages are missing: cargo compiles meanwhile what needs none of them");
        beside(&mut early(sh), || setup::for_the_demo(sh))?;
    }
    cmd!(sh, "cargo {BUILD...} {DEMO...}").run()?;
    let program = target(sh)?.join("demo/qfabric");
    let out: &[&str] = if args.iter().any(|arg| arg.starts_with("--out")) { &[] } else { &["--out", REPORT] };
    if setup::is_root(sh)? {
        cmd!(sh, "{program} demo {out...} {args...}").run()?;
    } else {
        println!("reservations need CAP_SYS_NICE: the demo runs under sudo");
        cmd!(sh, "sudo {program} demo {out...} {args...}").run()?;
    }
    Ok(())
}

/// The same build, which goes on without the crates that need a missing package. It gives way to the installation.
fn early(sh: &Shell) -> Command {
    let mut build = Command::from(cmd!(sh, "nice cargo {BUILD...} --quiet --keep-going {DEMO...}"));
    build.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    build
}

/// Does `work` while `build` runs, and waits for the end of both. Where `build` fails, the real one says why. If `work`
/// fails, `build` is ended.
fn beside(build: &mut Command, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut running = build.spawn().context("the build beside the installation of packages")?;
    let done = work();
    let ended = if done.is_err() { running.kill() } else { Ok(()) };
    ended.and(running.wait()).context("the build beside the installation of packages")?;
    done
}

/// Builds the program, and writes its man pages and completions; returns their folder.
pub(crate) fn man(sh: &Shell) -> Result<PathBuf> {
    cmd!(sh, "cargo build --locked -p qfabric-cli").run()?;
    pages(sh, &target(sh)?.join("debug/qfabric"))
}

/// Writes man pages and completions from the definition of the program's command line; returns their folder.
pub(crate) fn pages(sh: &Shell, program: &Path) -> Result<PathBuf> {
    let folder = target(sh)?.join("man");
    sh.create_dir(&folder)?;
    cmd!(sh, "{program} generate man {folder}").run()?;
    for (shell, file) in [("bash", "qfabric.bash"), ("zsh", "_qfabric"), ("fish", "qfabric.fish")] {
        let text = cmd!(sh, "{program} generate completions {shell}").quiet().read()?;
        sh.write_file(folder.join(file), text + "\n")?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn the_early_build_compiles_the_same_as_the_real_one() {
        let early = early(&Shell::new().unwrap());
        let args: Vec<_> = early.get_args().map(|arg| arg.to_str().unwrap()).collect();
        let shown = ["--quiet", "--keep-going"];
        assert_eq!(args, [&["cargo"][..], &BUILD, &shown, &DEMO].concat());
    }

    #[test]
    fn the_early_build_is_awaited_may_fail_and_ends_with_a_failed_installation() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        beside(Command::new("touch").arg(&made), || Ok(())).unwrap();
        assert!(made.exists(), "the build has ended");
        beside(&mut Command::new("false"), || Ok(())).unwrap();
        let error = beside(Command::new("sleep").arg("infinity"), || Err(anyhow!("no package"))).unwrap_err();
        assert_eq!(error.to_string(), "no package");
    }

    #[test]
    fn the_demo_is_built_without_the_network_engine() {
        let sh = Shell::new().unwrap();
        sh.change_dir(env!("CARGO_MANIFEST_DIR"));
        let tree = |options: &[&str]| {
            cmd!(sh, "cargo tree --locked --prefix none --edges normal,build {options...}").quiet().read().unwrap()
        };
        assert!(tree(&DEMO[1..]).contains("zenoh v"), "the whole program has it");
        let demo = tree(&DEMO);
        assert!(demo.contains("qfabric-player v") && !demo.contains("zenoh") && !demo.contains("ring v"), "{demo}");
    }
}
