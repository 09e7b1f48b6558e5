//! Frames survive encoding and decoding, and invalid frames are rejected.

use proptest::prelude::*;
use qfabric_ecode::parse_formats;
use qfabric_types::Nanos;
use qfabric_types::channel::{ChannelId, Plane};

use super::*;
use crate::change::Change;
use crate::counts::Fates;
use crate::filter::{Direction, FilterCommand, FilterId, FilterSpec};
use crate::{
    EventType, Limits, MemberId, Order, Origin, Pressure, Proof, QosRange, Registration, RegistrationId, RequestId,
    SinkId, SinkInfo, SourceId, SourceInfo, Spec,
};

fn channel() -> ChannelId {
    ChannelId { plane: Plane::Quality, name: "video".parse().unwrap() }
}

fn spec() -> Spec {
    let text =
        "struct inner { char a[3]; }; struct one { int x; struct inner y[2]; }; struct two { unsigned long z; };";
    let types = parse_formats(text).unwrap().into_iter().map(|format| EventType { format }).collect();
    Spec { types, order: Order::Deadline, pressure: Pressure::Block { patience: Nanos::from_millis(5) } }
}

fn changes() -> Vec<Change> {
    let attributes: crate::Attributes =
        [("load".parse().unwrap(), -7), ("role".parse().unwrap(), 2)].into_iter().collect();
    let application = Some("player".parse().unwrap());
    let sink = SinkInfo { application: application.clone(), types: 5, capacity: 16, attributes: attributes.clone() };
    let registration = Registration {
        application: "player".parse().unwrap(),
        group: "room".parse().unwrap(),
        parent: Some("house".parse().unwrap()),
        level: 2,
        qos: vec![QosRange { metric: "frame_rate".parse().unwrap(), min: 10, max: 25 }],
    };
    vec![
        Change::Hold(
            channel(),
            Origin { created_unix_ns: 9, creator: "h0".parse().unwrap() },
            spec(),
            Proof::of(&[1, 2, 3]).unwrap(),
        ),
        Change::Source(channel(), SourceId(3), SourceInfo { application, attributes }),
        Change::Sink(channel(), SinkId(4), sink),
        Change::SinkGone(channel(), SinkId(4)),
        Change::SourceGone(channel(), SourceId(3)),
        Change::Register(RegistrationId(1), registration),
        Change::Unregister(RegistrationId(1)),
        Change::Release(channel()),
    ]
}

fn filter() -> FilterSpec {
    FilterSpec {
        id: FilterId { channel: channel(), direction: Direction::Out, name: "best".parse().unwrap() },
        sink: Some(MemberId { host: "h1".parse().unwrap(), number: 8 }),
        types: vec!["one".to_owned()],
        text: "return input.x > get_attribute(least);".to_owned(),
        parameters: vec![("least".parse().unwrap(), i64::MIN)],
    }
}

fn frame(kind: Kind, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut frame = Vec::new();
    write(&mut begin(&mut frame, kind, 77));
    frame
}

/// One frame of each kind.
fn frames() -> Vec<Vec<u8>> {
    [frames_of_changes(), frames_of_counts(), frames_of_filters(), frames_of_numbers(), vec![event_frame()]].concat()
}

fn frames_of_changes() -> Vec<Vec<u8>> {
    let all = changes();
    let put = |writer: &mut Writer<'_>| {
        writer.u16(all.len() as u16);
        all.iter().for_each(|change| encode_change(change, writer.0));
    };
    let changed = frame(Kind::Changes, |writer| {
        writer.u64(12);
        put(writer);
    });
    let full = frame(Kind::Full, |writer| {
        writer.u64(12);
        writer.u16(0);
        writer.flag(true);
        writer.u64(13);
        writer.u64(14);
        put(writer);
    });
    vec![changed, full]
}

fn frames_of_counts() -> Vec<Vec<u8>> {
    let marked = Marked { sink: 4, from: 5, sent: 6 };
    let mark = Mark { to: 1, meeting: 8, source: 2, last: 3, channel: channel(), sinks: vec![marked] };
    let fates = Fates { delivered: 6, filtered: 7, dropped: 8, late: 9 };
    let reported = Reported { sink: 4, from: 5, fates, lost: 10 };
    let report = Report { to: 1, meeting: 8, source: 2, last: 3, sinks: vec![reported] };
    vec![frame(Kind::Mark, |writer| mark.write(writer)), frame(Kind::Report, |writer| report.write(writer))]
}

fn frames_of_filters() -> Vec<Vec<u8>> {
    let shipped = Shipped { to: 1, request: RequestId(2), order: FilterCommand::Install(filter()) };
    let private = Private { to: 1, bytes: b"key" };
    let answer = Answer { to: 1, request: RequestId(2), result: Err("no".to_owned()) };
    vec![
        frame(Kind::Shipped, |writer| shipped.write(writer)),
        frame(Kind::Answer, |writer| answer.write(writer)),
        frame(Kind::Private, |writer| private.write(writer)),
    ]
}

/// Frames whose body is a list of numbers.
fn frames_of_numbers() -> Vec<Vec<u8>> {
    let bodies: [(Kind, &[u64]); 5] =
        [(Kind::Ask, &[]), (Kind::Digest, &[3]), (Kind::Met, &[3]), (Kind::Ping, &[3]), (Kind::Pong, &[3, 4])];
    let frame_of =
        |(kind, numbers): (Kind, &[u64])| frame(kind, |writer| numbers.iter().for_each(|number| writer.u64(*number)));
    bodies.map(frame_of).into()
}

fn event_frame() -> Vec<u8> {
    let mut attributes = Vec::new();
    write_attributes(&[("quality", 3)], &mut attributes).unwrap();
    let (mut frame, sinks) = (Vec::new(), [4, 5]);
    header().write(&mut frame, 77, Some((9, sinks.iter())), &attributes, b"payload");
    frame
}

fn header() -> Header {
    Header { source: 3, number: 1 << 40, event_type: 1, priority: 7, sent_ns: 5, left_ns: Some(6) }
}

#[test]
fn frames_come_back_as_they_went() {
    let frames = frames();
    assert!(frames.iter().all(|frame| readable(frame)));
    let body = |frame: usize| Reader(&frames[frame][10..]);
    let told = Changes::read(&mut body(0)).unwrap();
    assert_eq!((told.before, told.changes), (12, changes()));
    let full = Full::read(&mut body(1)).unwrap();
    assert_eq!((full.version, full.part, full.last, full.changes), (12, 0, true, changes()));
    assert_eq!((full.meeting, full.heard), (13, 14));
    let shipped = Shipped::read(&mut body(4)).unwrap();
    assert_eq!(shipped.order, FilterCommand::Install(filter()));
    let event = EventFrame::read(&mut body(12)).unwrap();
    assert_eq!((event.header, event.payload), (header(), &b"payload"[..]));
    assert_eq!(event.attributes.iter().collect::<Vec<_>>(), [("quality", 3)]);
    assert!(event.is_for(5) && !event.is_for(6));
}

#[test]
fn a_frame_that_ends_early_is_no_frame() {
    // The bytes of an event and of a private message may end anywhere, and the body of an `Ask` is empty.
    let has_end = |frame: &&Vec<u8>| ![Kind::Event as u8, Kind::Private as u8].contains(&frame[1]);
    for frame in frames().iter().filter(has_end) {
        for end in 0..frame.len() {
            assert!(!readable(&frame[..end]), "kind {} of {end} bytes", frame[1]);
        }
    }
}

#[test]
fn other_versions_are_told_from_nonsense() {
    let frame = &frames()[0];
    let other = [&[VERSION + 1], &frame[1..]].concat();
    assert_eq!(read_prefix(&mut Reader(&other)), Err(Unreadable::OtherVersion(VERSION + 1)));
    assert_eq!(read_prefix(&mut Reader(&[VERSION, 99, 0, 0, 0, 0, 0, 0, 0, 0])), Err(Unreadable::Malformed));
}

#[test]
fn a_lie_about_a_length_takes_no_memory() {
    let mut frame = Vec::new();
    let mut writer = begin(&mut frame, Kind::Report, 77);
    writer.u64(1);
    writer.u64(8);
    writer.u32(2);
    writer.u64(3);
    writer.u16(u16::MAX);
    assert!(!readable(&frame));
    assert!(usize::from(u16::MAX) > Limits::MEMBERS);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        readable(&bytes);
        for kind in KINDS {
            let frame = [&[VERSION, kind as u8], &[0; 8][..], &bytes].concat();
            readable(&frame);
        }
    }

    #[test]
    fn frames_with_a_wrong_byte_are_read_or_refused(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut frame = which.get(&frames()).clone();
        let at = at.index(frame.len());
        frame[at] = byte;
        readable(&frame);
    }
}
