//! `qfabric probe`: runs a program once without a reservation and suggests a contract for it (trial execution).

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
use crate::exit::{Advice, Done, Failure, Outcome};
use crate::output;
use crate::profiles::Place;
use crate::program::{Running, Waiting};
use crate::run::name_of;
use crate::trial::{Findings, Trial};

/// Time between two fetches of observations; the kernel stores some thousand of them in between.
const FETCH_MS: u32 = 20;
/// The suggested bandwidth is this factor above the largest bandwidth that was observed.
const MARGIN: f64 = 1.1;

/// Measures a program without a reservation and suggests the options for `qfabric run`.
///
/// Use an otherwise quiet machine. Stores the costs of the jobs as a profile, from which `qfabric run --profile`
/// starts. Stores no profile if the program fails or has no period. Ctrl-C ends the program and the trial; the profile
/// is stored then. Ends with the exit code of the program.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric probe --period 40ms -- ./prog")]
pub(crate) struct Args {
    #[command(flatten)]
    rhythm: Rhythm,
    /// Store the profile under this name, and parameters on which the computation times depend: NAME,size=640x480,fps=25.
    /// The processor and the kernel belong to its key, too. A name that contains / or ends in .json is a file [default: the
    /// name of the program's file]
    #[arg(long)]
    name: Option<String>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Program to run, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let name = args.name.clone().unwrap_or_else(|| name_of(&args.command).replace(',', "_"));
    let place = Place::of(&name)?;
    if let Some(period) = args.rhythm.period() {
        Contract::new("probe", period).check().map_err(|error| Failure::usage(Advice(&error.problem())))?;
    }
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
        place.store(&found.profile)?;
    }
    let contract = Contract::new("probe", found.period.unwrap_or(Nanos::from_millis(40)));
    let suggestion = trial::suggest(&found.profile, &contract).ok();
    let file = place.file();
    let (name, file, command, room) = (&*name, &*file, &*args.command, room());
    let report = Report { found: &found, suggestion, name, file, command, failed, room };
    if args.json {
        output::print_json(&report.json())?
    } else {
        output::print(&report.text())?
    }
    Ok(done)
}

/// Bandwidth that one program can be promised on this host: the capacity of the daemon; without a daemon, the bandwidth
/// that the kernel admits now; if the kernel cannot be probed, 95 % of all CPUs, its default limit for real-time
/// threads.
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

struct Report<'a> {
    found: &'a Findings,
    /// None: the trial was too short.
    suggestion: Option<Suggestion>,
    name: &'a str,
    file: &'a Path,
    command: &'a [OsString],
    /// The exit code of a program that failed; its profile is not stored.
    failed: Option<u8>,
    /// Bandwidth that can be promised on this host; see [`room`].
    room: Share,
}

impl Report<'_> {
    /// Bandwidth that the program needs, rounded up to hundredths of a CPU. For one thread, the suggestion for its
    /// jobs. For several threads, the largest bandwidth of all threads together in one period, times [`MARGIN`].
    fn needs(&self) -> Share {
        let program = self.found.peak.as_f64() * MARGIN;
        let busiest = self.suggestion.as_ref().filter(|_| self.found.threads == 1).map(|s| s.max_bandwidth.as_f64());
        Share::from_f64((busiest.unwrap_or(program) * 100.0).ceil().max(1.0) / 100.0)
    }

    /// The needed bandwidth, limited to the bandwidth that can be promised, which is rounded down to hundredths.
    fn max_bandwidth(&self) -> Share {
        let room = Share::from_ppm(self.room.ppm() / 10_000 * 10_000);
        self.needs().min(room.max(Share::from_ppm(10_000)))
    }

    fn stored(&self) -> bool {
        self.found.period.is_some() && self.failed.is_none()
    }

    /// The suggested command line, quoted for a shell.
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
        let Findings { period, profile, threads, lasted, mean, peak } = self.found;
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
        let Findings { period, threads, lasted, mean, peak, .. } = self.found;
        let threads = if *threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        let mut text = format!("{threads} used {mean} on average in {lasted}, {peak} at most within a period\n");
        text += &match period {
            Some(period) => self.of_jobs(*period),
            None => "no period was found; if the program has one, set it with --period or --fps\n".to_owned(),
        };
        if let Some(code) = self.failed {
            text += &format!(
                "no profile is stored: the program failed (exit code {code}), so it may have done other work\n"
            );
        }
        if self.needs() > self.max_bandwidth() {
            text +=
                &format!("the program needs more than can be promised here ({}): some jobs will be late\n", self.room);
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

    /// The result of a replay of the closed loop on the jobs of the trial.
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

/// The guaranteed parts that classes A and B would need, and the further condition of class A.
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

/// Quotes a word for a shell if it contains other characters than letters, digits and harmless punctuation.
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

    fn found(period: Option<Nanos>, jobs: usize) -> Findings {
        let profile = Profile { costs: vec![Nanos::from_millis(8); jobs], hints: vec![] };
        let (mean, peak, lasted) = (Share::from_f64(0.2), Share::from_f64(0.3), Nanos::from_millis(2_000));
        Findings { period, profile, threads: 2, lasted, mean, peak }
    }

    fn of<T>(found: &Findings, failed: Option<u8>, ask: impl Fn(&Report) -> T) -> T {
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
    fn enough_jobs_give_a_predictor_and_its_expected_result() {
        let text = report(Some(Nanos::from_millis(40)), 100);
        for part in ["--predictor ", "of the jobs late", "in the target interval", "class A would guarantee"] {
            assert!(text.contains(part), "{text}\nlacks {part}");
        }
    }

    #[test]
    fn without_a_found_period_no_period_is_suggested() {
        let text = report(None, 0);
        assert!(
            text.contains("no period was found") && text.contains("try: qfabric run --max-bandwidth 0.33 -- "),
            "{text}"
        );
    }

    #[test]
    fn the_suggested_bandwidth_is_limited_to_the_promisable_bandwidth() {
        let greedy = Findings { threads: 4, peak: Share::from_f64(1.999), ..found(None, 0) };
        let text = of(&greedy, None, |report| report.text());
        assert!(text.contains("--max-bandwidth 1.8 --") && text.contains("more than can be promised here (1.805 CPU)"));
        assert!(!report(None, 0).contains("more than can be promised"));
    }

    #[test]
    fn a_failed_program_stores_no_profile_and_the_report_names_none() {
        let (text, json) = of(&found(Some(Nanos::from_millis(40)), 50), Some(3), |r| (r.text(), r.json()));
        assert!(text.contains("no profile is stored") && text.contains("exit code 3"), "{text}");
        assert!(!text.contains("--profile") && !text.contains("/p/x.json"), "{text}");
        assert!(json["profile"].is_null() && json["failed"] == 3, "{json}");
    }
}
