//! Measures, every 30 s, the bandwidth that the kernel has booked for no thread. Other tools can take threads out
//! of SCHED_DEADLINE in ways that lose their bandwidth; the control thread then promises less capacity by this
//! amount. The kernel's sum may also be too small, because something was subtracted twice; the control thread then
//! logs it.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use qfabric_linux::books::{self, BooksError};
use qfabric_linux::capacity::Probes;
use qfabric_linux::cpus::CpuList;
use qfabric_linux::hrtick::DEBUGFS;

use crate::control::Requests;
use crate::ending::{Ending, Running};

/// The first measurement waits until the service has settled. Each costs some milliseconds of an ordinary thread.
const FIRST: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_secs(30);
/// Time between the two measurements that must agree. The kernel subtracts a thread that left at its 0-lag time, so
/// a single measurement may include bandwidth that is not lost.
const APART: Duration = Duration::from_secs(3);

/// Starts the measuring thread.
pub(crate) fn start_thread(requests: Requests, ending: &Ending) -> std::io::Result<Running> {
    let (stop, stopped) = channel::<()>();
    let pause = move |time| matches!(stopped.recv_timeout(time), Err(RecvTimeoutError::Timeout));
    let measure = move || {
        let mut logged = false;
        let mut time = FIRST;
        while pause(time) {
            match lost(&requests, &pause) {
                Some(Ok(lost)) => requests.lost(lost),
                Some(Err(error)) if !logged => {
                    logged = true;
                    tracing::info!(%error, "cannot measure the bandwidth booked for no thread");
                }
                _ => {}
            }
            time = EVERY;
        }
    };
    // Without a sender each pause ends at once.
    let mut stop = Some(stop);
    ending.run("qf-books", measure, move || drop(stop.take()))
}

/// The amount that two measurements agree on, in the kernel's bandwidth units. `None`: the service ends.
fn lost(requests: &Requests, pause: &dyn Fn(Duration) -> bool) -> Option<Result<i64, BooksError>> {
    let first = match read(requests) {
        Ok(first) if first != 0 => first,
        other => return Some(other),
    };
    pause(APART).then(|| read(requests).map(|second| in_both(first, second)))
}

/// The amount that both measurements contain. Positive: booked for no thread. Negative: subtracted twice.
fn in_both(first: i64, second: i64) -> i64 {
    match first.signum() == second.signum() {
        true => first.signum() * first.abs().min(second.abs()),
        false => 0,
    }
}

/// Without debugfs the control thread measures by admission control, so that none of its own increases is refused
/// during the measurement.
fn read(requests: &Requests) -> Result<i64, BooksError> {
    let mut probes = None;
    let mut grantable = || {
        let prepared = probes.take().unwrap_or_else(|| Probes::start(CpuList::online().len()));
        let (back, units) = requests.grantable(prepared).ok_or(BooksError::Restless)?;
        probes = Some(back);
        Ok(units?)
    };
    Ok(books::read_by(Path::new(DEBUGFS), &mut grantable)?.without_owner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_amount_that_two_measurements_agree_on_counts() {
        assert_eq!((in_both(65_536, 104_000), in_both(104_000, 65_536)), (65_536, 65_536));
        assert_eq!((in_both(-943_720, -2_000_000), in_both(-9, -8)), (-943_720, -8));
        assert_eq!((in_both(65_536, 0), in_both(65_536, -3), in_both(-3, 65_536)), (0, 0, 0));
    }
}
