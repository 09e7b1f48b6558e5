//! The process of one player, or of a neighbour that overruns.
//!
//! It has two threads; each does half of a job. It writes `ready`, reads the time of its first release from its
//! standard input, and at the end writes the number of its missed jobs. It ends when its parent ends.

use std::io::{BufRead, stdin};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use qfabric_linux::clock;
use qfabric_linux::testing::burn;
use qfabric_types::{Instant, Nanos};
use rustix::process::Signal;

/// First argument of such a process.
pub(crate) const ROLE: &str = "player";

/// `PERIOD_MS WORK_MS JOBS`; without jobs, both threads use all time that they get.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let numbers: Vec<u64> = arguments.iter().map(|argument| argument.parse()).collect::<Result<_, _>>()?;
    let [period, work, jobs] = numbers[..] else { bail!("a player needs PERIOD_MS WORK_MS JOBS") };
    let half = Nanos::new(Nanos::from_millis(work).get() / 2);
    let (halves, done) = helper();
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    println!("ready");
    let begin = Instant::new(line()?.trim().parse().context("the first release")?);
    if jobs == 0 {
        let _ = halves.send(Nanos::MAX);
        burn(Nanos::MAX);
    }
    let period = Nanos::from_millis(period);
    let releases = (0..jobs).map(|job| begin + period.saturating_mul(job));
    let missed = releases.filter(|release| !is_in_time(*release, period, half, &halves, &done)).count();
    println!("{missed}");
    Ok(())
}

fn line() -> Result<String> {
    let mut line = String::new();
    stdin().lock().read_line(&mut line)?;
    Ok(line)
}

/// The second thread: receives CPU times to use, and answers when it has used them.
fn helper() -> (Sender<Nanos>, Receiver<()>) {
    let (halves, asked) = channel();
    let (answer, done) = channel();
    thread::spawn(move || {
        while let Ok(half) = asked.recv() {
            burn(half);
            if answer.send(()).is_err() {
                return;
            }
        }
    });
    (halves, done)
}

/// One job, with its deadline one period after its release. A job that cannot begin before its deadline is skipped, as
/// a player skips a frame.
fn is_in_time(release: Instant, period: Nanos, half: Nanos, halves: &Sender<Nanos>, done: &Receiver<()>) -> bool {
    thread::sleep(Duration::from_nanos(release.since(clock::now()).get()));
    let deadline = release + period;
    if clock::now() > deadline {
        return false;
    }
    let is_helped = halves.send(half).is_ok();
    burn(half);
    is_helped && done.recv().is_ok() && clock::now() <= deadline
}
