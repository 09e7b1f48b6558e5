//! The ring through which an application reports its jobs to the daemon, without system calls.
//!
//! One producer (a thread of the application) and one consumer (the daemon's control thread) map the same memory.
//! Every word is atomic, so either side may write garbage at any time, and the other side still has defined
//! behaviour: the consumer keeps its own position, takes a bounded number of records, and checks each record.
//!
//! **Waking.** The daemon looks at every ring at times that it chooses, and writes into `wake_before` the time
//! until which the next look is promised. A producer that finishes before that time need not wake the daemon;
//! otherwise it makes one wake-up call. Both sides put a full fence between their write and their read, so a look
//! that has just passed never leaves a record behind. A checkpoint always wakes: its job runs on, and cannot wait for
//! the next look; or the job that hurried has ended, and the clock may fall. It is sent only if the daemon has asked
//! for checkpoints ([`JobRing::ask_for_checkpoints`]).

use crate::shared::{self, AtomicU64, Ordering, fence};
use crate::{Foresight, Instant, JobRecord, Nanos, Overload};

/// Number of records in a ring: ten seconds of a 25 Hz application while the daemon restarts. A record that finds
/// the ring full is dropped and counted.
pub const CAPACITY: usize = shared::RECORDS;
const MAGIC: u64 = u64::from_le_bytes(*b"qfring\0\x01");
const KIND_END: u64 = 1;
const KIND_BEGIN: u64 = 2;
const KIND_CHECKPOINT: u64 = 3;
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
    /// A job says in its course how much of it is left; or, if it hurried, at its end that nothing is.
    Checkpoint(Checkpoint),
}

/// What is left of a job, at a checkpoint of its code (000 §6.4.2.1) or at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// k, the number of the job.
    pub k: u64,
    /// The time that the rest of the job would take at the clock of the application's jobs before; at most a day.
    pub left_run: Nanos,
    /// The time until its deadline, at most a day; zero if the deadline has passed.
    pub left_time: Nanos,
    /// Number of levels of the clock beyond what the rest needs, for a job that is harder than the ones before; at most
    /// [`Checkpoint::MAX_LEVELS`].
    pub levels: u8,
}

impl Checkpoint {
    /// Largest number of levels that a job may ask for.
    pub const MAX_LEVELS: u8 = 10;
    /// The longest time of a record: a day.
    pub const LONGEST: Nanos = Nanos::new(DAY_NS);
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
    /// Written by the daemon: magic and capacity once, and whether it wants checkpoints.
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

    /// From now on the application reports its checkpoints. The daemon calls this for applications that save energy.
    pub fn ask_for_checkpoints(&self) {
        self.identity.0[2].store(1, Ordering::Relaxed);
    }

    /// Whether the daemon wants to know of checkpoints.
    pub fn wants_checkpoints(&self) -> bool {
        self.identity.0[2].load(Ordering::Relaxed) != 0
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
        let can_wait = now.get() < wake_before && !matches!(event, JobEvent::Checkpoint(_));
        if can_wait { PushOutcome::Quiet } else { PushOutcome::Wake }
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
        JobEvent::Checkpoint(Checkpoint { k, left_run, left_time, levels }) => {
            [KIND_CHECKPOINT, k, left_run.get(), left_time.get(), levels.into(), 0, 0, 0]
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

/// Refuses impossible jobs: times beyond any clock, more CPU time than a day, a hint that is not a number, more levels
/// of the clock than a checkpoint may ask for.
fn decode(words: [u64; 8]) -> Option<JobEvent> {
    let [kind, k, release, finish, cost, tag, a, b] = words;
    let known = decode_foresight(tag, a, b)?;
    match kind {
        KIND_END if cost <= DAY_NS && finish < u64::MAX / 2 && release < u64::MAX / 2 => {
            let (release, finish, cost) = (Instant::new(release), Instant::new(finish), Nanos::new(cost));
            Some(JobEvent::End(JobRecord { k, release, finish, cost, next: known }))
        }
        KIND_BEGIN => Some(JobEvent::Begin { k, known }),
        KIND_CHECKPOINT => decode_checkpoint(k, [release, finish, cost]).map(JobEvent::Checkpoint),
        _ => None,
    }
}

fn decode_checkpoint(k: u64, [left_run, left_time, levels]: [u64; 3]) -> Option<Checkpoint> {
    let levels = u8::try_from(levels).ok().filter(|levels| *levels <= Checkpoint::MAX_LEVELS)?;
    let (left_run, left_time) = (Nanos::new(left_run), Nanos::new(left_time));
    let is_possible = left_run <= Checkpoint::LONGEST && left_time <= Checkpoint::LONGEST;
    is_possible.then_some(Checkpoint { k, left_run, left_time, levels })
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
    fn a_checkpoint_wakes_also_before_the_promised_look_and_arrives_whole() {
        let (ring, mut producer, mut consumer) = (ring(), Producer::default(), Consumer::default());
        assert!(!ring.wants_checkpoints());
        ring.ask_for_checkpoints();
        assert!(ring.wants_checkpoints() && ring.is_valid());
        ring.promise_look(Instant::NEVER);
        let (left_run, left_time) = (Nanos::new(9), Checkpoint::LONGEST);
        let most = Checkpoint { k: 3, left_run, left_time, levels: Checkpoint::MAX_LEVELS };
        let event = JobEvent::Checkpoint(most);
        assert_eq!(producer.push(&ring, event, Instant::new(1)), PushOutcome::Wake);
        assert_eq!(consumer.take(&ring), Some(event));
        let longer = Checkpoint::LONGEST + Nanos::new(1);
        for beyond in [
            Checkpoint { levels: Checkpoint::MAX_LEVELS + 1, ..most },
            Checkpoint { left_run: longer, ..most },
            Checkpoint { left_time: longer, ..most },
        ] {
            producer.push(&ring, JobEvent::Checkpoint(beyond), Instant::new(1));
        }
        assert_eq!((consumer.take(&ring), consumer.rejected), (None, 3));
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
                let known = match event {
                    JobEvent::End(job) => job.next,
                    JobEvent::Begin { known, .. } => known,
                    JobEvent::Checkpoint(_) => Foresight::Nothing,
                };
                assert!(known.hint().is_none_or(f64::is_finite));
                assert_eq!(decode(encode(event)), Some(event));
            }
        }
    }
}
