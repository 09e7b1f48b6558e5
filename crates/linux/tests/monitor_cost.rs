//! Tests that a look at all attributes allocates no memory. Its duration is measured by the bench `monitor`.

use qfabric_host::monitor::{Monitor, Watch};
use qfabric_linux::clock;
use qfabric_linux::monitor::Meters;
use qfabric_types::monitor::{Readers, ReadingEvent};
use qfabric_types::{AppId, Nanos};

const APP: AppId = AppId(1);
const PERIOD: Nanos = Nanos::from_millis(100);

#[test]
fn a_look_at_all_attributes_allocates_nothing() {
    let mut meters = Meters::open();
    meters.add_process(APP, std::process::id() as i32).unwrap();
    let mut monitor = Monitor::new();
    let mut now = clock::now();
    for attribute in meters.attributes().to_vec() {
        monitor.watch(APP, attribute.name.as_str(), Watch::every(PERIOD), &mut meters, now).unwrap();
    }
    let (mut readings, mut bytes) = (0, 0);
    let allocated = allocation_counter::measure(|| {
        for _ in 0..100 {
            now = monitor.next_wakeup().unwrap().max(now + PERIOD);
            monitor.poll(now, &mut meters, &mut |reading| {
                readings += 1;
                bytes += usize::from(ReadingEvent::encode(&reading, "").len() == ReadingEvent::SIZE);
            });
        }
    });
    assert_eq!(allocated.count_total, 0, "allocations");
    assert!(readings > 2_000 && readings == bytes, "{readings}");
}
