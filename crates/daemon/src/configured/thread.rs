//! The thread that follows units and control groups. It sleeps until the kernel reports a change, and looks in intervals
//! only where the kernel reports none.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use qfabric_linux::targets::GroupWatch;
use qfabric_sync::Lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::follower::Follower;
use super::{Configured, ContractConfig, Order};
use crate::control::{Requests, wake_descriptor};
use crate::ending::{Ending, Running};

/// Between two requests for a process that was refused; the number of looks between them grows.
const REFUSED: Duration = Duration::from_millis(500);
/// Between two looks at groups with processes: the kernel reports no process that joins others.
const REGULAR: Duration = Duration::from_secs(2);
/// Shortest time between two looks, however often groups come and go.
const PAUSE: Duration = Duration::from_millis(20);
/// New watches may show further folders to watch; a bound on the repetitions.
const WATCH_TURNS: usize = 8;

/// Starts the thread, and returns what other threads see of it.
pub(crate) fn start_thread(
    tables: Vec<ContractConfig>,
    requests: Requests,
    ending: &Ending,
) -> std::io::Result<(Running, Arc<Configured>)> {
    let ((orders, received), wake) = (channel(), Arc::new(wake_descriptor()?));
    let configured = Arc::new(Configured { shown: Lock::default(), orders, wake: wake.clone() });
    let watch = GroupWatch::new();
    if let Err(error) = &watch {
        tracing::warn!(%error, "cannot watch control groups, so [[contract]] looks every 2 s; raise \
                                fs.inotify.max_user_instances");
    }
    let followers = tables.into_iter().map(Follower::new).collect();
    let runner =
        Runner { followers, watch: watch.ok(), requests, orders: received, wake, configured: configured.clone() };
    let asked = configured.clone();
    let thread = ending.run("qf-configured", move || runner.run(), move || asked.send(Order::Stop))?;
    Ok((thread, configured))
}

struct Runner {
    followers: Vec<Follower>,
    watch: Option<GroupWatch>,
    requests: Requests,
    orders: Receiver<Order>,
    wake: Arc<OwnedFd>,
    configured: Arc<Configured>,
}

impl Runner {
    /// The control thread ends the contracts that are in force when the service ends.
    fn run(mut self) {
        loop {
            while let Ok(order) = self.orders.try_recv() {
                match order {
                    Order::Replace(tables) => self.replace(tables),
                    Order::Stop => return,
                }
            }
            // A change after the watch and before the look wakes again.
            self.watch_all();
            for follower in &mut self.followers {
                follower.look(&self.requests);
            }
            let shown = self.followers.iter().map(Follower::shown).collect();
            self.configured.shown.with(|last| *last = shown);
            self.sleep();
        }
    }

    /// Tables are told apart by their names. One whose place has changed is another one.
    fn replace(&mut self, tables: Vec<ContractConfig>) {
        let former = std::mem::take(&mut self.followers);
        let mut former: BTreeMap<String, Follower> =
            former.into_iter().map(|follower| (follower.config.contract.name.clone(), follower)).collect();
        let mut kept = Vec::with_capacity(tables.len());
        let mut begun = Vec::new();
        for table in tables {
            match former.remove(&table.contract.name) {
                Some(follower) if follower.config == table => kept.push(follower),
                Some(mut follower) if follower.config.place == table.place => {
                    follower.change(table, &self.requests);
                    kept.push(follower);
                }
                Some(follower) => {
                    follower.end(&self.requests);
                    begun.push(Follower::new(table));
                }
                None => begun.push(Follower::new(table)),
            }
        }
        // What has ended is free for what begins.
        former.into_values().for_each(|follower| follower.end(&self.requests));
        self.followers = kept.into_iter().chain(begun).collect();
    }

    fn watch_all(&mut self) {
        let Some(watch) = &mut self.watch else { return };
        for _ in 0..WATCH_TURNS {
            let wanted: BTreeSet<PathBuf> = self.followers.iter().flat_map(Follower::watched).collect();
            if !watch.watch(&wanted) {
                return;
            }
        }
    }

    /// Until the kernel reports a change, an order arrives, or a look is due.
    fn sleep(&mut self) {
        let most = self
            .longest_sleep()
            .map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
        let mut fds = vec![PollFd::new(&*self.wake, PollFlags::IN)];
        fds.extend(self.watch.iter().map(|watch| PollFd::new(watch, PollFlags::IN)));
        let processes = self.followers.iter().flat_map(Follower::processes);
        fds.extend(processes.map(|process| PollFd::new(process, PollFlags::IN)));
        // An error is a signal: look again.
        let _ = poll(&mut fds, most.as_ref());
        let is_order = !fds[0].revents().is_empty();
        drop(fds);
        let mut count = [0; 8];
        // Fails if the counter is zero.
        let _ = rustix::io::read(&*self.wake, &mut count);
        if !is_order {
            std::thread::sleep(PAUSE);
        }
        if let Some(watch) = &mut self.watch {
            watch.take_events();
        }
    }

    /// `None`: until an event.
    fn longest_sleep(&self) -> Option<Duration> {
        if self.followers.iter().any(Follower::is_refused) {
            return Some(REFUSED);
        }
        let needs_looks = self.followers.iter().any(|follower| self.watch.is_none() || follower.needs_looks());
        needs_looks.then_some(REGULAR)
    }
}
