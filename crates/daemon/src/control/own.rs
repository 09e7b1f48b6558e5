//! Puts the service's own threads into one server, under a mechanism that schedules all threads (`ext`).
//!
//! Under `deadline` the control thread has its own reservation and runs before the applications that it controls.
//! Under `ext` such a reservation would run before every server without being counted on any CPU. So the service
//! has a server that is admitted like all others and favoured by its wake-ups; the service's work beyond this
//! server is best effort.

use std::collections::HashSet;

use qfabric_linux::{Mechanism, threads};
use qfabric_types::{AppId, Reclaiming, Reservation, ServerTerms, Setting, ThreadId};

/// Prefix of the names of the service's threads.
const PREFIX: &str = "qf-";

/// The server of the service, and its threads that are in the server.
#[derive(Debug, Default)]
pub(super) struct Own {
    reservation: Option<Reservation>,
    cpu: Option<u32>,
    covered: HashSet<ThreadId>,
}

impl Own {
    /// `cpu`: the CPU on which the server was promised; without one there is no server.
    pub(super) fn new(reservation: Option<Reservation>, cpu: Option<u32>) -> Self {
        Own { reservation: reservation.filter(|_| cpu.is_some()), cpu, covered: HashSet::new() }
    }

    /// The server was promised on another CPU: all threads move there.
    pub(super) fn move_to(&mut self, cpu: Option<u32>) {
        if self.cpu != cpu && cpu.is_some() {
            self.cpu = cpu;
            self.covered.clear();
        }
    }

    /// Puts the service's threads into the server that are not in it yet. Returns the number of threads that failed.
    pub(super) fn cover(&mut self, mechanism: &mut dyn Mechanism) -> usize {
        if self.reservation.is_none() {
            return 0;
        }
        let all = threads::list(std::process::id() as i32).unwrap_or_default();
        self.covered.retain(|thread| all.contains(thread));
        let ours = |thread: &ThreadId| threads::name(*thread).is_some_and(|name| name.starts_with(PREFIX));
        let fresh: Vec<ThreadId> = all.into_iter().filter(|t| !self.covered.contains(t)).filter(ours).collect();
        fresh.into_iter().filter(|thread| !self.put(*thread, mechanism)).count()
    }

    fn put(&mut self, thread: ThreadId, mechanism: &mut dyn Mechanism) -> bool {
        let terms = ServerTerms {
            group: Some(AppId(0)),
            cpu: self.cpu,
            work_conserving: true,
            events: true,
            ..ServerTerms::default()
        };
        let setting = Setting { thread, reservation: self.reservation, reclaiming: Reclaiming::Grub, terms };
        let done = mechanism.apply(&setting).is_ok();
        if done {
            self.covered.insert(thread);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use qfabric_linux::ApplyError;
    use qfabric_types::Nanos;

    use super::*;

    #[derive(Default)]
    struct Written(Vec<Setting>);

    impl Mechanism for Written {
        fn name(&self) -> &'static str {
            "written"
        }
        fn apply(&mut self, setting: &Setting) -> Result<(), ApplyError> {
            self.0.push(*setting);
            Ok(())
        }
        fn forget(&mut self, _: ThreadId) {}
        fn restore_all(&mut self) -> Vec<ApplyError> {
            Vec::new()
        }
    }

    #[test]
    fn every_thread_of_the_service_joins_its_server_once() {
        // A new thread has its name only after its first instructions, so the test waits until the thread runs.
        let (born, end) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (begun, may_end) = (Arc::clone(&born), Arc::clone(&end));
        let life = move || (begun.wait(), may_end.wait());
        let thread = std::thread::Builder::new().name("qf-test".into()).spawn(life).unwrap();
        born.wait();
        let reservation = Reservation::new(Nanos::from_micros(500), Nanos::from_millis(5)).ok();
        let (mut own, mut written) = (Own::new(reservation, Some(1)), Written::default());
        assert_eq!((own.cover(&mut written), own.cover(&mut written)), (0, 0));
        let there = written.0.iter().filter(|s| threads::name(s.thread).as_deref() == Some("qf-test")).count();
        assert_eq!(there, 1);
        assert!(written.0.iter().all(|s| (s.terms.group, s.terms.cpu) == (Some(AppId(0)), Some(1))));
        end.wait();
        thread.join().unwrap();
    }

    #[test]
    fn a_server_that_moves_keeps_its_threads() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("qf-moved".into()).spawn(move || ended.recv()).unwrap();
        let reservation = Reservation::new(Nanos::from_micros(500), Nanos::from_millis(5)).ok();
        let (mut own, mut written) = (Own::new(reservation, Some(1)), Written::default());
        let mut cpus = |own: &mut Own| {
            own.cover(&mut written);
            std::mem::take(&mut written.0).iter().filter_map(|setting| setting.terms.cpu).max()
        };
        while cpus(&mut own).is_none() {}
        own.move_to(Some(0));
        assert_eq!(cpus(&mut own), Some(0));
        drop(end);
        assert!(thread.join().unwrap().is_err());
    }

    #[test]
    fn without_a_cpu_there_is_no_server() {
        let reservation = Reservation::new(Nanos::from_micros(500), Nanos::from_millis(5)).ok();
        let mut written = Written::default();
        Own::new(reservation, None).cover(&mut written);
        assert!(written.0.is_empty());
    }
}
