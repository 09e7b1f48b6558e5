//! The tests that a run of `make test` skipped: listed, and held against `tests/skips.toml`. A test that is skipped on a
//! machine that has what it needs tests nothing, and nobody notices; here it fails the run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use xshell::{Shell, cmd};

/// Names the file to which `qfabric_linux::testing::skip` appends a line: test, tab, reason.
pub const FILE: &str = "QFABRIC_SKIPS";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowed {
    skip: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    reason: String,
    without: String,
}

/// An empty file for this run's skips.
pub fn begin(target: &Path) -> Result<PathBuf> {
    let file = target.join("skips.txt");
    fs::write(&file, "").with_context(|| file.display().to_string())?;
    Ok(file)
}

/// Prints the skips of a run. Fails if a reason is not in `tests/skips.toml`, or if this machine has what it names.
pub fn check(sh: &Shell, root: &Path, file: &Path) -> Result<()> {
    let allowed: Allowed = toml::from_str(&fs::read_to_string(root.join("tests/skips.toml"))?)?;
    let text = fs::read_to_string(file)?;
    let skips: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once('\t')).collect();
    println!("\n{} tests were skipped on this machine", skips.len());
    let mut wrong = 0;
    for (test, why) in skips {
        let verdict = verdict(&allowed.skip, why, |thing| has(sh, thing, why));
        println!("  {test}: {why}{}", verdict.as_ref().map_or(String::new(), |wrong| format!("  <- {wrong}")));
        wrong += usize::from(verdict.is_some());
    }
    ensure!(
        wrong == 0,
        "{wrong} tests were skipped that can run here; add a rule to tests/skips.toml only if they cannot"
    );
    Ok(())
}

/// The objection to a skip for this reason, if there is one.
fn verdict(rules: &[Rule], why: &str, has: impl Fn(&str) -> bool) -> Option<String> {
    let mut rules = rules.iter().filter(|rule| why.contains(&rule.reason)).peekable();
    if rules.peek().is_none() {
        return Some("not in tests/skips.toml".to_owned());
    }
    let lacking: Vec<_> = rules.map(|rule| rule.without.as_str()).collect();
    lacking.iter().all(|thing| has(thing)).then(|| format!("this machine has {}", lacking.join(" and ")))
}

/// Whether this machine has what a rule names.
fn has(sh: &Shell, thing: &str, why: &str) -> bool {
    let exists = |path: &str| Path::new(path).exists();
    match thing {
        "root" => cmd!(sh, "id -u").quiet().read().is_ok_and(|id| id == "0"),
        "sched_ext" => exists("/sys/kernel/sched_ext"),
        "psi" => exists("/proc/pressure/cpu"),
        "btf" => exists("/sys/kernel/btf/vmlinux"),
        "vm" => env::var_os("QFABRIC_VM").is_some(),
        "figures" => env::var_os("QFABRIC_OUT").is_some(),
        "anything" => false,
        other => {
            let first = why.split(' ').next().unwrap_or_default();
            let program = other.strip_prefix("program ").unwrap_or(first);
            env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(program).exists()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Vec<Rule> {
        let rule = |reason: &str, without: &str| Rule { reason: reason.to_owned(), without: without.to_owned() };
        vec![rule("root", "root"), rule("nft", "program nft")]
    }

    #[test]
    fn a_skip_is_right_only_on_a_machine_that_lacks_what_it_names() {
        assert_eq!(verdict(&rules(), "needs root", |_| false), None);
        assert!(verdict(&rules(), "needs root", |_| true).unwrap().contains("has root"));
        assert_eq!(verdict(&rules(), "nft and root are needed", |thing| thing == "root"), None);
    }

    #[test]
    fn a_reason_that_is_not_listed_is_an_objection() {
        assert!(verdict(&rules(), "too tired", |_| false).unwrap().contains("tests/skips.toml"));
    }

    #[test]
    fn the_list_of_the_repository_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = fs::read_to_string(root.join("tests/skips.toml")).unwrap();
        assert!(!toml::from_str::<Allowed>(&text).unwrap().skip.is_empty());
    }
}
