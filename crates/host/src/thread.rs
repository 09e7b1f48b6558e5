//! One thread: what governs its budget, what it should have, and what the kernel may still hold for it.

use qfabric_control::TaskController;
use qfabric_types::{
    Contract, Instant, KernelControl, MIN_BUDGET, Nanos, Reclaiming, Reservation, Setting, Share, Terms, ThreadId,
};

use crate::consumption::Consumption;
use crate::found::Found;

/// What decides the thread's budget.
pub(crate) enum Governor {
    /// Jobs marked by the application.
    Marked(TaskController),
    /// Jobs found in the thread's activations.
    Activations(TaskController, Box<Found>),
    /// Consumption per window; nothing is known of jobs.
    Consumption(Consumption),
}

impl Governor {
    /// Q it wants in every P; `floor` where it is at rest.
    pub(crate) fn budget(&self, floor: Nanos) -> Nanos {
        match self {
            Governor::Marked(controller) | Governor::Activations(controller, _) => controller.budget(),
            Governor::Consumption(consumption) => consumption.budget(floor),
        }
    }

    /// It governs a thread that `old` governed: what the thread was seen to consume is known.
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

    /// When it wants to be told the time.
    pub(crate) fn due(&self) -> Instant {
        match self {
            Governor::Marked(_) => Instant::NEVER,
            Governor::Activations(_, found) => found.due(),
            Governor::Consumption(consumption) => consumption.due(),
        }
    }
}

/// A reservation as the mechanism is told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub reservation: Reservation,
    pub reclaiming: Reclaiming,
    pub terms: Terms,
    /// What it counts in the books: of a server that several threads share, once; with a window, less.
    pub counted: Share,
}

impl Value {
    /// A controller in the kernel decides within the budget that is granted.
    fn terms_to_tell(self) -> Terms {
        let control = self.terms.control.map(|c| KernelControl { max_budget: self.reservation.budget(), ..c });
        Terms { control, ..self.terms }
    }

    /// The same for at most `most`; none where that buys less than the kernel accepts.
    pub(crate) fn clipped(self, most: Share) -> Option<Value> {
        if self.counted <= most {
            return Some(self);
        }
        let period = self.reservation.period();
        let reservation = Reservation::new(most.budget_in(period), period).ok()?;
        Some(Value { reservation, counted: reservation.share(), ..self })
    }
}

/// What stands between the thread and a new setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Nothing.
    No,
    /// The mechanism was told this and has not answered.
    Answer(Option<Value>),
    /// The mechanism had no room: again at this moment, or when something else is desired that is no more than
    /// what is applied.
    Until(Instant, Option<Value>),
    /// It was to give back and was awake: again at this moment, or when something else is desired.
    Awake(Instant, Option<Value>),
    /// It grows, and there is no room in our own books: again when some is freed.
    Room,
    /// The mechanism does not even put the thread back: nothing more is tried.
    Denied,
}

/// One thread under a contract.
pub(crate) struct Thread {
    pub id: ThreadId,
    pub governor: Governor,
    /// What its jobs need, and what it asks for in view of that; of the last weighing.
    pub needs: Share,
    pub wants: Share,
    /// What it should have.
    pub desired: Option<Value>,
    /// What the mechanism last confirmed.
    pub applied: Option<Value>,
    pub wait: Wait,
    /// The mechanism refused a reservation for it for good; cleared when the contract changes.
    pub denied: bool,
    /// How often in a row the mechanism had no room.
    pub busy: u32,
    /// In one of the host's queues.
    pub queued: bool,
    /// What the mechanism was told and has not answered is to be done only while the thread sleeps.
    pub giving_back: bool,
    /// Largest share, in millionths, that it may still be consuming; in the host's ledger.
    pub booked: u64,
    /// When `booked` falls to what is applied; NEVER while they are equal.
    pub free_at: Instant,
    /// CPU time since the last election of the lead thread.
    pub used: Nanos,
    /// Where servers are bound to CPUs: the books of its CPU in the ledger, once it has one.
    pub place: Option<usize>,
    /// That CPU.
    pub cpu: Option<u32>,
    /// Promises there need windows to fit: periods are aligned.
    pub aligned: bool,
    /// How much of what it holds there is promised to its application, in millionths.
    pub promised: u64,
    /// It must shrink to this, since a promise needs the room; until it has.
    pub ceiling: Option<Share>,
    /// The scheduling deadline of its server when it was last seen to end a job.
    pub served: Option<Instant>,
    /// Its job has used up its budget: it wants all that it may have, until the job ends.
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

    /// Another application's from now on: what the kernel holds for it goes on, what it waited for does not.
    pub(crate) fn handed_over(self, governor: Governor) -> Self {
        let Thread { id, applied, wait, giving_back, booked, free_at, place, cpu, promised, .. } = self;
        let wait = if matches!(wait, Wait::Answer(_)) { wait } else { Wait::No };
        let fresh = Thread::new(id, governor);
        Thread { applied, desired: applied, wait, giving_back, booked, free_at, place, cpu, promised, ..fresh }
    }

    /// The mechanism is gone, and with it all that it was told; the books begin anew.
    pub(crate) fn forget_mechanism(&mut self) {
        (self.applied, self.desired, self.wait) = (None, None, Wait::No);
        (self.denied, self.busy, self.queued, self.giving_back) = (false, 0, false, false);
        (self.booked, self.free_at) = (0, Instant::NEVER);
        (self.place, self.cpu, self.promised, self.ceiling) = (None, None, 0, None);
    }

    /// What it holds on its CPU beyond what is promised there.
    pub(crate) fn loose(&self) -> u64 {
        self.booked.saturating_sub(self.promised)
    }

    /// What is in force for it, or will be when the mechanism answers, in millionths.
    pub(crate) fn holds(&self) -> u64 {
        let told = if let Wait::Answer(value) = self.wait { millionths(value) } else { 0 };
        told.max(millionths(self.applied))
    }

    /// Whether the mechanism is to be told something.
    pub(crate) fn needs_setting(&self) -> bool {
        self.wait == Wait::No && self.desired != self.applied
    }

    /// Whether it need not wait any more for what it waited for when something else was desired.
    pub(crate) fn is_overtaken(&self) -> bool {
        match self.wait {
            Wait::Room => true,
            Wait::Awake(_, told) => self.desired != told,
            Wait::Until(_, refused) => self.desired != refused && millionths(self.desired) <= millionths(self.applied),
            _ => false,
        }
    }

    /// Whether what it should have is more than it may be consuming.
    pub(crate) fn grows(&self) -> bool {
        millionths(self.desired) > self.booked
    }

    /// Sets what it should have, unless that is so little more than it has that a change is not worth it.
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

    /// What to ask the mechanism for: what is desired, or after `busy` refusals in a row only a part of the
    /// increase, halved each time, since its room is less than we believed.
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

    /// When it wants to be told the time.
    pub(crate) fn due(&self) -> Instant {
        let retry = match self.wait {
            Wait::Until(moment, _) | Wait::Awake(moment, _) => moment,
            _ => Instant::NEVER,
        };
        self.governor.due().min(self.free_at).min(retry)
    }
}

/// The share of a value in millionths.
pub(crate) fn millionths(value: Option<Value>) -> u64 {
    value.map_or(0, |value| u64::from(value.counted.ppm()))
}

/// `share` of `contract`'s server period as a value; none where it buys less than the kernel accepts.
pub(crate) fn value_of(share: Share, contract: &Contract, terms: Terms) -> Option<Value> {
    let period = contract.server_period;
    let budget = share.budget_in(period).min(period);
    let reservation = Reservation::new(budget, period).ok()?;
    Some(Value { reservation, reclaiming: contract.reclaiming, terms, counted: reservation.share() })
}
