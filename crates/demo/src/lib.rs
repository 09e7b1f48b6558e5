//! Measures the main job of Q-Fabric: decoding real video at about 25 frames a second on a loaded machine, without
//! and with Q-Fabric, side by side in one run.
//!
//! There are two scenarios: one player under CPU hogs, and several players near the capacity of the host whose
//! load shifts half-way. The second scenario separates good policies from lucky ones. [`run`] makes the clips
//! (once), sets the load for the current speed of the machine, plays the policies in short interleaved rounds, and
//! returns a [`Report`] with intervals and verdicts. `docs/design/0022-demo.md` gives the reasons.
//!
//! Source: AQuoSA 2009, §6.1 and Table II.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod children;
pub mod clips;
pub mod conference;
pub mod cpu_use;
pub mod disturbance;
pub mod events;
pub mod grid;
mod holding;
pub mod live;
pub mod plan;
pub mod policy;
pub mod progress;
pub mod record;
pub mod report;
pub mod rows;
pub mod scenes;
mod stage;
pub mod stats;
mod timeline;
pub mod trial;
pub mod verdict;

use std::path::PathBuf;

pub use progress::{Progress, Silent, Terminal};
pub use qfabric_types::MechanismName;
pub use report::Report;
pub use stage::{ending_signals, run};

#[derive(Clone, Debug)]
pub struct Options {
    /// Target for the duration of the whole demo, without the making of clips.
    pub seconds: f64,
    /// The conference: each scenario has the length of the paper's runs.
    pub full: bool,
    /// The conference: number of runs of each scenario, at least 1.
    pub runs: u32,
    /// Number of hogs; `None`: six per CPU.
    pub hogs: Option<usize>,
    /// Plays only runs whose `scenario: policy` contains one of these words; empty: plays all.
    pub only: Vec<String>,
    /// Folder for report, plots and tables; created if necessary. `None`: they are not written.
    pub out: Option<PathBuf>,
    /// File for rows and verdicts as JSON. `None`: they are not written.
    pub json: Option<PathBuf>,
    /// Folder of the clips; `None`: [`clips::cache_folder`].
    pub cache: Option<PathBuf>,
    /// L: server periods in one frame period.
    pub server_periods: u64,
    /// The mechanism of Q-Fabric's players: `Deadline`, or `Ext` with soft servers. [`run`] refuses others.
    pub mechanism: MechanismName,
    /// Plays all policies instead of the most important ones.
    pub all: bool,
    /// Seed of the random order of the rounds.
    pub seed: u64,
    /// Further options for the contract of each player under Q-Fabric, in the syntax of `qfabric-player`.
    pub contract: Vec<String>,
    /// Set this flag to end the demo. `run` also sets it on SIGINT, SIGTERM and SIGHUP.
    pub stop: children::Stop,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seconds: 180.0,
            full: false,
            runs: 1,
            hogs: None,
            only: Vec::new(),
            out: None,
            json: None,
            cache: None,
            server_periods: 4,
            mechanism: MechanismName::Deadline,
            all: false,
            seed: 1,
            contract: Vec::new(),
            stop: children::Stop::default(),
        }
    }
}
