//! The promised rates of processes, for the status of applications. The status must not wait for the state of the
//! interfaces, which is locked during requests to the kernel; so every change of the state publishes a copy.

use std::ops::{Deref, DerefMut};

use qfabric_linux::watch;
use qfabric_sync::{Guard, rank};
use qfabric_types::Direction;
use qfabric_types::api::Application;
use qfabric_types::api::net::{Bandwidth, StreamId};

use super::interface::{Holder, Interface};
use super::{Net, State};

/// A promise to a process.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct OfProcess {
    pid: i32,
    rate: Bandwidth,
}

/// The locked state. Dropping it publishes the rates if the state may have changed.
pub(super) struct Changing<'a> {
    net: &'a Net,
    state: Guard<'a, State, { rank::NET }>,
    is_changed: bool,
}

impl<'a> Changing<'a> {
    pub(super) fn of(net: &'a Net) -> Changing<'a> {
        Changing { net, state: net.state.lock(), is_changed: false }
    }
}

impl Deref for Changing<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.is_changed = true;
        &mut self.state
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if self.is_changed {
            *self.net.promised.lock() = self.state.attached.values().flat_map(of_interface).collect();
        }
    }
}

fn of_interface(entry: &Interface) -> impl Iterator<Item = OfProcess> {
    entry.holders.iter().filter_map(|(id, holder)| of_stream(entry, *id, holder))
}

fn of_stream(entry: &Interface, stream: StreamId, holder: &Holder) -> Option<OfProcess> {
    let process = holder.process.as_ref().or(holder.asker.as_ref());
    // Later, another process may have the same number.
    if process.is_none_or(watch::Process::ended) {
        return None;
    }
    let rate_bps = entry.attachment.spec(stream).ok()?.rate();
    let (interface, direction) = (entry.broker.end().interface.clone(), Direction::Out);
    Some(OfProcess { pid: holder.pid, rate: Bandwidth { interface, direction, stream, rate_bps } })
}

impl Net {
    /// Adds the promised rates to the status of applications. Never waits for a request to the kernel.
    pub(crate) fn complete<'a>(&self, applications: impl IntoIterator<Item = &'a mut Application>) {
        let promised = self.promised.lock().clone();
        for application in applications {
            let own = promised.iter().filter(|of| of.pid == application.pid);
            application.bandwidth = own.map(|of| of.rate.clone()).collect();
        }
    }
}
