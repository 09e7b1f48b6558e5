//! Invalid calls: the kernel's own code refuses them with an error and changes nothing.

use qfabric_linux::abi::*;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::kernel::{self, config};

fn errno(answer: std::io::Result<i32>) -> Option<i32> {
    answer.err().and_then(|error| error.raw_os_error())
}

#[test]
fn invalid_configurations_are_refused_with_the_matching_error() {
    let kernel = kernel::fresh();
    kernel.add(0, 1, config(10, 1, 0, 1)).unwrap();
    let fit = config(10, 1, 1, 2);
    for (wrong, error) in [
        (qf_config { x: 2, ..fit }, libc::EDOM),
        (qf_config { x: 3, ..fit }, libc::EDOM),
        (qf_config { x: 0, y: 0, ..fit }, libc::EDOM),
        (qf_config { y: 256, ..fit }, libc::EDOM),
        (qf_config { x: u16::MAX, y: u16::MAX, ..fit }, libc::EDOM),
        (qf_config { period_ns: 0, ..fit }, libc::ERANGE),
        (qf_config { period_ns: 0, service_ns: 0, ..fit }, libc::ERANGE),
        (qf_config { period_ns: 1 << 32, ..fit }, libc::ERANGE),
        (qf_config { period_ns: u64::MAX, service_ns: u64::MAX, ..fit }, libc::ERANGE),
        (qf_config { service_ns: 0, ..fit }, libc::ERANGE),
        (qf_config { service_ns: 11, ..fit }, libc::ERANGE),
        (qf_config { arrival_ns: u64::MAX, ..fit }, libc::ERANGE),
        (qf_config { mode: 4, ..fit }, libc::EINVAL),
        (qf_config { ask: 1 << 31, ..fit }, libc::EINVAL),
        (qf_config { reserved: 1, ..fit }, libc::EINVAL),
        (qf_config { reserved2: 1, ..fit }, libc::EINVAL),
        (qf_config { ask: QF_ASK_TASK_SERVER, rest_num: 0, rest_den: 1, x: 0, ..fit }, libc::EDOM),
        (qf_config { ask: QF_ASK_TASK_SERVER, rest_num: 2, rest_den: 1, x: 0, ..fit }, libc::EDOM),
    ] {
        assert_eq!(errno(kernel.add(0, 2, wrong)), Some(error), "{wrong:?}");
        assert_eq!(errno(kernel.change(1, wrong, 0)), Some(error), "{wrong:?}");
        assert_eq!(kernel.server(2).state, 0);
        assert_eq!(kernel.server(1).config.period_ns, 10);
    }
}

#[test]
fn missing_and_used_slots_are_refused() {
    let kernel = kernel::fresh();
    kernel.add(0, 1, config(10, 1, 0, 1)).unwrap();
    assert_eq!(errno(kernel.add(0, 1, config(10, 1, 0, 1))), Some(libc::EBUSY));
    for slot in [0, 1024, u32::MAX] {
        assert_eq!(errno(kernel.add(0, slot, config(10, 1, 0, 1))), Some(libc::ENOENT), "{slot}");
        assert_eq!(errno(kernel.command(QF_TEST_REMOVE, 0, slot, 0, 0)), Some(libc::ENOENT), "{slot}");
        assert_eq!(errno(kernel.command(QF_TEST_RAISE, 0, slot, 0, 0)), Some(libc::ENOENT), "{slot}");
    }
    assert_eq!(errno(kernel.change(7, config(10, 1, 0, 1), 0)), Some(libc::ENOENT));
    assert_eq!(errno(kernel.command(QF_TEST_REMOVE, 1, 1, 0, 0)), Some(libc::ENOENT), "a server of another CPU");
    assert_eq!(errno(kernel.command(QF_TEST_NETWORK, 0, 0, 0, 3)), Some(libc::EINVAL));
    let best = qf_config { ask: QF_ASK_BEST_EFFORT, ..config(10, 1, 0, 1) };
    kernel.add(0, 2, best).unwrap();
    assert_eq!(errno(kernel.add(0, 3, best)), Some(libc::EBUSY), "one for each CPU");
    assert_eq!(errno(kernel.change(1, best, 0)), Some(libc::EINVAL), "a server cannot become best effort");
}

/// Numbers at which sums overflow.
fn extreme(rng: &mut ChaCha8Rng) -> u64 {
    const EDGES: [u64; 9] = [0, 1, 2, 255, 1 << 32, (1 << 32) - 1, 1 << 61, 1 << 63, u64::MAX];
    if rng.random_bool(0.5) {
        EDGES[rng.random_range(0..EDGES.len())]
    } else {
        rng.random::<u64>() >> rng.random_range(0..64)
    }
}

fn any_config(rng: &mut ChaCha8Rng) -> qf_config {
    let period_ns = extreme(rng);
    qf_config {
        period_ns,
        service_ns: if rng.random_bool(0.7) && period_ns > 0 { rng.random_range(1..=period_ns) } else { extreme(rng) },
        arrival_ns: extreme(rng),
        x: rng.random_range(0..4),
        y: if rng.random_bool(0.9) { rng.random_range(1..6) } else { rng.random() },
        mode: rng.random_range(0..4),
        network: rng.random(),
        ask: rng.random_range(0..64),
        rest_num: rng.random_range(0..4),
        rest_den: rng.random_range(0..9),
        ..Default::default()
    }
}

/// Random calls in any order and at any time: the machine continues, and only chooses servers that exist and are ready.
#[test]
fn no_sequence_of_calls_makes_the_machine_choose_an_inactive_server() {
    let mut kernel = kernel::fresh();
    for seed in 1..=20 {
        kernel.reset();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for _ in 0..1_000 {
            let (slot, now) = (rng.random_range(0..40), extreme(&mut rng) >> 3);
            match rng.random_range(0..9) {
                0 => drop(kernel.add(0, slot, any_config(&mut rng))),
                1 => drop(kernel.change(slot, any_config(&mut rng), now)),
                2 => kernel.account(0, now, extreme(&mut rng) >> 3),
                _ => drop(kernel.command(rng.random_range(0..10), 0, slot, now, extreme(&mut rng))),
            }
            let decision = kernel.decide(0, now, 0).decision;
            if decision.slot != 0 {
                let server = kernel.server(decision.slot);
                assert_ne!(server.state & QF_IS_ACTIVE, 0, "seed {seed}: {decision:?} {server:?}");
                assert_ne!(server.state & QF_IS_READY, 0, "seed {seed}: {decision:?} {server:?}");
                assert!(server.left_ns > 0 || decision.kind == QF_KIND_EXTRA, "seed {seed}: {decision:?} {server:?}");
                assert!(server.x_now <= server.y_now && server.y_now > 0, "seed {seed}: {server:?}");
            }
        }
    }
}
