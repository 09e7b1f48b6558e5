//! What the scheduler costs beside the kernel's own. With one CPU and time by instructions (`-icount shift=2`: 4 ns each)
//! the times are counts.

mod ext_shared;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use ext_shared::{Servers, load, rest, server};
use qfabric_linux::clock;
use qfabric_linux::ext::{Ext, ServerSpec};
use qfabric_linux::testing::{Worker, burn};
use qfabric_types::{Nanos, ThreadId};

/// Instructions that one `sched_yield` takes while another thread does nothing else either: each switches.
fn of_a_yield() -> f64 {
    let other = Worker::start(std::thread::yield_now);
    rest(5);
    let (turns, at) = (other.turns(), clock::now());
    let mut own = 0u64;
    while clock::now().since(at) < Nanos::from_millis(200) {
        std::thread::yield_now();
        own += 1;
    }
    clock::now().since(at).as_f64() / 4.0 / (own + other.turns() - turns) as f64
}

/// Instructions of a wake-up and the way back: a byte to a sleeping thread, and its answer.
fn of_a_round(prepare: impl FnOnce(ThreadId)) -> f64 {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let echo = Worker::start(move || {
        let mut byte = [0];
        if there.read(&mut byte).is_ok_and(|n| n == 1) {
            let _ = there.write_all(&byte);
        }
    });
    prepare(echo.thread);
    let mut byte = [0];
    let at = clock::now();
    for _ in 0..500 {
        here.write_all(&[1]).unwrap();
        here.read_exact(&mut byte).unwrap();
    }
    let each = clock::now().since(at).as_f64() / 4.0 / 500.0;
    drop(here);
    each
}

/// Rounds per millisecond of eight threads that compute, as a compiler's processes do, and start others.
fn of_work() -> f64 {
    let workers: Vec<_> = (0..8)
        .map(|_| {
            Worker::start(|| {
                std::thread::spawn(|| burn(Nanos::from_micros(400))).join().unwrap();
            })
        })
        .collect();
    rest(20);
    let before: u64 = workers.iter().map(Worker::turns).sum();
    let at = clock::now();
    rest(600);
    let after: u64 = workers.iter().map(Worker::turns).sum();
    (after - before) as f64 / clock::now().since(at).as_f64() * 1e6
}

fn crowd(servers: &mut Servers<'_>, count: u64) -> Vec<Worker> {
    (0..count)
        .map(|i| {
            servers
                .hog(&ServerSpec {
                    cpu: Some(0),
                    ..ServerSpec::new(Nanos::from_millis(400 + i), Nanos::from_micros(100))
                })
                .1
        })
        .collect()
}

#[test]
fn its_price_beside_the_kernels_own_scheduler() {
    if let Err(error) = Ext::supported() {
        return qfabric_linux::testing::skip(error);
    }
    let plain = (of_a_yield(), of_a_round(|_| {}), of_work());
    let Some(mut ext) = load() else { return };
    let fair = (of_a_yield(), of_a_round(|_| {}), of_work());
    let mut servers = Servers::of(&mut ext);
    let id = servers.create(&server(100, 60));
    let one = of_a_round(|thread| servers.ext.join(id, thread, false).unwrap());
    let _crowd = crowd(&mut servers, 100);
    rest(1_000);
    let hundred = (of_a_yield(), of_a_round(|thread| servers.ext.join(id, thread, false).unwrap()));
    eprintln!(
        "instructions of a switch by yield: default {:.0}, ext {:.0}, beside 100 servers {:.0}",
        plain.0, fair.0, hundred.0
    );
    eprintln!(
        "instructions of a wake-up and back: default {:.0}, ext {:.0}, into a server {one:.0}, one of 101 {:.0}",
        plain.1, fair.1, hundred.1
    );
    eprintln!("processes' work per ms: default {:.3}, ext {:.3}", plain.2, fair.2);
    assert!(fair.2 > 0.8 * plain.2, "best effort's work: {fair:?} against {plain:?}");
    assert!(hundred.0 < 3.0 * fair.0, "a hundred servers cost little more than none: {hundred:?} against {fair:?}");
}
