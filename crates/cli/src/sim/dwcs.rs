//! `qfabric sim dwcs`: simulates tasks with windows on one processor, tick by tick.

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use comfy_table::{CellAlignment, Table};
use qfabric_sim::dwcs::{
    self, Guarantee, MAX_DRAWN, MAX_TICKS, Network, Options, Output, Policy, RaisedEvent, Shared, TaskSet, Tick,
    Utilization, Wording,
};
use qfabric_types::Share;

use crate::exit::{Done, Failure, Outcome};
use crate::output;

const EXAMPLE: &str = "\
Examples:
  qfabric sim dwcs --tasks tasks.json --ticks 1000
  qfabric sim dwcs --tasks tasks.json --events ev.json --task-server --ticks 20 --json
  qfabric sim dwcs --tasks tasks.json --ticks 60 --svg timeline.svg --perfetto trace.json
  qfabric sim dwcs --tasks tasks.json --policy edf --ticks 1000 --no-best-effort

tasks.json   [{\"id\":\"T1\",\"period\":4,\"service\":1,\"window\":[1,2]}]
             A task needs `service` ticks in every `period` and may miss 1 of any 2 periods.
             Optional: arrival (begin of its first period, default 0); work_conserving (also
             uses free ticks within its period, default false); network_probability (0 to 100 %,
             for --network).
events.json  [{\"at\":2.5,\"sink\":\"T1\",\"deadline\":null}]
             An event favours its sink once, by rules 1 to 5. It is dropped after its deadline.

If all rules tie, the task that arrived first comes first, then the task with the lower id.";

/// Simulates window-constrained scheduling (DWCS) of periodic tasks with events, or a rival policy.
///
/// Time is counted in ticks. Prints a warning if windows will be violated. With --admit, such tasks are refused with
/// exit code 3. Ends with 2 if a file or an option is invalid.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    /// File with the tasks as JSON, at most 64 MiB; - is the standard input
    #[arg(long, value_name = "FILE")]
    tasks: PathBuf,
    /// Number of ticks to simulate, 1 to 10000000
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    ticks: u64,
    /// File with events that favour their sinks, as JSON
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Scheduling policy: dwcs (earliest deadline, then window), edf (earliest deadline) or rm (shortest period)
    #[arg(long, value_name = "POLICY", value_enum, default_value_t = PolicyName::Dwcs)]
    policy: PolicyName,
    /// Add a task server: it keeps the time that the windows leave free for the sinks of events (rule 5)
    #[arg(long)]
    task_server: bool,
    /// Refuse tasks whose windows cannot be guaranteed, with exit code 3
    #[arg(long)]
    admit: bool,
    /// Part of one processor that --admit and --task-server can use, from 0.000001 to 1
    #[arg(long, value_name = "CPUS", default_value_t = 1.0, allow_negative_numbers = true)]
    capacity: f64,
    /// State of the network queue; orders tasks of equal deadlines by network_probability first (Table 5)
    ///
    /// empty: the lowest probability comes first. waiting: the highest probability comes first.
    #[arg(long, value_name = "QUEUE", value_enum)]
    network: Option<QueueName>,
    /// Leave ticks without a task unused: the timeline shows idle instead of BE (best effort)
    #[arg(long)]
    no_best_effort: bool,
    /// Draw the timeline into this SVG file; at most 2000 ticks
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write a trace for ui.perfetto.dev into this file; a tick is shown as a millisecond
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Print timeline, tasks and events as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PolicyName {
    Dwcs,
    Edf,
    Rm,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum QueueName {
    Empty,
    Waiting,
}

pub(super) fn run(args: &Args) -> Outcome {
    let options = args.options()?;
    args.check_files()?;
    let set = read(&args.tasks, dwcs::tasks)?;
    check_length(&set, args.ticks)?;
    let events = args.events.as_deref().map(|path| read(path, |text| dwcs::events(text, &set))).transpose()?;
    let events = events.unwrap_or_default();
    let promise = promise(args, &set, &options)?;
    let output = dwcs::run(&set, &events, &options);
    draw(args, &set, &events, &output)?;
    if args.json {
        output::print(&json(args, &set, &events, &output)?)?;
    } else {
        output::print(&report(args, &set, &events, &output, &promise))?;
    }
    Ok(Done(0))
}

impl Args {
    fn options(&self) -> Result<Options, Failure> {
        let refused = |text: String| Err(Failure::usage(text));
        if !(1..=MAX_TICKS).contains(&self.ticks) {
            return refused(format!("--ticks {} is not between 1 and {MAX_TICKS}; simulate a part of it", self.ticks));
        }
        if self.svg.is_some() && self.ticks > MAX_DRAWN {
            return refused(format!(
                "--svg draws at most {MAX_DRAWN} ticks, --ticks is {}; use fewer ticks, or --perfetto",
                self.ticks
            ));
        }
        let ppm = (self.capacity * 1e6).round();
        if !(1.0..=1e6).contains(&ppm) {
            return refused(format!("--capacity {} is not a part of one processor; give 0.000001 to 1", self.capacity));
        }
        Ok(Options {
            ticks: self.ticks,
            policy: self.policy.into(),
            task_server: self.task_server,
            capacity: Share::from_ppm(ppm as u32),
            network: self.network.map_or(Network::Unknown, QueueName::into),
        })
    }

    /// Fails if an output file cannot be written; called before the simulation.
    fn check_files(&self) -> Result<(), Failure> {
        self.svg.iter().chain(&self.perfetto).try_for_each(|path| output::check_writable(path))
    }

    /// Name of a tick in which no task runs.
    fn free(&self) -> &'static str {
        if self.no_best_effort { "idle" } else { "BE" }
    }
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Policy {
        match name {
            PolicyName::Dwcs => Policy::Dwcs,
            PolicyName::Edf => Policy::Edf,
            PolicyName::Rm => Policy::Rm,
        }
    }
}

impl From<QueueName> for Network {
    fn from(name: QueueName) -> Network {
        match name {
            QueueName::Empty => Network::Idle,
            QueueName::Waiting => Network::Busy,
        }
    }
}

fn read<T>(path: &Path, parse: impl FnOnce(&str) -> Result<T, dwcs::Refused>) -> Result<T, Failure> {
    let text = super::read(path)?;
    parse(&text).map_err(|error| Failure::usage(error).context(path.display()))
}

/// Refuses simulations that would take more than about a minute: each end of a period costs a step, also if many
/// periods end in one tick.
fn check_length(set: &TaskSet, ticks: u64) -> Result<(), Failure> {
    const MOST: u64 = 1_000_000_000;
    let ends: u64 = set.tasks().iter().map(|task| ticks / task.period()).sum();
    if ends > MOST {
        return Err(Failure::usage(format!(
            "{ends} periods end within {ticks} ticks, at most {MOST} are simulated; use fewer ticks or fewer tasks"
        )));
    }
    Ok(())
}

/// The guarantee for the windows. Without `--admit`, an overloaded task set is simulated with a warning.
fn promise(args: &Args, set: &TaskSet, options: &Options) -> Result<String, Failure> {
    let admit = if args.task_server { dwcs::admit_with_task_server } else { dwcs::admit };
    let utilization = Utilization::of_windows(set.tasks());
    match admit(set.tasks(), options.capacity) {
        Ok(guarantee) => Ok(promised(guarantee)),
        Err(refusal) if args.admit => Err(Failure::problem(&refusal.problem(&Wording {
            task: &|task| set.id(task.0).to_owned(),
            time: &|tick| tick.to_string(),
            shared: Shared::Cpu,
        }))),
        Err(_) if utilization.exceeds(options.capacity) => {
            let u = utilization.as_f64();
            let capacity = options.capacity;
            output::note(format_args!(
                "qfabric: warning: U = {u:.4} CPU is above {capacity}: windows will be violated (--admit refuses)"
            ));
            Ok("no guarantee: overloaded".into())
        }
        Err(refusal) => Ok(format!("no guarantee: {}", refusal.reason(|task| set.id(task.0).to_owned()))),
    }
}

fn promised(guarantee: Guarantee) -> String {
    match guarantee {
        Guarantee::EveryPeriod { .. } => "guaranteed: under dwcs every period is served".into(),
        Guarantee::Uniform { .. } => "guaranteed: under dwcs no window is violated (equal services and periods)".into(),
        Guarantee::Simulated { cycle, .. } => {
            format!("guaranteed: under dwcs no window is violated (the schedule repeats every {cycle} ticks)")
        }
    }
}

fn draw(args: &Args, set: &TaskSet, events: &[RaisedEvent], output: &Output) -> Result<(), Failure> {
    let cannot = |path: &Path, error| Failure::fault(format!("cannot write {}: {error}", path.display()));
    if let Some(path) = &args.svg {
        fs::write(path, dwcs::svg(set, events, output, args.free())).map_err(|error| cannot(path, error))?;
    }
    if let Some(path) = &args.perfetto {
        let trace = dwcs::perfetto(set, events, output, args.free()).to_string();
        fs::write(path, trace).map_err(|error| cannot(path, error))?;
    }
    Ok(())
}

/// JSON with one line for each part, so that line tools can read a timeline of a million ticks.
fn json(args: &Args, set: &TaskSet, events: &[RaisedEvent], output: &Output) -> Result<String, Failure> {
    let quoted = |text: &str| serde_json::to_string(text).map_err(Failure::fault);
    let ids = (0..set.len()).map(|task| quoted(set.id(task))).collect::<Result<Vec<_>, _>>()?;
    let free = quoted(args.free())?;
    let tick = |tick: &Tick| match tick {
        Tick::Regular(task) | Tick::Extra(task) => format!("[{}]", ids[*task as usize]),
        Tick::Free => format!("[{free}]"),
    };
    let task = |&task: &usize| {
        let counts = output.tasks[task];
        let (served, missed, violations) = (counts.served, counts.missed, counts.violations);
        format!("{}:{{\"served\":{served},\"missed\":{missed},\"violations\":{violations}}}", ids[task])
    };
    let event = |(event, dispatch): (&RaisedEvent, &Option<dwcs::Dispatch>)| {
        let (at, sink) = (&event.written_at, &ids[event.sink.0]);
        let tick = dispatch.map_or("null".into(), |dispatch| dispatch.tick.to_string());
        format!("{{\"at\":{at},\"sink\":{sink},\"dispatched_at\":{tick}}}")
    };
    let timeline = joined(output.timeline.iter().map(tick), ",");
    let tasks = joined(set.in_file().iter().map(task), ",\n");
    let events = joined(events.iter().zip(&output.events).map(event), ",\n");
    Ok(format!("{{\"timeline\":[{timeline}],\n\"tasks\":{{{tasks}}},\n\"events\":[{events}]}}\n"))
}

fn joined(parts: impl Iterator<Item = String>, between: &str) -> String {
    let mut text = String::new();
    for part in parts {
        if !text.is_empty() {
            text.push_str(between);
        }
        text.push_str(&part);
    }
    text
}

fn report(args: &Args, set: &TaskSet, events: &[RaisedEvent], output: &Output, promise: &str) -> String {
    let utilization = Utilization::of_windows(set.tasks()).as_f64();
    let services = Utilization::of_services(set.tasks()).as_f64();
    let policy = args.policy.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let free = output.timeline.iter().filter(|tick| matches!(tick, Tick::Free)).count();
    let mut text = format!(
        "{} ticks under {policy}; U = Σ(1 − x/y)·C/T = {utilization:.4} CPU, ΣC/T = {services:.4} CPU\n{promise}\n\n{}\n",
        args.ticks,
        table(set, output)
    );
    text += &format!("{}: {free} ticks ({:.1} %)\n", args.free(), 100.0 * free as f64 / args.ticks as f64);
    text + &event_lines(set, events, output)
}

fn table(set: &TaskSet, output: &Output) -> Table {
    let mut table = output::new_table([
        "TASK",
        "PERIOD",
        "SERVICE",
        "WINDOW",
        "SERVED",
        "MISSED",
        "VIOLATIONS",
        "TICKS",
        "EXTRA",
        "EVENTS",
    ]);
    for &task in set.in_file() {
        let (asked, got) = (&set.tasks()[task], output.tasks[task]);
        let (x, y) = asked.window();
        let numbers = [asked.period(), asked.service()].map(|n| n.to_string());
        let counts = [got.served, got.missed, got.violations, got.regular, got.extra, got.events.iter().sum()];
        let row = [set.id(task).to_owned()].into_iter().chain(numbers).chain([format!("{x}/{y}")]);
        table.add_row(row.chain(counts.map(|n| n.to_string())));
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// The first 20 events, one in each line.
fn event_lines(set: &TaskSet, events: &[RaisedEvent], output: &Output) -> String {
    const SHOWN: usize = 20;
    let mut text = String::new();
    for (event, dispatch) in events.iter().zip(&output.events).take(SHOWN) {
        let (at, sink) = (&event.written_at, set.id(event.sink.0));
        text += &match dispatch {
            Some(it) => format!("event at {at} for {sink}: tick {} by rule {}\n", it.tick, it.rule.number()),
            None => format!("event at {at} for {sink}: not delivered\n"),
        };
    }
    if events.len() > SHOWN {
        text += &format!("and {} more events (--json prints all)\n", events.len() - SHOWN);
    }
    if output.expired > 0 {
        text += &format!("{} events dropped after their deadline\n", output.expired);
    }
    text
}
