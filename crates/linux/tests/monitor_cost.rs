//! What it costs to look at everything ten times a second: no allocation, and at most 0.5 % of one core.
#![allow(unsafe_code)] // a counting allocator can only be installed through the unsafe trait

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use qfabric_host::monitor::{Monitor, Watch};
use qfabric_linux::clock;
use qfabric_linux::monitor::Meters;
use qfabric_types::monitor::{Readers, ReadingEvent};
use qfabric_types::{AppId, Nanos};

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

const APP: AppId = AppId(1);
const PERIOD: Nanos = Nanos::from_millis(100);

#[test]
fn ten_looks_a_second_at_everything_take_no_memory_and_half_a_percent_of_a_core() {
    let mut meters = Meters::open();
    meters.add_process(APP, std::process::id() as i32).unwrap();
    let mut monitor = Monitor::new();
    let mut now = clock::now();
    for attribute in meters.attributes().to_vec() {
        monitor.watch(APP, attribute.name.as_str(), Watch::every(PERIOD), &mut meters, now).unwrap();
    }
    let (mut told, mut bytes) = (0, 0);
    let mut costs: Vec<Nanos> = Vec::with_capacity(100);
    let before = ALLOCATIONS.with(Cell::get);
    for _ in 0..100 {
        now = monitor.next_wakeup().unwrap().max(now + PERIOD);
        let begin = clock::thread_cpu();
        monitor.poll(now, &mut meters, &mut |reading| {
            told += 1;
            bytes += usize::from(ReadingEvent::encode(&reading, "").len() == ReadingEvent::SIZE);
        });
        costs.push(clock::thread_cpu() - begin);
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0, "allocations");
    assert!(told > 2_000 && told == bytes, "{told}");
    costs.sort_unstable();
    let (median, ratio) = (costs[50], costs[50].as_f64() / PERIOD.as_f64());
    println!("{} attributes: {median} of CPU time per poll, {:.3} % of a core at 10 Hz", told / 100, ratio * 100.0);
    // The bench holds the promise itself; code that is not optimized may take twice as long.
    let most = if cfg!(debug_assertions) { 0.01 } else { 0.005 };
    assert!(ratio <= most, "{median} per poll of every {PERIOD}");
}
