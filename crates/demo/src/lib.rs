//! The main job, measured: real video decoded at 25 frames a second on a loaded machine, without and with
//! Q-Fabric, side by side in one run.
//!
//! Two settings: one player under CPU hogs, and the one that separates the good from the lucky: players near
//! the capacity of the host whose load shifts half-way. [`run`] makes the clips (once), measures, and
//! answers a [`Report`] that writes itself as tables, plots, JSON and one HTML page.
//! Source: AQuoSA 2009, §6.1 and Table II.
#![forbid(unsafe_code)]

pub mod children;
pub mod clips;
pub mod live;
pub mod plan;
pub mod policy;
pub mod progress;
pub mod record;
pub mod report;
pub mod rows;
pub mod scenes;
mod stage;
pub mod trial;
pub mod verdict;

use std::path::PathBuf;

pub use progress::{Progress, Silent, Terminal};
pub use report::Report;
pub use stage::run;

/// What the demo is told.
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
    /// Where the rows go as JSON. `None`: nowhere.
    pub json: Option<PathBuf>,
    /// Folder of the clips; `None`: found by [`clips::cache_folder`].
    pub cache: Option<PathBuf>,
    /// P; must divide 40 ms.
    pub server_period: qfabric_types::Nanos,
    /// Further options for the contract of each player under Q-Fabric, as `qfabric-player` takes them.
    pub contract: Vec<String>,
    /// Raise it to end everything; `run` also raises it on SIGINT and SIGTERM.
    pub stop: children::Stop,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seconds: 75.0,
            hogs: None,
            only: Vec::new(),
            out: None,
            json: None,
            cache: None,
            server_period: qfabric_types::Nanos::from_millis(10),
            contract: Vec::new(),
            stop: children::Stop::default(),
        }
    }
}
