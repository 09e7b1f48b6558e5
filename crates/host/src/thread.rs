//! One thread: the governor of its budget, its intended reservation, and what the kernel may still hold for it.

use qfabric_control::TaskController;
use qfabric_types::{
    Contract, Instant, KernelController, MIN_BUDGET, Nanos, Reclaiming, Reservation, ServerTerms, Setting, Share,
    ThreadId,
};

use crate::consumption::Consumption;
use crate::found::Found;

/// Decides the thread's budget.
pub(crate) enum Governor {
    /// Jobs marked by the application.
    Marked(TaskController),
    /// Jobs found in the thread's activations.
    Activations(TaskController, Box<Found>),
    /// Consumption per window, without known jobs.
    Consumption(Consumption),
}

impl Governor {
    /// The budget Q that it wants in every P; `floor` at rest.
    pub(crate) fn budget(&self, floor: Nanos) -> Nanos {
        match self {
            Governor::Marked(controller) | Governor::Activations(controller, _) => controller.budget(),
            Governor::Consumption(consumption) => consumption.budget(floor),
        }
    }

    /// Takes over the thread from `old`, with the consumption that was observed.
    pub(crate) fn inherit(&mut self, old: Governor) {
        match (self, old) {
            (Governor::Activations(_, found), Governor::Consumption(seen)) => found.rely_on(seen),
            (Governor::Consumption(consumption), Governor::Activations(_, found)) => {
                if let Some(seen) = found.into_consumption() {
                    *consumption = seen;
                }
            }
            _ => (),
        }
    }

    pub(crate) fn controller(&self) -> Option<&TaskController> {
        match self {
            Governor::Marked(controller) | Governor::Activations(controller, _) => Some(controller),
            Governor::Consumption(_) => None,
        }
    }

    pub(crate) fn due(&self) -> Instant {
        match self {
            Governor::Marked(_) => Instant::NEVER,
            Governor::Activations(_, found) => found.due(),
            Governor::Consumption(consumption) => consumption.due(),
        }
    }
}

/// A reservation in the form that the mechanism receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub reservation: Reservation,
    pub reclaiming: Reclaiming,
    pub terms: ServerTerms,
    /// Its bandwidth in the ledger: for a server that several threads share, counted once; with a window, less.
    pub counted: Share,
}

impl Value {
    /// Terms for the setting: a controller in the kernel decides within the granted budget.
    fn terms_to_tell(self) -> ServerTerms {
        let control = self.terms.control.map(|c| KernelController { max_budget: self.reservation.budget(), ..c });
        ServerTerms { control, ..self.terms }
    }

    /// The value limited to `most`; `None` if that is less than the kernel accepts.
    pub(crate) fn clipped(self, most: Share) -> Option<Value> {
        if self.counted <= most {
            return Some(self);
        }
        let period = self.reservation.period();
        let reservation = Reservation::new(most.budget_in(period), period).ok()?;
        Some(Value { reservation, counted: reservation.share(), ..self })
    }
}

/// The reason why the thread cannot be sent a new setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    /// The mechanism was sent this value and has not answered.
    Answer(Option<Value>),
    /// The mechanism had no room: try again at this time, or when the desired value changes to at most the applied
    /// one.
    Until(Instant, Option<Value>),
    /// The thread was to give back and was awake: try again at this time, or when the desired value changes.
    Awake(Instant, Option<Value>),
    /// The value increases and the ledger has no room: try again when some is freed.
    Room,
    /// The mechanism cannot even restore the thread: nothing more is tried.
    Denied,
}

/// One thread under a contract.
pub(crate) struct Thread {
    pub id: ThreadId,
    pub governor: Governor,
    /// What its jobs need, and what it therefore requests; from the last weighing.
    pub needs: Share,
    pub wants: Share,
    /// The reservation that it should have.
    pub desired: Option<Value>,
    /// The value that the mechanism confirmed last.
    pub applied: Option<Value>,
    pub wait: Wait,
    /// The mechanism refused a reservation permanently; cleared when the contract changes.
    pub denied: bool,
    /// Number of times in a row that the mechanism had no room.
    pub busy: u32,
    /// Whether it is in one of the host's queues.
    pub queued: bool,
    /// The setting on its way must be applied only while the thread sleeps.
    pub giving_back: bool,
    /// Largest share, in millionths, that it may still be consuming; counted in the host's ledger.
    pub booked: u64,
    /// When `booked` falls to the applied value; NEVER while they are equal.
    pub free_at: Instant,
    /// CPU time since the last election of the lead thread.
    pub used: Nanos,
    /// The place of its CPU in the ledger, if servers are bound to CPUs.
    pub place: Option<usize>,
    pub cpu: Option<u32>,
    /// Whether promises on its CPU fit only with windows, so that periods are aligned.
    pub aligned: bool,
    /// The part of what it holds there that is promised to its application, in millionths.
    pub promised: u64,
    /// It must shrink to this, because a promise needs the room; cleared when it has.
    pub ceiling: Option<Share>,
    /// The scheduling deadline of its server at the last end of a job.
    pub served: Option<Instant>,
    /// Its job has used up its budget: it wants the largest budget until the job ends.
    pub rescued: bool,
}

impl Thread {
    pub(crate) fn new(id: ThreadId, governor: Governor) -> Self {
        Thread {
            id,
            governor,
            needs: Share::ZERO,
            wants: Share::ZERO,
            desired: None,
            applied: None,
            wait: Wait::No,
            denied: false,
            busy: 0,
            queued: false,
            giving_back: false,
            booked: 0,
            free_at: Instant::NEVER,
            used: Nanos::ZERO,
            place: None,
            cpu: None,
            aligned: false,
            promised: 0,
            ceiling: None,
            served: None,
            rescued: false,
        }
    }

    /// Moves the thread to another application: what the kernel holds for it stays, what it waited for does not.
    pub(crate) fn handed_over(self, governor: Governor) -> Self {
        let Thread { id, applied, wait, giving_back, booked, free_at, place, cpu, promised, .. } = self;
        let wait = if matches!(wait, Wait::Answer(_)) { wait } else { Wait::No };
        let fresh = Thread::new(id, governor);
        Thread { applied, desired: applied, wait, giving_back, booked, free_at, place, cpu, promised, ..fresh }
    }

    /// Resets what depends on the mechanism, because the mechanism is gone.
    pub(crate) fn forget_mechanism(&mut self) {
        (self.applied, self.desired, self.wait) = (None, None, Wait::No);
        (self.denied, self.busy, self.queued, self.giving_back) = (false, 0, false, false);
        (self.booked, self.free_at) = (0, Instant::NEVER);
        (self.place, self.cpu, self.promised, self.ceiling) = (None, None, 0, None);
    }

    /// What it holds on its CPU beyond the promise there.
    pub(crate) fn loose(&self) -> u64 {
        self.booked.saturating_sub(self.promised)
    }

    /// Its bandwidth in force, or after the mechanism's answer, in millionths.
    pub(crate) fn holds(&self) -> u64 {
        let told = if let Wait::Answer(value) = self.wait { millionths(value) } else { 0 };
        told.max(millionths(self.applied))
    }

    /// Whether a setting must be sent.
    pub(crate) fn needs_setting(&self) -> bool {
        self.wait == Wait::No && self.desired != self.applied
    }

    /// Whether it need not wait any longer, because the desired value has changed.
    pub(crate) fn is_overtaken(&self) -> bool {
        match self.wait {
            Wait::Room => true,
            Wait::Awake(_, told) => self.desired != told,
            Wait::Until(_, refused) => self.desired != refused && millionths(self.desired) <= millionths(self.applied),
            _ => false,
        }
    }

    /// Whether its desired bandwidth is more than it may be consuming.
    pub(crate) fn grows(&self) -> bool {
        millionths(self.desired) > self.booked
    }

    /// Sets the desired value, unless the increase is too small to be worth a change.
    pub(crate) fn desire(&mut self, desired: Option<Value>) {
        let desired = match self.ceiling {
            Some(most) => desired.and_then(|value| value.clipped(most)),
            None => desired,
        };
        if let (Some(new), Some(old)) = (desired, self.applied) {
            let rise = new.reservation.share().saturating_sub(old.reservation.share());
            let same_kind = new.reclaiming == old.reclaiming
                && new.reservation.period() == old.reservation.period()
                && (new.terms, new.counted == Share::ZERO) == (old.terms, old.counted == Share::ZERO);
            let rises = new.reservation.budget() >= old.reservation.budget();
            if same_kind && rises && rise < crate::HYSTERESIS {
                self.desired = self.applied;
                return;
            }
        }
        self.desired = desired;
    }

    /// The value to request from the mechanism: the desired one; after `busy` refusals in a row only a part of the
    /// increase, halved each time, because there is less room than the ledger shows.
    pub(crate) fn ask(&self) -> Option<Value> {
        let value = self.desired?;
        let old = self.applied.map_or(Nanos::ZERO, |old| old.reservation.budget());
        let rise = value.reservation.budget().saturating_sub(old).get();
        let (rise, period) = (Nanos::new(rise >> self.busy.min(6)), value.reservation.period());
        if self.busy == 0 || rise == Nanos::ZERO || value.terms.group.is_some() {
            return Some(value);
        }
        let budget = (old + rise).max(MIN_BUDGET);
        let reservation = Reservation::new(budget, period).unwrap_or(value.reservation);
        Some(Value { reservation, counted: reservation.share(), ..value })
    }

    pub(crate) fn setting(&self, value: Option<Value>) -> Setting {
        Setting {
            thread: self.id,
            reservation: value.map(|value| value.reservation),
            reclaiming: value.map(|value| value.reclaiming).unwrap_or_default(),
            terms: value.map(Value::terms_to_tell).unwrap_or_default(),
        }
    }

    pub(crate) fn due(&self) -> Instant {
        let retry = match self.wait {
            Wait::Until(moment, _) | Wait::Awake(moment, _) => moment,
            _ => Instant::NEVER,
        };
        self.governor.due().min(self.free_at).min(retry)
    }
}

/// The bandwidth of a value in millionths.
pub(crate) fn millionths(value: Option<Value>) -> u64 {
    value.map_or(0, |value| u64::from(value.counted.ppm()))
}

/// `share` of `contract`'s server period as a value; `None` if it is less than the kernel accepts.
pub(crate) fn value_of(share: Share, contract: &Contract, terms: ServerTerms) -> Option<Value> {
    let period = contract.server_period;
    let budget = share.budget_in(period).min(period);
    let reservation = Reservation::new(budget, period).ok()?;
    Some(Value { reservation, reclaiming: contract.reclaiming, terms, counted: reservation.share() })
}
