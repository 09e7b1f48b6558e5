//! `qfabric sim conference`: a video conference on simulated hosts, under one or several adaptations.

use std::fs;
use std::path::PathBuf;

use clap::ValueEnum;
use qfabric_sim::conference::{self, Adaptation, Options, Run, Scenario};
use qfabric_sim::fabric::{Chart, svg};

use crate::exit::{Done, Failure, Outcome};
use crate::output;

const EXAMPLE: &str = "\
Examples: qfabric sim conference --scenario d --adaptation app --adaptation cpu --adaptation integrated
          qfabric sim conference --hosts 20 --scenario b --seconds 60 --json
          qfabric sim conference --scenario e --adaptation integrated --svg conference.svg

One server sends 20 pictures per second to all other hosts. Each host has one CPU. The utility is the worth of the levels, \
times the part of the wanted rate that is shown: 1 is the best. A recovery of -1 s means that nine tenths of the wanted rate \
did not come back while the disturbance lasted. Source: 000, sections 5.3 to 5.5, Figures 37 to 43.";

/// Simulates a video conference whose processors and links are disturbed, and compares adaptations.
///
/// Channels, resource managers and policies are those of the daemon. The result depends only on the options.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLE)]
pub(super) struct Args {
    /// Number of hosts, with the server's, 2 to 200; with more than 50 it takes minutes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=200))]
    hosts: u16,
    /// What disturbs the conference
    #[arg(long, value_enum, default_value = "d")]
    scenario: ScenarioName,
    /// What adapts to the disturbance; may be repeated
    #[arg(long, value_enum, default_value = "integrated")]
    adaptation: Vec<AdaptationName>,
    /// Simulated time in seconds, 20 to 3600; disturbances begin and end at parts of it
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u64).range(20..=3_600))]
    seconds: u64,
    /// Lose one event of 200, and let the last of three or more clients crash and return
    #[arg(long)]
    faults: bool,
    /// Limit the link of the first client to 14 kB/s all the time
    #[arg(long)]
    bad_link: bool,
    /// Seed of all random numbers; the same seed gives the same run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Draw the rates of the first clients under the last adaptation into this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print the rows as JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScenarioName {
    /// Nothing is disturbed
    A,
    /// Other programs use the server's processor
    B,
    /// Other programs use the clients' processors
    C,
    /// Other programs use the server's processor, later the clients'
    D,
    /// The links of the clients fall to 14 kB/s and stay there
    E,
    /// The pictures are JPEG, which the server cannot encode at the wanted rate
    F,
    /// As e, but the links recover after 60 % of the simulated time
    G,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AdaptationName {
    /// Nothing
    None,
    /// The quality of the pictures: policy `adapt`
    App,
    /// The contracts on the processors: policy `cpu`
    Cpu,
    /// Contracts and quality together: policy `integrated`
    Integrated,
    /// The paper's rival: one SCHED_RR priority per report
    Priority,
}

impl From<ScenarioName> for Scenario {
    fn from(name: ScenarioName) -> Scenario {
        match name {
            ScenarioName::A => Scenario::A,
            ScenarioName::B => Scenario::B,
            ScenarioName::C => Scenario::C,
            ScenarioName::D => Scenario::D,
            ScenarioName::E => Scenario::E,
            ScenarioName::F => Scenario::F,
            ScenarioName::G => Scenario::G,
        }
    }
}

impl From<AdaptationName> for Adaptation {
    fn from(name: AdaptationName) -> Adaptation {
        match name {
            AdaptationName::None => Adaptation::None,
            AdaptationName::App => Adaptation::App,
            AdaptationName::Cpu => Adaptation::Cpu,
            AdaptationName::Integrated => Adaptation::Integrated,
            AdaptationName::Priority => Adaptation::Priority,
        }
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    args.svg.iter().try_for_each(|path| output::check_writable(path))?;
    let runs: Vec<(Adaptation, Run)> = args
        .adaptation
        .iter()
        .map(|name| {
            let adaptation = Adaptation::from(*name);
            (adaptation, conference::run(&args.options(adaptation)))
        })
        .collect();
    if let (Some(path), Some((_, last))) = (&args.svg, runs.last()) {
        let chart = Chart { title: "Conference", across: "seconds", up: "pictures per second", curves: &last.curves };
        let failed = |error| Failure::fault(format!("cannot write {}: {error}", path.display()));
        fs::write(path, svg(&chart)).map_err(failed)?;
    }
    if args.json {
        let rows: Vec<_> = runs.iter().flat_map(|(_, run)| &run.rows).collect();
        output::print_json(&serde_json::json!({ "rows": rows }))?;
    } else {
        output::print(&table(&runs))?;
    }
    Ok(Done(0))
}

impl Args {
    fn options(&self, adaptation: Adaptation) -> Options {
        Options {
            hosts: self.hosts.into(),
            scenario: self.scenario.into(),
            adaptation,
            seconds: self.seconds,
            has_faults: self.faults,
            has_bad_link: self.bad_link,
            seed: self.seed,
        }
    }
}

/// Clients whose rows are printed; JSON has all.
const SHOWN: usize = 8;

fn table(runs: &[(Adaptation, Run)]) -> String {
    let header = ["ADAPTATION", "CLIENT", "UTILITY", "RATE", "JITTER P99", "RECOVERY", "QUALITY CHANGES"];
    let mut table = output::new_table(header.to_vec());
    for (adaptation, run) in runs {
        for row in run.rows.iter().take(SHOWN) {
            table.add_row(vec![
                format!("{adaptation:?}").to_lowercase(),
                row.client.clone(),
                format!("{:.3}", row.utility),
                format!("{:.1}/s", row.rate_mean),
                format!("{:.0} ms", row.jitter_p99_ms),
                row.recovery_s.map_or("-".to_owned(), |time| format!("{time:.1} s")),
                row.quality_changes.to_string(),
            ]);
        }
        let mean = format!("{:.3}", run.utility());
        table.add_row(vec![format!("{adaptation:?}").to_lowercase(), format!("all {}", run.rows.len()), mean]);
    }
    format!("{table}\n")
}
