//! Ending a job allocates no memory: in time, late, with a full ring, and without a daemon.

use qfabric_client::{Contract, Foresight, Nanos, Session};
use qfabric_shm::SharedRing;
use rustix::event::{EventfdFlags, eventfd};

fn allocations(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).count_total
}

fn contract() -> Contract {
    Contract::new("test", Nanos::from_millis(1))
}

#[test]
fn the_allocation_counter_counts() {
    assert_ne!(allocations(|| drop(std::hint::black_box(Box::new(7)))), 0);
}

#[test]
fn a_job_on_a_ring_allocates_nothing_also_when_the_ring_is_full() {
    let (_daemon, memory) = SharedRing::create().unwrap();
    let wake = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let mut session = Session::on_ring(contract(), SharedRing::map(memory).unwrap(), wake).unwrap();
    let count = allocations(|| {
        for k in 0..300 {
            session.begin(Foresight::Hint(f64::from(k)));
            session.end_cycle(Foresight::Hint(f64::from(k)));
        }
    });
    assert_eq!(count, 0);
    assert!(session.counters().dropped > 0);
}

#[test]
fn a_job_alone_allocates_nothing_also_in_waiting() {
    let mut session = Session::alone(contract()).unwrap();
    let count = allocations(|| {
        for _ in 0..20 {
            session.wait_for_next_job();
            session.end_cycle(Foresight::Nothing);
        }
    });
    assert_eq!(count, 0);
}
