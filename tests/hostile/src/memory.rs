//! Shared memory whose other side scribbles.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;

use qfabric_shm::{Duplex, OwnedUp, SharedRing, SharedUp};
use qfabric_types::Instant;
use qfabric_types::memory::{Geometry, Layout};
use qfabric_types::message_ring::{MessageRings, TakeOutcome, Written};
use qfabric_types::ring::{CAPACITY, Consumer, JobEvent, JobRing};

use crate::Script;

/// A ring whose memory is anything at all: reading it ends, and every record that comes out makes sense.
pub fn ring(bytes: &[u8]) {
    let (ring, file) = SharedRing::create().expect("memory for one ring");
    let (file, mut consumer) = (File::from(file), Consumer::default());
    let mut script = Script(bytes);
    while !script.is_over() {
        let at = scribble(&file, size_of::<JobRing>(), &mut script);
        ring.promise_look(Instant::new(at));
        let taken = std::iter::from_fn(|| consumer.take(&ring)).take(CAPACITY + 1);
        assert!(taken.inspect(makes_sense).count() <= CAPACITY, "a look is bounded by the ring's records");
    }
}

/// The rings of a connection whose memory is anything at all: a look at them ends, no message is longer than the buffer,
/// and what is written finds room or finds none.
pub fn message_ring(bytes: &[u8]) {
    let (mut duplex, file) = Duplex::create().expect("memory for two rings");
    let (socket, _other) = UnixDatagram::pair().expect("a socket");
    let (file, mut buffer) = (File::from(file), [0; 300]);
    let most = size_of::<MessageRings>() / 8;
    let mut script = Script(bytes);
    while !script.is_over() {
        scribble_in_steps(8, &file, size_of::<MessageRings>(), &mut script);
        let mut next = || duplex.take(&socket, &mut buffer).expect("the other end is open");
        let taken = std::iter::from_fn(|| Some(next()).filter(|took| *took != TakeOutcome::Nothing)).take(most);
        let longest = taken.map(|took| if let TakeOutcome::Message(length) = took { length } else { 0 }).max();
        assert!(longest.is_none_or(|longest| longest <= 300) && next() == TakeOutcome::Nothing);
        duplex.may_sleep();
        let piece = script.piece();
        let written = (0..=most).take_while(|_| duplex.write(piece) != Written::Full).count();
        assert!(written <= most, "the ring has an end");
    }
}

/// Writes a piece somewhere inside; where.
fn scribble(file: &File, size: usize, script: &mut Script<'_>) -> u64 {
    scribble_in_steps(1, file, size, script)
}

/// The same, at a multiple of `step`.
fn scribble_in_steps(step: usize, file: &File, size: usize, script: &mut Script<'_>) -> u64 {
    let at = usize::from(script.half()) * step % size;
    let bytes = script.piece();
    let end = bytes.len().min(size - at);
    file.write_all_at(&bytes[..end], at as u64).expect("within the memory");
    at as u64
}

fn makes_sense(event: &JobEvent) {
    let known = match event {
        JobEvent::End(job) => job.next,
        JobEvent::Begin { known, .. } => *known,
    };
    assert!(known.hint().is_none_or(f64::is_finite));
}

/// Turns of a reader's loop after which an area of so few slots has to be empty, whoever scribbles once.
const TURNS: usize = 200;

/// A memory_up whose memory is anything at all: a look at it ends, and gives no more than there are slots.
pub fn memory_up(bytes: &[u8]) {
    let mut script = Script(bytes);
    let layout = if script.byte() % 2 == 0 { Layout::Ring } else { Layout::Bits };
    let geometry = Geometry::new(layout, 1 << (1 + script.below(7)), u32::from(script.byte())).expect("it is small");
    let owned = OwnedUp::create(geometry).expect("memory for a small area");
    let file = File::from(owned.file().try_clone().expect("a descriptor"));
    let mut shared = SharedUp::map(owned.file(), geometry).expect("its own sizes");
    let mut data = [0; 300];
    while !script.is_over() {
        scribble(&file, geometry.total_bytes() as usize, &mut script);
        let up = shared.up();
        let taken = std::iter::from_fn(|| up.take(&mut data)).take(TURNS).count();
        assert!(taken <= geometry.slots() as usize, "{taken} events out of {} slots", geometry.slots());
        up.take_at(u32::from(script.byte()), &mut data);
        up.may_sleep();
        // Who maps it now sees what was scribbled, and refuses it or reads it.
        drop(SharedUp::map(owned.file(), geometry));
    }
}
