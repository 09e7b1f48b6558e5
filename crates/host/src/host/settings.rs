//! From wants to settings: wanted, granted, split, queued, sent, answered. Decreases come before increases.
//!
//! A setting is sent only if it fits beside everything that may still be consumed ([`Ledger`]). A setting for which
//! the mechanism has no room is tried again later with less; if the mechanism refuses it permanently, the thread
//! stays under the normal scheduler.
//!
//! [`Ledger`]: crate::ledger::Ledger

use qfabric_types::api::FoundRhythm;
use qfabric_types::{AppId, Demand, Instant, Nanos, Reclaiming, Share, ThreadId};

use super::{HYSTERESIS, Host};
use crate::app::rest::{is_affordable, is_full};
use crate::rhythm::News;
use crate::thread::{Value, Wait, millionths};
use crate::{HostEvent, Outcome, Output};

/// Shortest time between [`HostEvent::Saturated`] and [`HostEvent::Satisfied`] of one application.
const REPORT_INTERVAL: Nanos = Nanos::from_millis(1_000);
/// Longest pause before a setting without room is tried again.
const LONGEST_RETRY: Nanos = Nanos::from_millis(1_000);
/// First pause before a thread tries again to take back what it gave: its release is near.
const TAKE_BACK_RETRY: Nanos = Nanos::from_millis(1);

/// Giving back begins when the needs of all jobs exceed this part of the capacity.
const CONTENDED_PERCENT: u64 = 50;
/// Giving back ends when the needs fall below this part.
const CALM_PERCENT: u64 = 40;

impl Host {
    /// Reports the application's present wants to the supervisor and applies the grants that change.
    pub(super) fn refresh(&mut self, at: usize) {
        self.apps[at].weigh();
        self.count_needs(at);
        self.judge_load();
        self.lend_to(at);
        let app = &mut self.apps[at];
        let wants = app.wants();
        let moved = wants.max(app.wanted) - wants.min(app.wanted);
        let from_or_to_nothing = wants == Share::ZERO || app.wanted == Share::ZERO;
        if moved >= HYSTERESIS || (from_or_to_nothing && moved > Share::ZERO) {
            app.wanted = wants;
            self.books.want(Demand { app: app.id, share: wants }, self.now);
            if self.places_by_grants(at) {
                return;
            }
        }
        self.place_as_weighed(at);
    }

    /// Places each application whose grant changed.
    pub(super) fn follow_grants(&mut self) {
        let nobody = self.apps.len();
        self.places_by_grants(nobody);
    }

    /// As [`Host::follow_grants`]. Returns whether the application at `asked` was placed, so that it need not be
    /// placed again.
    fn places_by_grants(&mut self, asked: usize) -> bool {
        let mut placed = false;
        while let Some((app, granted)) = { self.books.grants().next() } {
            if let Some(at) = self.find(app) {
                self.apps[at].granted = granted;
                self.place(at);
                placed |= at == asked;
            }
        }
        placed
    }

    /// Splits an application's grant and queues the settings that follow.
    pub(super) fn place(&mut self, at: usize) {
        self.apps[at].weigh();
        self.place_as_weighed(at);
    }

    fn place_as_weighed(&mut self, at: usize) {
        self.report_saturation(at);
        let app = &mut self.apps[at];
        app.split();
        for thread in &mut app.threads {
            if thread.is_overtaken() {
                thread.wait = Wait::No;
            }
            if thread.needs_setting() && !thread.queued {
                thread.queued = true;
                let queue = if thread.grows() { &mut self.grows } else { &mut self.shrinks };
                queue.push_back((app.id, thread.id));
            }
        }
    }

    fn report_saturation(&mut self, at: usize) {
        let now = self.now;
        let app = &mut self.apps[at];
        let lacks = app.granted + HYSTERESIS < app.unlimited();
        if app.leaving
            || lacks == app.saturated
            || (app.told_at != Instant::ZERO && now < app.told_at + REPORT_INTERVAL)
        {
            return;
        }
        (app.saturated, app.told_at) = (lacks, now.max(Instant::new(1)));
        let (app, wanted, granted) = (app.id, app.unlimited(), app.granted);
        self.event(if lacks {
            HostEvent::Saturated { app, wanted, granted }
        } else {
            HostEvent::Satisfied { app, granted }
        });
    }

    /// Updates the sums of needs and costs over all applications; a leaving one needs nothing.
    fn count_needs(&mut self, at: usize) {
        let app = &mut self.apps[at];
        let needs = app.needs();
        let costs = app.costs();
        let (before, cost_before) = std::mem::replace(&mut app.counted, (needs, costs));
        self.costs = self.costs - u64::from(cost_before.ppm()) + u64::from(costs.ppm());
        let (sum, count) = &mut self.needs;
        *sum = *sum - u64::from(before.ppm()) + u64::from(needs.ppm());
        *count = *count - usize::from(before > Share::ZERO) + usize::from(needs > Share::ZERO);
    }

    /// Decides whether jobs compete for the capacity, and whether their costs fill it. With room to spare, feedback
    /// alone misses no more jobs than a static share and reserves less, and a lone application has none to give back
    /// to. The floor and giving back are for hosts on which jobs compete (docs/design/0021).
    fn judge_load(&mut self) {
        if !self.config.features.gives_back {
            return self.set_full(false);
        }
        let (needs, those) = self.needs;
        let bound = if self.contended { CALM_PERCENT } else { CONTENDED_PERCENT };
        let much = needs * 100 > u64::from(self.books.capacity().ppm()) * bound;
        let contended = those > 1 && much;
        if contended != self.contended {
            self.contended = contended;
            self.recompute_shares();
            self.recheck_lending();
        }
        // Read again: other applications may have been refreshed.
        let several = self.needs.1 > 1;
        self.set_full(several && is_full(self.full, self.costs, self.books.capacity().ppm().into()));
    }

    /// Notes whether the costs fill the capacity, which changes the requests of late applications.
    fn set_full(&mut self, full: bool) {
        if full == self.full {
            return;
        }
        self.full = full;
        self.apps.iter_mut().for_each(|app| app.set_full(full));
        for at in 0..self.apps.len() {
            if self.apps[at].is_late() {
                self.refresh(at);
                self.touch(at);
            }
        }
    }

    /// Whether a thread that reclaims gets what its jobs need beyond its reservation, because few others compete
    /// for it.
    fn lends(&self) -> bool {
        self.config.features.gives_back && !self.contended
    }

    fn lend_to(&mut self, at: usize) {
        let lent = self.lends();
        let app = &mut self.apps[at];
        if app.lent != lent {
            app.lent = lent;
            app.weigh();
        }
    }

    /// Refreshes the applications whose reliance on unused time of others changes.
    fn recheck_lending(&mut self) {
        for at in 0..self.apps.len() {
            if self.apps[at].lent != self.lends() {
                self.refresh(at);
                self.touch(at);
            }
        }
    }

    /// Recomputes each application's share of the capacity, which bounds what it requests while it runs.
    pub(super) fn recompute_shares(&mut self) {
        let able = self.config.features.gives_back && self.contended && is_affordable(&self.apps);
        if !able && self.apps.iter().all(|app| !app.gives_back()) {
            return;
        }
        for (app, share) in self.books.shares() {
            if let Some(at) = self.find(app) {
                self.apps[at].set_share(able, share);
                self.books.free_at_once(app, self.apps[at].gives_back());
                self.refresh(at);
                self.touch(at);
            }
        }
    }

    /// The output for one queued thread, if it still needs a setting and the setting fits.
    pub(super) fn issue(&mut self, app: AppId, thread: ThreadId) -> Option<Output> {
        let at = self.find(app)?;
        let index = self.apps[at].find(thread)?;
        let thread = &mut self.apps[at].threads[index];
        thread.queued = false;
        if !thread.needs_setting() {
            return None;
        }
        let mut value = thread.ask();
        if let (Some(asked), true) = (value, self.partition.is_some()) {
            value = self.settle_place(at, index, asked);
            let thread = &mut self.apps[at].threads[index];
            if value.is_none() {
                thread.wait = Wait::Room;
                self.starved = true;
                return None;
            }
        }
        let resting = self.apps[at].is_resting();
        let thread = &mut self.apps[at].threads[index];
        if !self.ledger.fits(thread, value, self.books.capacity()) {
            match self.part_that_fits(at, index, value) {
                Some(part) => value = Some(part),
                None => {
                    self.apps[at].threads[index].wait = Wait::Room;
                    self.starved = true;
                    return None;
                }
            }
        }
        let thread = &mut self.apps[at].threads[index];
        self.ledger.sent(thread, value);
        self.in_flight.push_back((app, thread.id));
        thread.giving_back = resting && value.is_some() && millionths(value) < millionths(thread.applied);
        let setting = thread.setting(value);
        Some(if thread.giving_back { Output::GiveBack(setting) } else { Output::Set(setting) })
    }

    /// As much of `value` as there is room for. An application that takes back what it gave does not wait with less
    /// than it could have.
    fn part_that_fits(&self, at: usize, index: usize, value: Option<Value>) -> Option<Value> {
        let (app, thread) = (&self.apps[at], &self.apps[at].threads[index]);
        let part = value?.clipped(self.ledger.most_for(thread, self.books.capacity()))?;
        let least = millionths(thread.applied) + u64::from(HYSTERESIS.ppm());
        (app.gives_back() && millionths(Some(part)) >= least).then_some(part)
    }

    pub(super) fn applied(&mut self, thread: ThreadId, outcome: Outcome) {
        let Some(place) = self.in_flight.iter().position(|&(_, told)| told == thread) else { return self.ignore() };
        let (app, _) = self.in_flight.remove(place).expect("the place was just found");
        let Some(at) = self.find(app) else { return };
        let Some(index) = self.apps[at].find(thread) else { return };
        let Wait::Answer(value) = self.apps[at].threads[index].wait else { return };
        let mut placed = false;
        match outcome {
            Outcome::Done => placed = self.confirmed(at, index, value),
            Outcome::Busy => self.busy(at, index, value),
            Outcome::Awake => self.awake(at, index, value),
            Outcome::Gone => return self.thread_gone(app, thread),
            Outcome::Denied(errno) => placed = self.denied(at, index, value, errno),
        }
        self.touch(at);
        if !placed {
            self.place(at);
        }
        self.remove_if_restored(at);
    }

    /// Handles a confirmed setting. Returns whether the application was placed already, as [`Host::denied`] does.
    fn confirmed(&mut self, at: usize, index: usize, value: Option<Value>) -> bool {
        let mut placed = false;
        let reclaims = value.is_some_and(|value| value.reclaiming == Reclaiming::Grub);
        let at_once = reclaims && self.apps[at].gives_back();
        let thread = &mut self.apps[at].threads[index];
        (thread.ceiling, thread.giving_back) = (None, false);
        if self.ledger.applied(thread, value, at_once, self.now) {
            self.books.settle(self.apps[at].id, self.now);
            placed = self.places_by_grants(at);
            self.serve_starved();
        }
        self.apps[at].note_reserved(self.now);
        placed
    }

    /// The thread does not sleep yet, or pays for an overrun: tries again while that is worth it.
    fn awake(&mut self, at: usize, index: usize, value: Option<Value>) {
        let again = self.apps[at].retry_rest(self.now);
        let thread = &mut self.apps[at].threads[index];
        thread.giving_back = false;
        self.ledger.failed(thread, Wait::Awake(again, value));
    }

    /// Tries again after one server period, then two, four …, with less each time. A thread that takes back what it
    /// gave tries sooner.
    fn busy(&mut self, at: usize, index: usize, value: Option<Value>) {
        let app = &mut self.apps[at];
        let period = app.contract.server_period;
        let first = if app.gives_back() { TAKE_BACK_RETRY.min(period) } else { period };
        let thread = &mut app.threads[index];
        thread.busy = (thread.busy + 1).min(16);
        thread.giving_back = false;
        let pause = first.saturating_mul(1 << (thread.busy - 1)).min(LONGEST_RETRY);
        self.ledger.failed(thread, Wait::Until(self.now + pause, value));
        let event = HostEvent::Busy { app: app.id, thread: thread.id, attempts: thread.busy };
        if thread.busy.is_power_of_two() {
            self.event(event);
        }
    }

    /// Returns the thread to the normal scheduler; if even that is refused, leaves the thread alone.
    fn denied(&mut self, at: usize, index: usize, value: Option<Value>, errno: i32) -> bool {
        let app = &mut self.apps[at];
        let thread = &mut app.threads[index];
        thread.denied = true;
        let hopeless = value.is_none();
        self.ledger.failed(thread, if hopeless { Wait::Denied } else { Wait::No });
        let event = HostEvent::Denied { app: app.id, thread: thread.id, errno };
        self.event(event);
        self.refresh(at);
        true
    }

    pub(super) fn touch(&mut self, at: usize) {
        self.apps[at].due = self.apps[at].find_due();
        self.due = self.due.min(self.apps[at].due);
    }

    pub(super) fn on_time(&mut self) {
        if self.books.next_wakeup().is_some_and(|due| due <= self.now) {
            self.books.on_time(self.now);
            self.follow_grants();
        }
        if self.now < self.due {
            return;
        }
        for at in 0..self.apps.len() {
            if self.apps[at].due <= self.now {
                self.on_time_of(at);
            }
        }
        self.ledger.free_pending(self.now);
        self.serve_starved();
        let earliest = self.apps.iter().map(|app| app.due).min().unwrap_or(Instant::NEVER);
        self.due = earliest.min(self.ledger.next_pending());
    }

    fn on_time_of(&mut self, at: usize) {
        let (now, app) = (self.now, &mut self.apps[at]);
        for thread in &mut app.threads {
            self.ledger.free(thread, now);
            if matches!(thread.wait, Wait::Until(moment, _) | Wait::Awake(moment, _) if moment <= now) {
                thread.wait = Wait::No;
            }
        }
        let decided = app.on_time(now);
        self.report_job(at);
        if let Some(news) = self.apps[at].look_for_rhythm(now) {
            self.follow_rhythm(at, news);
        } else if decided {
            self.refresh(at);
        } else {
            self.place(at);
        }
        self.touch(at);
    }

    /// A period was found or lost: changes the contract in force accordingly.
    fn follow_rhythm(&mut self, at: usize, news: News) {
        let (app, contract) = (self.apps[at].id, self.apps[at].contract.clone());
        let event = match news {
            News::Found(FoundRhythm { period, confidence, after }) => {
                HostEvent::RhythmFound { app, period, percent: (100.0 * confidence).round() as u32, after }
            }
            News::Lost(lost) => HostEvent::RhythmLost { app, period: lost.period },
        };
        let contract = match news {
            News::Found(found) => contract.with_period(found.period),
            News::Lost(_) => contract,
        };
        match self.change(app, contract) {
            Ok(()) => self.event(event),
            // Refused if servers are admitted one by one. Consumption decides, and the search continues.
            Err(_) => self.apps[at].forget_rhythm(),
        }
    }

    /// Room was freed: queues the threads that waited for it.
    pub(super) fn serve_starved(&mut self) {
        if !std::mem::take(&mut self.starved) {
            return;
        }
        for at in 0..self.apps.len() {
            if self.apps[at].threads.iter().any(|thread| thread.wait == Wait::Room) {
                self.place(at);
            }
        }
    }
}
