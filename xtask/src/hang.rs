//! Runs a command, and says where its threads stand if it does not end.
//!
//! A hang on somebody else's machine shows nothing: the run is ended from outside after an hour. Here the report names
//! each thread that is left, with the function of the kernel in which it sleeps, before all of them are ended. Where
//! the command's lines are read, each of them is progress and begins the limit anew, so that a loaded machine, which
//! needs many times the time, fails no test. The variable `HANG_AFTER_MINUTES` replaces the limit.

use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context, Result, bail};
use xshell::Cmd;

use crate::failures::Failures;

/// Replaces the limits of all commands.
const LIMIT: &str = "HANG_AFTER_MINUTES";

/// Runs the command to its end.
///
/// # Errors
/// It cannot be started, fails, or has not ended after `longest`; then it and all its descendants are killed.
pub(crate) fn run_or_report(command: Cmd<'_>, longest: Duration) -> Result<()> {
    within(command, limit(longest)?, |mut command| command.spawn())
}

/// Runs the command to its end; the failures that its lines report are kept.
///
/// # Errors
/// As [`run_or_report`], but `longest` is the time without a line.
pub(crate) fn run_and_search(command: Cmd<'_>, longest: Duration, failures: &Failures) -> Result<()> {
    let longest = limit(longest)?;
    let lines = || failures.lines_read();
    std::thread::scope(|copies| progressing(command, longest, lines, |command| failures.spawn(command, copies)))
}

fn limit(longest: Duration) -> Result<Duration> {
    Ok(match std::env::var(LIMIT) {
        Ok(minutes) => Duration::from_secs(60 * minutes.parse::<u64>().with_context(|| format!("{LIMIT}={minutes}"))?),
        Err(_) => longest,
    })
}

fn within(command: Cmd<'_>, longest: Duration, spawn: impl FnOnce(Command) -> io::Result<Child>) -> Result<()> {
    progressing(command, longest, || 0, spawn)
}

/// Runs the command until it ends, or until `steps` has been the same number for `longest`.
fn progressing(
    command: Cmd<'_>,
    longest: Duration,
    steps: impl Fn() -> u64,
    spawn: impl FnOnce(Command) -> io::Result<Child>,
) -> Result<()> {
    let text = command.to_string();
    eprintln!("$ {text}");
    let mut child = spawn(command.into()).with_context(|| format!("start {text}"))?;
    let (mut since, mut last) = (Instant::now(), steps());
    loop {
        if let Some(status) = child.try_wait()? {
            return if status.success() { Ok(()) } else { bail!("{text}: {status}") };
        }
        let now = steps();
        if now != last {
            (since, last) = (Instant::now(), now);
        }
        if since.elapsed() >= longest {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    let left = family(child.id());
    eprintln!("{text} made no progress for {} s. Its processes and threads:", longest.as_secs());
    left.iter().for_each(|pid| eprint!("{}", threads(*pid)));
    end(&mut child, &left)?;
    bail!(
        "{text}: ended after {} s without progress; a process of it hangs, see the list above; on a loaded machine set \
         {LIMIT}",
        longest.as_secs()
    )
}

/// A process and all its descendants, the youngest last.
fn family(root: u32) -> Vec<u32> {
    let parents: BTreeMap<u32, u32> = processes().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut family = vec![root];
    let mut at = 0;
    while let Some(&member) = family.get(at) {
        family.extend(parents.iter().filter(|(_, parent)| **parent == member).map(|(pid, _)| *pid));
        at += 1;
    }
    family
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// One line for each thread: name, state, and where it sleeps; then its stack in the kernel if this user may read it.
fn threads(pid: u32) -> String {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
    let mut text = format!("process {pid}: {}\n", arguments.chars().take(160).collect::<String>());
    for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let status = read("status");
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?").trim();
        let sleeps = read("wchan");
        let number = thread.file_name();
        text += &format!(
            "  thread {} {}: {}; in {sleeps}\n",
            number.display(),
            read("comm").trim(),
            field("State:").trim(),
        );
        read("stack").lines().for_each(|line| text += &format!("      {line}\n"));
    }
    text
}

fn end(child: &mut Child, family: &[u32]) -> Result<()> {
    let numbers = family.iter().map(u32::to_string);
    // Some have ended meanwhile, and their parents may have ended with them.
    let _ = Command::new("kill").arg("-KILL").args(numbers).status();
    child.wait().context("wait for the killed command").map(drop)
}

#[cfg(test)]
mod tests {
    use xshell::{Shell, cmd};

    use super::*;

    fn start(mut command: Command) -> io::Result<Child> {
        command.spawn()
    }

    #[test]
    fn a_command_that_ends_passes_its_result_on() {
        let sh = Shell::new().unwrap();
        within(cmd!(sh, "true"), Duration::from_secs(600), start).unwrap();
        assert!(within(cmd!(sh, "false"), Duration::from_secs(600), start).is_err());
    }

    #[test]
    fn a_command_that_hangs_is_reported_and_ended_with_its_children() {
        let sh = Shell::new().unwrap();
        let mark = format!("86400.{}", std::process::id());
        let hangs = cmd!(sh, "sh -c 'sleep '{mark}' & wait'");
        let hangs = within(hangs, Duration::from_secs(2), start).unwrap_err().to_string();
        assert!(hangs.contains("ended after 2 s without progress"), "{hangs}");
        let is_left = |pid: u32| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                line.starts_with("sleep") && line.contains(&mark)
            })
        };
        while processes().any(is_left) {
            std::thread::sleep(Duration::from_millis(10)); // it was killed, and ends when it runs next
        }
    }

    /// The command ends after five looks, 0.8 s. Each of them sees progress; without it, the limit would end it.
    #[test]
    fn a_command_that_makes_progress_is_not_ended() {
        let (sh, folder) = (Shell::new().unwrap(), tempfile::tempdir().unwrap());
        let (end, looks) = (folder.path().join("end"), std::cell::Cell::new(0));
        let steps = || {
            looks.set(looks.get() + 1);
            if looks.get() == 5 {
                std::fs::write(&end, "").unwrap();
            }
            looks.get()
        };
        let waits = cmd!(sh, "sh -c 'until [ -e $0 ]; do sleep 0.01; done' {end}");
        progressing(waits, Duration::from_millis(400), steps, start).unwrap();
    }

    #[test]
    fn the_report_names_each_thread_and_its_state() {
        let text = threads(std::process::id());
        let me = format!("thread {}", std::process::id());
        assert!(text.contains(&me) && text.contains("; in "), "{text}");
        assert!(family(std::process::id()).contains(&std::process::id()));
    }
}
