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

#[test]
fn the_cost_compared_with_the_kernels_own_scheduler() {
    if let Err(error) = Ext::supported() {
        return qfabric_linux::testing::skip(error);
    }
    let plain = Loads::measured();
    let deadline = (under_deadline(0), under_deadline(100));
    let Some(mut ext) = load() else { return };
    let fair = Loads::measured();
    let into = {
        let mut servers = Servers::of(&mut ext);
        let id = servers.create(&server(100, 60));
        of_a_round(|thread| servers.ext.join(id, thread, false).unwrap())
    };
    let reserved = (in_servers(&mut ext, 0), in_servers(&mut ext, 100));
    let hundred = of_a_yield_beside(&mut ext, 100);
    eprintln!("default {plain:#?}\next {fair:#?}");
    eprintln!(
        "a wake-up and back without reservations: {:.2} of the default; late {:?} µs for {:?}",
        fair.round / plain.round,
        fair.late,
        plain.late
    );
    eprintln!(
        "instructions of a switch by yield, best effort beside 100 servers: {hundred:.0}, {:.2} of the default",
        hundred / plain.switch
    );
    eprintln!("a wake-up and back, from best effort into a server: {into:.0}");
    eprintln!(
        "a wake-up and back between two reserved threads, alone and with 100 others ready: SCHED_DEADLINE {:.0} {:.0}, ext {:.0} {:.0}",
        deadline.0, deadline.1, reserved.0, reserved.1
    );
    eprintln!("ext / SCHED_DEADLINE: {:.2} alone, {:.2} among 100", reserved.0 / deadline.0, reserved.1 / deadline.1);
    assert!(hundred < 2.0 * plain.switch, "a switch beside 100 servers: {hundred:.0} against {:.0}", plain.switch);
    assert!(reserved.1 < 2.0 * deadline.1, "among 100 reserved threads: {reserved:?} against {deadline:?}");
    for (what, ours, default) in [
        ("threads", fair.threads, plain.threads),
        ("programs", fair.programs, plain.programs),
        ("messages", fair.messages, plain.messages),
    ] {
        eprintln!("{what}: {:.3} of the default's", ours / default);
        assert!(ours > 0.85 * default, "best effort's {what}: {ours} against {default}");
    }
}
