use proptest::prelude::*;

use super::parts::PART;
use super::*;

fn client(message: &FromClient<'_>) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    assert_eq!(FromClient::decode(&bytes).as_ref(), Some(message));
}

fn daemon(message: &FromDaemon<'_>) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    assert_eq!(FromDaemon::decode(&bytes).as_ref(), Some(message));
    bytes.truncate(bytes.len() - 1);
    assert_ne!(FromDaemon::decode(&bytes).as_ref(), Some(message), "a truncated message is not the same message");
}

#[test]
fn an_encoded_message_decodes_to_itself() {
    client(&FromClient::Hello { version: 7 });
    client(&FromClient::More { sink: 3, events: 99 });
    client(&FromClient::Late(LateReport { sink: 3, host: "left", source: 1, events: 2 }));
    client(&FromClient::Report(Report { registration: 3, attribute: "app.position", value: -7 }));
    for to in [Destination::All, Destination::Host("cam-1"), Destination::Sink("cam-1", 9)] {
        let attributes = Attributes::Listed(&[("rate", -3), ("7", i64::MAX)]);
        let (source, tag, payload) = (1, 2, &b"data"[..]);
        let submit = SubmitRequest {
            source,
            tag,
            payload,
            attributes,
            to,
            confirm: true,
            keep: true,
            ..SubmitRequest::default()
        };
        client(&FromClient::Submit(submit));
    }
    daemon(&FromDaemon::Welcome { lease: 5, host: "a" });
    daemon(&FromDaemon::Writable(3));
    daemon(&FromDaemon::Sent(Sent { tag: 1, number: 2, remote: 3, local: 4, filtered: 5, dropped: 6 }));
    daemon(&FromDaemon::Refused(Refused { tag: 1, source: 2, blocked_until_ns: 3, why: "late; be earlier" }));
    daemon(&FromDaemon::Ended { member: Member::Sink, number: 4, why: "closed" });
    for amount in [None, Some(0), Some(-25_000)] {
        let (channel, attribute, subject) = ("video", "app.rate_milli", "cam-1");
        daemon(&FromDaemon::Decided(Decision { channel, attribute, subject, amount }));
    }
    let attributes = Attributes::Listed(&[("load", 4)]);
    let (host, number, payload) = ("b", 77, &[1, 2, 3][..]);
    daemon(&FromDaemon::Event(Event { sink: 1, host, number, attributes, payload, ..Event::default() }));
}

#[test]
fn a_payload_above_the_limit_is_refused() {
    let payload = vec![0; MAX_PAYLOAD + 1];
    let mut bytes = Vec::new();
    FromClient::Submit(SubmitRequest { payload: &payload, ..SubmitRequest::default() }).encode(&mut bytes);
    assert_eq!(FromClient::decode(&bytes), None);
    bytes.pop();
    assert!(FromClient::decode(&bytes).is_some() && bytes.len() <= MAX_WHOLE);
}

#[test]
fn long_reasons_are_cut_between_two_characters() {
    let why = "é".repeat(MAX_TEXT);
    let mut bytes = Vec::new();
    FromDaemon::Ended { member: Member::Source, number: 1, why: &why }.encode(&mut bytes);
    let Some(FromDaemon::Ended { why, .. }) = FromDaemon::decode(&bytes) else {
        panic!("a cut reason must still parse")
    };
    assert_eq!(why.len(), MAX_TEXT);
}

#[test]
fn attributes_beyond_the_limit_are_not_sent() {
    let key = "k".repeat(MAX_KEY);
    let listed: Vec<_> = (0..40).map(|value| (key.as_str(), value)).collect();
    let mut bytes = Vec::new();
    let attributes = Attributes::Listed(&listed);
    let payload = &[0; MAX_PAYLOAD][..];
    FromClient::Submit(SubmitRequest { attributes, payload, ..SubmitRequest::default() }).encode(&mut bytes);
    let Some(FromClient::Submit(submit)) = FromClient::decode(&bytes) else { panic!("the encoder keeps the limit") };
    assert_eq!(submit.attributes.iter().count(), MAX_ATTRIBUTES);
    assert!(bytes.len() <= MAX_WHOLE);
}

#[test]
fn a_long_message_is_split_and_joined_again() {
    for length in [0, 1, MAX_MESSAGE, MAX_MESSAGE + 1, 3 * MAX_MESSAGE, MAX_WHOLE] {
        let message: Vec<u8> = (0..length).map(|at| (1 + at % 100) as u8).collect();
        let (mut reassembler, mut part, mut out) = (Reassembler::default(), Vec::new(), None);
        let mut all = parts(&message);
        while all.next(&mut part) {
            assert!(part.len() <= MAX_MESSAGE && out.is_none());
            match reassembler.add(&part) {
                ReassemblyOutcome::Message(message) => out = Some(message.to_vec()),
                ReassemblyOutcome::More => {}
                ReassemblyOutcome::Nonsense => panic!("a part of a message of {length} bytes is invalid"),
            }
        }
        assert!(out.as_ref() == Some(&message), "{length}");
    }
}

#[test]
fn invalid_parts_are_refused_and_take_no_memory() {
    let part = |left: u32, bytes: &[u8]| [&[PART][..], &left.to_le_bytes(), bytes].concat();
    let mut reassembler = Reassembler::default();
    assert_eq!(reassembler.add(&part(u32::MAX, b"a")), ReassemblyOutcome::Nonsense, "longer than any message");
    assert_eq!(reassembler.add(&part(4, b"")), ReassemblyOutcome::Nonsense, "empty part");
    assert_eq!(reassembler.add(&[PART, 1]), ReassemblyOutcome::Nonsense);
    assert_eq!(reassembler.add(&part(4, b"ab")), ReassemblyOutcome::More);
    assert_eq!(
        reassembler.add(&part(3, b"cd")),
        ReassemblyOutcome::Nonsense,
        "more bytes are left than the first part announced"
    );
    assert_eq!(reassembler.add(b"next"), ReassemblyOutcome::Message(b"next"), "the next message is received");
    assert_eq!(reassembler.add(&part(1, b"ab")), ReassemblyOutcome::More);
    assert_eq!(reassembler.add(b"next"), ReassemblyOutcome::Nonsense, "between two parts of another message");
    assert_eq!(reassembler.add(&part(0, b"ab")), ReassemblyOutcome::Message(b"ab"));
}

/// Found by the fuzzer.
#[test]
fn a_withdrawn_decision_with_an_amount_is_refused() {
    let undecided = FromDaemon::Decided(Decision { channel: "v", attribute: "a", subject: "s", amount: None });
    let mut bytes = Vec::new();
    undecided.encode(&mut bytes);
    assert_eq!(FromDaemon::decode(&bytes), Some(undecided));
    bytes[5] = 1;
    assert_eq!(FromDaemon::decode(&bytes), None);
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = (FromClient::decode(&bytes), FromDaemon::decode(&bytes));
    }

    #[test]
    fn a_decoded_message_encodes_to_the_same_bytes(kind in 1..5u8, rest in proptest::collection::vec(0..4u8, 0..60)) {
        for kind in [kind, kind + 128, kind + 131] {
            let bytes: Vec<u8> = std::iter::once(kind).chain(rest.iter().copied()).collect();
            let mut again = Vec::new();
            if let Some(message) = FromClient::decode(&bytes) {
                message.encode(&mut again);
                prop_assert_eq!(&again, &bytes);
            }
            if let Some(message) = FromDaemon::decode(&bytes) {
                message.encode(&mut again);
                prop_assert_eq!(&again, &bytes);
            }
        }
    }
}
