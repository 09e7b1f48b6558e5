//! Thresholds that the kernel watches for the monitor (PSI triggers). The set of triggers follows the watches; the
//! monitor's thread waits for all of them at once.

use std::io;
use std::os::fd::OwnedFd;

use qfabric_linux::monitor::trigger::Trigger;
use qfabric_types::monitor::{AttributeId, Threshold};
use qfabric_types::{AppId, Nanos};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::control::{wake, wake_descriptor};

/// Largest number of triggers: each costs the kernel ten checks per window. Further thresholds are checked at each
/// look.
const MOST: usize = 32;
/// Number of a wake-up, which is not a trigger.
const WAKE: u64 = 0;

pub(super) struct Waiting {
    epoll: OwnedFd,
    wake: OwnedFd,
}

impl Waiting {
    pub(super) fn new() -> io::Result<Waiting> {
        let (epoll, wake) = (epoll::create(CreateFlags::CLOEXEC)?, wake_descriptor()?);
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        Ok(Waiting { epoll, wake })
    }

    /// Ends a wait, or the next one.
    pub(super) fn wake(&self) {
        wake(&self.wake);
    }

    /// Waits until a trigger is ready, another thread wakes this one, or `left` is over. Fills `ready`.
    pub(super) fn wait(&self, left: Option<Nanos>, ready: &mut Vec<Ready>) {
        let timeout = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.get() / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (left.get() % 1_000_000_000) as i64,
        });
        let mut events = [const { std::mem::MaybeUninit::uninit() }; MOST + 1];
        // Interrupted: the caller does what is due, and waits again.
        let Ok((happened, _)) = epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()) else { return };
        for event in happened {
            let (number, flags) = (event.data.u64(), event.flags);
            match number {
                WAKE => drop(rustix::io::read(&self.wake, &mut [0; 8])),
                _ => ready.push(Ready { number, is_lost: flags.contains(EventFlags::ERR) }),
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    number: u64,
    /// The kernel has removed the trigger.
    is_lost: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub application: AppId,
    pub attribute: String,
    pub threshold: Threshold,
    /// Time over which the mean is taken; the kernel accepts 0.5 s to 10 s.
    pub window: Nanos,
}

#[derive(Default)]
pub(super) struct Triggers {
    set: Vec<(u64, Wanted, Trigger)>,
    /// Thresholds that the kernel could watch and does not, with the reason.
    refused: Vec<(Wanted, String)>,
    /// Numbers given out.
    given: u64,
}

impl Triggers {
    /// Sets triggers for these thresholds and removes all others; thresholds that were refused are tried again.
    /// Thresholds for which the kernel has no trigger are left out.
    pub(super) fn follow(&mut self, wanted: Vec<Wanted>, waiting: &Waiting) {
        // Closing a trigger's file removes it from the epoll set.
        self.set.retain(|(_, own, _)| wanted.contains(own));
        self.refused.clear();
        for wanted in wanted {
            if self.set.iter().any(|(_, own, _)| *own == wanted) {
                continue;
            }
            match self.add(&wanted, waiting) {
                None | Some(Ok(())) => (),
                Some(Err(why)) => self.refused.push((wanted, why)),
            }
        }
    }

    fn add(&mut self, wanted: &Wanted, waiting: &Waiting) -> Option<Result<(), String>> {
        let trigger = Trigger::new(&wanted.attribute, wanted.threshold, wanted.window)?;
        if self.set.len() >= MOST {
            return Some(Err(format!(
                "the kernel watches {MOST} thresholds already, which is the limit; end another watch first"
            )));
        }
        let set = trigger.and_then(|trigger| {
            self.given += 1;
            epoll::add(&waiting.epoll, &trigger, EventData::new_u64(self.given), EventFlags::PRI)?;
            self.set.push((self.given, wanted.clone(), trigger));
            Ok(())
        });
        Some(set.map_err(|error| format!("the kernel refused a trigger: {error}")))
    }

    /// The threshold that was crossed. A threshold whose trigger the kernel has removed is checked at each look from
    /// now on.
    pub(super) fn crossed(&mut self, ready: Ready) -> Option<(AttributeId, i64)> {
        let at = self.set.iter().position(|(number, ..)| *number == ready.number)?;
        if ready.is_lost {
            let (_, wanted, _) = self.set.swap_remove(at);
            self.refused.push((wanted, "the kernel has removed its trigger; set the threshold again".to_owned()));
            return None;
        }
        let trigger = &self.set[at].2;
        Some((trigger.attribute(), trigger.level()))
    }

    /// Whether the kernel watches the threshold of this watch; if it could and does not, the reason.
    pub(super) fn shown(&self, application: AppId, attribute: &str) -> (bool, Option<&str>) {
        let is_it = |own: &Wanted| own.application == application && own.attribute == attribute;
        let refused = self.refused.iter().find(|(own, _)| is_it(own)).map(|(_, why)| why.as_str());
        (self.set.iter().any(|(_, own, _)| is_it(own)), refused)
    }
}

#[cfg(test)]
mod tests {
    use qfabric_linux::testing::skip;
    use qfabric_types::monitor::HOST;

    use super::*;

    fn wanted(attribute: &str, limit: i64) -> Wanted {
        let (attribute, window) = (attribute.to_owned(), Nanos::from_millis(2_000));
        Wanted { application: HOST, attribute, threshold: Threshold::above(limit), window }
    }

    #[test]
    fn triggers_follow_the_watches_and_are_bounded() {
        let (waiting, mut triggers) = (Waiting::new().unwrap(), Triggers::default());
        triggers.follow(vec![wanted("cpu.run_queue", 4)], &waiting);
        assert_eq!(triggers.shown(HOST, "cpu.run_queue"), (false, None), "the kernel has none for it");
        triggers.follow(vec![wanted("cpu.pressure", 999_000)], &waiting);
        if let (false, Some(why)) = triggers.shown(HOST, "cpu.pressure") {
            return skip(format!("no PSI trigger: {why}"));
        }
        let more = (0..=MOST as i64).map(|n| wanted("cpu.pressure", 900_000 + n)).collect::<Vec<_>>();
        triggers.follow(more.clone(), &waiting);
        assert_eq!((triggers.set.len(), triggers.refused.len()), (MOST, 1));
        assert!(triggers.refused[0].1.contains("32 thresholds already"));
        let lost = Ready { number: triggers.set[0].0, is_lost: true };
        assert_eq!(triggers.crossed(lost), None);
        assert_eq!((triggers.set.len(), triggers.refused.len()), (MOST - 1, 2));
        triggers.follow(Vec::new(), &waiting);
        assert_eq!((triggers.set.len(), triggers.refused.len()), (0, 0));
    }

    #[test]
    fn a_wake_up_ends_one_wait() {
        let (waiting, mut ready) = (Waiting::new().unwrap(), Vec::new());
        waiting.wake();
        waiting.wait(None, &mut ready);
        waiting.wait(Some(Nanos::ZERO), &mut ready);
        assert_eq!(ready, []);
    }
}
