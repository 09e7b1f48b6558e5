//! Models the rings that carry messages between an application and its daemon.

use loom::sync::Arc;
use loom::thread;
use qfabric_models::explore;
use qfabric_models::message_ring::{MessageRing, Reader, TakeOutcome, WriteOutcome, Writer};

/// Takes the next message, if there is one.
fn take(reader: &mut Reader, ring: &MessageRing) -> Option<Vec<u8>> {
    let mut buffer = [0; 16];
    match reader.take(ring, &mut buffer) {
        TakeOutcome::Message(length) => Some(buffer[..length].to_vec()),
        TakeOutcome::Nothing => None,
        TakeOutcome::Nonsense => panic!("the reader rejected a message of a correct writer"),
    }
}

#[test]
fn a_reader_never_sleeps_through_a_message_without_a_wake_up() {
    explore(3, || {
        let ring = Arc::new(MessageRing::default());
        let shared = ring.clone();
        let writing = thread::spawn(move || Writer::default().write(&shared, &[1; 8]));
        let mut reader = Reader::default();
        let seen = take(&mut reader, &ring);
        let sleeps = seen.is_none() && reader.may_sleep(&ring);
        let written = writing.join().unwrap();
        assert!(!sleeps || written == WriteOutcome::Wake, "{seen:?}, {written:?}");
    });
}

#[test]
fn messages_arrive_whole_and_in_order() {
    explore(2, || {
        let ring = Arc::new(MessageRing::default());
        let shared = ring.clone();
        let writing = thread::spawn(move || {
            let mut writer = Writer::default();
            (1..=3u8)
                .filter(|n| writer.write(&shared, &[*n; 12][..usize::from(*n) * 4]) != WriteOutcome::Full)
                .collect()
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
fn a_writer_never_waits_for_space_without_a_notification() {
    explore(3, || {
        let ring = Arc::new(MessageRing::default());
        let (mut writer, mut reader) = (Writer::default(), Reader::default());
        assert_ne!(writer.write(&ring, &[1; 16]), WriteOutcome::Full);
        let shared = ring.clone();
        let writing = thread::spawn(move || writer.write(&shared, &[2; 16]));
        let seen = take(&mut reader, &ring);
        let notifies = reader.has_made_room(&ring);
        let written = writing.join().unwrap();
        assert!(seen.is_some() && (notifies || written != WriteOutcome::Full), "{written:?}");
    });
}
