//! Memory that stays resident: promises to unmodified programs, and reserves of programs that link the library.
//!
//! | file | contents |
//! |---|---|
//! | `config.rs` | the section `[memory]` |
//! | `held.rs` | memory that is promised to joint contracts |
//! | `keeper.rs` | the thread that changes control groups |
//! | `pools.rs` | reserves, segments, allocations, locked program text |
//! | `problems.rs` | refusals |
//! | `promise.rs` | the promise to an application under contract |
//! | `session.rs` | one connection to `memory.sock` |
//! | `socket.rs` | `memory.sock` |
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

pub use config::{MemoryAmount, MemoryConfig};
pub(crate) use problems::not_for_a_thread;
pub(crate) use promise::Promise;
pub(crate) use socket::serve;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use qfabric_broker::{MemoryBroker, MemoryRequester};
use qfabric_linux::memory;
use qfabric_linux::memory_groups::{MemoryGroups, MemoryLack};
use qfabric_sync::{Lock, rank};
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::memory::{HostMemory, MemoryProtection, MemoryStatus, ReserveId};
use qfabric_types::api::{Application, HostStatus, Problem};
use qfabric_types::{AppId, Bytes, Owner};

use crate::ending::Ending;
use held::HeldMemory;
use keeper::Keeper;
use pools::Reserve;

/// The broker, and the promises to applications under contract.
struct Accounts {
    broker: MemoryBroker,
    programs: BTreeMap<ReserveId, Program>,
    /// Promises to joint contracts.
    held: BTreeMap<JointId, HeldMemory>,
}

/// A promise to an application under contract.
struct Program {
    /// Set after the application was admitted.
    app: Option<AppId>,
    protection: MemoryProtection,
    missing: Option<String>,
    /// The joint contract that a part of the promise returns to.
    drawn: Option<(JointId, Bytes)>,
}

type SharedAccounts = Arc<Lock<Accounts, { rank::MEMORY_ACCOUNTS }>>;

/// The memory that this host promises.
pub(crate) struct Memory {
    accounts: SharedAccounts,
    /// Absent if this host cannot protect the memory of programs.
    keeper: Option<Keeper>,
    lack: Option<MemoryLack>,
    reserves: Lock<BTreeMap<ReserveId, Arc<Reserve>>, { rank::MEMORY_RESERVES }>,
    page: u64,
}

impl Memory {
    /// Nothing is promised yet; changes of control groups are recorded in `directory`.
    pub(crate) fn start(config: &MemoryConfig, directory: &Path, ending: &Ending) -> std::io::Result<Arc<Memory>> {
        let page = rustix::param::page_size() as u64;
        let broker = MemoryBroker::new(config.limits(), page);
        let accounts: SharedAccounts =
            Arc::new(Accounts { broker, programs: BTreeMap::new(), held: BTreeMap::new() }.into());
        let (keeper, lack) = match MemoryGroups::open(directory) {
            Ok(groups) => (Some(Keeper::start(groups, accounts.clone(), ending)?), None),
            Err(lack) => (None, Some(lack)),
        };
        Ok(Arc::new(Memory { accounts, keeper, lack, reserves: BTreeMap::new().into(), page }))
    }

    /// Promises `bytes` to a process. `groups`: all groups of the process.
    pub(crate) fn promise(self: &Arc<Self>, whom: PromiseTarget<'_>, bytes: Bytes) -> Result<Promise, Problem> {
        let PromiseTarget { owner, groups, name, pid, from } = whom;
        let lack = self.lack.as_ref().map(|lack| format!("{lack}; {}", lack.next_step()));
        let reserve = self.accounts.with(|accounts| {
            let owner = accounts.broker.limits().counted_for(owner, groups);
            let drawn = from.and_then(|id| accounts.take_from(id, bytes));
            let admitted = accounts.broker.admit(MemoryRequester { owner, name, pid }, bytes);
            let reserve = admitted.inspect_err(|_| accounts.return_to(drawn.as_ref()))?;
            let program = Program { app: None, protection: MemoryProtection::None, missing: lack, drawn };
            accounts.programs.insert(reserve, program);
            Ok(reserve)
        });
        let reserve = reserve.map_err(|refusal: qfabric_broker::MemoryRefusal| refusal.problem())?;
        if let Some(keeper) = &self.keeper {
            keeper.protect(reserve, pid, self.granted(reserve));
        }
        Ok(Promise::new(self.clone(), reserve))
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

    /// Adds the reserve to the answer about an application. Reads files of the kernel.
    pub(crate) fn complete(&self, application: &mut Application) {
        let of_app = |(reserve, program): (&ReserveId, &Program), broker: &MemoryBroker| MemoryStatus {
            reserve: *reserve,
            promised: broker.granted(*reserve).unwrap_or_default(),
            used: Bytes::ZERO,
            protection: program.protection,
            missing: program.missing.clone(),
        };
        application.memory = self.accounts.with(|accounts| {
            let found = accounts.programs.iter().find(|(_, program)| program.app == Some(application.id));
            found.map(|entry| of_app(entry, &accounts.broker))
        });
        if let Some(status) = &mut application.memory {
            status.used = memory::resident(application.pid).unwrap_or_default();
        }
    }

    /// Adds the memory to the status of the host. Reads files of the kernel.
    pub(crate) fn complete_status(&self, status: &mut HostStatus) {
        status.applications.iter_mut().for_each(|application| self.complete(application));
        let pools = self.pools();
        let in_pools: Bytes = pools.iter().map(|pool| pool.used).sum();
        let of_programs = status.applications.iter().filter_map(|application| application.memory.as_ref());
        let in_programs: Bytes = of_programs.map(|memory| memory.used.min(memory.promised)).sum();
        let (global_reserve, promised) =
            self.accounts.with(|accounts| (accounts.broker.limits().global_reserve, accounts.broker.promised()));
        status.memory = Some(HostMemory { global_reserve, promised, used: in_pools + in_programs, pools });
    }

    /// Puts all control groups back at the end of the service.
    pub(crate) fn put_back(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.end();
        }
    }

    fn granted(&self, reserve: ReserveId) -> Bytes {
        self.accounts.with(|accounts| accounts.broker.granted(reserve).unwrap_or_default())
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
    /// The joint contract whose memory is used first.
    pub from: Option<JointId>,
}

#[cfg(test)]
mod tests;
