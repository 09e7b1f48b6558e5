//! What the kernel may be holding in reservations, thread by thread: the last line of defence of Σ ≤ U_lub.
//! Shares in millionths of one CPU.
//!
//! The supervisor's books are about applications and about what should be; this is about settings on their
//! way. A thread counts with the largest of what is applied, what was told and not answered, and what was
//! lowered less than one server period ago: a running thread may still consume that (AQuoSA §3.2). A thread that gives
//! back under GRUB counts with what is applied only: docs/design/0021. Only what fits beside all that is told.
//!
//! Where servers are bound to CPUs, each CPU has books of its own beside the sum: `room` is what its promises
//! leave (Σ C/T of them, windows not taken into account, so that the rest keeps its deadlines by EDF alone),
//! `loose` what its threads hold beyond promises. Nothing grows beyond the room; a thread that finds none on its
//! CPU moves to the one with the most.

use qfabric_types::{Instant, Nanos, Share};

use crate::thread::{Thread, Value, Wait, millionths};

/// Σ over threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    held: u64,
    /// What threads that were let go, or moved, may still be consuming, and until when.
    bequests: Vec<Bequest>,
    /// Empty where servers are not bound to CPUs.
    cpus: Vec<Books>,
}

/// One CPU.
#[derive(Clone, Debug)]
struct Books {
    id: u32,
    online: bool,
    room: u64,
    loose: u64,
}

#[derive(Clone, Copy, Debug)]
struct Bequest {
    due: Instant,
    /// Of the sum over all CPUs.
    held: u64,
    /// Of what is loose on one.
    loose: Option<(usize, u64)>,
}

impl Ledger {
    pub(crate) fn held(&self) -> Share {
        Share::from_ppm(self.held.min(u32::MAX.into()) as u32)
    }

    /// Books for servers bound to these CPUs.
    pub(crate) fn partitioned(cpus: &[u32], room: Share) -> Self {
        let books = |&id| Books { id, online: true, room: room.ppm().into(), loose: 0 };
        Ledger { cpus: cpus.iter().map(books).collect(), ..Ledger::default() }
    }

    /// Books for one more CPU, of which nothing is to be had yet.
    pub(crate) fn add(&mut self, cpu: u32) {
        self.cpus.push(Books { id: cpu, online: false, room: 0, loose: 0 });
    }

    /// What promises leave of a CPU changed; `None`: it is gone.
    pub(crate) fn set_room(&mut self, cpu: u32, room: Option<Share>) {
        if let Some(books) = self.cpus.iter_mut().find(|books| books.id == cpu) {
            (books.online, books.room) = (room.is_some(), room.unwrap_or_default().ppm().into());
        }
    }

    /// Which books are those of `cpu`.
    pub(crate) fn place_of(&self, cpu: u32) -> Option<usize> {
        self.cpus.iter().position(|books| books.id == cpu)
    }

    /// What threads hold on a place beyond promises, and what there is room for.
    pub(crate) fn loose_and_room(&self, place: usize) -> (u64, u64) {
        (self.cpus[place].loose, self.cpus[place].room)
    }

    /// Where `thread` could hold `wanted`, and how much of it there: its own place if that has the room, else the
    /// one with the most. A thread with a promise is `bound` to that CPU, where so much is covered by it.
    pub(crate) fn find_place(&self, thread: &Thread, wanted: u64, bound: Option<(usize, u64)>) -> (usize, u64) {
        if let Some((place, covered)) = bound {
            return (place, self.most_on(place, thread, covered));
        }
        if let Some(place) = thread.place
            && self.most_on(place, thread, 0) >= wanted
        {
            return (place, wanted);
        }
        // The last of equals is the one met first when searching backwards: the lowest place.
        let most =
            |&place: &usize| (self.cpus[place].online, self.most_on(place, thread, 0), thread.place == Some(place));
        let place = (0..self.cpus.len()).rev().max_by_key(most).expect("called only where there are CPUs");
        (place, self.most_on(place, thread, 0))
    }

    /// The most that `thread` could hold on a place. While others hold more there than there is room, since a
    /// promise came and they have not shrunk yet, that is what is in force for it, if it is in force there.
    fn most_on(&self, place: usize, thread: &Thread, covered: u64) -> u64 {
        let Books { id, room, loose, online } = self.cpus[place];
        if !online {
            return 0;
        }
        let here = thread.place == Some(place);
        let others = loose - if here { thread.loose() } else { 0 };
        let in_force = thread.applied.filter(|value| here && value.terms.cpu == Some(id));
        match others > room {
            true if in_force.is_some() => millionths(in_force),
            true => 0,
            false => room - others + covered,
        }
    }

    /// A promise of `full` has ended: its room stays taken until the end of the period it may have begun.
    pub(crate) fn promise_ended(&mut self, cpu: u32, full: Share, due: Instant) {
        let Some(place) = self.place_of(cpu) else { return };
        self.cpus[place].loose += u64::from(full.ppm());
        self.bequests.push(Bequest { due, held: 0, loose: Some((place, full.ppm().into())) });
    }

    /// The thread lives on `place` from now on, where `promised` of what it holds is promised. What it leaves
    /// behind stays booked there until the end of a period it may have begun.
    pub(crate) fn settle_on(&mut self, thread: &mut Thread, place: Option<usize>, promised: u64, now: Instant) {
        thread.cpu = place.map(|place| self.cpus[place].id);
        if (thread.place, thread.promised) == (place, promised) {
            return;
        }
        if let Some(old) = thread.place {
            let behind = thread.loose();
            let period = thread.applied.map_or(Nanos::ZERO, |value| value.reservation.period());
            if thread.place == place || behind == 0 {
                self.cpus[old].loose -= behind;
            } else {
                self.bequests.push(Bequest { due: now + period, held: 0, loose: Some((old, behind)) });
            }
        }
        (thread.place, thread.promised) = (place, promised);
        if let Some(place) = place {
            self.cpus[place].loose += thread.loose();
        }
    }

    /// Whether `thread` may be told `value`.
    pub(crate) fn fits(&self, thread: &Thread, value: Option<Value>, capacity: Share) -> bool {
        let new = millionths(value);
        new <= thread.booked || self.held - thread.booked + new <= u64::from(capacity.ppm())
    }

    /// The most that `thread` may be told.
    pub(crate) fn most_for(&self, thread: &Thread, capacity: Share) -> Share {
        let free = u64::from(capacity.ppm()).saturating_sub(self.held);
        Share::from_ppm((free + thread.booked).min(u32::MAX.into()) as u32)
    }

    /// `value` is told to the mechanism.
    pub(crate) fn told(&mut self, thread: &mut Thread, value: Option<Value>) {
        thread.wait = Wait::Answer(value);
        self.book(thread, millionths(value).max(thread.booked));
    }

    /// The mechanism obeyed. A decrease stays booked for another server period, unless it is free `at_once` and no
    /// earlier one is still booked. Answers whether it was freed.
    pub(crate) fn obeyed(&mut self, thread: &mut Thread, value: Option<Value>, at_once: bool, now: Instant) -> bool {
        let free = at_once && thread.free_at == Instant::NEVER && millionths(value) < thread.booked;
        let before = thread.applied.map_or(Nanos::ZERO, |old| old.reservation.period());
        thread.applied = value;
        (thread.wait, thread.busy) = (Wait::No, 0);
        let settled = millionths(value) >= thread.booked;
        // An earlier decrease, such as from a reservation it has given up, may take longer still.
        let earlier = if thread.free_at == Instant::NEVER { now } else { thread.free_at };
        thread.free_at = if settled || free { Instant::NEVER } else { earlier.max(now + before) };
        if free {
            self.book(thread, millionths(value));
        }
        free
    }

    /// The mechanism did not obey: the old value is in force.
    pub(crate) fn failed(&mut self, thread: &mut Thread, wait: Wait) {
        thread.wait = wait;
        if thread.free_at == Instant::NEVER {
            self.book(thread, millionths(thread.applied));
        }
        self.move_back(thread);
    }

    /// A thread that was not moved after all lives where it lived.
    fn move_back(&mut self, thread: &mut Thread) {
        let lives_on = thread.applied.and_then(|value| value.terms.cpu);
        if lives_on.is_some() && lives_on != thread.cpu {
            let place = lives_on.and_then(|cpu| self.place_of(cpu));
            self.settle_on(thread, place, thread.promised, Instant::ZERO);
        }
    }

    /// Frees what is due. Answers whether anything was.
    pub(crate) fn free(&mut self, thread: &mut Thread, now: Instant) -> bool {
        if now < thread.free_at {
            return false;
        }
        thread.free_at = Instant::NEVER;
        self.book(thread, thread.holds());
        true
    }

    /// `thread` leaves a server that it counted for and that `heir` is in: what it counted is the heir's from now on.
    pub(crate) fn inherit(&mut self, thread: &mut Thread, heir: &mut Thread) {
        let (counted, booked) = (thread.applied.map(|value| value.counted), thread.booked);
        let (Some(of_server), Some(in_it)) = (counted, &mut heir.applied) else { return };
        in_it.counted = of_server;
        heir.free_at = std::mem::replace(&mut thread.free_at, Instant::NEVER);
        if let Some(value) = &mut thread.applied {
            value.counted = Share::ZERO;
        }
        self.book(thread, 0);
        self.book(heir, heir.booked + booked);
    }

    /// The thread is gone, and with it what it held.
    pub(crate) fn forget(&mut self, thread: &mut Thread) {
        self.book(thread, 0);
    }

    /// The thread is let go; what it was lowered from stays booked until that has taken effect.
    pub(crate) fn bequeath(&mut self, thread: &mut Thread, now: Instant) {
        if thread.free_at != Instant::NEVER && thread.free_at > now {
            let loose = thread.place.map(|place| (place, thread.loose()));
            self.bequests.push(Bequest { due: thread.free_at, held: thread.booked, loose });
            (thread.booked, thread.place) = (0, None);
        } else {
            self.book(thread, 0);
        }
    }

    /// Frees the bequests that are due.
    pub(crate) fn free_bequests(&mut self, now: Instant) {
        let Ledger { held, cpus, bequests } = self;
        bequests.retain(|bequest| {
            if bequest.due <= now {
                *held -= bequest.held;
                if let Some((place, loose)) = bequest.loose {
                    cpus[place].loose -= loose;
                }
            }
            bequest.due > now
        });
    }

    /// When the next bequest is due.
    pub(crate) fn next_bequest(&self) -> Instant {
        self.bequests.iter().map(|bequest| bequest.due).min().unwrap_or(Instant::NEVER)
    }

    fn book(&mut self, thread: &mut Thread, booked: u64) {
        self.held = self.held - thread.booked + booked;
        let before = thread.loose();
        thread.booked = booked;
        if let Some(place) = thread.place {
            self.cpus[place].loose = self.cpus[place].loose - before + thread.loose();
        }
    }
}
