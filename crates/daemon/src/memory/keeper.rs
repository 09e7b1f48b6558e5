//! The thread that changes control groups. Requests reach it through a queue, so that no other thread waits for the
//! kernel.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use qfabric_linux::memory_groups::{GroupError, MemoryGroups, ReserveGroup};
use qfabric_types::Bytes;
use qfabric_types::api::memory::{MemoryProtection, ReserveId};

use super::watcher::Watcher;
use super::{Accounts, SharedAccounts};
use crate::ending::Ending;

/// Longest wait for the thread; a kernel that does not answer delays no other request for ever.
const PATIENCE: Duration = Duration::from_secs(2);

enum Work {
    Protect {
        reserve: ReserveId,
        pid: i32,
        bytes: Bytes,
    },
    Resize {
        reserve: ReserveId,
        bytes: Bytes,
    },
    Release(ReserveId),
    /// Answers when everything before is done.
    Tell(SyncSender<()>),
    /// Puts everything back, then answers and ends.
    End(SyncSender<()>),
}

/// The sending end.
pub(super) struct Keeper(Sender<Work>);

impl Keeper {
    pub(super) fn start(
        groups: MemoryGroups,
        accounts: SharedAccounts,
        watcher: Watcher,
        ending: &Ending,
    ) -> std::io::Result<Keeper> {
        let (queue, works) = channel();
        ending.spawn("qf-memory", move || run(groups, &accounts, &watcher, &works))?;
        Ok(Keeper(queue))
    }

    pub(super) fn protect(&self, reserve: ReserveId, pid: i32, bytes: Bytes) {
        self.send(Work::Protect { reserve, pid, bytes });
    }

    pub(super) fn resize(&self, reserve: ReserveId, bytes: Bytes) {
        self.send(Work::Resize { reserve, bytes });
    }

    pub(super) fn release(&self, reserve: ReserveId) {
        self.send(Work::Release(reserve));
    }

    /// Waits until everything that was requested before is done.
    pub(super) fn wait(&self) {
        self.ask(Work::Tell);
    }

    /// Puts all groups back and ends the thread.
    pub(super) fn end(&self) {
        self.ask(Work::End);
    }

    fn ask(&self, work: impl FnOnce(SyncSender<()>) -> Work) {
        let (reply, answer) = sync_channel(1);
        self.send(work(reply));
        if answer.recv_timeout(PATIENCE).is_err() {
            tracing::warn!("the thread that changes control groups does not answer");
        }
    }

    /// After the end of the thread there is nothing to change.
    fn send(&self, work: Work) {
        let _ = self.0.send(work);
    }
}

fn run(mut groups: MemoryGroups, accounts: &SharedAccounts, watcher: &Watcher, works: &Receiver<Work>) {
    while let Ok(work) = works.recv() {
        match work {
            Work::Protect { reserve, pid, bytes } => {
                let done = groups.protect(reserve.0, pid, bytes);
                let group = done.is_ok().then(|| groups.reserve_group(reserve.0));
                accounts.with(|accounts| {
                    accounts.kept(reserve, done);
                    accounts.in_group(reserve, group.clone());
                });
                watcher.begin(reserve, group);
            }
            Work::Resize { reserve, bytes } => {
                let done = groups.resize(reserve.0, bytes);
                accounts.with(|accounts| {
                    accounts.settle_program(reserve);
                    accounts.kept(reserve, done);
                });
            }
            Work::Release(reserve) => {
                watcher.end(reserve);
                if let Err(error) = groups.release(reserve.0) {
                    tracing::error!(%error, "a control group is not put back; `qfabric restore` tries again");
                }
                accounts.with(|accounts| accounts.release(reserve));
            }
            Work::Tell(reply) => drop(reply.send(())),
            Work::End(reply) => {
                drop(groups);
                let _ = reply.send(());
                return;
            }
        }
    }
}

impl Accounts {
    fn kept(&mut self, reserve: ReserveId, done: Result<(), GroupError>) {
        let Some(program) = self.programs.get_mut(&reserve) else { return };
        match done {
            Ok(()) => (program.protection, program.missing) = (MemoryProtection::Group, None),
            Err(error) => program.missing = Some(error.to_string()),
        }
    }

    fn in_group(&mut self, reserve: ReserveId, group: Option<ReserveGroup>) {
        if let Some(program) = self.programs.get_mut(&reserve) {
            program.group = group;
        }
    }

    pub(super) fn release(&mut self, reserve: ReserveId) {
        let program = self.programs.remove(&reserve);
        self.broker.release(reserve);
        self.return_to(program.and_then(|program| program.drawn).as_ref());
    }
}
