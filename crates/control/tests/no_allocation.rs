//! Nothing on the path of a job allocates: the control thread is locked in memory and must not wait for it.
#![allow(unsafe_code)] // a counting allocator can only be installed through the unsafe trait

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use qfabric_control::{ConsumptionController, TaskController};
use qfabric_types::{Contract, Foresight, Instant, JobRecord, Nanos, Usage};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches a thread-local `Cell`
// that needs neither initialisation nor destruction.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are those `System` asks for.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System` through `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

fn usage(k: u64) -> Usage {
    let release = Instant::new(k * 40_000_000);
    let finish = release + Nanos::new(39_000_000 + k % 7 * 1_000_000);
    let cost = Nanos::new(8_000_000 + k % 12 * 500_000);
    Usage { job: JobRecord { k, release, finish, cost, next: Foresight::Hint(1.0 + k as f64) }, granted: None }
}

#[test]
fn a_job_allocates_nothing_whatever_the_predictor() {
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
fn least_squares_allocates_at_the_end_of_its_training_only() {
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
