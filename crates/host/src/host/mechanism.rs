//! Handles a replaced mechanism: the settings of the old one are void, and the new one may lack features.

use qfabric_types::{MechanismFeatures, Share, ThreadId};

use super::{Host, abilities, placing};
use crate::HostEvent;
use crate::thread::Thread;

impl Host {
    /// Every thread starts again under the new mechanism, with the budget that its governor wants now.
    pub(super) fn replace_mechanism(&mut self, name: String, features: MechanismFeatures, capacity: Share) {
        (self.config.mechanism, self.config.features) = (name, features);
        self.config.limits.capacity = capacity;
        (self.partition, self.ledger) = placing::partition(&self.config);
        self.aligned_on = vec![false; self.config.features.cpus.len()];
        for queue in [&mut self.shrinks, &mut self.grows, &mut self.in_flight] {
            queue.clear();
        }
        self.apps.iter_mut().flat_map(|app| &mut app.threads).for_each(Thread::forget_mechanism);
        for at in 0..self.apps.len() {
            self.apps[at].note_reserved(self.now);
            self.suspend_if_needed(at);
        }
        self.set_limits(self.config.limits.clone());
        for at in (0..self.apps.len()).rev() {
            self.refresh(at);
            self.remove_if_restored(at);
        }
    }

    /// Suspends an application whose promise only the old mechanism could keep.
    fn suspend_if_needed(&mut self, at: usize) {
        let (app, features) = (&mut self.apps[at], &self.config.features);
        let lacks = abilities::lacking(features, &app.contract);
        (app.joint, app.has_slots) = (features.joins_threads(), features.slots.is_some());
        app.suspended = lacks.is_some();
        if let Some(what) = lacks {
            let event = HostEvent::Suspended { app: app.id, what };
            self.event(event);
        }
    }

    /// The thread that an event for this application favours: the one that does its jobs.
    pub fn sink(&self, app: qfabric_types::AppId) -> Option<ThreadId> {
        self.find_present(app).ok().and_then(|at| self.apps[at].sink())
    }
}
