//! Properties of shared memory whose other side writes arbitrary bytes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;

use qfabric_shm::{Duplex, OwnedUp, SharedRing, SharedUp};
use qfabric_types::Instant;
use qfabric_types::memory::{Geometry, Layout};
use qfabric_types::message_ring::{MessageRings, TakeOutcome, WriteOutcome};
use qfabric_types::ring::{CAPACITY, Checkpoint, Consumer, JobEvent, JobRing};

use crate::Script;

/// A job ring with arbitrary contents: reading ends, and every record that is read is valid.
pub fn ring(bytes: &[u8]) {
    let (ring, file) = SharedRing::create().expect("memory for one ring");
    let (file, mut consumer) = (File::from(file), Consumer::default());
    let mut script = Script(bytes);
    while !script.is_over() {
        let at = scribble(&file, size_of::<JobRing>(), &mut script);
        ring.promise_look(Instant::new(at));
        let taken = std::iter::from_fn(|| consumer.take(&ring)).take(CAPACITY + 1);
        assert!(taken.inspect(is_valid).count() <= CAPACITY, "a look returned more records than the ring holds");
    }
}

/// The message rings of a connection with arbitrary contents: reading ends, no message is longer than the buffer,
/// and writing ends because the ring becomes full.
pub fn message_ring(bytes: &[u8]) {
    let (mut duplex, file) = Duplex::create().expect("memory for two rings");
    let (socket, _other) = UnixDatagram::pair().expect("a socket");
    let (file, mut buffer) = (File::from(file), [0; 300]);
    let most = size_of::<MessageRings>() / 8;
    let mut script = Script(bytes);
    while !script.is_over() {
        scribble_in_steps(8, &file, size_of::<MessageRings>(), &mut script);
        let mut next = || duplex.take(&socket, &mut buffer).expect("the other end of the socket is open");
        let taken = std::iter::from_fn(|| Some(next()).filter(|took| *took != TakeOutcome::Nothing)).take(most);
        let longest = taken.map(|took| if let TakeOutcome::Message(length) = took { length } else { 0 }).max();
        assert!(longest.is_none_or(|longest| longest <= 300) && next() == TakeOutcome::Nothing);
        duplex.may_sleep();
        let piece = script.piece();
        let written = (0..=most).take_while(|_| duplex.write(piece) != WriteOutcome::Full).count();
        assert!(written <= most, "the ring was never full");
    }
}

/// Writes a piece at any position of the memory. Returns the position.
fn scribble(file: &File, size: usize, script: &mut Script<'_>) -> u64 {
    scribble_in_steps(1, file, size, script)
}

/// Like [`scribble`], at a multiple of `step`.
fn scribble_in_steps(step: usize, file: &File, size: usize, script: &mut Script<'_>) -> u64 {
    let at = usize::from(script.half()) * step % size;
    let bytes = script.piece();
    let end = bytes.len().min(size - at);
    file.write_all_at(&bytes[..end], at as u64).expect("the position is within the memory");
    at as u64
}

fn is_valid(event: &JobEvent) {
    let known = match event {
        JobEvent::End(job) => job.next,
        JobEvent::Begin { known, .. } => *known,
        JobEvent::Checkpoint(checkpoint) => {
            assert!(checkpoint.levels <= Checkpoint::MAX_LEVELS);
            assert!(checkpoint.left_run.max(checkpoint.left_time) <= Checkpoint::LONGEST);
            return;
        }
    };
    assert!(known.hint().is_none_or(f64::is_finite));
}

/// Number of calls after which an area with few slots must be empty, because only one write disturbs it.
const MAX_CALLS: usize = 200;

/// A memory_up with arbitrary contents: reading ends, and returns at most as many events as there are slots.
pub fn memory_up(bytes: &[u8]) {
    let mut script = Script(bytes);
    let layout = if script.byte() % 2 == 0 { Layout::Ring } else { Layout::Bits };
    let geometry =
        Geometry::new(layout, 1 << (1 + script.below(7)), u32::from(script.byte())).expect("the geometry is small");
    let owned = OwnedUp::create(geometry).expect("memory for a small area");
    let file = File::from(owned.file().try_clone().expect("a descriptor"));
    let mut shared = SharedUp::map(owned.file(), geometry).expect("the sizes are those of the area");
    let mut data = [0; 300];
    while !script.is_over() {
        scribble(&file, geometry.total_bytes() as usize, &mut script);
        let up = shared.up();
        let taken = std::iter::from_fn(|| up.take(&mut data)).take(MAX_CALLS).count();
        assert!(taken <= geometry.slots() as usize, "read {taken} events from {} slots", geometry.slots());
        up.take_at(u32::from(script.byte()), &mut data);
        up.may_sleep();
        // A process that maps the memory now finds the arbitrary bytes; it refuses or reads them.
        drop(SharedUp::map(owned.file(), geometry));
    }
}
