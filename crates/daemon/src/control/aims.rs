//! Handlers in the kernel that favour a process's servers by themselves: whom each is aimed at follows the servers as
//! they come, move and go.

use std::sync::Weak;

use qfabric_linux::RaiseTarget;
use qfabric_linux::ecalls::Aim;

/// The handlers, each with the process whose servers it favours.
#[derive(Debug, Default)]
pub(crate) struct Aims {
    all: Vec<(i32, Weak<Aim>)>,
    stale: bool,
}

impl Aims {
    /// One more. It is forgotten when its subscription has ended.
    pub fn add(&mut self, pid: i32, aim: Weak<Aim>) {
        self.all.retain(|(_, aim)| aim.strong_count() > 0);
        self.all.push((pid, aim));
        self.stale = true;
    }

    /// Servers came, moved or went.
    pub fn servers_changed(&mut self) {
        self.stale = true;
    }

    /// Whether anybody is to be aimed anew; asked once for each change.
    pub fn take_stale(&mut self) -> bool {
        std::mem::take(&mut self.stale) && !self.all.is_empty()
    }

    /// Aims all of them at what `servers` says of their processes.
    pub fn aim(&self, mut servers: impl FnMut(i32) -> Vec<RaiseTarget>) {
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
    fn who_has_gone_is_not_aimed_any_more_and_nothing_is_done_twice() {
        let Ok(aim) = Aim::new().map(Arc::new).map_err(qfabric_linux::testing::skip) else { return };
        let mut aims = Aims::default();
        aims.servers_changed();
        assert!(!aims.take_stale(), "nobody is there to be aimed");
        aims.add(7, Arc::downgrade(&aim));
        assert_eq!([aims.take_stale(), aims.take_stale()], [true, false]);
        aims.aim(|pid| vec![RaiseTarget { slot: pid as u32, cpu: 0 }]);
        assert!(aim.is_aimed());
        aims.aim(|_| Vec::new());
        assert!(!aim.is_aimed());
        drop(aim);
        aims.aim(|_| panic!("nobody is left"));
        aims.add(8, Weak::new());
        assert_eq!(aims.all.len(), 1);
    }
}
