//! CPUs that go online and offline while servers are bound to them.
//!
//! ```text
//! offline ──> its promises are tried on the others ──> one fits: the server moves
//!                                                   └─> none fits: suspended, reported, tried again when a CPU comes
//!         └─> bandwidth without a promise looks for room elsewhere
//! ```
//! CPUs are never removed from the ledger: an offline CPU has no room.

use super::{Host, placing};
use crate::HostEvent;
use crate::app::App;
use crate::thread::Thread;

impl Host {
    /// From now on exactly these CPUs are online.
    pub(super) fn cpus_changed(&mut self, online: &[u32]) {
        let Some(partition) = &mut self.partition else { return };
        partition.set_online(online);
        for &cpu in online {
            if self.ledger.place_of(cpu).is_none() {
                self.config.features.cpus.push(cpu);
                self.ledger.add(cpu);
                self.aligned_on.push(false);
            }
        }
        self.set_rooms();
        self.promise_ourselves();
        (0..self.apps.len()).for_each(|at| self.promise_again(at));
        (0..self.apps.len()).for_each(|at| self.leave_gone_cpus(at));
        (0..self.apps.len()).for_each(|at| self.place(at));
        self.starved = true;
    }

    fn promise_ourselves(&mut self) {
        if self.own_cpu().is_none()
            && let Some(partition) = &mut self.partition
        {
            placing::promise_own(&self.config, partition);
            self.set_rooms();
        }
    }

    /// Tries again to promise what was promised on an offline CPU, or was suspended.
    fn promise_again(&mut self, at: usize) {
        let App { id, ref contract, ref cpus, guarantee, .. } = self.apps[at];
        let (contract, cpus) = (contract.clone(), cpus.clone());
        let has = |host: &Host| host.partition.as_ref().is_some_and(|partition| partition.cpu_of(id).is_some());
        if self.apps[at].leaving || has(self) {
            return;
        }
        let was = std::mem::take(&mut self.apps[at].suspended);
        if self.promise(id, &contract, guarantee.share, cpus.as_deref()).is_ok() {
            self.make_room_for(id);
            return;
        }
        self.apps[at].suspended = true;
        if !was {
            self.event(HostEvent::Suspended { app: id, what: "room on the remaining CPUs" });
        }
    }

    /// Detaches the application's threads from CPUs that went offline. Until the host assigns another CPU to such a
    /// thread, no promise covers its bandwidth in force.
    fn leave_gone_cpus(&mut self, at: usize) {
        let Some(partition) = &self.partition else { return };
        let is_gone = |thread: &&mut Thread| thread.cpu.is_some_and(|cpu| !partition.is_online(cpu));
        for thread in self.apps[at].threads.iter_mut().filter(is_gone) {
            let place = thread.place;
            self.ledger.settle_on(thread, place, 0, self.now);
            thread.cpu = None;
        }
    }
}
