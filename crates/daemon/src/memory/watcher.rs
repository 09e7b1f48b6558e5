//! The thread that watches programs with a promise: it fetches their pages and counts notices of pressure.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use qfabric_linux::memory_groups::ReserveGroup;
use qfabric_linux::{memory, prefault};
use qfabric_types::Bytes;
use qfabric_types::api::memory::ReserveId;

use super::watch::{Event, Watch};
use super::{Accounts, SharedAccounts};
use crate::control::{wake, wake_descriptor};
use crate::ending::Ending;

enum Change {
    Begin(ReserveId, Option<ReserveGroup>),
    End(ReserveId),
    Stop,
}

/// The sending end. The thread ends with the last copy, or earlier by [`Watcher::stop`].
#[derive(Clone)]
pub(super) struct Watcher(Arc<Queue>);

struct Queue {
    changes: Sender<Change>,
    wake: Arc<OwnedFd>,
}

impl Watcher {
    pub(super) fn start(accounts: SharedAccounts, ending: &Ending) -> std::io::Result<Watcher> {
        let (changes, received) = channel();
        let wake = Arc::new(wake_descriptor()?);
        let woken = wake.clone();
        ending.spawn("qf-pressure", move || run(&accounts, &received, &woken))?;
        Ok(Watcher(Arc::new(Queue { changes, wake })))
    }

    /// Begins to watch a program; `group` is its group, if this host has groups.
    pub(super) fn begin(&self, reserve: ReserveId, group: Option<ReserveGroup>) {
        self.0.send(Change::Begin(reserve, group));
    }

    pub(super) fn end(&self, reserve: ReserveId) {
        self.0.send(Change::End(reserve));
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.0.send(Change::Stop);
    }
}

impl Queue {
    /// After the end of the thread there is nothing to watch.
    fn send(&self, change: Change) {
        let _ = self.changes.send(change);
        wake(&*self.wake);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.send(Change::Stop);
    }
}

fn run(accounts: &SharedAccounts, changes: &Receiver<Change>, wake: &OwnedFd) {
    let mut watch = Watch::default();
    loop {
        match changes.try_recv() {
            Ok(Change::Begin(reserve, group)) => watch.begin(reserve, group.as_ref()),
            Ok(Change::End(reserve)) => watch.end(reserve),
            Ok(Change::Stop) | Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => watch.wait(wake).into_iter().for_each(|event| carry_out(accounts, event)),
        }
    }
}

fn carry_out(accounts: &SharedAccounts, event: Event) {
    match event {
        Event::Pressure(reserve) => pressure(accounts, reserve),
        Event::Fetch(reserve) => fetch(accounts, reserve),
    }
}

/// Counts a notice. The log has the first one, and then ever fewer: a program above its promise causes one in each
/// window of the kernel.
fn pressure(accounts: &SharedAccounts, reserve: ReserveId) {
    let Some(group) = accounts.with(|accounts| accounts.programs.get(&reserve)?.group.clone()) else { return };
    let used = group.usage().unwrap_or_default().working_set;
    let counted = accounts.with(|accounts| accounts.pressed(reserve, used));
    let Some((pid, notices, promised)) = counted.filter(|(_, notices, _)| notices.is_power_of_two()) else { return };
    let next = "raise the memory of its contract; `qfabric status` shows the amount that fits";
    tracing::warn!(%reserve, pid, notices, next, "memory pressure in a reserved group: {promised} promised, {used} used");
}

impl Accounts {
    /// Counts a notice for a program that uses `used`. Returns its process, its notices and its promise.
    pub(super) fn pressed(&mut self, reserve: ReserveId, used: Bytes) -> Option<(i32, u64, Bytes)> {
        self.pressure_notices += 1;
        let promised = self.broker.granted(reserve).unwrap_or_default();
        let program = self.programs.get_mut(&reserve)?;
        program.notices += 1;
        program.used_under_pressure = used;
        Some((program.pid, program.notices, promised))
    }
}

/// Fetches absent pages of the program, within its promise.
fn fetch(accounts: &SharedAccounts, reserve: ReserveId) {
    let found = accounts.with(|accounts| {
        let promised = accounts.broker.granted(reserve)?;
        accounts.programs.get(&reserve).map(|program| (program.pid, program.group.clone(), promised))
    });
    let Some((pid, group, promised)) = found else { return };
    let charged = group.and_then(|group| group.usage()).unwrap_or_default().charged;
    let present = memory::resident(pid).unwrap_or_default().max(charged);
    match prefault::prefault(pid, promised - present) {
        Ok(Bytes::ZERO) => {}
        Ok(fetched) => accounts.with(|accounts| {
            accounts.prefaulted += fetched;
            if let Some(program) = accounts.programs.get_mut(&reserve) {
                program.prefaulted += fetched;
            }
        }),
        Err(error) => tracing::debug!(%reserve, pid, %error, "the pages of this program are not fetched in advance"),
    }
}
