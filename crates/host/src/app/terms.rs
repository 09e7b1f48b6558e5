//! What a setting has beside the budget: the shared server, the CPU, favour for events, a controller in the kernel;
//! and the rescue of a running job, if the mechanism supports it.

use qfabric_types::{Contract, ControlPlace, KernelController, Nanos, Reservation, ServerTerms, Share, ThreadId};

use super::App;
use crate::thread::{Governor, Thread, Value, value_of};

/// A job that has used all but this of its foreseen budget counts as having used it up: clocks are read at both
/// ends.
const MARGIN: Nanos = Nanos::from_micros(50);

impl App {
    /// The thread that is counted for all if they share a server.
    pub(super) fn carrier(&self) -> Option<ThreadId> {
        self.threads.iter().find(|thread| !thread.denied).map(|thread| thread.id)
    }

    /// The thread that is counted for the shared server in place of one that has left it; `None` if no server is
    /// shared, or no other thread is in it yet.
    pub(crate) fn successor(&self) -> Option<ThreadId> {
        let carrier = self.carrier().filter(|_| self.shares_server())?;
        self.threads.iter().find(|thread| thread.id == carrier && thread.applied.is_some()).map(|thread| thread.id)
    }

    /// Whether all its threads share one server.
    pub(super) fn shares_server(&self) -> bool {
        self.contract.service.is_some() || (self.contract.fixed.is_some() && self.joint)
    }

    /// The thread that an event favours.
    pub(crate) fn sink(&self) -> Option<ThreadId> {
        if self.shares_server() { self.carrier() } else { self.lead }
    }

    /// Whether the thread belongs to the application's promise: the lead, or every thread of a shared server.
    pub(crate) fn is_bound(&self, thread: ThreadId) -> bool {
        self.shares_server() || self.lead == Some(thread)
    }

    /// The controller that the thread's server has in the kernel: it decides budgets there, within the grant.
    pub(super) fn control_of(&self, thread: ThreadId) -> Option<KernelController> {
        let Contract { controller, predictor, choice, rho, early, late, .. } = self.contract;
        if controller != ControlPlace::Kernel || self.lead != Some(thread) {
            return None;
        }
        Some(KernelController {
            predictor,
            choice,
            periods_per_job: self.contract.periods_per_job(),
            rho_milli: (rho * 1_000.0).round() as u32,
            early: Share::from_f64(early),
            late: Share::from_f64(late),
            max_budget: self.contract.max_budget(),
        })
    }

    fn terms(&self, thread: &Thread) -> ServerTerms {
        let Contract { window, work_conserving, favour_events: events, .. } = self.contract;
        let (group, control) = (self.shares_server().then_some(self.id), self.control_of(thread.id));
        ServerTerms { group, cpu: thread.cpu, window, work_conserving, events, aligned: thread.aligned, control }
    }

    /// The value for a thread's part of the grant.
    pub(super) fn value(&self, thread: &Thread, part: Share) -> Option<Value> {
        match self.contract.static_server().filter(|_| self.shares_server()) {
            Some(server) => self.shared_value(thread, server),
            None => value_of(part, &self.contract, self.terms(thread)),
        }
    }

    /// The server that all threads share; with a shorter budget if a fallen capacity leaves less than promised.
    fn shared_value(&self, thread: &Thread, server: Reservation) -> Option<Value> {
        let (period, promised) = (server.period(), self.contract.promised()?);
        if thread.denied {
            return None;
        }
        let ppm = |share: Share| u128::from(share.ppm());
        let granted = self.granted.min(promised);
        let part = u128::from(server.budget().get()) * ppm(granted) / ppm(promised).max(1);
        let reservation = Reservation::new(Nanos::new(part as u64), period).ok()?;
        let value =
            |counted| Value { reservation, reclaiming: self.contract.reclaiming, terms: self.terms(thread), counted };
        if self.carrier() == Some(thread.id) {
            return Some(value(granted));
        }
        // The first thread in the server creates it. Only the counted thread may do that, when there is room.
        let carrier = self.threads.iter().find(|other| Some(other.id) == self.carrier());
        let lives = |value: &Value| carrier.is_some_and(|carrier| carrier.cpu == value.terms.cpu);
        match carrier.and_then(|carrier| carrier.applied).filter(lives) {
            Some(made) if made.reservation == reservation => Some(value(Share::ZERO)),
            _ => thread.applied,
        }
    }

    /// If a job has used up its budget before its end and a larger budget still helps: the thread wants the largest
    /// budget until the job ends. Returns whether that is new.
    pub(crate) fn rescue(&mut self, at: usize) -> bool {
        let (periods, fixed) = (self.contract.periods_per_job(), self.contract.static_server().is_some());
        let thread = &mut self.threads[at];
        let (Governor::Activations(controller, found), Some(value)) = (&thread.governor, thread.applied) else {
            return false;
        };
        let foreseen = controller.budget().saturating_mul(periods);
        let over = found.activations.used() + MARGIN > foreseen && found.activations.is_open();
        let rises = value.reservation.budget() < self.contract.max_budget();
        let new = over && rises && !fixed && !thread.rescued && value.terms.control.is_none();
        thread.rescued |= new;
        new
    }
}
