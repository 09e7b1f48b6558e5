//! The account of energy: joules of devices and applications, by meters and by a power model.
//!
//! | file | contents |
//! |---|---|
//! | `account.rs` | the arithmetic |
//! | `config.rs` | the section `[energy]` |
//! | `look.rs` | reads everything that the arithmetic needs |
//! | `saving.rs` | the clock of applications that save energy |
//!
//! A thread looks every [`EnergyConfig::period`], and each request looks again. `docs/design/0049-meters-and-knobs.md`
//! gives the reasons.

mod account;
mod config;
mod look;
mod saving;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use qfabric_linux::clock;
use qfabric_linux::cpus::CpuList;
use qfabric_linux::power::Meters;
use qfabric_sync::{Lock, rank};
use qfabric_types::api::energy::{EnergySaving, EnergyStatus};
use qfabric_types::api::{Application, Problem};
use qfabric_types::{AppId, Nanos};

pub(crate) use account::joules;
pub use config::{EnergyConfig, read_model};

use crate::config::InvalidConfig;
use crate::control::Requests;
use crate::ending::Ending;
use crate::problem;
use crate::startup::DaemonError;
use account::Account;
use saving::Saving;

/// The account of this host.
pub(crate) struct EnergyAccount {
    sys: PathBuf,
    state: Lock<State, { rank::ENERGY_ACCOUNT }>,
}

struct State {
    meters: Meters,
    account: Account,
    saving: Saving,
    looks: u64,
    cost: Nanos,
}

impl EnergyAccount {
    /// The journal of knobs is below `directory`.
    pub(crate) fn new(config: &EnergyConfig, directory: &Path) -> Result<Arc<EnergyAccount>, InvalidConfig> {
        let model = config.read_model()?;
        let saving = Saving::new(config, model.cpu.clone(), CpuList::online().len(), directory);
        let account = Account::new(model);
        let meters = Meters::find(&config.sys);
        let state = State { meters, account, saving, looks: 0, cost: Nanos::ZERO };
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
            state.saving.follow(applications);
            state.looks += 1;
            state.cost += clock::thread_cpu().saturating_sub(begin);
        });
    }

    /// From now on the application saves energy, until it leaves. `applications`: all of the host.
    ///
    /// # Errors
    /// The application is not among them.
    pub(crate) fn save(&self, app: AppId, applications: &[Application]) -> Result<EnergySaving, Problem> {
        let saver = applications.iter().find(|one| one.id == app).ok_or_else(|| problem::not_found(app))?;
        Ok(self.state.with(|state| state.saving.begin(saver, applications)))
    }

    /// Adds the state of saving.
    pub(crate) fn complete<'a>(&self, applications: impl IntoIterator<Item = &'a mut Application>) {
        self.state.with(|state| applications.into_iter().for_each(|app| app.energy = state.saving.of(app.id)));
    }

    /// Puts all knobs back.
    pub(crate) fn put_back(&self) {
        self.state.with(|state| state.saving.put_back());
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
    ) -> Result<EnergyThread, DaemonError> {
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
        let failed = |error| DaemonError::Engine(format!("cannot start the thread qf-energy: {error}"));
        let thread = ending.spawn("qf-energy", look).map_err(failed)?;
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

#[cfg(test)]
mod tests {
    use qfabric_linux::testing::power::PowerTree;
    use qfabric_types::EnergySource;

    use super::*;
    use crate::metrics::tests::application;

    /// The account of a host with the meters of `tree`.
    fn account(tree: &PowerTree) -> Arc<EnergyAccount> {
        let (sys, root) = (tree.root().to_owned(), tree.root().to_owned());
        EnergyAccount::new(&EnergyConfig { sys, root, ..EnergyConfig::default() }, tree.root()).unwrap()
    }

    /// This process as an application.
    fn own() -> Application {
        Application { pid: std::process::id() as i32, ..application(1) }
    }

    fn burn() {
        let begin = clock::thread_cpu();
        while clock::thread_cpu().saturating_sub(begin) < Nanos::from_millis(20) {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_real_program_gets_its_part_of_a_counter_and_an_amount_by_the_model() {
        let folder = tempfile::tempdir().unwrap();
        let tree = PowerTree::new(folder.path());
        tree.zone("intel-rapl:0", "package-0", 0, Some(1 << 32));
        let account = account(&tree);
        account.look(&[own()]);
        burn();
        tree.zone("intel-rapl:0", "package-0", 1_000_000, Some(1 << 32));
        account.look(&[own()]);
        let status = account.status();
        let app = &status.applications[0];
        assert!(app.cpu_time >= Nanos::from_millis(20), "{}", app.cpu_time);
        let [rapl, model] = app.energy[..] else { panic!("{:?}", app.energy) };
        assert_eq!((rapl.source(), model.source()), (EnergySource::Rapl, EnergySource::Model));
        assert!(joules(rapl) > 0.0 && joules(rapl) <= 1.0 + 1e-9 && joules(model) > 0.0, "{:?}", app.energy);
        assert_eq!((joules(status.devices[0].energy), status.looks), (1.0, 3));
    }

    #[test]
    fn a_file_as_a_model_is_read_and_a_wrong_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("board.toml");
        let text = "name = \"board\"\nabout = \"b\"\ncpu_of = \"rk3399\"\nradio_of = \"wifi-generic-11n\"\n";
        std::fs::write(&path, text).unwrap();
        let name = path.to_str().unwrap();
        assert_eq!(read_model(name).unwrap().name, "board");
        std::fs::write(&path, "name = 3").unwrap();
        assert!(read_model(name).unwrap_err().contains("board.toml"));
        assert!(read_model(folder.path().to_str().unwrap()).unwrap_err().contains("cannot read model"));
        assert!(read_model("/dev/zero").unwrap_err().contains("longer than"));
    }
}
