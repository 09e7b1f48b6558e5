//! Compares the cost of the scheduler with the kernel's own. With one CPU and time by instructions (`-icount shift=2`:
//! 4 ns each), the times are numbers of instructions.

mod ext_shared;

use ext_shared::loads::{
    Crowd, of_a_round, of_a_yield, of_an_interactive_thread, of_messages, of_programs, of_threads,
};
use ext_shared::{Servers, load, ms, server, sleep_ms};
use qfabric_linux::ext::{Ext, ServerId, ServerSpec};
use qfabric_linux::sched_attr::SchedAttr;
use qfabric_types::{Nanos, Reservation, ThreadId};

/// Reservation of the two threads that wake each other: earlier deadlines than the crowd's, and enough for the
/// measurement.
const PAIR: (Nanos, Nanos) = (Nanos::from_millis(160), Nanos::from_millis(400));
/// Reservation of each of a hundred threads that are ready meanwhile.
const CROWD: (Nanos, Nanos) = (Nanos::from_micros(1_000), Nanos::from_millis(4_000));

fn this_thread() -> ThreadId {
    ThreadId(rustix::thread::gettid().as_raw_nonzero().get())
}

#[derive(Debug)]
struct Loads {
    switch: f64,
    round: f64,
    threads: f64,
    programs: f64,
    messages: f64,
    late: (u64, u64),
}

impl Loads {
    fn measured() -> Loads {
        Loads {
            switch: of_a_yield(),
            round: of_a_round(|_| {}),
            threads: of_threads(),
            programs: of_programs(),
            messages: of_messages(),
            late: of_an_interactive_thread(),
        }
    }
}

/// Cost of a wake-up and back between two reserved threads, while `count` other reserved threads are ready.
fn of_a_reserved_round(count: usize, mut reserve: impl FnMut(ThreadId, (Nanos, Nanos))) -> f64 {
    let crowd = Crowd::new(count);
    crowd.threads.iter().for_each(|thread| reserve(*thread, CROWD));
    reserve(this_thread(), PAIR);
    of_a_round(|echo| {
        reserve(echo, PAIR);
        crowd.wake();
    })
}

fn under_deadline(count: usize) -> f64 {
    let before = SchedAttr::of(this_thread()).unwrap();
    let each = of_a_reserved_round(count, |thread, (service, period)| {
        let reservation = Reservation::new(service, period).unwrap();
        SchedAttr::deadline(reservation, false).give(thread).unwrap();
    });
    before.give_leaving(this_thread()).unwrap();
    each
}

fn in_servers(ext: &mut Ext, count: usize) -> f64 {
    let mut servers = Servers::of(ext);
    let each = of_a_reserved_round(count, |thread, (service, period)| {
        let id: ServerId = servers.create(&ServerSpec { cpu: Some(0), ..ServerSpec::new(period, service) });
        servers.ext.join(id, thread, false).unwrap();
    });
    servers.ext.leave(this_thread()).unwrap();
    each
}

/// Instructions of a switch while `count` servers exist, which have used their budgets most of the time.
fn of_a_yield_beside(ext: &mut Ext, count: u64) -> f64 {
    let mut servers = Servers::of(ext);
    let spec = |i| ServerSpec { cpu: Some(0), ..ServerSpec::new(ms(400 + i), Nanos::from_micros(100)) };
    let _crowd: Vec<_> = (0..count).map(|i| servers.hog(&spec(i))).collect();
    sleep_ms(1_000);
    of_a_yield()
}

/// Cost of a wake-up and back between two reserved threads.
#[derive(Debug)]
struct ReservedRound {
    alone: f64,
    /// With 100 other reserved threads ready.
    among: f64,
}

impl ReservedRound {
    fn measured(mut beside: impl FnMut(usize) -> f64) -> ReservedRound {
        ReservedRound { alone: beside(0), among: beside(100) }
    }
}

/// Costs with the kernel's own scheduler, then with this one.
struct Costs {
    default: Loads,
    deadline: ReservedRound,
    best_effort: Loads,
    /// A wake-up and back, from best effort into a server.
    into: f64,
    servers: ReservedRound,
    /// A switch of best effort beside 100 servers.
    yield_beside: f64,
}

impl Costs {
    /// None if this machine cannot load the scheduler.
    fn measured() -> Option<Costs> {
        let default = Loads::measured();
        let deadline = ReservedRound::measured(under_deadline);
        let mut ext = load()?;
        let best_effort = Loads::measured();
        let into = {
            let mut servers = Servers::of(&mut ext);
            let id = servers.create(&server(100, 60));
            of_a_round(|thread| servers.ext.join(id, thread, false).unwrap())
        };
        let servers = ReservedRound::measured(|count| in_servers(&mut ext, count));
        let yield_beside = of_a_yield_beside(&mut ext, 100);
        Some(Costs { default, deadline, best_effort, into, servers, yield_beside })
    }

    /// Work that best effort and the kernel's own scheduler do in the same time.
    fn throughputs(&self) -> [(&'static str, f64, f64); 3] {
        let Costs { default, best_effort, .. } = self;
        [
            ("threads", best_effort.threads, default.threads),
            ("programs", best_effort.programs, default.programs),
            ("messages", best_effort.messages, default.messages),
        ]
    }

    fn print(&self) {
        let Costs { default, deadline, best_effort, into, servers, yield_beside } = self;
        eprintln!("default {default:#?}\next {best_effort:#?}");
        eprintln!(
            "a wake-up and back without reservations: {:.2} of the default; late {:?} µs for {:?}",
            best_effort.round / default.round,
            best_effort.late,
            default.late
        );
        eprintln!(
            "instructions of a switch by yield, best effort beside 100 servers: {yield_beside:.0}, {:.2} of the default",
            yield_beside / default.switch
        );
        eprintln!("a wake-up and back, from best effort into a server: {into:.0}");
        eprintln!(
            "a wake-up and back between two reserved threads, alone and with 100 others ready: SCHED_DEADLINE {:.0} {:.0}, ext {:.0} {:.0}",
            deadline.alone, deadline.among, servers.alone, servers.among
        );
        let (alone, among) = (servers.alone / deadline.alone, servers.among / deadline.among);
        eprintln!("ext / SCHED_DEADLINE: {alone:.2} alone, {among:.2} among 100");
        for (what, ours, theirs) in self.throughputs() {
            eprintln!("{what}: {:.3} of the default's", ours / theirs);
        }
    }

    fn check(&self) {
        let Costs { default, deadline, servers, yield_beside, .. } = self;
        let switch = default.switch;
        assert!(*yield_beside < 2.0 * switch, "a switch beside 100 servers: {yield_beside:.0} against {switch:.0}");
        assert!(servers.among < 2.0 * deadline.among, "among 100 reserved threads: {servers:?} against {deadline:?}");
        for (what, ours, theirs) in self.throughputs() {
            assert!(ours > 0.85 * theirs, "best effort's {what}: {ours} against {theirs}");
        }
    }
}

#[test]
fn the_cost_compared_with_the_kernels_own_scheduler() {
    if let Err(error) = Ext::supported() {
        return qfabric_linux::testing::skip(error);
    }
    let Some(costs) = Costs::measured() else { return };
    costs.print();
    costs.check();
}
