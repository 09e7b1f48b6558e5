//! Moves a thread from one application to another: a program's contract gives way to a contract of the thread, and
//! takes the thread back afterwards.
//!
//! The kernel's reservation belongs to the thread and continues through the move. The ledger and the supervisor
//! follow in one step: what the thread may be consuming is charged to the old application before and to the new one
//! after, never to both or to neither. Then both applications are served by their own contracts, as after any
//! change. A server that several threads share stays with the other threads.

use qfabric_types::api::ApplicationScope;
use qfabric_types::{AppId, Share, ThreadId};

use super::Host;
use crate::thread::{Thread, millionths};

impl Host {
    /// Whether the application's contract gives way to a more specific one: only a program's does.
    pub(super) fn gives_way(&self, app: AppId) -> bool {
        self.find_present(app).is_ok_and(|at| self.apps[at].covers == ApplicationScope::Program)
    }

    /// From now on `to` covers the thread, whatever application covered it before.
    pub(super) fn take_over(&mut self, thread: ThreadId, to: AppId) {
        let Ok(place) = self.covered.binary_search_by_key(&thread, |&(thread, _)| thread) else {
            return self.find(to).map_or((), |at| self.cover(at, thread));
        };
        let from = std::mem::replace(&mut self.covered[place].1, to);
        let (Some(old), Some(new)) = (self.find(from), self.find(to)) else { return };
        let Some(index) = self.apps[old].find(thread).filter(|_| from != to) else { return };
        let mut moved = self.apps[old].remove(index);
        self.leave_server(old, &mut moved);
        // The promise of the old application does not cover this thread any more.
        let place = moved.place;
        self.ledger.settle_on(&mut moved, place, 0, self.now);
        let held = Share::from_ppm(moved.holds() as u32);
        self.apps[new].adopt(moved);
        self.in_flight.iter_mut().filter(|told| told.1 == thread).for_each(|told| told.0 = to);
        let part = self.books.transfer(from, to, held);
        self.apps[old].wanted = self.apps[old].wanted.saturating_sub(part);
        self.apps[new].wanted += part;
        for at in [old, new] {
            self.apps[at].note_reserved(self.now);
            self.touch(at);
        }
        self.follow_grants();
        self.refresh(old);
        // A leaving application may have waited for this thread alone, so it is removed here.
        self.remove_if_restored(old);
    }

    /// Returns a thread to the contract of its program, if the program may cover one more.
    pub(super) fn hand_back(&mut self, app: AppId, thread: ThreadId, to: AppId) {
        let has_it = self.covering(thread) == Some(app);
        let Some(at) = self.find_present(to).ok().filter(|_| has_it && self.gives_way(to)) else {
            return self.ignore();
        };
        if self.apps[at].threads.len() >= self.config.max_threads {
            return self.leave_out(at, thread);
        }
        self.take_over(thread, to);
        self.recompute_shares();
        if let Some(at) = self.find(to) {
            self.refresh(at);
        }
    }

    /// If the thread was counted for a shared server, another thread is counted for it from now on.
    fn leave_server(&mut self, old: usize, moved: &mut Thread) {
        let app = &mut self.apps[old];
        let successor = app.successor().and_then(|successor| app.find(successor));
        if let Some(successor) = successor.filter(|_| millionths(moved.applied) > 0) {
            self.ledger.inherit(moved, &mut app.threads[successor]);
        }
    }
}
