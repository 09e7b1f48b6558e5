//! The ladder: an encoder gives up quality while its rate is too low, and takes it back in reverse order.

use std::ffi::c_char;
use std::slice;

use qfabric_client::ladder::{Dimension, Move, Reason, Terms};
use qfabric_client::{Instant, Ladder, Nanos};

use crate::ecalls::{give, take_back};
use crate::status::{Exclusive, Failure, QF_INVALID, borrow, put, qf_bool, qf_status, settle, text};

/// The state of the ladder of one encoder. A pure calculation, without a daemon. Any thread may use it, one at a time.
pub struct qf_ladder(Exclusive<Ladder>);

/// Something that an application can give up, such as the quality of its pictures.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qf_dimension {
    /// Such as "quality", "size" or "codec".
    pub name: *const c_char,
    /// From the best level to the minimum, in the application's own unit. 1 to 256 levels.
    pub levels: *const i64,
    /// Number of levels.
    pub count: usize,
}

/// Thresholds and times of a ladder. qf_ladder_default_terms sets all of them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qf_ladder_terms {
    /// Wanted rate, in events per second.
    pub wanted: f64,
    /// Lower when this part of the rate is missing, 0 to 1.
    pub lower_below: f64,
    /// A rate of which less than this part is missing is kept, 0 to lower_below.
    pub kept_above: f64,
    /// Least time between two changes.
    pub dwell_ns: u64,
    /// Time for which the rate must be kept before a raise.
    pub calm_ns: u64,
    /// A raise has failed if the rate falls within this time.
    pub probe_ns: u64,
    /// Wait before the next raise after a lowering by one rung, and after a raise that failed.
    pub after_failure_ns: u64,
    /// Longest wait before a raise.
    pub most_wait_ns: u64,
}

impl From<Terms> for qf_ladder_terms {
    fn from(terms: Terms) -> qf_ladder_terms {
        qf_ladder_terms {
            wanted: terms.wanted,
            lower_below: terms.lower_below,
            kept_above: terms.kept_above,
            dwell_ns: terms.dwell.get(),
            calm_ns: terms.calm.get(),
            probe_ns: terms.probe.get(),
            after_failure_ns: terms.after_failure.get(),
            most_wait_ns: terms.most_wait.get(),
        }
    }
}

impl From<qf_ladder_terms> for Terms {
    fn from(terms: qf_ladder_terms) -> Terms {
        Terms {
            wanted: terms.wanted,
            lower_below: terms.lower_below,
            kept_above: terms.kept_above,
            dwell: Nanos::new(terms.dwell_ns),
            calm: Nanos::new(terms.calm_ns),
            probe: Nanos::new(terms.probe_ns),
            after_failure: Nanos::new(terms.after_failure_ns),
            most_wait: Nanos::new(terms.most_wait_ns),
        }
    }
}

/// The reason of a step.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum qf_reason {
    /// The rate was too low.
    QF_REASON_TOO_SLOW = 0,
    /// The rate was kept.
    QF_REASON_KEPT = 1,
    /// The application asked for the step.
    QF_REASON_ASKED = 2,
}

/// A step of a ladder.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qf_step {
    /// The rung before the step; 0 is the best.
    pub from: usize,
    /// The rung now. Equal to `from` if nothing changed; `reason` then means nothing.
    pub to: usize,
    pub reason: qf_reason,
    /// The time for which the rate was kept before a raise; otherwise 0.
    pub kept_ns: u64,
}

/// The step for C; without one, both rungs are the present one.
fn step(made: Option<Move>, ladder: &Ladder) -> qf_step {
    let none = Move { from: ladder.rung(), to: ladder.rung(), reason: Reason::Asked };
    let Move { from, to, reason } = made.unwrap_or(none);
    let (reason, kept) = match reason {
        Reason::TooSlow { .. } => (qf_reason::QF_REASON_TOO_SLOW, Nanos::ZERO),
        Reason::Kept { since, .. } => (qf_reason::QF_REASON_KEPT, since),
        Reason::Asked => (qf_reason::QF_REASON_ASKED, Nanos::ZERO),
    };
    qf_step { from, to, reason, kept_ns: kept.get() }
}

/// Writes the thresholds and times for a wanted rate in events per second, for reports about once per second.
///
/// # Safety
/// `terms` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ladder_default_terms(wanted: f64, terms: *mut qf_ladder_terms) -> qf_status {
    // SAFETY: the caller guarantees it.
    settle(unsafe { put("the terms", terms, Terms::new(wanted).into()) })
}

/// # Safety
/// `from` is null or points to `count` dimensions, whose pointers are null or valid.
unsafe fn dimensions(from: *const qf_dimension, count: usize) -> Result<Vec<Dimension>, Failure> {
    if from.is_null() {
        return Err(Failure::invalid("the dimensions are a null pointer"));
    }
    // `Ladder::new` refuses the number, so no more than one too many needs to be read.
    // SAFETY: not null, as long as the caller guarantees.
    let all = unsafe { slice::from_raw_parts(from, count.min(Ladder::MOST_DIMENSIONS + 1)) };
    // SAFETY: the caller guarantees it.
    all.iter().map(|one| unsafe { dimension(one) }).collect()
}

/// # Safety
/// The pointers are null or valid.
unsafe fn dimension(from: &qf_dimension) -> Result<Dimension, Failure> {
    // SAFETY: the caller guarantees it.
    let name = unsafe { text("the name of the dimension", from.name) }?;
    if from.levels.is_null() {
        return Err(Failure::invalid(format!("the levels of {name} are a null pointer")));
    }
    // As above.
    // SAFETY: not null, as long as the caller guarantees.
    let levels = unsafe { slice::from_raw_parts(from.levels, from.count.min(Ladder::MOST_LEVELS + 1)) };
    Ok(Dimension::new(name, levels))
}

/// Makes a ladder of 1 to 8 dimensions, which are copied. It begins with the best level of each; the first dimension is
/// given up first. Free `*ladder` with qf_ladder_free.
///
/// # Safety
/// `from` points to `count` dimensions, `terms` to terms, `ladder` to writable memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ladder_new(
    from: *const qf_dimension,
    count: usize,
    terms: *const qf_ladder_terms,
    ladder: *mut *mut qf_ladder,
) -> qf_status {
    let make = || {
        // SAFETY: the caller guarantees it.
        let dimensions = unsafe { dimensions(from, count) }?;
        // SAFETY: null or readable, as the caller guarantees.
        let terms = unsafe { terms.as_ref() }.ok_or_else(|| Failure::invalid("the terms are a null pointer"))?;
        let made = Ladder::new(dimensions, (*terms).into());
        let made = made.map_err(|error| Failure::problem(QF_INVALID, &error.problem()))?;
        // SAFETY: the caller guarantees it.
        unsafe { give(ladder, qf_ladder(Exclusive::new(made))) }
    };
    settle(make())
}

/// Runs `act` on the ladder and writes its result to `to`.
///
/// # Safety
/// `ladder` is null or a live handle, `to` is null or points to writable memory.
unsafe fn ask<T>(
    ladder: *const qf_ladder,
    what: &str,
    to: *mut T,
    act: impl FnOnce(&mut Ladder) -> Result<T, Failure>,
) -> qf_status {
    // SAFETY: the caller guarantees it.
    let answer = unsafe { borrow(ladder) }.and_then(|ladder| ladder.0.with(act));
    // SAFETY: the caller guarantees it.
    settle(answer.and_then(|value| unsafe { put(what, to, value) }))
}

/// States the rate that was achieved until `now_ns` (of any clock that does not jump), such as once per second. Writes the
/// step to `*made`. A rate that is no number or negative, and a report older than the last one, are ignored.
///
/// # Safety
/// `ladder` is a live handle, `made` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ladder_on_rate(
    ladder: *const qf_ladder,
    achieved: f64,
    now_ns: u64,
    made: *mut qf_step,
) -> qf_status {
    let act = |ladder: &mut Ladder| {
        let made = ladder.on_rate(achieved, Instant::new(now_ns));
        Ok(step(made, ladder))
    };
    // SAFETY: the caller guarantees it.
    unsafe { ask(ladder, "the step", made, act) }
}

/// States that the limit has ended, shown by something other than the rate, such as a shorter delay: the next raises wait
/// `calm_ns`, and each climbs half of the way. `*counts` is false at the best rung, and within `after_failure_ns` of a raise
/// that failed; nothing has changed then.
///
/// # Safety
/// `ladder` is a live handle, `counts` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ladder_relieve(ladder: *const qf_ladder, now_ns: u64, counts: *mut qf_bool) -> qf_status {
    let act = |ladder: &mut Ladder| Ok(ladder.relieve(Instant::new(now_ns)).into());
    // SAFETY: the caller guarantees it.
    unsafe { ask(ladder, "the answer", counts, act) }
}

/// Moves to a rung, such as one from before a restart; a rung below the minimum is the minimum.
///
/// # Safety
/// `ladder` is a live handle, `made` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ladder_move_to(
    ladder: *const qf_ladder,
    rung: usize,
    now_ns: u64,
    made: *mut qf_step,
) -> qf_status {
    let act = |ladder: &mut Ladder| {
        let made = ladder.move_to(rung, Instant::new(now_ns));
        Ok(step(made, ladder))
    };
    // SAFETY: the caller guarantees it.
    unsafe { ask(ladder, "the step", made, act) }
}

/// Reads the present rung; 0 is the best.
///
/// # Safety
/// `ladder` is a live handle, `rung` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ladder_rung(ladder: *const qf_ladder, rung: *mut usize) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { ask(ladder, "the rung", rung, |ladder| Ok(ladder.rung())) }
}

/// Reads the rung at which every dimension is at its minimum.
///
/// # Safety
/// `ladder` is a live handle, `rung` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ladder_lowest(ladder: *const qf_ladder, rung: *mut usize) -> qf_status {
    // SAFETY: the caller guarantees it.
    unsafe { ask(ladder, "the rung", rung, |ladder| Ok(ladder.lowest())) }
}

/// Reads the present level of a dimension.
///
/// # Safety
/// `ladder` is a live handle, `name` a zero-terminated string, `level` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ladder_level(ladder: *const qf_ladder, name: *const c_char, level: *mut i64) -> qf_status {
    let read = |ladder: &mut Ladder| {
        // SAFETY: the caller guarantees it.
        let name = unsafe { text("the name of the dimension", name) }?;
        ladder.level(name).ok_or_else(|| {
            let known: Vec<_> = ladder.levels().map(|(name, _)| name).collect();
            Failure::invalid(format!("the ladder has no dimension {name}; use {}", known.join(", ")))
        })
    };
    // SAFETY: the caller guarantees it.
    unsafe { ask(ladder, "the level", level, read) }
}

/// Frees a ladder. Null is allowed.
///
/// # Safety
/// `ladder` is null or a live handle, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qf_ladder_free(ladder: *mut qf_ladder) {
    // SAFETY: as the caller guarantees.
    drop(unsafe { take_back(ladder) });
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, CString};
    use std::mem::MaybeUninit;
    use std::ptr::{null, null_mut};
    use std::thread;

    use super::*;
    use crate::status::{QF_INVALID, QF_OK, qf_last_error};

    /// A handle, for other threads.
    #[derive(Clone, Copy)]
    struct Handle(*mut qf_ladder);

    // SAFETY: any thread may use a ladder, as its documentation says.
    unsafe impl Send for Handle {}

    fn made(name: &CStr, levels: &[i64], count: usize) -> (qf_status, *mut qf_ladder) {
        let dimension = qf_dimension { name: name.as_ptr(), levels: levels.as_ptr(), count };
        let (mut terms, mut ladder) = (MaybeUninit::uninit(), null_mut());
        // SAFETY: all pointers are to live values; `levels` has at least as many elements as the library reads.
        let status = unsafe {
            assert_eq!(qf_ladder_default_terms(25.0, terms.as_mut_ptr()), QF_OK);
            qf_ladder_new(&raw const dimension, 1, terms.as_ptr(), &raw mut ladder)
        };
        (status, ladder)
    }

    fn last_error() -> String {
        // SAFETY: never null, and valid until the next failed call.
        unsafe { CStr::from_ptr(qf_last_error()) }.to_string_lossy().into_owned()
    }

    /// Miri checks each access: what C passes is read within its bounds, copied, and freed once.
    #[test]
    fn a_ladder_copies_what_c_passes_and_gives_its_memory_back() {
        let (name, levels) = (CString::new("quality").unwrap(), vec![90, 60, 30]);
        let (status, ladder) = made(&name, &levels, levels.len());
        assert_eq!(status, QF_OK);
        drop((name, levels));
        let (mut rung, mut level, mut step) = (9, 0, MaybeUninit::uninit());
        // SAFETY: the ladder is live, and all places are writable.
        unsafe {
            assert_eq!(qf_ladder_move_to(ladder, 7, 1, step.as_mut_ptr()), QF_OK);
            assert_eq!((step.assume_init().from, step.assume_init().to), (0, 2));
            assert_eq!(qf_ladder_rung(ladder, &raw mut rung), QF_OK);
            assert_eq!(qf_ladder_level(ladder, c"quality".as_ptr(), &raw mut level), QF_OK);
            assert_eq!((rung, level), (2, 30));
            assert_eq!(qf_ladder_level(ladder, c"size".as_ptr(), &raw mut level), QF_INVALID);
            assert!(last_error().contains("use quality"));
            qf_ladder_free(ladder);
            qf_ladder_free(null_mut());
        }
    }

    #[test]
    fn null_and_counts_beyond_the_limit_are_refused_without_a_read_behind_the_limit() {
        let (mut rung, levels) = (0, vec![1; Ladder::MOST_LEVELS + 1]);
        let (status, ladder) = made(c"quality", &levels, usize::MAX);
        assert_eq!((status, ladder), (QF_INVALID, null_mut()));
        // SAFETY: null is allowed everywhere.
        unsafe {
            assert_eq!(qf_ladder_rung(null(), &raw mut rung), QF_INVALID);
            assert_eq!(qf_ladder_new(null(), 1, null(), null_mut()), QF_INVALID);
        }
    }

    #[test]
    fn threads_that_use_one_handle_are_refused_or_served_one_after_the_other() {
        let (_, ladder) = made(c"quality", &[3, 2, 1], 3);
        let handle = Handle(ladder);
        let moves = move |rung| {
            let Handle(ladder) = { handle };
            let mut step = MaybeUninit::uninit();
            // SAFETY: the ladder lives until both threads have ended.
            unsafe { qf_ladder_move_to(ladder, rung, 1, step.as_mut_ptr()) }
        };
        let other = thread::spawn(move || moves(1));
        let all = [moves(2), other.join().unwrap()];
        assert!(all.contains(&QF_OK), "{all:?}");
        // SAFETY: nobody uses it any more.
        unsafe { qf_ladder_free(ladder) };
    }
}
