//! What a subscription is to be: the paper's `struct ecalls`, built step by step.

use qfabric_types::Nanos;
use qfabric_types::api::ecalls::{MemoryUp, OnFault, Step, SubscriptionRequest};

/// A subscription in the making. The order in which steps are named is the order in which they are taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscribe {
    request: SubscriptionRequest,
}

impl Subscribe {
    /// To the service of this name, as the calling process.
    pub fn to(service: &str) -> Subscribe {
        Subscribe { request: SubscriptionRequest { service: service.to_owned(), ..Default::default() } }
    }

    /// What it says so far.
    pub fn request(&self) -> &SubscriptionRequest {
        &self.request
    }

    fn with(mut self, change: impl FnOnce(&mut SubscriptionRequest)) -> Subscribe {
        change(&mut self.request);
        self
    }

    fn step(self, step: Step, change: impl FnOnce(&mut SubscriptionRequest)) -> Subscribe {
        self.with(|request| {
            change(request);
            request.order.retain(|named| *named != step);
            request.order.push(step);
        })
    }

    /// Another process is told (`process_id`).
    pub fn process(self, pid: i32) -> Subscribe {
        self.with(|request| request.process_id = pid)
    }

    /// A real-time signal is sent, 32 to 64, with the first field of the event.
    pub fn signal(self, signal: i32) -> Subscribe {
        self.step(Step::Signal, |request| request.signal = Some(signal))
    }

    /// The field that travels with the signal.
    pub fn signal_value(self, field: &str) -> Subscribe {
        self.with(|request| request.signal_value = Some(field.to_owned()))
    }

    /// A handler that was given a name is run (`k_handler`).
    pub fn handler(self, name: &str) -> Subscribe {
        self.step(Step::KHandler, |request| request.k_handler = Some(name.to_owned()))
    }

    /// E-code is run (`k_code`): in the kernel, where the service is the kernel's.
    pub fn code(self, code: &str) -> Subscribe {
        self.step(Step::KCode, |request| request.k_code = Some(code.to_owned()))
    }

    /// From here on the chain goes on in a thread of the daemon (`k_thread`).
    pub fn thread(self) -> Subscribe {
        self.step(Step::KThread, |request| request.k_thread = true)
    }

    /// Events are written into shared memory.
    pub fn memory_up(self, memory: MemoryUp) -> Subscribe {
        self.step(Step::MemoryUp, |request| request.memory_up = Some(memory))
    }

    /// An event is late so long after it happened, and dropped; in microseconds, rounded up.
    pub fn deadline(self, deadline: Nanos) -> Subscribe {
        self.with(|request| request.deadline_us = deadline.get().div_ceil(1_000))
    }

    /// Every event favours the server of the process that is told (mechanism `ext`, and a contract that says
    /// `favour_events`); elsewhere it is counted only.
    pub fn favour(self) -> Subscribe {
        self.with(|request| request.favour = true)
    }

    /// Of all subscriptions of this group one is told, in turn (wake-one).
    pub fn group(self, group: &str) -> Subscribe {
        self.with(|request| request.group = Some(group.to_owned()))
    }

    /// Only events that concern this process.
    pub fn only(self, pid: i32) -> Subscribe {
        self.with(|request| request.only_pid = Some(pid))
    }

    /// An option of the service.
    pub fn option(self, name: &str, value: impl ToString) -> Subscribe {
        self.with(|request| drop(request.options.insert(name.to_owned(), value.to_string())))
    }

    /// What becomes of an event at which a handler faults.
    pub fn on_fault(self, on_fault: OnFault) -> Subscribe {
        self.with(|request| request.on_fault = on_fault)
    }

    /// Instructions that the loops of one call of a handler may take.
    pub fn fuel(self, fuel: u32) -> Subscribe {
        self.with(|request| request.fuel = Some(fuel))
    }

    /// First value of an attribute.
    pub fn attribute(self, name: &str, value: i64) -> Subscribe {
        self.with(|request| {
            request.attributes.insert(name.to_owned(), value);
        })
    }
}

impl From<SubscriptionRequest> for Subscribe {
    fn from(request: SubscriptionRequest) -> Self {
        Subscribe { request }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_taken_in_the_order_they_are_named() {
        let wanted = Subscribe::to("timer").memory_up(MemoryUp::default()).code("return 1;").signal(40);
        assert_eq!(wanted.request().order, [Step::MemoryUp, Step::KCode, Step::Signal]);
        assert_eq!(wanted.signal(41).request().order.len(), 3);
    }

    #[test]
    fn a_deadline_is_not_rounded_down_to_never() {
        assert_eq!(Subscribe::to("timer").deadline(Nanos::new(1)).request().deadline_us, 1);
    }
}
