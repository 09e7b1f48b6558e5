//! From wishes to settings: wanted, granted, split, queued, told, answered. Shrinking before growing.
//!
//! A setting is told only when it fits beside everything that may still be consumed ([`Ledger`]). What the
//! mechanism has no room for is tried again later and for less; what it refuses for good leaves the thread
//! under the normal scheduler.
//!
//! [`Ledger`]: crate::ledger::Ledger

use qfabric_types::api::FoundRhythm;
use qfabric_types::{AppId, Demand, Instant, Nanos, Reclaiming, Share, ThreadId};

use super::{HYSTERESIS, Host};
use crate::app::rest::is_affordable;
use crate::rhythm::News;
use crate::thread::{Value, Wait, millionths};
use crate::{HostEvent, Outcome, Output};

/// [`HostEvent::Saturated`] and [`HostEvent::Satisfied`] of one application come no faster.
const TELL_AGAIN: Nanos = Nanos::from_millis(1_000);
/// The longest pause before a setting that found no room is tried again.
const LONGEST_RETRY: Nanos = Nanos::from_millis(1_000);
/// The first pause before what was given back is tried to be taken back again: the release is near.
const TAKE_BACK_RETRY: Nanos = Nanos::from_millis(1);

/// Applications ask for their shares, and give back between jobs, once what all jobs need passes this part of the capacity.
const CONTENDED_PERCENT: u64 = 50;
/// And no longer, once it falls below this part.
const CALM_PERCENT: u64 = 40;

impl Host {
    /// Tells the supervisor what the application wants now, and follows what comes of it.
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

    /// The same; answers whether the application at `asked` was among them, and need not be placed again.
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
        self.tell_saturation(at);
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

    fn tell_saturation(&mut self, at: usize) {
        let now = self.now;
        let app = &mut self.apps[at];
        let lacks = app.granted + HYSTERESIS < app.wanted;
        if app.leaving || lacks == app.saturated || (app.told_at != Instant::ZERO && now < app.told_at + TELL_AGAIN) {
            return;
        }
        (app.saturated, app.told_at) = (lacks, now.max(Instant::new(1)));
        let (app, wanted, granted) = (app.id, app.wanted, app.granted);
        self.event(if lacks {
            HostEvent::Saturated { app, wanted, granted }
        } else {
            HostEvent::Satisfied { app, granted }
        });
    }

    /// Keeps the sum over applications; one that leaves needs nothing.
    fn count_needs(&mut self, at: usize) {
        let app = &mut self.apps[at];
        let needs = app.needs();
        let before = std::mem::replace(&mut app.counted, needs);
        let (sum, count) = &mut self.needs;
        *sum = *sum - u64::from(before.ppm()) + u64::from(needs.ppm());
        *count = *count - usize::from(before > Share::ZERO) + usize::from(needs > Share::ZERO);
    }

    /// With room to spare feedback alone misses no more jobs than a static share, and reserves less; a lone application has
    /// nobody to give back to. The floor and giving back are for hosts where jobs compete (docs/design/0021).
    fn judge_load(&mut self) {
        if !self.config.abilities.gives_back {
            return;
        }
        let (needs, those) = self.needs;
        let bound = if self.contended { CALM_PERCENT } else { CONTENDED_PERCENT };
        let much = needs * 100 > u64::from(self.books.capacity().ppm()) * bound;
        let contended = those > 1 && much;
        if contended != self.contended {
            self.contended = contended;
            self.share_anew();
            self.rely_anew();
        }
    }

    /// Whether a thread that reclaims gets beyond its reservation what its jobs take: few others compete for it.
    fn lends(&self) -> bool {
        self.config.abilities.gives_back && !self.contended
    }

    fn lend_to(&mut self, at: usize) {
        let lent = self.lends();
        let app = &mut self.apps[at];
        if app.lent != lent {
            app.lent = lent;
            app.weigh();
        }
    }

    /// Whoever relied on what is lent, or may do so now, asks anew.
    fn rely_anew(&mut self) {
        for at in 0..self.apps.len() {
            if self.apps[at].lent != self.lends() {
                self.refresh(at);
                self.touch(at);
            }
        }
    }

    /// Recomputes each application's share of the capacity: what it asks for while it runs depends on it.
    pub(super) fn share_anew(&mut self) {
        let able = self.config.abilities.gives_back && self.contended && is_affordable(&self.apps);
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

    /// What to tell the mechanism about one queued thread, if it still needs telling and fits.
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
        self.ledger.told(thread, value);
        self.in_flight.push_back((app, thread.id));
        thread.giving_back = resting && value.is_some() && millionths(value) < millionths(thread.applied);
        let setting = thread.setting(value);
        Some(if thread.giving_back { Output::GiveBack(setting) } else { Output::Set(setting) })
    }

    /// Of `value`, for which there is no room, as much as there is: whoever takes back what it gave does not wait with less
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
            Outcome::Done => placed = self.obeyed(at, index, value),
            Outcome::Busy => self.busy(at, index, value),
            Outcome::Awake => self.awake(at, index, value),
            Outcome::Gone => return self.thread_gone(app, thread),
            Outcome::Denied(errno) => placed = self.denied(at, index, value, errno),
        }
        self.touch(at);
        if !placed {
            self.place(at);
        }
        self.bury_if_restored(at);
    }

    /// Answers whether the application was placed already, as [`Host::denied`] does.
    fn obeyed(&mut self, at: usize, index: usize, value: Option<Value>) -> bool {
        let mut placed = false;
        let reclaims = value.is_some_and(|value| value.reclaiming == Reclaiming::Grub);
        let at_once = reclaims && self.apps[at].gives_back();
        let thread = &mut self.apps[at].threads[index];
        (thread.ceiling, thread.giving_back) = (None, false);
        if self.ledger.obeyed(thread, value, at_once, self.now) {
            self.books.settle(self.apps[at].id, self.now);
            placed = self.places_by_grants(at);
            self.serve_starved();
        }
        self.apps[at].note_reserved(self.now);
        placed
    }

    /// The thread does not sleep yet, or paid for an overrun: tried again while that is worth it.
    fn awake(&mut self, at: usize, index: usize, value: Option<Value>) {
        let again = self.apps[at].retry_rest(self.now);
        let thread = &mut self.apps[at].threads[index];
        thread.giving_back = false;
        self.ledger.failed(thread, Wait::Awake(again, value));
    }

    /// Tried again after one server period, then two, four…, asking for less each time. Sooner by a thread that
    /// takes back what it gave.
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

    /// The thread goes back under the normal scheduler; where even that is refused, it is left alone.
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

    /// Runs every timer that is due.
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
        self.ledger.free_bequests(self.now);
        self.serve_starved();
        let earliest = self.apps.iter().map(|app| app.due).min().unwrap_or(Instant::NEVER);
        self.due = earliest.min(self.ledger.next_bequest());
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
        if let Some(news) = app.look_for_rhythm(now) {
            self.follow_rhythm(at, news);
        } else if decided {
            self.refresh(at);
        } else {
            self.place(at);
        }
        self.touch(at);
    }

    /// A period was found or lost: the contract is put in force anew with it.
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
            // Refused where servers are admitted one by one; consumption decides on, and the search goes on.
            Err(_) => self.apps[at].forget_rhythm(),
        }
    }

    /// Room was freed: who waited for it is queued again.
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
