//! A ring whose memory is anything at all: reading it ends, and every record that comes out makes sense.
#![no_main]

use std::os::unix::fs::FileExt;

use libfuzzer_sys::fuzz_target;
use qfabric_shm::SharedRing;
use qfabric_types::Instant;
use qfabric_types::ring::{CAPACITY, Consumer, JobEvent, JobRing};

fuzz_target!(|scribbles: Vec<(u16, Vec<u8>)>| {
    let (ring, file) = SharedRing::create().expect("memory for one ring");
    let file = std::fs::File::from(file);
    let mut consumer = Consumer::default();
    for (at, bytes) in scribbles {
        let at = usize::from(at) % size_of::<JobRing>();
        let end = bytes.len().min(size_of::<JobRing>() - at);
        file.write_all_at(&bytes[..end], at as u64).expect("within the ring");
        ring.promise_look(Instant::new(at as u64));
        let taken = std::iter::from_fn(|| consumer.take(&ring)).take(CAPACITY + 1);
        assert!(taken.inspect(makes_sense).count() <= CAPACITY, "a look is bounded by the ring's records");
    }
});

fn makes_sense(event: &JobEvent) {
    let known = match event {
        JobEvent::End(job) => job.next,
        JobEvent::Begin { known, .. } => *known,
    };
    assert!(known.hint().is_none_or(f64::is_finite));
}
