//! The account of energy: joules of devices and applications, by meters and by a power model.
//!
//! | file | contents |
//! |---|---|
//! | `account.rs` | the arithmetic |
//! | `config.rs` | the section `[energy]` |
//! | `look.rs` | reads everything that the arithmetic needs |
//!
//! A thread looks every [`EnergyConfig::period`], and each request looks again. `docs/design/0049-meters-and-knobs.md`
//! gives the reasons.

mod account;
mod config;
mod look;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use qfabric_linux::clock;
use qfabric_linux::power::Meters;
use qfabric_sync::{Lock, rank};
use qfabric_types::Nanos;
use qfabric_types::api::Application;
use qfabric_types::api::energy::EnergyStatus;

pub(crate) use account::joules;
pub use config::{EnergyConfig, read_model};

use crate::config::InvalidConfig;
use crate::control::Requests;
use crate::ending::Ending;
use account::Account;

/// The account of this host.
pub(crate) struct EnergyAccount {
    sys: PathBuf,
    state: Lock<State, { rank::ENERGY_ACCOUNT }>,
}

struct State {
    meters: Meters,
    account: Account,
    looks: u64,
    cost: Nanos,
}

impl EnergyAccount {
    pub(crate) fn new(config: &EnergyConfig) -> Result<Arc<EnergyAccount>, InvalidConfig> {
        let account = Account::new(config.read_model()?);
        let meters = Meters::find(&config.sys);
        let state = State { meters, account, looks: 0, cost: Nanos::ZERO };
        let account = EnergyAccount { sys: config.sys.clone(), state: state.into() };
        // The first look only sets the baseline.
        account.look(&[]);
        Ok(Arc::new(account))
    }

    /// Reads everything and adds it to the account.
    pub(crate) fn look(&self, applications: &[Application]) {
        self.state.with(|state| {
            let begin = clock::thread_cpu();
            let now = clock::now();
            let look = look::look(&self.sys, now, state.account.looked(), &mut state.meters, applications);
            state.account.add(&look);
            state.looks += 1;
            state.cost += clock::thread_cpu().saturating_sub(begin);
        });
    }

    pub(crate) fn status(&self) -> EnergyStatus {
        self.state.with(|state| EnergyStatus {
            model: state.account.model(),
            over: state.account.over(),
            clock_part: state.account.clock_part(),
            devices: state.account.devices(),
            applications: state.account.applications(),
            ended: state.account.ended(),
            looks: state.looks,
            looks_cpu: state.cost,
        })
    }
}

/// The thread that looks in each period; ends when dropped.
#[derive(Debug)]
pub(crate) struct EnergyThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl EnergyThread {
    pub(crate) fn start(
        account: Arc<EnergyAccount>,
        requests: Requests,
        period: Nanos,
        ending: &Ending,
    ) -> std::io::Result<EnergyThread> {
        let (stop, stopped) = channel::<()>();
        let look = move || {
            let time = Duration::from_nanos(period.get());
            while matches!(stopped.recv_timeout(time), Err(RecvTimeoutError::Timeout)) {
                // With a full queue, the next look counts this period, too.
                if let Some(applications) = requests.applications() {
                    account.look(&applications);
                }
            }
        };
        let thread = ending.spawn("qf-energy", look)?;
        Ok(EnergyThread { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for EnergyThread {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // The thread only reads; its result is of no interest here.
            let _ = thread.join();
        }
    }
}
