//! The bandwidth that the kernel may be holding in reservations, thread by thread: the last check of Σ ≤ U_lub.
//! Shares in millionths of one CPU.
//!
//! The supervisor's accounting is about applications and intended grants; the ledger is about settings on their
//! way. A thread counts with the largest of its applied value, the value sent and not answered, and a value that
//! was decreased less than one server period ago, because a running thread may still consume that (AQuoSA §3.2). A
//! thread that gives back under GRUB counts with its applied value only: docs/design/0021. A setting is sent only
//! if it fits.
//!
//! If servers are bound to CPUs, each CPU has an account beside the sum: `room` is what its promises leave (Σ C/T
//! of them, without windows, so that the rest keeps its deadlines by EDF alone), `loose` is what its threads hold
//! beyond promises. No thread grows beyond the room; a thread without room on its CPU moves to the CPU with the
//! most.

use qfabric_types::{Instant, Nanos, Share};

use crate::thread::{Thread, Value, Wait, millionths};

/// The sum over all threads, and the accounts of the CPUs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    held: u64,
    /// Bandwidth that may still be consumed after a thread left or moved, each until a time.
    pending: Vec<PendingRelease>,
    /// Empty if servers are not bound to CPUs.
    cpus: Vec<CpuAccount>,
}

/// The account of one CPU.
#[derive(Clone, Debug)]
struct CpuAccount {
    id: u32,
    online: bool,
    room: u64,
    loose: u64,
}

#[derive(Clone, Copy, Debug)]
struct PendingRelease {
    due: Instant,
    /// Part of the sum over all CPUs.
    held: u64,
    /// A CPU, and the part of its loose bandwidth.
    loose: Option<(usize, u64)>,
}

impl Ledger {
    pub(crate) fn held(&self) -> Share {
        Share::from_ppm(self.held.min(u32::MAX.into()) as u32)
    }

    /// A ledger for servers bound to these CPUs.
    pub(crate) fn partitioned(cpus: &[u32], room: Share) -> Self {
        let books = |&id| CpuAccount { id, online: true, room: room.ppm().into(), loose: 0 };
        Ledger { cpus: cpus.iter().map(books).collect(), ..Ledger::default() }
    }

    /// Adds the account of a CPU, still without room.
    pub(crate) fn add(&mut self, cpu: u32) {
        self.cpus.push(CpuAccount { id: cpu, online: false, room: 0, loose: 0 });
    }

    /// Sets the room that promises leave on a CPU; `None`: the CPU is offline.
    pub(crate) fn set_room(&mut self, cpu: u32, room: Option<Share>) {
        if let Some(books) = self.cpus.iter_mut().find(|books| books.id == cpu) {
            (books.online, books.room) = (room.is_some(), room.unwrap_or_default().ppm().into());
        }
    }

    /// The place of a CPU in the ledger.
    pub(crate) fn place_of(&self, cpu: u32) -> Option<usize> {
        self.cpus.iter().position(|books| books.id == cpu)
    }

    /// What threads hold on a place beyond promises, and its room.
    pub(crate) fn loose_and_room(&self, place: usize) -> (u64, u64) {
        (self.cpus[place].loose, self.cpus[place].room)
    }

    /// A place at which `thread` could hold `wanted`, and how much of it: its own place if there is room, otherwise
    /// the one with the most room. A thread with a promise is `bound` to the promise's CPU, where the promise
    /// covers the given amount.
    pub(crate) fn find_place(&self, thread: &Thread, wanted: u64, bound: Option<(usize, u64)>) -> (usize, u64) {
        if let Some((place, covered)) = bound {
            return (place, self.most_on(place, thread, covered));
        }
        if let Some(place) = thread.place
            && self.most_on(place, thread, 0) >= wanted
        {
            return (place, wanted);
        }
        // Searching backwards, the last of equals is the one with the lowest place.
        let most =
            |&place: &usize| (self.cpus[place].online, self.most_on(place, thread, 0), thread.place == Some(place));
        let place = (0..self.cpus.len()).rev().max_by_key(most).expect("called only where there are CPUs");
        (place, self.most_on(place, thread, 0))
    }

    /// The most that `thread` could hold on a place. While others hold more there than the room, because a promise
    /// came and they have not shrunk yet, this is the value in force for the thread, if it is in force there.
    fn most_on(&self, place: usize, thread: &Thread, covered: u64) -> u64 {
        let CpuAccount { id, room, loose, online } = self.cpus[place];
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

    /// Ends a promise of `full`: its room stays occupied until the end of the period that may have begun.
    pub(crate) fn promise_ended(&mut self, cpu: u32, full: Share, due: Instant) {
        let Some(place) = self.place_of(cpu) else { return };
        self.cpus[place].loose += u64::from(full.ppm());
        self.pending.push(PendingRelease { due, held: 0, loose: Some((place, full.ppm().into())) });
    }

    /// From now on the thread is on `place`, where `promised` of its bandwidth is promised. What it leaves behind
    /// stays booked until the end of the period that may have begun.
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
                self.pending.push(PendingRelease { due: now + period, held: 0, loose: Some((old, behind)) });
            }
        }
        (thread.place, thread.promised) = (place, promised);
        if let Some(place) = place {
            self.cpus[place].loose += thread.loose();
        }
    }

    /// Whether `value` may be sent for `thread`.
    pub(crate) fn fits(&self, thread: &Thread, value: Option<Value>, capacity: Share) -> bool {
        let new = millionths(value);
        new <= thread.booked || self.held - thread.booked + new <= u64::from(capacity.ppm())
    }

    /// The largest value that may be sent for `thread`.
    pub(crate) fn most_for(&self, thread: &Thread, capacity: Share) -> Share {
        let free = u64::from(capacity.ppm()).saturating_sub(self.held);
        Share::from_ppm((free + thread.booked).min(u32::MAX.into()) as u32)
    }

    /// Records that `value` is sent to the mechanism.
    pub(crate) fn sent(&mut self, thread: &mut Thread, value: Option<Value>) {
        thread.wait = Wait::Answer(value);
        self.book(thread, millionths(value).max(thread.booked));
    }

    /// Records that the mechanism applied a value. A decrease stays booked for another server period, unless it is
    /// free `at_once` and no earlier one is still booked. Returns whether it was freed.
    pub(crate) fn applied(&mut self, thread: &mut Thread, value: Option<Value>, at_once: bool, now: Instant) -> bool {
        let free = at_once && thread.free_at == Instant::NEVER && millionths(value) < thread.booked;
        let before = thread.applied.map_or(Nanos::ZERO, |old| old.reservation.period());
        thread.applied = value;
        (thread.wait, thread.busy) = (Wait::No, 0);
        let settled = millionths(value) >= thread.booked;
        // An earlier decrease, such as from a reservation that it gave up, may take longer still.
        let earlier = if thread.free_at == Instant::NEVER { now } else { thread.free_at };
        thread.free_at = if settled || free { Instant::NEVER } else { earlier.max(now + before) };
        if free {
            self.book(thread, millionths(value));
        }
        free
    }

    /// Records that the mechanism did not apply a value: the old one is in force.
    pub(crate) fn failed(&mut self, thread: &mut Thread, wait: Wait) {
        thread.wait = wait;
        if thread.free_at == Instant::NEVER {
            self.book(thread, millionths(thread.applied));
        }
        self.move_back(thread);
    }

    /// Returns a thread that was not moved after all to its place in force.
    fn move_back(&mut self, thread: &mut Thread) {
        let lives_on = thread.applied.and_then(|value| value.terms.cpu);
        if lives_on.is_some() && lives_on != thread.cpu {
            let place = lives_on.and_then(|cpu| self.place_of(cpu));
            self.settle_on(thread, place, thread.promised, Instant::ZERO);
        }
    }

    /// Frees a decrease that is due. Returns whether there was one.
    pub(crate) fn free(&mut self, thread: &mut Thread, now: Instant) -> bool {
        if now < thread.free_at {
            return false;
        }
        thread.free_at = Instant::NEVER;
        self.book(thread, thread.holds());
        true
    }

    /// `thread` leaves a server for which it was counted; from now on `successor`, which is in the server, is
    /// counted for it.
    pub(crate) fn inherit(&mut self, thread: &mut Thread, successor: &mut Thread) {
        let (counted, booked) = (thread.applied.map(|value| value.counted), thread.booked);
        let (Some(of_server), Some(in_it)) = (counted, &mut successor.applied) else { return };
        in_it.counted = of_server;
        successor.free_at = std::mem::replace(&mut thread.free_at, Instant::NEVER);
        if let Some(value) = &mut thread.applied {
            value.counted = Share::ZERO;
        }
        self.book(thread, 0);
        self.book(successor, successor.booked + booked);
    }

    /// The thread has ended; frees what it held.
    pub(crate) fn forget(&mut self, thread: &mut Thread) {
        self.book(thread, 0);
    }

    /// The thread leaves its contract; what it was decreased from stays booked until that has taken effect.
    pub(crate) fn release_later(&mut self, thread: &mut Thread, now: Instant) {
        if thread.free_at != Instant::NEVER && thread.free_at > now {
            let loose = thread.place.map(|place| (place, thread.loose()));
            self.pending.push(PendingRelease { due: thread.free_at, held: thread.booked, loose });
            (thread.booked, thread.place) = (0, None);
        } else {
            self.book(thread, 0);
        }
    }

    /// Frees the releases that are due.
    pub(crate) fn free_pending(&mut self, now: Instant) {
        let Ledger { held, cpus, pending } = self;
        pending.retain(|release| {
            if release.due <= now {
                *held -= release.held;
                if let Some((place, loose)) = release.loose {
                    cpus[place].loose -= loose;
                }
            }
            release.due > now
        });
    }

    /// When the next pending release is due.
    pub(crate) fn next_pending(&self) -> Instant {
        self.pending.iter().map(|release| release.due).min().unwrap_or(Instant::NEVER)
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
