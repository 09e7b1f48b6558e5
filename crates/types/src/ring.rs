//! The ring through which an application reports its jobs to the daemon, without system calls.
//!
//! One producer (a thread of the application) and one consumer (the daemon's control thread) map the same memory.
//! Every word is atomic, so either side may write garbage at any time, and the other side still has defined
//! behaviour: the consumer keeps its own position, takes a bounded number of records, and checks each record.
//!
//! **Waking.** The daemon looks at every ring at times that it chooses, and writes into `wake_before` the time
//! until which the next look is promised. A producer that finishes before that time need not wake the daemon;
//! otherwise it makes one wake-up call. Both sides put a full fence between their write and their read, so a look
//! that has just passed never leaves a record behind.

use crate::shared::{self, AtomicU64, Ordering, fence};
use crate::{Foresight, Instant, JobRecord, Nanos, Overload};

/// Number of records in a ring: ten seconds of a 25 Hz application while the daemon restarts. A record that finds
/// the ring full is dropped and counted.
pub const CAPACITY: usize = shared::RECORDS;
const MAGIC: u64 = u64::from_le_bytes(*b"qfring\0\x01");
const KIND_END: u64 = 1;
const KIND_BEGIN: u64 = 2;
const DAY_NS: u64 = 86_400_000_000_000;

/// A record in a ring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JobEvent {
    /// A job ended.
    End(JobRecord),
    /// A job begins, with foresight about it.
    Begin {
        k: u64,
        /// Foresight about the job.
        known: Foresight,
    },
}

/// The result of pushing a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// The record is in the ring, and the daemon's next look comes soon enough.
    Quiet,
    /// The record is in the ring, and the daemon sleeps: wake it.
    Wake,
    /// The ring is full; the record is dropped and counted.
    Dropped,
}

#[repr(C, align(64))]
struct Line([AtomicU64; 8]);

impl Line {
    fn zeros() -> Line {
        Line(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// The shared memory of a ring. All zeros until [`JobRing::initialize`].
#[repr(C, align(64))]
pub struct JobRing {
    /// Written by the daemon once: magic, capacity.
    identity: Line,
    /// Written by the producer: head, dropped.
    producer: Line,
    /// Written by the daemon: tail, wake_before, granted budget, granted period, last error, jobs taken, overload,
    /// predicted cost.
    consumer: Line,
    slots: [Line; CAPACITY],
}

/// The information that the daemon passes to the application through the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// Q of the reservation in force; 0 without a reservation.
    pub budget: Nanos,
    /// P.
    pub period: Nanos,
    /// Scheduling error of the last taken job, in ns.
    pub error_ns: i64,
    /// Number of jobs taken so far.
    pub jobs: u64,
    /// Present while the application requests more than its grant, job after job.
    pub overload: Option<Overload>,
    /// The predicted CPU time of the next job: the middle of the predicted interval; 0 without a prediction.
    pub predicted: Nanos,
}

impl Default for JobRing {
    /// All zeros, in memory that is not shared.
    fn default() -> JobRing {
        let slots = std::array::from_fn(|_| Line::zeros());
        JobRing { identity: Line::zeros(), producer: Line::zeros(), consumer: Line::zeros(), slots }
    }
}

impl JobRing {
    /// Initialises new, zeroed memory as a ring. The daemon does this before it passes the memory on.
    pub fn initialize(&self) {
        self.identity.0[1].store(CAPACITY as u64, Ordering::Relaxed);
        self.identity.0[0].store(MAGIC, Ordering::Release);
    }

    /// Whether this memory is a ring of this version.
    pub fn is_valid(&self) -> bool {
        self.identity.0[0].load(Ordering::Acquire) == MAGIC
            && self.identity.0[1].load(Ordering::Relaxed) == CAPACITY as u64
    }

    /// Publishes the daemon's promise to look at this ring at `moment` at the latest; [`Instant::ZERO`] means no
    /// promise. The daemon must look ([`Consumer::take`]) after this call and before it sleeps.
    pub fn promise_look(&self, moment: Instant) {
        self.consumer.0[1].store(moment.get(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Publishes the present grant. A reader may see fields of two grants for a short time; each field is whole.
    pub fn publish(&self, grant: Grant) {
        let Grant { budget, period, error_ns, jobs, overload, predicted } = grant;
        let words = [budget.get(), period.get(), error_ns as u64, jobs, Overload::word(overload), predicted.get()];
        for (word, value) in self.consumer.0[2..].iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The grant that the daemon published last.
    pub fn grant(&self) -> Grant {
        let word = |i: usize| self.consumer.0[i].load(Ordering::Relaxed);
        Grant {
            budget: Nanos::new(word(2)),
            period: Nanos::new(word(3)),
            error_ns: word(4) as i64,
            jobs: word(5),
            overload: Overload::of_word(word(6)),
            predicted: Nanos::new(word(7)),
        }
    }

    /// Number of records that the producer dropped, as the producer counts them.
    pub fn dropped(&self) -> u64 {
        self.producer.0[1].load(Ordering::Relaxed)
    }
}

/// The application's side. A ring has one producer.
#[derive(Debug, Default)]
pub struct Producer {
    head: u64,
}

impl Producer {
    /// Puts `event`, which happened at `now`, into `ring`. Wait-free, without a system call.
    pub fn push(&mut self, ring: &JobRing, event: JobEvent, now: Instant) -> PushOutcome {
        let tail = ring.consumer.0[0].load(Ordering::Acquire);
        if self.head.wrapping_sub(tail) >= CAPACITY as u64 {
            ring.producer.0[1].fetch_add(1, Ordering::Relaxed);
            return PushOutcome::Dropped;
        }
        let slot = &ring.slots[self.head as usize % CAPACITY];
        for (word, value) in slot.0.iter().zip(encode(event)) {
            word.store(value, Ordering::Relaxed);
        }
        self.head = self.head.wrapping_add(1);
        ring.producer.0[0].store(self.head, Ordering::Release);
        fence(Ordering::SeqCst);
        let wake_before = ring.consumer.0[1].load(Ordering::Relaxed);
        if now.get() < wake_before { PushOutcome::Quiet } else { PushOutcome::Wake }
    }
}

/// The daemon's side. A ring has one consumer.
#[derive(Debug, Default)]
pub struct Consumer {
    tail: u64,
    /// Number of records that were invalid, or were skipped because the producer's position was impossible.
    pub rejected: u64,
}

impl Consumer {
    /// Takes the next event, if there is one. Invalid records are skipped and counted; one call examines at most as
    /// many records as the ring holds.
    pub fn take(&mut self, ring: &JobRing) -> Option<JobEvent> {
        for _ in 0..CAPACITY {
            let head = ring.producer.0[0].load(Ordering::Acquire);
            let ready = head.wrapping_sub(self.tail);
            if ready == 0 {
                return None;
            }
            if ready > CAPACITY as u64 {
                // Impossible for an honest producer: continue at its position and skip the records.
                self.rejected += 1;
                self.advance(ring, head);
                return None;
            }
            let slot = &ring.slots[self.tail as usize % CAPACITY];
            let words = std::array::from_fn(|i| slot.0[i].load(Ordering::Relaxed));
            self.advance(ring, self.tail.wrapping_add(1));
            match decode(words) {
                Some(event) => return Some(event),
                None => self.rejected += 1,
            }
        }
        None
    }

    fn advance(&mut self, ring: &JobRing, tail: u64) {
        self.tail = tail;
        ring.consumer.0[0].store(tail, Ordering::Release);
    }
}

fn encode(event: JobEvent) -> [u64; 8] {
    match event {
        JobEvent::End(job) => {
            let [tag, a, b] = encode_foresight(job.next);
            [KIND_END, job.k, job.release.get(), job.finish.get(), job.cost.get(), tag, a, b]
        }
        JobEvent::Begin { k, known } => {
            let [tag, a, b] = encode_foresight(known);
            [KIND_BEGIN, k, 0, 0, 0, tag, a, b]
        }
    }
}

fn encode_foresight(known: Foresight) -> [u64; 3] {
    match known {
        Foresight::Nothing => [0, 0, 0],
        Foresight::Hint(hint) => [1, hint.to_bits(), 0],
        Foresight::Interval { low, high } => [2, low.get(), high.get()],
        Foresight::Budget(budget) => [3, budget.get(), 0],
    }
}

/// Refuses impossible jobs: times beyond any clock, more CPU time than a day, a hint that is not a number.
fn decode(words: [u64; 8]) -> Option<JobEvent> {
    let [kind, k, release, finish, cost, tag, a, b] = words;
    let known = decode_foresight(tag, a, b)?;
    match kind {
        KIND_END if cost <= DAY_NS && finish < u64::MAX / 2 && release < u64::MAX / 2 => {
            let (release, finish, cost) = (Instant::new(release), Instant::new(finish), Nanos::new(cost));
            Some(JobEvent::End(JobRecord { k, release, finish, cost, next: known }))
        }
        KIND_BEGIN => Some(JobEvent::Begin { k, known }),
        _ => None,
    }
}

fn decode_foresight(tag: u64, a: u64, b: u64) -> Option<Foresight> {
    match tag {
        0 => Some(Foresight::Nothing),
        1 => Some(f64::from_bits(a)).filter(|hint| hint.is_finite()).map(Foresight::Hint),
        2 if a <= b && b <= DAY_NS => Some(Foresight::Interval { low: Nanos::new(a), high: Nanos::new(b) }),
        3 if a <= DAY_NS => Some(Foresight::Budget(Nanos::new(a))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> JobRing {
        let ring = JobRing::default();
        ring.initialize();
        ring
    }

    fn job(k: u64) -> JobEvent {
        JobEvent::End(JobRecord {
            k,
            release: Instant::new(k * 40),
            finish: Instant::new(k * 40 + 30),
            cost: Nanos::new(7),
            next: Foresight::Hint(k as f64),
        })
    }

    #[test]
    fn records_are_taken_in_order() {
        let (ring, mut producer, mut consumer) = (ring(), Producer::default(), Consumer::default());
        for k in 0..1_000 {
            assert_ne!(producer.push(&ring, job(k), Instant::new(1)), PushOutcome::Dropped);
            if k % 100 == 99 {
                for expected in k - 99..=k {
                    assert_eq!(consumer.take(&ring), Some(job(expected)));
                }
            }
        }
        assert_eq!((consumer.take(&ring), consumer.rejected), (None, 0));
    }

    #[test]
    fn a_full_ring_drops_and_counts() {
        let (ring, mut producer, mut consumer) = (ring(), Producer::default(), Consumer::default());
        for k in 0..CAPACITY as u64 + 3 {
            producer.push(&ring, job(k), Instant::ZERO);
        }
        assert_eq!(ring.dropped(), 3);
        assert_eq!(consumer.take(&ring), Some(job(0)));
        assert_ne!(producer.push(&ring, job(9), Instant::ZERO), PushOutcome::Dropped);
    }

    #[test]
    fn a_wake_up_is_requested_only_after_the_promised_look() {
        let (ring, mut producer) = (ring(), Producer::default());
        assert_eq!(producer.push(&ring, job(0), Instant::new(5)), PushOutcome::Wake);
        ring.promise_look(Instant::new(10));
        assert_eq!(producer.push(&ring, job(1), Instant::new(9)), PushOutcome::Quiet);
        assert_eq!(producer.push(&ring, job(2), Instant::new(10)), PushOutcome::Wake);
    }

    #[test]
    fn garbage_from_the_producer_costs_one_bounded_look() {
        let (ring, mut consumer) = (ring(), Consumer::default());
        ring.producer.0[0].store(u64::MAX / 3, Ordering::Relaxed);
        assert_eq!(consumer.take(&ring), None);
        ring.producer.0[0].store(u64::MAX / 3 + 5, Ordering::Relaxed);
        for line in &ring.slots {
            line.0[0].store(77, Ordering::Relaxed);
        }
        assert_eq!(consumer.take(&ring), None);
        assert_eq!(consumer.rejected, 6);
    }

    proptest::proptest! {
        #[test]
        fn no_garbage_yields_an_invalid_record(words: [u64; 8]) {
            if let Some(event) = decode(words) {
                let known = match event { JobEvent::End(job) => job.next, JobEvent::Begin { known, .. } => known };
                assert!(known.hint().is_none_or(f64::is_finite));
                assert_eq!(decode(encode(event)), Some(event));
            }
        }
    }
}
