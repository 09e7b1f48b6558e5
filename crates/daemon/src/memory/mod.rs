//! Memory that stays resident: promises to unmodified programs, and reserves of programs that link the library.
//!
//! | file | contents |
//! |---|---|
//! | `config.rs` | the section `[memory]` |
//! | `held.rs` | memory that is promised to joint contracts and loans |
//! | `keeper.rs` | the thread that changes control groups |
//! | `pools.rs` | reserves, segments, allocations, locked program text |
//! | `problems.rs` | refusals |
//! | `promise.rs` | the promise to an application under contract |
//! | `session.rs` | one connection to `memory.sock` |
//! | `socket.rs` | `memory.sock` |
//! | `watch.rs`, `watcher.rs` | pressure on protected programs; fetching their pages |
//!
//! All promises of the host are in one broker. Its lock is held for a moment only, so that the control thread may take
//! it; kernel calls happen in other threads.

mod config;
mod held;
mod keeper;
mod pools;
mod problems;
mod promise;
mod session;
mod socket;
mod watch;
mod watcher;

pub(crate) use config::check_reserve;
pub use config::{MemoryAmount, MemoryConfig};
pub(crate) use problems::not_for_a_thread;
pub(crate) use promise::Promise;
pub(crate) use socket::serve;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use qfabric_broker::{MemoryBroker, MemoryRequester};
use qfabric_linux::memory::{self, ProcessMemory};
use qfabric_linux::memory_groups::{MemoryGroups, MemoryLack, ReserveGroup};
use qfabric_sync::{Lock, rank};
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::memory::{HostMemory, MemoryPressure, MemoryProtection, MemoryStatus, ReserveId};
use qfabric_types::api::{Application, HostMemoryLimits, HostStatus, Problem};
use qfabric_types::{AppId, Bytes, Owner};

use crate::ending::Ending;
use held::{Drawn, HeldMemory};
use keeper::Keeper;
use pools::Reserve;
use watcher::Watcher;

/// The broker, and the promises to applications under contract.
struct Accounts {
    broker: MemoryBroker,
    programs: BTreeMap<ReserveId, Program>,
    /// Notices of pressure, since the start.
    pressure_notices: u64,
    /// Memory fetched before programs needed it, since the start.
    prefaulted: Bytes,
    /// Promises to joint contracts and loans.
    held: BTreeMap<JointId, HeldMemory>,
}

/// A promise to an application under contract.
struct Program {
    /// Set after the application was admitted.
    app: Option<AppId>,
    pid: i32,
    protection: MemoryProtection,
    missing: Option<String>,
    /// Present while the program is protected.
    group: Option<ReserveGroup>,
    /// Notices of pressure on the group.
    notices: u64,
    /// The working set of the group at the last notice.
    used_under_pressure: Bytes,
    prefaulted: Bytes,
    /// The joint contract or loan that a part of the promise returns to, if it still exists.
    drawn: Drawn,
}

type SharedAccounts = Arc<Lock<Accounts, { rank::MEMORY_ACCOUNTS }>>;

/// The memory that this host promises.
pub(crate) struct Memory {
    accounts: SharedAccounts,
    /// Absent if this host cannot protect the memory of programs.
    keeper: Option<Keeper>,
    lack: Option<MemoryLack>,
    watcher: Watcher,
    reserves: Lock<BTreeMap<ReserveId, Arc<Reserve>>, { rank::MEMORY_RESERVES }>,
    page: u64,
    /// The memory of the host.
    total: Bytes,
}

impl Memory {
    /// Nothing is promised yet; changes of control groups are recorded in `directory`.
    pub(crate) fn start(config: &MemoryConfig, directory: &Path, ending: &Ending) -> std::io::Result<Arc<Memory>> {
        let page = rustix::param::page_size() as u64;
        let total = memory::total().unwrap_or_default();
        let broker = MemoryBroker::new(config::broker_limits(&config.host_limits(), total), page);
        let accounts: SharedAccounts = Arc::new(Accounts::new(broker).into());
        let watcher = Watcher::start(accounts.clone(), ending)?;
        let (keeper, lack) = match MemoryGroups::open(directory) {
            Ok(groups) => (Some(Keeper::start(groups, accounts.clone(), watcher.clone(), ending)?), None),
            Err(lack) => (None, Some(lack)),
        };
        Ok(Arc::new(Memory { accounts, keeper, lack, watcher, reserves: BTreeMap::new().into(), page, total }))
    }

    /// Promises `bytes` to a process. `groups`: all groups of the process.
    pub(crate) fn promise(self: &Arc<Self>, whom: PromiseTarget<'_>, bytes: Bytes) -> Result<Promise, Problem> {
        let PromiseTarget { owner, groups, name, pid, from } = whom;
        let lack = self.lack.as_ref().map(ToString::to_string);
        let reserve = self.accounts.with(|accounts| {
            let owner = accounts.broker.limits().counted_for(owner, groups);
            let drawn = from.and_then(|id| accounts.take_from(id, bytes));
            let admitted = accounts.broker.admit(MemoryRequester { owner, name, pid }, bytes);
            let reserve = admitted.inspect_err(|_| accounts.return_to(drawn.as_ref()))?;
            accounts.programs.insert(reserve, Program { drawn, ..Program::new(pid, lack) });
            Ok(reserve)
        });
        let reserve = reserve.map_err(|refusal: qfabric_broker::MemoryRefusal| refusal.problem())?;
        match &self.keeper {
            Some(keeper) => keeper.protect(reserve, pid, self.granted(reserve)),
            None => self.watcher.begin(reserve, None),
        }
        Ok(Promise::new(self.clone(), reserve))
    }

    /// Replaces the limits. Existing reserves keep their amounts.
    ///
    /// # Errors
    /// The host cannot give the global reserve, or more is promised; the old limits stay in force.
    pub(crate) fn set_limits(&self, limits: &HostMemoryLimits) -> Result<(), Problem> {
        check_reserve(limits, self.total).map_err(|why| why.problem())?;
        let limits = config::broker_limits(limits, self.total);
        self.accounts.with(|accounts| accounts.broker.set_limits(limits)).map_err(|refusal| refusal.problem())
    }

    /// The user and group that the memory of a process counts against. `groups`: all groups of the process.
    pub(crate) fn counted_for(&self, owner: Owner, groups: &[u32]) -> Owner {
        self.accounts.with(|accounts| accounts.broker.limits().counted_for(owner, groups))
    }

    /// Waits until the groups of all promises that were made before are in place.
    pub(crate) fn settle(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.wait();
        }
    }

    /// Adds the reserve to the answer about an application. Reads files of the kernel if there is one.
    pub(crate) fn complete(&self, application: &mut Application) {
        self.complete_by(application, memory::of_process);
    }

    /// As [`Memory::complete`]; `read` gives the memory of a process. Without a promise it is not called: most
    /// applications have none, and the web page asks for all of them four times a second.
    fn complete_by(&self, application: &mut Application, read: impl FnOnce(i32) -> Option<ProcessMemory>) {
        application.memory = self.accounts.with(|accounts| accounts.status(application.id));
        let Some(status) = &mut application.memory else { return };
        let now = read(application.pid).unwrap_or_default();
        (status.used, status.swapped) = (now.resident, now.swapped);
        (status.locked, status.major_faults) = (now.locked, now.major_faults);
    }

    /// Adds the memory to the status of the host. Reads files of the kernel.
    pub(crate) fn complete_status(&self, status: &mut HostStatus) {
        status.applications.iter_mut().for_each(|application| self.complete(application));
        let pools = self.pools();
        let in_pools: Bytes = pools.iter().map(|pool| pool.used).sum();
        let of_programs = status.applications.iter().filter_map(|application| application.memory.as_ref());
        let in_programs: Bytes = of_programs.map(|memory| memory.used.min(memory.promised)).sum();
        status.memory = Some(self.accounts.with(|accounts| HostMemory {
            global_reserve: accounts.broker.limits().global_reserve,
            promised: accounts.broker.promised(),
            used: in_pools + in_programs,
            pressure_notices: accounts.pressure_notices,
            prefaulted: accounts.prefaulted,
            pools,
        }));
    }

    /// Puts all control groups back at the end of the service.
    pub(crate) fn put_back(&self) {
        self.watcher.stop();
        if let Some(keeper) = &self.keeper {
            keeper.end();
        }
    }

    fn granted(&self, reserve: ReserveId) -> Bytes {
        self.accounts.with(|accounts| accounts.broker.granted(reserve).unwrap_or_default())
    }
}

impl Accounts {
    fn new(broker: MemoryBroker) -> Accounts {
        Accounts {
            broker,
            programs: BTreeMap::new(),
            pressure_notices: 0,
            prefaulted: Bytes::ZERO,
            held: BTreeMap::new(),
        }
    }

    /// The reserve of an application, without the parts that are read from the kernel.
    fn status(&self, app: AppId) -> Option<MemoryStatus> {
        let (reserve, program) = self.programs.iter().find(|(_, program)| program.app == Some(app))?;
        Some(MemoryStatus {
            reserve: *reserve,
            promised: self.broker.granted(*reserve).unwrap_or_default(),
            used: Bytes::ZERO,
            swapped: Bytes::ZERO,
            locked: Bytes::ZERO,
            major_faults: 0,
            prefaulted: program.prefaulted,
            pressure: self.pressure(*reserve, program),
            protection: program.protection,
            missing: program.missing.clone(),
        })
    }

    /// The notices of pressure, with the larger promise that fits now.
    fn pressure(&self, reserve: ReserveId, program: &Program) -> Option<MemoryPressure> {
        let Program { notices, used_under_pressure: used, .. } = *program;
        let sufficient = self.broker.whole_pages(MemoryPressure::sufficient(used));
        let offered = self.broker.largest_for(reserve)?.min(sufficient);
        let offered = Some(offered).filter(|offered| *offered > self.broker.granted(reserve).unwrap_or_default());
        (notices > 0).then_some(MemoryPressure { notices, used, offered })
    }
}

impl Program {
    fn new(pid: i32, missing: Option<String>) -> Program {
        Program {
            app: None,
            pid,
            protection: MemoryProtection::None,
            missing,
            group: None,
            notices: 0,
            used_under_pressure: Bytes::ZERO,
            prefaulted: Bytes::ZERO,
            drawn: None,
        }
    }
}

/// The process that a promise is made to.
#[derive(Clone, Debug)]
pub(crate) struct PromiseTarget<'a> {
    pub owner: Owner,
    /// All groups of the process.
    pub groups: &'a [u32],
    pub name: &'a str,
    pub pid: i32,
    /// The joint contract or loan whose memory is used first.
    pub from: Option<JointId>,
}

#[cfg(test)]
mod tests;
