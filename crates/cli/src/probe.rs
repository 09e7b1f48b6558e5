//! `qfabric probe`: a trial execution. What would the program need?

use std::ffi::OsString;
use std::path::Path;

use qfabric_control::guarantee::NoGuarantee;
use qfabric_control::trial::{self, Suggestion};
use qfabric_linux::capacity;
use qfabric_linux::cpus::CpuList;
use qfabric_linux::observe::{self, Observation, Observer};
use qfabric_types::{Contract, Nanos, Share};
use serde_json::json;

use crate::contract::Rhythm;
use crate::exit::{Done, Failure, Outcome};
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
/// Do this on an otherwise quiet machine. The profile is stored, and `run --profile` starts from it; not of a program
/// that failed. Ctrl-C ends the program and the trial. Ends with the program's exit code.
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
    let asked_to_end = running.was_asked_to_end();
    let done = running.reap()?;
    let failed = (done != Done(0) && !asked_to_end).then_some(done.0);
    if found.period.is_some() && failed.is_none() {
        profiles::store(&file, &found.profile)?;
    }
    let contract = Contract::new("probe", found.period.unwrap_or(Nanos::from_millis(40)));
    let suggestion = trial::suggest(&found.profile, &contract).ok();
    let (name, file, command, room) = (&*name, &*file, &*args.command, room());
    let report = Report { found: &found, suggestion, name, file, command, failed, room };
    if args.json {
        output::print_json(&report.json())?
    } else {
        output::print(&report.text())?
    }
    Ok(done)
}

/// What one program can be promised here: all that the daemon may promise, or without one what the kernel admits now, or
/// where it may not be asked what it leaves to real-time threads.
fn room() -> Share {
    let promised = || Some(qfabric_client::Client::connect().ok()?.status().ok()?.capacity);
    let admitted = || capacity::probe().ok().filter(|room| *room > Share::ZERO);
    let cpus = CpuList::online().len() as u32;
    promised().or_else(admitted).unwrap_or(Share::from_ppm(cpus * 950_000))
}

fn watch(program: &Running, observer: &mut dyn Observer) -> Result<Trial, Failure> {
    let mut trial = Trial::default();
    loop {
        let ended = program.ended_within(FETCH_MS)?;
        loop {
            let polled = observer.poll(&mut |observation| {
                if let Observation::Ran(sample) = observation {
                    trial.ran(sample);
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
    /// The exit code of a program that failed; its profile is not stored.
    failed: Option<u8>,
    /// What can be promised here.
    room: Share,
}

impl Report<'_> {
    /// What the jobs of the busiest thread need, or where other threads run beside it, the most that all of
    /// them used in a period, with a margin; in hundredths of a CPU.
    fn needs(&self) -> Share {
        let program = self.found.peak.as_f64() * MARGIN;
        let busiest = self.suggestion.as_ref().filter(|_| self.found.threads == 1).map(|s| s.max_bandwidth.as_f64());
        Share::from_f64((busiest.unwrap_or(program) * 100.0).ceil().max(1.0) / 100.0)
    }

    /// The same as far as it can be promised, rounded down.
    fn max_bandwidth(&self) -> Share {
        let room = Share::from_ppm(self.room.ppm() / 10_000 * 10_000);
        self.needs().min(room.max(Share::from_ppm(10_000)))
    }

    /// Whether the profile is stored.
    fn stored(&self) -> bool {
        self.found.period.is_some() && self.failed.is_none()
    }

    /// The command line that follows from the trial, ready for a shell.
    fn command_line(&self) -> String {
        let mut line = String::from("qfabric run");
        if let Some(period) = self.found.period {
            line += &format!(" --period {}", period.exact());
        }
        if self.stored() {
            line += &format!(" --profile {}", quoted(self.name));
        }
        if let Some(Suggestion { predictor, .. }) = self.suggestion {
            line += &format!(" --predictor {predictor}");
        }
        let words: Vec<_> = self.command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
        line + &format!(" --max-bandwidth {} -- {}", self.max_bandwidth().as_f64(), words.join(" "))
    }

    fn json(&self) -> serde_json::Value {
        let Found { period, profile, threads, lasted, mean, peak } = self.found;
        json!({
            "jobs": profile.costs.len(), "period_ns": period, "mean_cost_ns": profile.mean(),
            "peak_cost_ns": profile.costs.iter().max(), "threads": threads, "lasted_ns": lasted, "mean": mean,
            "peak": peak, "profile": self.stored().then_some(self.file), "max_bandwidth": self.max_bandwidth(),
            "failed": self.failed, "predictor": self.suggestion.as_ref().map(|s| s.predictor),
            "guaranteed_class_a": self.suggestion.as_ref().and_then(|s| s.class_a.ok()),
            "guaranteed_class_b": self.suggestion.as_ref().and_then(|s| s.class_b.ok()),
            "invariance": self.suggestion.as_ref().map(|s| s.invariance),
            "suggestion": self.command_line(),
        })
    }

    fn text(&self) -> String {
        let Found { period, threads, lasted, mean, peak, .. } = self.found;
        let threads = if *threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        let mut text = format!("{threads} used {mean} on average in {lasted}, {peak} at most within a period\n");
        text += &match period {
            Some(period) => self.of_jobs(*period),
            None => "no rhythm was found; name one with --period or --fps if there is one\n".to_owned(),
        };
        if let Some(code) = self.failed {
            text += &format!(
                "no profile is stored: the program failed (exit code {code}), so it may have done other work\n"
            );
        }
        if self.needs() > self.max_bandwidth() {
            text += &format!("that is more than can be promised here ({}): it will run late at times\n", self.room);
        }
        text += &self.prospect();
        text + &format!("try: {}\n", self.command_line())
    }

    fn of_jobs(&self, period: Nanos) -> String {
        let profile = &self.found.profile;
        let longest = profile.costs.iter().max().copied().unwrap_or_default();
        let (jobs, mean) = (profile.costs.len(), profile.mean());
        let mut text = format!("{jobs} jobs every {period}: {mean} on average, {longest} at most\n");
        if self.stored() {
            text += &format!("profile: {}\n", self.file.display());
        }
        text
    }

    /// What the closed loop, replayed on these jobs, promises.
    fn prospect(&self) -> String {
        let Some(suggestion) = &self.suggestion else { return String::new() };
        let Suggestion { predictor, score, .. } = suggestion;
        let percent = |fraction: f64| format!("{:.0} %", 100.0 * fraction);
        let [reserved, used] = [score.mean_bandwidth, score.mean_demand].map(Share::from_f64);
        format!(
            "replayed under {predictor}: {} of the jobs late, {} in the target interval, {reserved} reserved for {used} used\n\
             {}\n",
            percent(score.late),
            percent(score.in_target),
            guarantees(suggestion)
        )
    }
}

/// What classes A and B would guarantee, and what class A asks for beside it.
fn guarantees(suggestion: &Suggestion) -> String {
    let Suggestion { class_a, class_b, invariance, early, .. } = suggestion;
    let part =
        |share: &Result<Share, NoGuarantee>| share.map_or_else(|why| format!("nothing ({why})"), |s| s.to_string());
    let sharp = invariance.alpha > invariance.least_alpha;
    let needs = match early.filter(|_| !sharp) {
        Some(early) => format!(" with --early {early}"),
        None if sharp => String::new(),
        None => format!(" if the predictions were sharper (α is {:.3})", invariance.alpha),
    };
    format!("class A would guarantee {}{needs}, class B {}", part(class_a), part(class_b))
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

    const ROOM: Share = Share::from_ppm(1_805_000);

    fn found(period: Option<Nanos>, jobs: usize) -> Found {
        let profile = Profile { costs: vec![Nanos::from_millis(8); jobs], hints: vec![] };
        let (mean, peak, lasted) = (Share::from_f64(0.2), Share::from_f64(0.3), Nanos::from_millis(2_000));
        Found { period, profile, threads: 2, lasted, mean, peak }
    }

    fn of<T>(found: &Found, failed: Option<u8>, ask: impl Fn(&Report) -> T) -> T {
        let suggestion = trial::suggest(&found.profile, &Contract::default()).ok();
        let command = ["./my prog", "it's"].map(OsString::from);
        let file = Path::new("/p/x.json");
        ask(&Report { found, suggestion, name: "x", file, command: &command, failed, room: ROOM })
    }

    fn report(period: Option<Nanos>, jobs: usize) -> String {
        of(&found(period, jobs), None, |report| report.text())
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
        for part in ["--predictor ", "of the jobs late", "in the target interval", "class A would guarantee"] {
            assert!(text.contains(part), "{text}\nlacks {part}");
        }
    }

    #[test]
    fn without_a_rhythm_no_period_is_suggested() {
        let text = report(None, 0);
        assert!(text.contains("no rhythm") && text.contains("try: qfabric run --max-bandwidth 0.33 -- "), "{text}");
    }

    #[test]
    fn no_more_is_suggested_than_can_be_promised() {
        let greedy = Found { threads: 4, peak: Share::from_f64(1.999), ..found(None, 0) };
        let text = of(&greedy, None, |report| report.text());
        assert!(text.contains("--max-bandwidth 1.8 --") && text.contains("more than can be promised here (1.805 CPU)"));
        assert!(!report(None, 0).contains("more than can be promised"));
    }

    #[test]
    fn of_a_program_that_failed_no_profile_is_named() {
        let (text, json) = of(&found(Some(Nanos::from_millis(40)), 50), Some(3), |r| (r.text(), r.json()));
        assert!(text.contains("no profile is stored") && text.contains("exit code 3"), "{text}");
        assert!(!text.contains("--profile") && !text.contains("/p/x.json"), "{text}");
        assert!(json["profile"].is_null() && json["failed"] == 3, "{json}");
    }
}
