//! The main job, measured: real video decoded at about 25 frames a second on a loaded machine, without and with
//! Q-Fabric, side by side in one run.
//!
//! Two settings: one player under CPU hogs, and the one that separates the good from the lucky: players near
//! the capacity of the host whose load shifts half-way. [`run`] makes the clips (once), sets the load for the machine
//! as it is now, plays the policies in short interleaved rounds, and answers a [`Report`] with intervals and
//! verdicts. `docs/design/0022-demo.md` gives the reasons.
//! Source: AQuoSA 2009, §6.1 and Table II.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod children;
pub mod clips;
pub mod disturbance;
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
pub mod trial;
pub mod verdict;

use std::path::PathBuf;

pub use progress::{Progress, Silent, Terminal};
pub use report::Report;
pub use stage::run;

/// Options of the demo.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long the whole of it should take, the making of clips excepted.
    pub seconds: f64,
    /// Processes that burn CPU time; `None`: six per CPU.
    pub hogs: Option<usize>,
    /// Only runs whose `scenario: policy` contains one of these words; empty: all.
    pub only: Vec<String>,
    /// Where report, plots and tables go; made when it is not there. `None`: nowhere.
    pub out: Option<PathBuf>,
    /// Where rows and verdicts go as JSON. `None`: nowhere.
    pub json: Option<PathBuf>,
    /// Folder of the clips; `None`: found by [`clips::cache_folder`].
    pub cache: Option<PathBuf>,
    /// L: server periods in one frame period.
    pub server_periods: u64,
    /// All policies instead of those that matter most.
    pub all: bool,
    /// Of the order of the rounds.
    pub seed: u64,
    /// Further options for the contract of each player under Q-Fabric, as `qfabric-player` takes them.
    pub contract: Vec<String>,
    /// Raise it to end everything; `run` also raises it on SIGINT and SIGTERM.
    pub stop: children::Stop,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seconds: 180.0,
            hogs: None,
            only: Vec::new(),
            out: None,
            json: None,
            cache: None,
            server_periods: 4,
            all: false,
            seed: 1,
            contract: Vec::new(),
            stop: children::Stop::default(),
        }
    }
}
