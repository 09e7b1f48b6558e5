//! Looking at everything allocates nothing; what it costs in time, the bench `monitor` says.

use qfabric_host::monitor::{Monitor, Watch};
use qfabric_linux::clock;
use qfabric_linux::monitor::Meters;
use qfabric_types::monitor::{Readers, ReadingEvent};
use qfabric_types::{AppId, Nanos};

const APP: AppId = AppId(1);
const PERIOD: Nanos = Nanos::from_millis(100);

#[test]
fn looking_at_everything_takes_no_memory() {
    let mut meters = Meters::open();
    meters.add_process(APP, std::process::id() as i32).unwrap();
    let mut monitor = Monitor::new();
    let mut now = clock::now();
    for attribute in meters.attributes().to_vec() {
        monitor.watch(APP, attribute.name.as_str(), Watch::every(PERIOD), &mut meters, now).unwrap();
    }
    let (mut told, mut bytes) = (0, 0);
    let taken = allocation_counter::measure(|| {
        for _ in 0..100 {
            now = monitor.next_wakeup().unwrap().max(now + PERIOD);
            monitor.poll(now, &mut meters, &mut |reading| {
                told += 1;
                bytes += usize::from(ReadingEvent::encode(&reading, "").len() == ReadingEvent::SIZE);
            });
        }
    });
    assert_eq!(taken.count_total, 0, "allocations");
    assert!(told > 2_000 && told == bytes, "{told}");
}
