//! Keeps the targets of handlers in the kernel up to date: such a handler favours the servers of one process, and
//! the servers appear, move to other CPUs and end.

use std::sync::Weak;

use qfabric_linux::RaiseTarget;
use qfabric_linux::ecalls::Aim;

/// The handlers; each with the process whose servers it favours.
#[derive(Debug, Default)]
pub(crate) struct Aims {
    all: Vec<(i32, Weak<Aim>)>,
    stale: bool,
}

impl Aims {
    /// Adds a handler. It is removed after its subscription has ended.
    pub(super) fn add(&mut self, pid: i32, aim: Weak<Aim>) {
        self.all.retain(|(_, aim)| aim.strong_count() > 0);
        self.all.push((pid, aim));
        self.stale = true;
    }

    /// Marks all targets as out of date because a server appeared, moved or ended.
    pub(super) fn servers_changed(&mut self) {
        self.stale = true;
    }

    /// Whether the targets must be updated. Clears the mark.
    pub(super) fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.stale) && !self.all.is_empty()
    }

    /// Updates the targets of all handlers; `servers` returns the servers of a process.
    pub(super) fn aim(&self, mut servers: impl FnMut(i32) -> Vec<RaiseTarget>) {
        for (pid, aim) in &self.all {
            if let Some(aim) = aim.upgrade() {
                aim.at(servers(*pid));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_ended_handler_is_not_updated_and_each_change_updates_once() {
        let Ok(aim) = Aim::new().map(Arc::new).map_err(qfabric_linux::testing::skip) else { return };
        let mut aims = Aims::default();
        aims.servers_changed();
        assert!(!aims.take_stale(), "there is no handler yet");
        aims.add(7, Arc::downgrade(&aim));
        assert_eq!([aims.take_stale(), aims.take_stale()], [true, false]);
        aims.aim(|pid| vec![RaiseTarget { slot: pid as u32, cpu: 0 }]);
        assert!(aim.is_aimed());
        aims.aim(|_| Vec::new());
        assert!(!aim.is_aimed());
        drop(aim);
        aims.aim(|_| panic!("the handler has ended"));
        aims.add(8, Weak::new());
        assert_eq!(aims.all.len(), 1);
    }
}
