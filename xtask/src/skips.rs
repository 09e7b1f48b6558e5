//! The tests that a run of `make test` skipped: listed, and held against `tests/skips.toml`. A test that is skipped on a
//! machine that has what it needs tests nothing, and nobody notices; here it fails the run.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use xshell::{Shell, cmd};

use crate::laboratory;

/// Names the file to which `qfabric_linux::testing::skip` appends a line: test, tab, reason.
pub(crate) const FILE: &str = "QFABRIC_SKIPS";

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
pub(crate) fn begin(target: &Path) -> Result<PathBuf> {
    let file = target.join("skips.txt");
    fs::write(&file, "").with_context(|| file.display().to_string())?;
    Ok(file)
}

/// Prints the skips of a run. Fails if a reason is not in `tests/skips.toml`, or if this machine has what it names.
pub(crate) fn check(sh: &Shell, root: &Path, file: &Path) -> Result<()> {
    let allowed: Allowed = toml::from_str(&fs::read_to_string(root.join("tests/skips.toml"))?)?;
    let text = fs::read_to_string(file)?;
    let skips: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once('\t')).collect();
    println!("\n{} tests were skipped on this machine", skips.len());
    let mut wrong = 0;
    for (test, why) in skips {
        let verdict = verdict(&allowed.skip, why, |thing| has(sh, root, thing, why) == Some(true));
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

/// Whether this machine has what a rule names; `None` if no probe of this name exists.
fn has(sh: &Shell, root: &Path, thing: &str, why: &str) -> Option<bool> {
    let exists = |path: &str| Path::new(path).exists();
    let (kind, name) = thing.split_once(' ').unwrap_or((thing, ""));
    Some(match (kind, name) {
        ("root", "") => cmd!(sh, "id -u").quiet().read().is_ok_and(|id| id == "0"),
        ("vm", "") => env::var_os("QFABRIC_VM").is_some(),
        ("figures", "") => env::var_os("QFABRIC_OUT").is_some(),
        ("psi-trigger", "") => can_set_psi_trigger(),
        ("perf", "") => exists("/proc/sys/kernel/perf_event_paranoid") && can_observe_all_threads(),
        ("laboratory", "") => root.join(laboratory::BUILT).exists(),
        ("netns", "") => cmd!(sh, "unshare --net --mount true").quiet().ignore_stderr().run().is_ok(),
        ("cgroup", "") => can_make_group(),
        ("booked-sum", "") => {
            fs::read_to_string("/sys/kernel/debug/sched/debug").is_ok_and(|text| text.contains("dl_bw->total_bw"))
        }
        ("verified", "") => has_lines(&fs::read_to_string(root.join("bpf/verified.txt")).ok()?, release()),
        ("anything", "") => false,
        ("path", path) if path.starts_with('/') => exists(path),
        ("type", name) if !name.is_empty() => {
            fs::read("/sys/kernel/btf/vmlinux").is_ok_and(|types| contains_name(&types, name))
        }
        ("linux", version) => release() >= version_of(version)?,
        ("program", "") => is_installed(why.split(' ').next().unwrap_or_default()),
        ("program", name) => is_installed(name),
        _ => return None,
    })
}

fn is_installed(program: &str) -> bool {
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|folder| folder.join(program).exists()))
}

fn can_make_group() -> bool {
    let name = format!("qfabric-probe-{}", std::process::id());
    let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids"].map(Path::new);
    let group = places.into_iter().find(|place| place.join("cgroup.procs").is_file()).map(|place| place.join(name));
    group.is_some_and(|group| fs::create_dir(&group).and_then(|()| fs::remove_dir(&group)).is_ok())
}

/// Sets a trigger as the tests do, with the only window that the kernel grants to every user: 0.5 s of 2 s.
fn can_set_psi_trigger() -> bool {
    let file = fs::File::options().read(true).write(true).open("/proc/pressure/cpu");
    file.and_then(|mut file| file.write_all(b"some 500000 2000000\0")).is_ok()
}

/// Whether this process holds CAP_PERFMON or CAP_SYS_ADMIN outside any user namespace and without a filter of system
/// calls, which containers have.
fn can_observe_all_threads() -> bool {
    const PERFMON_OR_ADMIN: u64 = 1 << 38 | 1 << 21;
    const FIRST_USERS: &str = "user:[4026531837]";
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let held = field("CapEff:").and_then(|bits| u64::from_str_radix(bits, 16).ok()).unwrap_or(0);
    let is_first = fs::read_link("/proc/self/ns/user").is_ok_and(|users| users == Path::new(FIRST_USERS));
    held & PERFMON_OR_ADMIN != 0 && is_first && field("Seccomp:") == Some("0")
}

/// The kernel's version, such as (6, 18); (0, 0) if it cannot be read.
fn release() -> (u32, u32) {
    fs::read_to_string("/proc/sys/kernel/osrelease").ok().and_then(|text| version_of(&text)).unwrap_or_default()
}

/// `6.18.44-generic` is (6, 18).
fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Whether the table of the verifier's budgets has lines for this kernel.
fn has_lines(table: &str, (major, minor): (u32, u32)) -> bool {
    let kernel = format!("{major}.{minor}");
    table.lines().any(|line| line.split_whitespace().next() == Some(&kernel))
}

/// Names in the kernel's type information end with a zero byte.
fn contains_name(types: &[u8], name: &str) -> bool {
    let name = [&b"\0"[..], name.as_bytes(), &b"\0"[..]].concat();
    types.windows(name.len()).any(|bytes| bytes == name)
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
    fn every_rule_of_the_repository_names_a_probe_and_few_name_a_state() {
        let (sh, root) = (Shell::new().unwrap(), Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap());
        let text = fs::read_to_string(root.join("tests/skips.toml")).unwrap();
        let rules = toml::from_str::<Allowed>(&text).unwrap().skip;
        for rule in &rules {
            assert!(has(&sh, root, &rule.without, &rule.reason).is_some(), "no probe of the name `{}`", rule.without);
        }
        let states = rules.iter().filter(|rule| rule.without == "anything").count();
        assert!(rules.len() > 20 && states <= 4, "{states} of {} reasons have no probe", rules.len());
    }

    /// The reasons that stand in the sources as whole texts. A reason that is put together at run time is not found.
    #[test]
    fn every_reason_in_the_sources_is_listed() {
        let (sh, root) = (Shell::new().unwrap(), Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap());
        let text = fs::read_to_string(root.join("tests/skips.toml")).unwrap();
        let rules = toml::from_str::<Allowed>(&text).unwrap().skip;
        sh.change_dir(root);
        let files = cmd!(sh, "git ls-files -- bench/*.rs crates/*.rs examples/*.rs tests/*.rs").quiet().read().unwrap();
        let mut found = 0;
        for file in files.lines() {
            let text = fs::read_to_string(root.join(file)).unwrap();
            for reason in text.split("skip(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                let is_listed = rules.iter().any(|rule| reason.contains(&rule.reason));
                assert!(is_listed, "{file}: `{reason}` is not in tests/skips.toml");
                found += 1;
            }
        }
        assert!(found > 20, "{found} reasons were found");
    }

    #[test]
    fn a_probe_answers_for_this_machine_and_an_unknown_one_for_none() {
        let (sh, root) = (Shell::new().unwrap(), Path::new("/"));
        let has = |thing| has(&sh, root, thing, "sh is not installed");
        assert_eq!(
            [has("path /proc"), has("path /nowhere"), has("linux 3.0"), has("linux 99.0")].map(Option::unwrap),
            [true, false, true, false]
        );
        assert_eq!([has("program"), has("program no-such-program")], [Some(true), Some(false)]);
        assert_eq!([has("roots"), has("path"), has("type"), has("linux"), has("")], [None; 5]);
    }

    #[test]
    fn versions_tables_and_type_names_are_read() {
        assert_eq!(
            [version_of("6.18.44-fc"), version_of("6.1-rc3"), version_of("six")],
            [Some((6, 18)), Some((6, 1)), None]
        );
        let table = "# kernel, program, instructions\n6.18 packet/htb 2603\n";
        assert!(has_lines(table, (6, 18)) && !has_lines(table, (6, 1)) && !has_lines(table, (0, 0)));
        assert!(contains_name(b"\0int\0sk_buff\0", "sk_buff") && !contains_name(b"\0int\0sk_buff\0", "sk"));
    }
}
