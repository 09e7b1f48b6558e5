//! Looking, now and then, for bandwidth that the kernel has booked for nobody: other tools take threads out of
//! SCHED_DEADLINE in ways that lose it. The control thread promises that much less. The kernel's sum may also be too
//! small: then something was subtracted twice, and the control thread says so.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use qfabric_linux::books::{self, BooksError};
use qfabric_linux::capacity::Probes;
use qfabric_linux::cpus::CpuList;
use qfabric_linux::hrtick::DEBUGFS;

use crate::control::Requests;
use crate::ending::Ending;

/// The first look comes when the service has settled; each costs some milliseconds of an ordinary thread.
const FIRST: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_secs(30);
/// A thread that left is subtracted at its 0-lag time: only what both of two looks find is lost, this far apart.
const APART: Duration = Duration::from_secs(3);

/// The thread that looks; ends when dropped.
#[derive(Debug)]
pub(crate) struct BooksThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl BooksThread {
    pub fn start(requests: Requests, ending: &Ending) -> std::io::Result<BooksThread> {
        let (stop, stopped) = channel::<()>();
        let pause = move |time| matches!(stopped.recv_timeout(time), Err(RecvTimeoutError::Timeout));
        let look = move || {
            let mut told = false;
            let mut time = FIRST;
            while pause(time) {
                match lost(&requests, &pause) {
                    Some(Ok(lost)) => requests.lost(lost),
                    Some(Err(error)) if !told => {
                        told = true;
                        tracing::info!(%error, "what the kernel has booked for nobody is not known");
                    }
                    _ => {}
                }
                time = EVERY;
            }
        };
        let thread = ending.spawn("qf-books", look)?;
        Ok(BooksThread { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for BooksThread {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It only looks; nothing to learn from its end.
            let _ = thread.join();
        }
    }
}

/// What both of two looks find; `None`: the service ends.
fn lost(requests: &Requests, pause: &dyn Fn(Duration) -> bool) -> Option<Result<i64, BooksError>> {
    let first = match read(requests) {
        Ok(first) if first != 0 => first,
        other => return Some(other),
    };
    pause(APART).then(|| read(requests).map(|second| in_both(first, second)))
}

/// What is booked too much, or too little, in both looks.
fn in_both(first: i64, second: i64) -> i64 {
    match first.signum() == second.signum() {
        true => first.signum() * first.abs().min(second.abs()),
        false => 0,
    }
}

/// Without debugfs the control thread asks admission control, so that no increase of its own is refused meanwhile.
fn read(requests: &Requests) -> Result<i64, BooksError> {
    let mut probes = None;
    let mut grantable = || {
        let prepared = probes.take().unwrap_or_else(|| Probes::start(CpuList::online().len()));
        let (back, units) = requests.grantable(prepared).ok_or(BooksError::Restless)?;
        probes = Some(back);
        Ok(units?)
    };
    Ok(books::read_by(Path::new(DEBUGFS), &mut grantable)?.of_nobody())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_two_looks_find_counts_whether_too_much_or_too_little_is_booked() {
        assert_eq!((in_both(65_536, 104_000), in_both(104_000, 65_536)), (65_536, 65_536));
        assert_eq!((in_both(-943_720, -2_000_000), in_both(-9, -8)), (-943_720, -8));
        assert_eq!((in_both(65_536, 0), in_both(65_536, -3), in_both(-3, 65_536)), (0, 0, 0));
    }
}
