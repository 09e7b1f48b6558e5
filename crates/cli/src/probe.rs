//! `qfabric probe`: a trial execution. What would the program need?

use std::ffi::OsString;
use std::path::Path;

use qfabric_control::trial::{self, Suggestion};
use qfabric_linux::observe::{self, Observation, Observer};
use qfabric_types::{Contract, Nanos, Share};
use serde_json::json;

use crate::contract::Rhythm;
use crate::exit::{Failure, Outcome};
use crate::program::{Running, Waiting};
use crate::run::name_of;
use crate::trial::{Found, Trial};
use crate::{output, profiles};

/// How often observations are fetched; the kernel keeps some thousand of them in between.
const FETCH_MS: u32 = 20;
/// What is suggested lies so far above the most that was seen.
const MARGIN: f64 = 1.1;

/// Runs a program without a reservation and says what it would need.
///
/// Do this on an otherwise quiet machine. The profile is stored, and `run --profile` starts from it. Ends with
/// the program's exit code.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric probe --period 40ms -- ./prog")]
pub struct Args {
    #[command(flatten)]
    rhythm: Rhythm,
    /// Store the profile under this name, or in this file [default: the program's name]
    #[arg(long)]
    name: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    let name = args.name.clone().unwrap_or_else(|| name_of(&args.command));
    let file = profiles::file(&name)?;
    let program = Waiting::start(&args.command)?;
    let mut observer = observe::open();
    observer.attach(program.pid()).map_err(|error| Failure::fault(format!("cannot observe the program: {error}")))?;
    let running = program.go()?;
    let trial = watch(&running, &mut *observer)?;
    let found = trial.found(args.rhythm.period());
    if found.period.is_some() {
        profiles::store(&file, &found.profile)?;
    }
    let contract = Contract::new("probe", found.period.unwrap_or(Nanos::from_millis(40)));
    let suggestion = trial::suggest(&found.profile, &contract).ok();
    let report = Report { found: &found, suggestion, name: &name, file: &file, command: &args.command };
    if args.json {
        output::print_json(&report.json())?
    } else {
        output::print(&report.text())?
    }
    running.reap()
}

fn watch(program: &Running, observer: &mut dyn Observer) -> Result<Trial, Failure> {
    let mut trial = Trial::default();
    loop {
        let ended = program.ended_within(FETCH_MS)?;
        loop {
            let polled = observer.poll(&mut |observation| {
                if let Observation::Ran { tid, from, to, used, slept } = observation {
                    trial.ran(tid, from, to, used, slept);
                }
            });
            if !polled.more {
                break;
            }
        }
        if ended {
            return Ok(trial);
        }
    }
}

/// What is told at the end.
struct Report<'a> {
    found: &'a Found,
    /// None where the trial was too short for one.
    suggestion: Option<Suggestion>,
    name: &'a str,
    file: &'a Path,
    command: &'a [OsString],
}

impl Report<'_> {
    /// What the jobs of the busiest thread need, or where other threads run beside it, the most that all of
    /// them used in a period, with a margin; in hundredths of a CPU.
    fn max_bandwidth(&self) -> Share {
        let program = self.found.peak.as_f64() * MARGIN;
        let busiest = self.suggestion.as_ref().filter(|_| self.found.threads == 1).map(|s| s.max_bandwidth.as_f64());
        Share::from_f64((busiest.unwrap_or(program) * 100.0).ceil().max(1.0) / 100.0)
    }

    /// The command line that follows from the trial, ready for a shell.
    fn command_line(&self) -> String {
        let mut line = String::from("qfabric run");
        if let Some(period) = self.found.period {
            line += &format!(" --period {} --profile {}", exact(period), quoted(self.name));
        }
        if let Some(Suggestion { predictor, .. }) = self.suggestion {
            line += &format!(" --predictor {predictor}");
        }
        let words: Vec<_> = self.command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
        line + &format!(" --max-bandwidth {} -- {}", self.max_bandwidth().as_f64(), words.join(" "))
    }

    fn json(&self) -> serde_json::Value {
        let Found { period, profile, threads, mean, peak } = self.found;
        json!({
            "jobs": profile.costs.len(), "period_ns": period, "mean_cost_ns": profile.mean(),
            "peak_cost_ns": profile.costs.iter().max(), "threads": threads, "mean": mean, "peak": peak,
            "profile": period.map(|_| self.file), "max_bandwidth": self.max_bandwidth(),
            "predictor": self.suggestion.as_ref().map(|s| s.predictor),
            "guaranteed_class_a": self.suggestion.as_ref().map(|s| s.class_a),
            "guaranteed_class_b": self.suggestion.as_ref().map(|s| s.class_b),
            "suggestion": self.command_line(),
        })
    }

    fn text(&self) -> String {
        let Found { period, profile, threads, mean, peak } = self.found;
        let mut text = format!("{threads} threads used {mean} on average, {peak} at most within a period\n");
        match period {
            Some(period) => {
                let longest = profile.costs.iter().max().copied().unwrap_or_default();
                text += &format!("{} jobs every {period}: {} on average, ", profile.costs.len(), profile.mean());
                text += &format!("{longest} at most\nprofile: {}\n", self.file.display());
            }
            None => text += "no rhythm was found; name one with --period or --fps if there is one\n",
        }
        text += &self.prospect();
        text + &format!("try: {}\n", self.command_line())
    }

    /// What the closed loop, replayed on these jobs, promises.
    fn prospect(&self) -> String {
        let Some(Suggestion { predictor, score, class_a, class_b, .. }) = &self.suggestion else {
            return String::new();
        };
        let percent = |fraction: f64| format!("{:.0} %", 100.0 * fraction);
        format!(
            "replayed under {predictor}: {} of the jobs in target, {} of a CPU reserved for {} used\n\
             class A would guarantee {class_a}, class B {class_b}\n",
            percent(score.in_target),
            percent(score.mean_bandwidth),
            percent(score.mean_demand)
        )
    }
}

/// A time that `--period` reads back without loss.
fn exact(time: Nanos) -> String {
    match time.get() {
        ns if ns % 1_000_000 == 0 => format!("{}ms", ns / 1_000_000),
        ns => format!("{ns}ns"),
    }
}

/// As a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use qfabric_types::Profile;

    use super::*;

    fn report(period: Option<Nanos>, jobs: usize) -> String {
        let profile = Profile { costs: vec![Nanos::from_millis(8); jobs], hints: vec![] };
        let suggestion = trial::suggest(&profile, &Contract::default()).ok();
        let (mean, peak) = (Share::from_f64(0.2), Share::from_f64(0.3));
        let found = Found { period, profile, threads: 2, mean, peak };
        let command = ["./my prog", "it's"].map(OsString::from);
        Report { found: &found, suggestion, name: "x", file: Path::new("/p/x.json"), command: &command }.text()
    }

    #[test]
    fn the_suggestion_can_be_pasted_into_a_shell() {
        let text = report(Some(Nanos::from_millis(40)), 5);
        let suggested = r"try: qfabric run --period 40ms --profile x --max-bandwidth 0.33 -- './my prog' 'it'\''s'";
        assert!(text.contains(suggested), "{text}");
        assert!(text.contains("5 jobs every 40 ms: 8 ms on average, 8 ms at most"), "{text}");
    }

    #[test]
    fn enough_jobs_give_a_predictor_and_what_it_promises() {
        let text = report(Some(Nanos::from_millis(40)), 100);
        for part in ["--predictor ", "in target", "class A would guarantee"] {
            assert!(text.contains(part), "{text}\nlacks {part}");
        }
    }

    #[test]
    fn without_a_rhythm_no_period_is_suggested() {
        let text = report(None, 0);
        assert!(text.contains("no rhythm") && text.contains("try: qfabric run --max-bandwidth 0.33 -- "), "{text}");
    }

    #[test]
    fn periods_are_written_as_they_are_read() {
        for ns in [40_000_000, 33_366_704, 100_000] {
            assert_eq!(exact(Nanos::new(ns)).parse(), Ok(Nanos::new(ns)));
        }
    }
}
