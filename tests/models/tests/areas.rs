//! Models the event areas between the daemon and an application.

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use qfabric_models::explore;
use qfabric_models::memory::{Geometry, HEADER_BYTES, Layout, Stamp, Up, UpHeader, UpStorage, UpWriter};

/// An area in ordinary memory that both sides share.
#[derive(Clone)]
struct Area(Arc<(UpHeader, Vec<AtomicU64>)>);

impl UpStorage for Area {
    fn header(&self) -> &UpHeader {
        &self.0.0
    }
    fn body(&self) -> &[AtomicU64] {
        &self.0.1
    }
}

/// Creates an area of two slots of eight bytes.
fn area(layout: Layout) -> (UpWriter<Area>, Up<Area>) {
    let geometry = Geometry::new(layout, 2, 8).unwrap();
    let words = (geometry.total_bytes() - HEADER_BYTES) / 8;
    let header = UpHeader::default();
    header.initialize(geometry);
    let area = Area(Arc::new((header, (0..words).map(|_| AtomicU64::new(0)).collect())));
    (UpWriter::new(area.clone(), geometry), Up::new(area).unwrap())
}

/// Writes event `n`, all bytes of which are `n`, so that a mixture of two events shows.
fn write(writer: &mut UpWriter<Area>, n: u8) -> bool {
    writer.write(&[n; 8], Stamp { time_ns: n.into(), deadline_ns: n.into() }, Some(0))
}

fn take(reader: &mut Up<Area>) -> Option<u64> {
    let mut data = [0; 8];
    let stamp = reader.take(&mut data)?;
    assert!(stamp.time_ns == stamp.deadline_ns && data == [stamp.time_ns as u8; 8], "{stamp:?}, {data:?}");
    Some(stamp.time_ns)
}

#[test]
fn events_of_a_ring_arrive_whole_and_in_order() {
    explore(2, || {
        let (mut writer, mut reader) = area(Layout::Ring);
        let writing =
            thread::spawn(move || (1..=3).filter(|n| write(&mut writer, *n)).map(u64::from).collect::<Vec<_>>());
        let mut taken: Vec<_> = (0..2).filter_map(|_| take(&mut reader)).collect();
        let written = writing.join().unwrap();
        taken.extend(std::iter::from_fn(|| take(&mut reader)));
        assert_eq!(taken, written);
    });
}

#[test]
fn a_slot_that_is_overwritten_is_never_read_as_a_mixture_and_the_last_event_is_not_lost() {
    explore(2, || {
        let (mut writer, mut reader) = area(Layout::Bits);
        let writing = thread::spawn(move || assert!(write(&mut writer, 1) && write(&mut writer, 2)));
        let early = take(&mut reader);
        writing.join().unwrap();
        let late = std::iter::from_fn(|| take(&mut reader)).last();
        assert_eq!(late.or(early), Some(2));
    });
}

#[test]
fn a_reader_never_sleeps_through_an_event_without_a_wake_up() {
    for layout in [Layout::Ring, Layout::Bits] {
        explore(3, move || {
            let (mut writer, reader) = area(layout);
            let writing = thread::spawn(move || write(&mut writer, 1) && writer.must_wake());
            let sleeps = reader.may_sleep();
            let wakes = writing.join().unwrap();
            assert!(!sleeps || wakes, "{layout:?}");
        });
    }
}
