//! Fuzzing with coverage, by cargo-fuzz with the installed compiler. `tests/hostile` defines the checks.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::Args;
use xshell::{Shell, cmd};

/// Options of `xtask fuzz`.
#[derive(Args)]
pub(crate) struct Options {
    /// Run time of each target in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Run only targets whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Sanitizer of the compiler, such as `address`: it finds more errors in unsafe code and takes longer
    #[arg(long, default_value = "none")]
    sanitizer: String,
    /// Afterwards, copy the smallest set of inputs with the same coverage into tests/hostile/corpus
    #[arg(long)]
    keep: bool,
}

/// Limits per input, memory in MB and time in seconds; an input beyond them is a failure.
const MEMORY_MB: u32 = 1024;
const TIMEOUT_S: u32 = 5;
/// Limit on the stored inputs of one target, in bytes. Half of the targets need less; a test of tests/hostile checks
/// the sum.
const MOST_KEPT: u64 = 28_000;

/// Runs the targets one after the other. Fails if a target finds an error.
pub(crate) fn run(sh: &Shell, root: &Path, options: &Options) -> Result<()> {
    let targets = chosen(sh, root, &options.only)?;
    if cmd!(sh, "cargo fuzz --version").quiet().ignore_stdout().ignore_stderr().run().is_err() {
        bail!(
            "cargo-fuzz is missing; install it with: cargo install --locked cargo-fuzz (it needs a C++ compiler, too)"
        );
    }
    // Allows the fuzzer's flags on a stable compiler.
    let _flags = sh.push_env("RUSTC_BOOTSTRAP", "1");
    let mut failed = Vec::new();
    for (number, target) in targets.iter().enumerate() {
        // Cargo prints the build; the first build takes minutes.
        println!("\n== {target} ({} of {}, {} s)", number + 1, targets.len(), options.seconds);
        if one(sh, root, target, options).is_err() {
            failed.push(target.as_str());
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => bail!(
            "{} found something; fuzz/artifacts/TARGET has the inputs, `cargo run -p qfabric-hostile --example \
                        replay -- TARGET FILE` does it again",
            failed.join(", ")
        ),
    }
}

/// Names of the fuzz targets that contain `only`, from their files.
fn chosen(sh: &Shell, root: &Path, only: &str) -> Result<Vec<String>> {
    let files = sh.read_dir(root.join("fuzz/fuzz_targets"))?;
    let stem = |file: &PathBuf| Some(file.file_stem()?.to_str()?.to_owned());
    let all: Vec<String> = files.iter().filter_map(stem).collect();
    let chosen: Vec<String> = all.iter().filter(|name| name.contains(only)).cloned().collect();
    match chosen.is_empty() {
        true => bail!("no target contains {only:?}; the targets are {}", all.join(", ")),
        false => Ok(chosen),
    }
}

/// Runs one target, starting from the stored inputs and the inputs of earlier runs in fuzz/corpus.
fn one(sh: &Shell, root: &Path, target: &str, options: &Options) -> Result<()> {
    let (corpus, kept) = (root.join("fuzz/corpus").join(target), root.join("tests/hostile/corpus").join(target));
    sh.create_dir(&corpus)?;
    sh.create_dir(&kept)?;
    let Options { seconds, sanitizer, .. } = options;
    let (seconds, seed) = (seconds.to_string(), seed()?.to_string());
    let limits = ["-timeout", "-rss_limit_mb"].iter().zip([TIMEOUT_S, MEMORY_MB]);
    let limits: Vec<String> = limits.map(|(name, limit)| format!("{name}={limit}")).collect();
    cmd!(
        sh,
        "cargo fuzz run --sanitizer {sanitizer} {target} {corpus} {kept} -- -fork=1 -max_total_time={seconds} -seed={seed} {limits...}"
    )
    .quiet()
    .run()?;
    if options.keep { keep(sh, target, &corpus, &kept, options) } else { Ok(()) }
}

/// A different seed for each run; libFuzzer prints it.
fn seed() -> Result<u32> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH).context("the system clock is before 1970; set it")?.subsec_nanos())
}

/// Stores the smallest set of inputs that reaches the same edges, ignoring hit counts; small inputs first, up to the
/// limit.
fn keep(sh: &Shell, target: &str, corpus: &Path, kept: &Path, options: &Options) -> Result<()> {
    let (all, sanitizer) = (sh.create_temp_dir()?, &options.sanitizer);
    let chosen = all.path();
    cmd!(
        sh,
        "cargo fuzz run --sanitizer {sanitizer} {target} {chosen} {kept} {corpus} -- -set_cover_merge=1 -use_counters=0"
    )
    .quiet()
    .ignore_stderr()
    .run()?;
    let mut files = sh.read_dir(chosen)?.into_iter().map(|file| Ok((std::fs::metadata(&file)?.len(), file)));
    let mut files = files.by_ref().collect::<Result<Vec<_>>>()?;
    files.sort();
    sh.remove_path(kept)?;
    sh.create_dir(kept)?;
    let (mut bytes, mut count) = (0, 0);
    for (size, file) in &files {
        bytes += size;
        if bytes > MOST_KEPT {
            break;
        }
        sh.copy_file(file, kept)?;
        count += 1;
    }
    println!("{target}: {count} of {} inputs are kept in {}", files.len(), kept.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_name_selects_targets_and_an_unknown_name_lists_all_targets() {
        let (sh, root) = (Shell::new().unwrap(), Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap());
        assert_eq!(chosen(&sh, root, "channel").unwrap(), ["channel_frame", "channel_operations"]);
        let refusal = chosen(&sh, root, "nothing").unwrap_err().to_string();
        assert!(refusal.contains("\"nothing\"") && refusal.contains("ecode_source"), "{refusal}");
    }
}
