//! Builds that need the program: the demo, its man pages and completions.

use std::path::{Path, PathBuf};

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::setup;
use crate::tools::target;

/// Folder of the demo's report, unless `--out` is given.
const REPORT: &str = "out/demo";

/// Packages and features of the demo. It does not use the network engine and certificates, which are more than half
/// of the build.
const DEMO: [&str; 5] = ["--no-default-features", "-p", "qfabric-cli", "-p", "qfabric-player"];

/// Builds the program and the player, and runs the demo with `args`.
pub(crate) fn demo(sh: &Shell, args: &[String]) -> Result<()> {
    setup::for_the_demo(sh)?;
    cmd!(sh, "cargo build --profile demo --locked {DEMO...}").run()?;
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
    use super::*;

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
