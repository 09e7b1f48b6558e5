//! Builder of a subscription: the paper's `struct ecalls`.

use qfabric_types::Nanos;
use qfabric_types::api::ecalls::{MemoryUp, OnFault, Step, SubscriptionRequest};
use qfabric_types::channel::Name;

/// A subscription that is being built. The steps run in the order of the calls that add them.
#[derive(Clone, Debug, PartialEq)]
pub struct SubscriptionBuilder {
    request: SubscriptionRequest,
}

impl SubscriptionBuilder {
    /// A subscription of the calling process to the service of this name.
    pub fn to(service: &str) -> SubscriptionBuilder {
        SubscriptionBuilder { request: SubscriptionRequest { service: service.to_owned(), ..Default::default() } }
    }

    /// The request built so far.
    pub fn request(&self) -> &SubscriptionRequest {
        &self.request
    }

    fn with(mut self, change: impl FnOnce(&mut SubscriptionRequest)) -> SubscriptionBuilder {
        change(&mut self.request);
        self
    }

    fn step(self, step: Step, change: impl FnOnce(&mut SubscriptionRequest)) -> SubscriptionBuilder {
        self.with(|request| {
            change(request);
            request.order.retain(|named| *named != step);
            request.order.push(step);
        })
    }

    /// Delivers to another process (`process_id`).
    pub fn process(self, pid: i32) -> SubscriptionBuilder {
        self.with(|request| request.process_id = pid)
    }

    /// Adds a step: send a real-time signal, 32 to 64, with the first field of the event.
    pub fn signal(self, signal: i32) -> SubscriptionBuilder {
        self.step(Step::Signal, |request| request.signal = Some(signal))
    }

    /// The field that is sent with the signal, instead of the first one.
    pub fn signal_value(self, field: &str) -> SubscriptionBuilder {
        self.with(|request| request.signal_value = Some(field.to_owned()))
    }

    /// Adds a step: run a named handler (`k_handler`).
    pub fn handler(self, name: &str) -> SubscriptionBuilder {
        self.step(Step::KHandler, |request| request.k_handler = Some(name.to_owned()))
    }

    /// Adds a step: run E-code (`k_code`), in the kernel if the service is a hook in the kernel.
    pub fn code(self, code: &str) -> SubscriptionBuilder {
        self.step(Step::KCode, |request| request.k_code = Some(code.to_owned()))
    }

    /// The kernel sends the signal itself, without the daemon, if the signal is the only step that follows those in the
    /// kernel, and if the kernel can (`qfabric doctor`: `kernel_signals`); otherwise the daemon sends it. A signal of
    /// the kernel has the `si_code` SI_KERNEL. Its value comes with a signal handler or `sigwaitinfo`, and is lost
    /// for [`super::Signals`], which reads a signalfd.
    pub fn signal_by_kernel(self) -> SubscriptionBuilder {
        self.with(|request| request.signal_by_kernel = true)
    }

    /// Adds a step: run the rest of the chain in a thread of the daemon (`k_thread`).
    pub fn thread(self) -> SubscriptionBuilder {
        self.step(Step::KThread, |request| request.k_thread = true)
    }

    /// Adds a step: the steps after it wait until the moment in this field of the event, in ns of CLOCK_MONOTONIC, at
    /// most 10 s. Events of several sources then come in the order of their moments.
    pub fn hold_until(self, field: &str) -> SubscriptionBuilder {
        self.step(Step::Hold, |request| request.hold_until = Some(field.to_owned()))
    }

    /// Adds a step: copy the event into shared memory.
    pub fn memory_up(self, memory: MemoryUp) -> SubscriptionBuilder {
        self.step(Step::MemoryUp, |request| request.memory_up = Some(memory))
    }

    /// Adds a step: submit the event to the channel of this name, which is created if it does not exist.
    pub fn channel(self, name: Name) -> SubscriptionBuilder {
        self.step(Step::Channel, |request| request.channel = Some(name))
    }

    /// Drops an event that is not delivered within this time after it happened. In microseconds, rounded up.
    pub fn deadline(self, deadline: Nanos) -> SubscriptionBuilder {
        self.with(|request| request.deadline_us = deadline.get().div_ceil(1_000))
    }

    /// Each event favours the subscriber's server, under the mechanism `ext` with a contract that sets
    /// `favour_events`; other mechanisms only count the request.
    pub fn favour(self) -> SubscriptionBuilder {
        self.with(|request| request.favour = true)
    }

    /// Each event goes to one subscription of this group, in turn (wake-one).
    pub fn group(self, group: &str) -> SubscriptionBuilder {
        self.with(|request| request.group = Some(group.to_owned()))
    }

    /// Delivers only events that concern this process.
    pub fn only(self, pid: i32) -> SubscriptionBuilder {
        self.with(|request| request.only_pid = Some(pid))
    }

    /// Sets an option of the service.
    pub fn option(self, name: &str, value: impl ToString) -> SubscriptionBuilder {
        self.with(|request| drop(request.options.insert(name.to_owned(), value.to_string())))
    }

    /// Treatment of an event at which a handler faults.
    pub fn on_fault(self, on_fault: OnFault) -> SubscriptionBuilder {
        self.with(|request| request.on_fault = on_fault)
    }

    /// Largest number of instructions that the loops of one handler call may execute.
    pub fn fuel(self, fuel: u32) -> SubscriptionBuilder {
        self.with(|request| request.fuel = Some(fuel))
    }

    /// Initial value of an attribute.
    pub fn attribute(self, name: &str, value: i64) -> SubscriptionBuilder {
        self.with(|request| {
            request.attributes.insert(name.to_owned(), value);
        })
    }
}

impl From<SubscriptionRequest> for SubscriptionBuilder {
    fn from(request: SubscriptionRequest) -> Self {
        SubscriptionBuilder { request }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_taken_in_the_order_they_are_named() {
        let wanted = SubscriptionBuilder::to("timer").memory_up(MemoryUp::default()).code("return 1;").signal(40);
        assert_eq!(wanted.request().order, [Step::MemoryUp, Step::KCode, Step::Signal]);
        assert_eq!(wanted.signal(41).request().order.len(), 3);
    }

    #[test]
    fn a_deadline_is_not_rounded_down_to_never() {
        assert_eq!(SubscriptionBuilder::to("timer").deadline(Nanos::new(1)).request().deadline_us, 1);
    }
}
