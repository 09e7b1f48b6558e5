//! The account of energy: joules of devices and applications, by meters and by a power model.
//!
//! | file | contents |
//! |---|---|
//! | `account.rs` | the arithmetic |
//! | `config.rs` | the section `[energy]` |
//! | `look.rs` | reads everything that the arithmetic needs |
//! | `saving.rs` | the clock of applications that save energy, also at checkpoints of their jobs |
//! | `public.rs` | the amounts for users who are no administrators |
//!
//! A thread looks every [`EnergyConfig::period`]. A request of an administrator looks again; every other request gets
//! the coarse amounts of the thread's last look. `docs/design/0049-meters-and-knobs.md` gives the reasons.

mod account;
mod config;
mod look;
mod public;
mod saving;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use qfabric_linux::clock;
use qfabric_linux::cpus::CpuList;
use qfabric_linux::ext::SchedulerClock;
use qfabric_linux::power::{MeanClock, Meters};
use qfabric_sync::{Lock, rank};
use qfabric_types::api::energy::{EnergySaving, EnergyStatus};
use qfabric_types::api::{Application, Problem};
use qfabric_types::ring::Checkpoint;
use qfabric_types::{AppId, Instant, Nanos};

pub(crate) use account::joules;
pub use config::{EnergyConfig, read_model};
pub use saving::pin_clock;

use crate::config::InvalidConfig;
use crate::control::Requests;
use crate::ending::{Ending, Running};
use crate::problem;
use crate::startup::DaemonError;
use account::Account;
use saving::Saving;

/// While an application saves energy, grants are compared with the clock this often: controllers raise grants between
/// looks, and no request tells so.
const GRANTS_EVERY: Nanos = Nanos::from_millis(500);

/// Messages that may wait for the thread. A checkpoint that finds no room is lost: its job is as late as without it.
const WAITING: usize = 64;

/// How often the thread searches for meters that appeared, such as a battery that was put in.
const RESCAN: Nanos = Nanos::from_millis(60_000);

/// The account of this host.
pub(crate) struct EnergyAccount {
    sys: PathBuf,
    state: Lock<State, { rank::ENERGY_ACCOUNT }>,
}

struct State {
    meters: Meters,
    rescan_at: Instant,
    mean_clock: MeanClock,
    account: Account,
    saving: Saving,
    looks: u64,
    cost: Nanos,
    /// For users who are no administrators; changes at the looks of the thread only.
    public: EnergyStatus,
    /// Wakes the thread.
    thread: Option<SyncSender<Message>>,
}

/// To the thread of the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// An application saves energy: grants are to be watched from now on.
    Watch,
    /// A job of the application is at a checkpoint.
    Checkpoint(AppId, Checkpoint),
    End,
}

/// The way of checkpoints from the control thread to the thread of the account, which writes the clocks.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoints {
    thread: SyncSender<Message>,
    /// Whether the clocks are limited.
    limited: Arc<AtomicBool>,
}

impl Checkpoints {
    /// A job of the application is at a checkpoint. Returns whether its clock may change. Never blocks.
    pub(crate) fn tell(&self, app: AppId, checkpoint: Checkpoint) -> bool {
        // With a full queue, or a thread that ends, the clock stays.
        let is_told = self.thread.try_send(Message::Checkpoint(app, checkpoint)).is_ok();
        is_told && self.limited.load(Ordering::Relaxed)
    }
}

impl State {
    fn look(&mut self, sys: &Path, applications: &[Application]) {
        let begin = clock::thread_cpu();
        let now = clock::now();
        let (meters, mean_clock) = (&mut self.meters, &mut self.mean_clock);
        let look = look::look(sys, now, self.account.looked(), meters, mean_clock, applications);
        self.account.add(&look);
        self.looks += 1;
        self.cost += clock::thread_cpu().saturating_sub(begin);
    }

    fn status(&self) -> EnergyStatus {
        status_of(&self.account, self.looks, self.cost)
    }
}

fn status_of(account: &Account, looks: u64, looks_cpu: Nanos) -> EnergyStatus {
    EnergyStatus {
        model: account.model(),
        over: account.over(),
        clock_part: account.clock_part(),
        devices: account.devices(),
        applications: account.applications(),
        ended: account.ended(),
        looks,
        looks_cpu,
    }
}

impl EnergyAccount {
    /// The journal of knobs is below `directory`.
    pub(crate) fn new(config: &EnergyConfig, directory: &Path) -> Result<Arc<EnergyAccount>, InvalidConfig> {
        let model = config.read_model()?;
        let saving = Saving::new(config, model.cpu.clone(), CpuList::online().len(), directory);
        let account = Account::new(model);
        let meters = Meters::find(&config.sys);
        let (looks, cost, mean_clock) = (0, Nanos::ZERO, MeanClock::default());
        let public = status_of(&account, looks, cost);
        let rescan_at = clock::now() + RESCAN;
        let state = State { meters, rescan_at, mean_clock, account, saving, looks, cost, public, thread: None };
        let account = EnergyAccount { sys: config.sys.clone(), state: state.into() };
        // The first look only sets the baseline.
        account.look(&[]);
        Ok(Arc::new(account))
    }

    /// From now on the scheduler with this memory asks for the clocks that follow it.
    pub(crate) fn ask_scheduler(&self, memory: &OwnedFd) {
        match SchedulerClock::map(memory) {
            Ok(clock) => self.state.with(|state| state.saving.ask_scheduler(clock)),
            Err(error) => tracing::warn!(%error, "the scheduler asks for no clock, and clocks are limited instead"),
        }
    }

    /// The look of the thread: counts, chooses the clock of applications that save, and shows the coarse amounts.
    pub(crate) fn look(&self, applications: &[Application]) {
        self.state.with(|state| {
            let begin = clock::thread_cpu();
            if clock::now() >= state.rescan_at {
                state.meters.rescan(&self.sys);
                state.rescan_at = clock::now() + RESCAN;
            }
            state.cost += clock::thread_cpu().saturating_sub(begin);
            state.look(&self.sys, applications);
            let begin = clock::thread_cpu();
            state.saving.look(applications);
            state.cost += clock::thread_cpu().saturating_sub(begin);
            state.public = public::coarse(state.status());
        });
    }

    /// Looks now, for an administrator. The sample of late jobs is not cut short.
    pub(crate) fn fresh(&self, applications: &[Application]) -> EnergyStatus {
        self.state.with(|state| {
            state.look(&self.sys, applications);
            state.status()
        })
    }

    /// The account at the last look of the thread, for everybody: with coarse amounts, and without a reading.
    pub(crate) fn public(&self) -> EnergyStatus {
        self.state.with(|state| state.public.clone())
    }

    /// From now on the application saves energy, until it leaves. `applications`: all of the host.
    ///
    /// # Errors
    /// The application is not among them.
    pub(crate) fn save(&self, app: AppId, applications: &[Application]) -> Result<EnergySaving, Problem> {
        let saver = applications.iter().find(|one| one.id == app).ok_or_else(|| problem::not_found(app))?;
        Ok(self.state.with(|state| {
            // A full queue has a message that wakes the thread.
            let _ = state.thread.as_ref().map(|thread| thread.try_send(Message::Watch));
            state.saving.begin(saver, applications)
        }))
    }

    /// Adds the state of saving.
    pub(crate) fn complete<'a>(&self, applications: impl IntoIterator<Item = &'a mut Application>) {
        self.state.with(|state| applications.into_iter().for_each(|app| app.energy = state.saving.of(app.id)));
    }

    /// Puts all knobs back at the end of the service.
    pub(crate) fn put_back(&self) {
        self.state.with(|state| state.saving.end());
    }

    /// Whether an application saves energy, so that changes of reservations matter.
    pub(crate) fn is_saving(&self) -> bool {
        self.state.with(|state| state.saving.is_on())
    }

    /// Reservations came, went or changed: chooses the clock again. `applications`: all of the host.
    pub(crate) fn follow(&self, applications: &[Application]) {
        self.state.with(|state| state.saving.follow(applications));
    }

    /// The way of checkpoints to the thread; `None` before it has started.
    pub(crate) fn checkpoints(&self) -> Option<Checkpoints> {
        self.state.with(|state| {
            let (thread, limited) = (state.thread.clone()?, state.saving.limited());
            Some(Checkpoints { thread, limited })
        })
    }

    /// A job of the application is at a checkpoint: chooses the clock until its end, at most until its deadline.
    fn checkpoint(&self, app: AppId, checkpoint: Checkpoint) {
        self.state.with(|state| state.saving.checkpoint(app, checkpoint, clock::now()));
    }

    /// Ends what checkpoints asked for, if it is over. Returns when that is due next.
    fn end_raises(&self) -> Option<Instant> {
        self.state.with(|state| state.saving.end_raises(clock::now()))
    }

    /// As [`EnergyAccount::follow`], but only if the clock is lower than the reservations need.
    fn raise(&self, applications: &[Application]) {
        self.state.with(|state| state.saving.raise(applications));
    }
}

/// Starts the thread that looks in each period.
pub(crate) fn start_thread(
    account: Arc<EnergyAccount>,
    requests: Requests,
    period: Nanos,
    ending: &Ending,
) -> Result<Running, DaemonError> {
    let (messages, received) = sync_channel(WAITING);
    account.state.with(|state| state.thread = Some(messages.clone()));
    let look = move || run(&account, &requests, period, &received);
    // Fails if the thread has ended.
    let ask = move || _ = messages.send(Message::End);
    let failed = |error| DaemonError::Engine(format!("cannot start the thread qf-energy: {error}"));
    ending.run("qf-energy", look, ask).map_err(failed)
}

/// The thread: looks in each period, watches grants while an application saves energy, and follows checkpoints at once.
fn run(account: &EnergyAccount, requests: &Requests, period: Nanos, received: &Receiver<Message>) {
    let (mut look_at, mut grants_at) = (clock::now() + period, clock::now() + GRANTS_EVERY);
    loop {
        let raises_end = account.end_raises();
        let grants = account.is_saving().then_some(grants_at);
        let due = [grants, raises_end].into_iter().flatten().fold(look_at, Instant::min);
        match received.recv_timeout(Duration::from_nanos(due.since(clock::now()).get())) {
            Ok(Message::Checkpoint(app, checkpoint)) => account.checkpoint(app, checkpoint),
            Ok(Message::Watch) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => return,
        }
        // Also after a message: an application that sends many must not keep the thread from its looks.
        let now = clock::now();
        let is_due = now >= look_at;
        if !is_due && grants.is_none_or(|at| now < at) {
            continue;
        }
        // With a full queue, the next look counts this period, too.
        match requests.applications() {
            Some(applications) if is_due => account.look(&applications),
            Some(applications) => account.raise(&applications),
            None => {}
        }
        grants_at = clock::now() + GRANTS_EVERY;
        if is_due {
            look_at = clock::now() + period;
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
        let status = account.fresh(&[own()]);
        let app = &status.applications[0];
        assert!(app.cpu_time >= Nanos::from_millis(20), "{}", app.cpu_time);
        let [rapl, model] = app.energy[..] else { panic!("{:?}", app.energy) };
        assert_eq!((rapl.source(), model.source()), (EnergySource::Rapl, EnergySource::Model));
        assert!(joules(rapl) > 0.0 && joules(rapl) <= 1.0 + 1e-9 && joules(model) > 0.0, "{:?}", app.energy);
        assert_eq!((joules(status.devices[0].energy), status.looks), (1.0, 4));
    }

    #[test]
    fn a_user_gets_whole_joules_of_the_last_look_and_causes_no_reading() {
        let folder = tempfile::tempdir().unwrap();
        let tree = PowerTree::new(folder.path());
        let package = |uj| tree.zone("intel-rapl:0", "package-0", uj, Some(1 << 40));
        package(0);
        let account = account(&tree);
        package(7_900_000);
        account.look(&[own()]);
        package(9_100_000);
        // An administrator's reading is not a user's.
        assert_eq!(joules(account.fresh(&[own()]).devices[0].energy), 9.1);
        let before = account.public();
        assert_eq!((joules(before.devices[0].energy), before.devices[0].power_w.unwrap().fract()), (7.0, 0.0));
        let rapl = before.applications[0].energy.iter().filter(|energy| energy.source() == EnergySource::Rapl);
        assert!(rapl.map(|energy| joules(*energy).fract()).all(|fraction| fraction == 0.0), "{before:?}");
        package(20_000_000);
        assert_eq!((account.public(), before.looks), (before, 2), "the meter was not read");
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
