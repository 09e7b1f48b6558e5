//! No call on the path of a job allocates: the control thread has its memory locked and must not wait for the
//! allocator.

use qfabric_control::{ConsumptionController, TaskController};
use qfabric_types::{Contract, Foresight, Instant, JobRecord, Nanos, Usage};

fn allocations(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).count_total
}

fn usage(k: u64) -> Usage {
    let release = Instant::new(k * 40_000_000);
    let finish = release + Nanos::new(39_000_000 + k % 7 * 1_000_000);
    let cost = Nanos::new(8_000_000 + k % 12 * 500_000);
    Usage {
        job: JobRecord { k, release, finish, cost, next: Foresight::Hint(1.0 + k as f64) },
        granted: None,
        served: None,
    }
}

#[test]
fn a_job_allocates_nothing_with_any_predictor() {
    for spec in ["ma:12", "mma:3,12", "pct:64,95", "hint:24"] {
        let mut contract = Contract::new("test", Nanos::from_millis(40));
        contract.predictor = spec.parse().unwrap();
        let mut controller = TaskController::new(&contract);
        let count = allocations(|| {
            for k in 0..1_000 {
                controller.on_foresight(Foresight::Hint(k as f64));
                controller.on_usage(&usage(k));
            }
        });
        assert_eq!(count, 0, "{spec}");
    }
}

#[test]
fn least_squares_allocates_only_at_the_end_of_its_training() {
    let mut contract = Contract::new("test", Nanos::from_millis(40));
    contract.predictor = "ol:15,180".parse().unwrap();
    let mut controller = TaskController::new(&contract);
    let mut run = |jobs: std::ops::Range<u64>| {
        allocations(|| {
            for k in jobs {
                controller.on_usage(&usage(k));
            }
        })
    };
    assert_eq!(run(0..179), 0, "before");
    assert!(run(179..180) > 0);
    assert_eq!(run(180..1_000), 0, "after");
}

#[test]
fn a_window_of_consumption_allocates_nothing() {
    let mut controller = ConsumptionController::new(&Contract::new("test", Nanos::from_millis(40)));
    let window = Nanos::from_millis(40);
    let count = allocations(|| {
        for k in 0..1_000 {
            controller.on_window(Nanos::from_micros(k * 20), window, None, k % 5 == 0);
        }
    });
    assert_eq!(count, 0);
}
