//! The rings between an application and its daemon that carry messages.

use loom::sync::Arc;
use loom::thread;
use qfabric_models::explore;
use qfabric_models::message_ring::{MessageRing, Reader, TakeOutcome, Writer, Written};

/// A reader's next message.
fn take(reader: &mut Reader, ring: &MessageRing) -> Option<Vec<u8>> {
    let mut buffer = [0; 16];
    match reader.take(ring, &mut buffer) {
        TakeOutcome::Message(length) => Some(buffer[..length].to_vec()),
        TakeOutcome::Nothing => None,
        TakeOutcome::Nonsense => panic!("an honest writer wrote no message"),
    }
}

#[test]
fn a_reader_never_sleeps_on_a_message_that_nobody_wakes_it_for() {
    explore(3, || {
        let ring = Arc::new(MessageRing::default());
        let theirs = ring.clone();
        let writing = thread::spawn(move || Writer::default().write(&theirs, &[1; 8]));
        let mut reader = Reader::default();
        let seen = take(&mut reader, &ring);
        let sleeps = seen.is_none() && reader.may_sleep(&ring);
        let written = writing.join().unwrap();
        assert!(!sleeps || written == Written::Wake, "{seen:?}, {written:?}");
    });
}

#[test]
fn messages_arrive_whole_and_in_order() {
    explore(2, || {
        let ring = Arc::new(MessageRing::default());
        let theirs = ring.clone();
        let writing = thread::spawn(move || {
            let mut writer = Writer::default();
            (1..=3u8).filter(|n| writer.write(&theirs, &[*n; 12][..usize::from(*n) * 4]) != Written::Full).collect()
        });
        let mut reader = Reader::default();
        let mut taken: Vec<_> = (0..2).filter_map(|_| take(&mut reader, &ring)).collect();
        let written: Vec<u8> = writing.join().unwrap();
        taken.extend(std::iter::from_fn(|| take(&mut reader, &ring)));
        let whole = written.into_iter().map(|n| vec![n; usize::from(n) * 4]);
        assert_eq!(taken, whole.collect::<Vec<_>>());
    });
}

#[test]
fn a_writer_never_waits_for_room_that_nobody_tells_it_of() {
    explore(3, || {
        let ring = Arc::new(MessageRing::default());
        let (mut writer, mut reader) = (Writer::default(), Reader::default());
        assert_ne!(writer.write(&ring, &[1; 16]), Written::Full);
        let theirs = ring.clone();
        let writing = thread::spawn(move || writer.write(&theirs, &[2; 16]));
        let seen = take(&mut reader, &ring);
        let told = reader.has_made_room(&ring);
        let written = writing.join().unwrap();
        assert!(seen.is_some() && (told || written != Written::Full), "{written:?}");
    });
}
