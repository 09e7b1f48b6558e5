//! A poll allocates no memory: it runs in the daemon's control thread, which must not wait for memory.

use qfabric_ecode::{Interpreter, Limits};
use qfabric_host::monitor::{Adaptive, Derived, Monitor, Watch};
use qfabric_types::monitor::{AdaptivePeriod, Attribute, AttributeId, HOST, Readers, Shape, Threshold, Unit};
use qfabric_types::{AppId, Instant, Nanos};

struct Moving(Vec<Attribute>);

impl Readers for Moving {
    fn attributes(&self) -> &[Attribute] {
        &self.0
    }

    fn read(&mut self, attribute: AttributeId, _: AppId, now: Instant) -> Option<i64> {
        Some((now.get() / 1_000_000) as i64 * i64::from(attribute.0 % 7) % 1_000)
    }
}

#[test]
fn a_poll_with_thresholds_feedback_and_e_code_allocates_nothing() {
    let names = (0..100).map(|n| format!("x.{n}"));
    let mut readers = Moving(names.map(|name| Attribute::new(&name, Unit::Count, Shape::Level).unwrap()).collect());
    let mut monitor = Monitor::new();
    let text =
        "struct input { long x_1; long x_2; }; struct output { long value; }; output.value = input.x_1 + input.x_2;";
    let make = &mut |program: &_| Ok(Box::new(Interpreter::new(program, Limits::default())) as _);
    let derived = Derived::new(text, HOST, &readers, make).unwrap();
    let own = Attribute::new("y", Unit::Count, Shape::Level).unwrap();
    monitor.plug_in(HOST, own, Box::new(derived), &readers).unwrap();
    let period = Nanos::from_millis(10);
    for n in 0..100 {
        let watch = Watch::every(period).with(Threshold::above(500));
        monitor.watch(AppId(1), &format!("x.{n}"), watch, &mut readers, Instant::ZERO).unwrap();
    }
    monitor.watch(HOST, "y", Watch::every(period), &mut readers, Instant::ZERO).unwrap();
    let pace =
        Box::new(Adaptive::new(AdaptivePeriod { least_ns: period, most_ns: Nanos::from_millis(50), tolerance: 1 }));
    monitor.set_pace(AppId(1), AttributeId::of("x.3"), Some(pace)).unwrap();
    let mut told = 0;
    let taken = allocation_counter::measure(|| {
        for step in 1..=100 {
            monitor.poll(Instant::new(step * 10_000_000), &mut readers, &mut |_| told += 1);
        }
    });
    assert_eq!(taken.count_total, 0);
    assert!(told > 9_000, "{told}");
}
