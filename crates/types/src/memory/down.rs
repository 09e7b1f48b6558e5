//! memory_down: attributes, and values of deferred calls.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use super::{ATTRIBUTES, DEFERRED};

/// memory_down: the application's attributes and the values of its deferred calls. All zeros at first.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Down {
    attribute: [AtomicI64; ATTRIBUTES],
    head: AtomicU32,
    _unused: AtomicU32,
    tail: AtomicU32,
    _gap: AtomicU32,
    /// For each moment, a bit for each place of `value`: 1 if the value there is for another moment.
    elsewhere: [AtomicU64; Moment::ALL.len()],
    _pad: [AtomicU32; 4],
    value: [AtomicI64; DEFERRED],
}

/// The moment at which a deferred value is handled (000 §3.2.1). The names are the values of the option `when` of
/// `app.deferred`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At the end of the next system call of the process.
    Syscall,
    /// When a thread of the process leaves its CPU.
    Schedule,
    /// After the delay of the subscription.
    Delay,
    /// When a thread of the process calls the CPU scheduler, before the scheduler decides.
    BeforeSchedule,
}

impl Moment {
    /// All moments.
    pub const ALL: [Moment; 4] = [Moment::Syscall, Moment::Schedule, Moment::Delay, Moment::BeforeSchedule];

    /// The value of the option `when`.
    pub const fn name(self) -> &'static str {
        match self {
            Moment::Syscall => "syscall",
            Moment::Schedule => "schedule",
            Moment::Delay => "delay",
            Moment::BeforeSchedule => "before_schedule",
        }
    }

    /// Offset of the word that says which values are for another moment, in bytes from the begin of the area.
    pub const fn elsewhere(self) -> u32 {
        528 + 8 * self as u32
    }
}

impl std::str::FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        let found = Moment::ALL.into_iter().find(|moment| moment.name() == text);
        found.ok_or_else(|| format!("{text:?} is not a moment; use {}", Moment::ALL.map(Moment::name).join(", ")))
    }
}

const _: () = assert!(size_of::<Down>() == 1088 && DEFERRED.is_power_of_two());

/// The application queues deferred values faster than the kernel takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{DEFERRED} deferred values already wait, the limit; the kernel takes them at the time chosen with `when`")]
pub struct DeferredFull;

impl Down {
    /// Offset of the number of queued values, in bytes from the begin of the area.
    pub const HEAD: u32 = 512;
    /// Offset of the number of values that the kernel has taken.
    pub const TAIL: u32 = 520;
    /// Offset of the values.
    pub const VALUES: u32 = 576;

    /// The value of an attribute; 0 if `number` is too large.
    pub fn attribute(&self, number: usize) -> i64 {
        self.attribute.get(number).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// A fast user-ECall: handlers in the kernel see the value from now on. Returns `false` if `number` is too
    /// large.
    pub fn set_attribute(&self, number: usize, value: i64) -> bool {
        self.attribute.get(number).map(|word| word.store(value, Ordering::Release)).is_some()
    }

    /// Adds to an attribute atomically and returns the new value; `None` if `number` is too large.
    pub fn add_attribute(&self, number: usize, by: i64) -> Option<i64> {
        Some(self.attribute.get(number)?.fetch_add(by, Ordering::AcqRel).wrapping_add(by))
    }

    /// A deferred user-ECall: the value waits for the next moment of each handler, together with others. Only one
    /// thread at a time may call this or [`Down::defer_at`].
    ///
    /// # Errors
    /// As many values as there are places wait already.
    pub fn defer(&self, value: i64) -> Result<(), DeferredFull> {
        self.queue(value, None)
    }

    /// Like [`Down::defer`], for the handlers of one moment. Handlers of other moments pass over the value.
    ///
    /// # Errors
    /// As many values as there are places wait already.
    pub fn defer_at(&self, value: i64, moment: Moment) -> Result<(), DeferredFull> {
        self.queue(value, Some(moment))
    }

    fn queue(&self, value: i64, only: Option<Moment>) -> Result<(), DeferredFull> {
        let head = self.head.load(Ordering::Relaxed);
        if head.wrapping_sub(self.tail.load(Ordering::Acquire)) as usize >= DEFERRED {
            return Err(DeferredFull);
        }
        let place = head as usize % DEFERRED;
        self.value[place].store(value, Ordering::Relaxed);
        for (moment, word) in Moment::ALL.into_iter().zip(&self.elsewhere) {
            let others = word.load(Ordering::Relaxed) & !(1 << place);
            let is_elsewhere = only.is_some_and(|only| only != moment);
            word.store(others | (u64::from(is_elsewhere) << place), Ordering::Relaxed);
        }
        self.head.store(head.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    /// Number of values that were deferred so far, modulo 2^32.
    pub fn queued(&self) -> u32 {
        self.head.load(Ordering::Acquire)
    }

    /// Number of values that all handlers have taken, modulo 2^32.
    pub fn taken(&self) -> u32 {
        self.tail.load(Ordering::Acquire)
    }

    /// All handlers have taken the first `upto` values. Does nothing if more of them were taken already.
    pub fn take(&self, upto: u32) {
        let behind = |taken: u32| (1..=DEFERRED as u32).contains(&upto.wrapping_sub(taken)).then_some(upto);
        // Fails if more of them were taken already.
        let _ = self.tail.fetch_update(Ordering::AcqRel, Ordering::Acquire, behind);
    }

    /// Number of waiting deferred values.
    pub fn deferred(&self) -> u32 {
        self.head.load(Ordering::Relaxed).wrapping_sub(self.tail.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn down() -> Down {
        Down {
            attribute: [const { AtomicI64::new(0) }; ATTRIBUTES],
            head: AtomicU32::new(0),
            _unused: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            _gap: AtomicU32::new(0),
            elsewhere: [const { AtomicU64::new(0) }; Moment::ALL.len()],
            _pad: [const { AtomicU32::new(0) }; 4],
            value: [const { AtomicI64::new(0) }; DEFERRED],
        }
    }

    #[test]
    fn the_words_have_the_offsets_that_handlers_use() {
        use std::mem::offset_of;
        let places = [offset_of!(Down, head), offset_of!(Down, tail), offset_of!(Down, value)];
        assert_eq!(places, [Down::HEAD, Down::TAIL, Down::VALUES].map(|at| at as usize));
        let first = offset_of!(Down, elsewhere);
        assert_eq!(Moment::ALL.map(|moment| moment.elsewhere() as usize), [first, first + 8, first + 16, first + 24]);
    }

    #[test]
    fn a_value_for_one_moment_is_marked_for_the_handlers_of_the_others() {
        let down = down();
        let marks = || [0, 1, 2, 3].map(|moment: usize| down.elsewhere[moment].load(Ordering::Relaxed));
        down.defer(1).unwrap();
        down.defer_at(2, Moment::Schedule).unwrap();
        down.defer_at(3, Moment::Delay).unwrap();
        assert_eq!(marks(), [0b110, 0b100, 0b010, 0b110]);
        (3..64).for_each(|value| down.defer(value).unwrap());
        assert_eq!(down.defer_at(64, Moment::Syscall), Err(DeferredFull));
        down.take(2);
        down.defer_at(64, Moment::Syscall).unwrap();
        down.defer(65).unwrap();
        assert_eq!(marks(), [0b100, 0b101, 0b001, 0b101], "places are used again");
        assert_eq!("schedule".parse(), Ok(Moment::Schedule));
        assert_eq!("before_schedule".parse(), Ok(Moment::BeforeSchedule));
        assert!("soon".parse::<Moment>().unwrap_err().contains("use syscall, schedule, delay"));
    }

    #[test]
    fn attribute_numbers_beyond_the_last_are_refused() {
        let down = down();
        assert!(down.set_attribute(63, 7) && !down.set_attribute(64, 7));
        assert_eq!((down.attribute(63), down.attribute(64)), (7, 0));
        assert_eq!((down.add_attribute(63, -9), down.add_attribute(64, 1)), (Some(-2), None));
    }

    #[test]
    fn deferred_values_beyond_the_limit_are_refused() {
        let down = down();
        (0..DEFERRED as i64).for_each(|value| down.defer(value).unwrap());
        assert_eq!((down.defer(1), down.deferred()), (Err(DeferredFull), 64));
        down.take(16);
        assert_eq!((down.defer(1), down.deferred()), (Ok(()), 49));
        down.take(15);
        assert_eq!((down.queued(), down.taken()), (65, 16), "values are not given back");
    }
}
