//! A subscription and its shared memory.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use qfabric_shm::{Caller, SharedUp, Wake};
use qfabric_types::api::ecalls::{SubscriptionId, SubscriptionInfo};
use qfabric_types::ecalls_wire::{DescriptorSet, FromClient};
use qfabric_types::memory::{CALL_SERVICE, CALL_VALUES, CallVerdict, Geometry, Stamp};

use super::connection::Inner;
use super::lease::Descriptors;
use crate::error::ClientError;

/// A received event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// When the event happened, in nanoseconds of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// When the event is late, in nanoseconds of CLOCK_MONOTONIC; 0: never.
    pub deadline_ns: u64,
    /// Bytes of the event, in the format of [`SubscriptionInfo::format`].
    pub data: &'a [u8],
}

/// A subscription. It ends when this value is dropped, or with the process. In a child made by `fork` it belongs to
/// the parent, and returns no events.
#[derive(Debug)]
pub struct Subscription {
    inner: Arc<Inner>,
    info: SubscriptionInfo,
    memory: Option<(SharedUp, Wake)>,
    /// The program that runs for calls; `None` for other services than `app.call`.
    caller: Option<Caller>,
    data: Vec<u8>,
    ended: bool,
}

/// The result of a fast call that may fall back to the blocking call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The handlers in the kernel were enough.
    Fast(CallVerdict),
    /// The answer of the service's owner to the blocking call.
    Blocking(Vec<u8>),
}

impl Subscription {
    /// Fetches the shared memory of a new subscription.
    pub(super) fn open(inner: Arc<Inner>, info: SubscriptionInfo) -> Result<Subscription, ClientError> {
        let data = vec![0; info.format.size as usize];
        // After this line, an error drops the value and thereby unsubscribes.
        let mut subscription = Subscription { inner, info, memory: None, caller: None, data, ended: false };
        let (has_memory, is_called) = (subscription.info.memory_up.is_some(), subscription.is_called());
        if has_memory || is_called {
            let mut came = subscription.inner.lease.take(&FromClient::Take(subscription.info.id), None)?;
            subscription.memory = if has_memory { Some(subscription.map(&mut came)?) } else { None };
            subscription.caller = came.pick(DescriptorSet::CALL).map(Caller::new);
        }
        Ok(subscription)
    }

    fn is_called(&self) -> bool {
        self.info.service == CALL_SERVICE
    }

    fn map(&self, came: &mut Descriptors) -> Result<(SharedUp, Wake), ClientError> {
        let broken = |why: String| ClientError::Memory { what: "memory_up", why };
        let memory = self.info.memory_up.clone().unwrap_or_default();
        let agreed = Geometry::new(memory.layout, memory.slots, self.info.format.size);
        let agreed = agreed.map_err(|error| broken(error.to_string()))?;
        let (Some(up), Some(wake)) = (came.pick(DescriptorSet::UP), came.pick(DescriptorSet::WAKE)) else {
            return Err(broken("the daemon did not send its descriptor".to_owned()));
        };
        let up = SharedUp::map(&up, agreed).map_err(|error| broken(error.to_string()))?;
        Ok((up, Wake::new(wake).map_err(|error| broken(error.to_string()))?))
    }

    /// A fast user-ECall (000 §3.2.1): the handlers of this subscription to `app.call` run in the kernel with these
    /// values, before the method returns. If the verdict says so ([`CallVerdict::schedules`]), other threads of this
    /// CPU run before. [`CallVerdict::BLOCK`]: no handler has answered, because the handler says so, has faulted, was
    /// busy or was removed, or because this host does not let the program call; do the blocking call instead
    /// ([`Subscription::call_or_wait`]).
    ///
    /// # Errors
    /// The subscription is to another service, or belongs to another process.
    pub fn call(&self, values: [i64; CALL_VALUES]) -> Result<CallVerdict, ClientError> {
        self.inner.lease.own()?;
        if !self.is_called() {
            let message = format!("service {} takes no fast calls", self.info.service);
            return Err(ClientError::invalid(message, "subscribe to app.call"));
        }
        let verdict = self.caller.as_ref().and_then(|caller| caller.call(values).ok()).unwrap_or(CallVerdict::BLOCK);
        if verdict.schedules() {
            rustix::thread::sched_yield();
        }
        Ok(verdict)
    }

    /// As [`Subscription::call`]; if the fast call is not enough, the owner of `service` gets the values as 64 bytes,
    /// in the order of this host, and answers within `patience` ([`super::Ecalls::call`]).
    ///
    /// # Errors
    /// Those of [`Subscription::call`] and of [`super::Ecalls::call`].
    pub fn call_or_wait(
        &self,
        values: [i64; CALL_VALUES],
        service: &str,
        patience: Duration,
    ) -> Result<CallOutcome, ClientError> {
        let verdict = self.call(values)?;
        if !verdict.blocks() {
            return Ok(CallOutcome::Fast(verdict));
        }
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        self.inner.client.call_service(service, &data, patience).map(CallOutcome::Blocking)
    }

    /// Number of the subscription.
    pub fn id(&self) -> SubscriptionId {
        self.info.id
    }

    /// The subscription when it was made: its format, and where its steps run.
    pub fn info(&self) -> &SubscriptionInfo {
        &self.info
    }

    /// The subscription now: its counters, and whether its handler was removed.
    pub fn now(&self) -> Result<SubscriptionInfo, ClientError> {
        self.inner.client.subscription(self.info.id)
    }

    /// Flag of the shared memory: it grows by one with every event. The cheapest check for new events. 0 without
    /// memory.
    pub fn flag(&self) -> u32 {
        self.memory.as_ref().map_or(0, |(up, _)| up.peek().flag())
    }

    /// Events dropped because the memory was full.
    pub fn dropped(&self) -> u64 {
        self.memory.as_ref().map_or(0, |(up, _)| up.peek().dropped())
    }

    /// Reader of the memory, and a buffer for an event. None without memory, and in a child of a fork, which would
    /// take its parent's events.
    fn parts(&mut self) -> Option<(&mut SharedUp, &mut Vec<u8>)> {
        let Subscription { inner, memory, data, .. } = self;
        let (up, _) = memory.as_mut().filter(|_| inner.lease.own().is_ok())?;
        Some((up, data))
    }

    /// The next event, if one waits. No system call.
    pub fn try_next(&mut self) -> Option<Event<'_>> {
        let (memory, data) = self.parts()?;
        let stamp = memory.up().take(data)?;
        Some(event(stamp, data))
    }

    /// For [`super::Layout::Bits`]: the new event at the lowest position, with the position.
    pub fn try_lowest(&mut self) -> Option<(u32, Event<'_>)> {
        let (memory, data) = self.parts()?;
        let (position, stamp) = memory.up().take_lowest(data)?;
        Some((position, event(stamp, data)))
    }

    /// For [`super::Layout::Bits`]: the new event at a position, if there is one.
    pub fn try_at(&mut self, position: u32) -> Option<Event<'_>> {
        let (memory, data) = self.parts()?;
        let stamp = memory.up().take_at(position, data)?;
        Some(event(stamp, data))
    }

    /// Waits for the next event; None if none arrives within `patience`, or without memory.
    pub fn next(&mut self, patience: Duration) -> Result<Option<Event<'_>>, ClientError> {
        self.inner.lease.own()?;
        let until = Instant::now() + patience;
        let Subscription { memory, data, .. } = self;
        let Some((up, wake)) = memory else { return Ok(None) };
        loop {
            if let Some(stamp) = up.up().take(data) {
                return Ok(Some(event(stamp, data)));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            if up.peek().may_sleep() {
                let broken = |error: std::io::Error| ClientError::Memory { what: "memory_up", why: error.to_string() };
                wake.wait(left).map_err(broken)?;
            }
        }
    }

    /// Descriptor for event loops: call [`Subscription::may_sleep`], poll this descriptor for reading, call
    /// [`Subscription::acknowledge`], then take the events.
    pub fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.memory.as_ref().map(|(_, wake)| wake.as_fd())
    }

    /// Announces that the reader is about to sleep; `false`: an event arrived meanwhile, so do not sleep.
    pub fn may_sleep(&self) -> bool {
        self.memory.as_ref().is_none_or(|(up, _)| up.peek().may_sleep())
    }

    /// Makes the wake descriptor unreadable again.
    pub fn acknowledge(&self) {
        if let (Some((_, wake)), Ok(_)) = (&self.memory, self.inner.lease.own()) {
            wake.acknowledge();
        }
    }

    /// Ends the subscription (the paper's `ECalls_unsubscribe`).
    pub fn unsubscribe(mut self) -> Result<(), ClientError> {
        self.ended = true;
        self.inner.lease.own()?;
        self.inner.client.unsubscribe(self.info.id)
    }
}

fn event(stamp: Stamp, data: &[u8]) -> Event<'_> {
    Event { time_ns: stamp.time_ns, deadline_ns: stamp.deadline_ns, data }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // In a child of a fork the subscription belongs to the parent.
        if !self.ended && self.inner.lease.own().is_ok() {
            // If this call fails, the subscription ends with the lease.
            let _ = self.inner.client.unsubscribe(self.info.id);
        }
    }
}
