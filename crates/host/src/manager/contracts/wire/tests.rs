use proptest::prelude::*;
use qfabric_broker::{HoldBound, HoldHolder, HoldRefusal};
use qfabric_types::{Resource, Resources};

use super::super::{CapScope, NoConsent, OverCap, Participant, ParticipantOutput, Reason};
use super::*;

const OWNER: Owner = Owner { uid: 1000, gid: 100 };
/// Bytes of the holders of a shortage.
const HOLDERS: usize = 1 + HoldRefusal::MOST_HOLDERS * (1 + Name::MAX + 8);
/// Bytes of what others than contracts hold.
const OTHERS: usize = 8;

fn vector(links: usize) -> Resources {
    let mut vector = Resources::default();
    vector.set_units(&Resource::Cpu, 250_000).unwrap();
    vector.set_units(&Resource::Memory, 64 << 20).unwrap();
    for link in 0..links {
        let name = format!("network interface-{link:05} {}", ["out", "in"][link % 2]);
        vector.set_units(&name.parse().unwrap(), 1_000_000 + link as u64).unwrap();
    }
    vector
}

fn reasons() -> Vec<Reason> {
    let resource: Resource = "network eth0 in".parse().unwrap();
    let amount = |units| resource.amount(units);
    let short = HoldRefusal {
        asked: amount(5),
        minimum: amount(4),
        free: amount(3),
        largest: amount(2),
        bound: HoldBound::User { uid: 65_534, cap: 9 },
        is_transient: true,
        holders: vec![
            HoldHolder { initiator: "n".repeat(Name::MAX).parse().unwrap(), amount: amount(7) };
            HoldRefusal::MOST_HOLDERS
        ],
        others: Some(amount(6)),
        resource: resource.clone(),
    };
    let bounds =
        [HoldBound::Free, short.bound, HoldBound::Group { gid: 7, cap: 9 }, HoldBound::Number { uid: 7, most: 16 }];
    let shortages = bounds.map(|bound| Reason::Short(Box::new(HoldRefusal { bound, ..short.clone() })));
    let consent = [NoConsent::Declined, NoConsent::Silent, NoConsent::Absent].map(Reason::NoConsent);
    let (hold, version) = (Reason::Hold { given: Nanos::new(1) }, Reason::Version { speaks: 9 });
    let not_brokered = Reason::NotBrokered(Resource::Memory);
    let contracts = OverCap::Contracts { scope: CapScope::Host, cap: 9 };
    let (scope, resource) = (CapScope::Group(100), Resource::Memory);
    let amount = |units| resource.amount(units);
    let (asked, minimum, cap, left) = (amount(9), amount(8), amount(7), amount(6));
    let amount = OverCap::Amount { scope, resource, asked, minimum, cap, left };
    let full = Reason::Full { limit: 7 };
    let mut reasons = vec![not_brokered, Reason::Ended, full, hold, version];
    reasons.extend(shortages.into_iter().chain(consent));
    reasons.extend([contracts, amount].map(Reason::OverCap));
    reasons
}

fn bodies() -> Vec<Body> {
    let (wanted, minimum) = (vector(Resources::MAX_LINKS), vector(2));
    let application = Some("a".repeat(Name::MAX).parse().unwrap());
    let part =
        PartRequest { owner: OWNER, wanted, minimum, application, may_grow: false, hold: Nanos::from_millis(3_000) };
    let granted = || vector(3);
    let mut bodies = vec![
        Body::Request(PartRequest { application: None, ..part.clone() }),
        Body::Request(part),
        Body::Offer { granted: granted(), is_upgrade: true },
        Body::Accept { step: 7, granted: granted(), frees_upgrade: true },
        Body::Confirm { step: 7, granted: Resources::default() },
        Body::Cancel,
    ];
    bodies.extend(reasons().into_iter().map(Body::Refuse));
    bodies
}

fn messages() -> impl Iterator<Item = ContractMessage> {
    let id = JointId { host: "h".repeat(Name::MAX).parse().unwrap(), number: u64::MAX };
    bodies().into_iter().map(move |body| ContractMessage { id: id.clone(), round: 3, body })
}

#[test]
fn an_encoded_message_decodes_to_itself() {
    for message in messages() {
        let mut bytes = message.encode(Instant::new(5));
        assert!(bytes.len() <= MAX_MESSAGE, "{} bytes", bytes.len());
        assert_eq!(ContractMessage::decode(&bytes).as_ref(), Ok(&message));
        bytes.push(0);
        assert_eq!(ContractMessage::decode(&bytes).as_ref(), Ok(&message), "a newer version has more bytes");
    }
}

#[test]
fn a_message_that_is_cut_anywhere_is_refused() {
    for message in messages() {
        let bytes = message.encode(Instant::new(5));
        // Older hosts send an Accept without its last byte, and a shortage without its last one or two fields.
        let optional: &[usize] = match &message.body {
            Body::Accept { .. } => &[1],
            Body::Refuse(Reason::Short(_)) => &[OTHERS, HOLDERS + OTHERS],
            _ => &[],
        };
        for end in 0..bytes.len() {
            let is_whole = optional.contains(&(bytes.len() - end));
            assert_eq!(ContractMessage::decode(&bytes[..end]).is_ok(), is_whole, "{message:?} at {end}");
        }
    }
}

#[test]
fn a_shortage_of_an_older_host_names_no_holders_and_too_many_are_refused() {
    let is_short = |message: &ContractMessage| matches!(message.body, Body::Refuse(Reason::Short(_)));
    let message = messages().find(is_short).unwrap();
    let mut bytes = message.encode(Instant::new(5));
    let at = bytes.len() - OTHERS - HOLDERS;
    let Body::Refuse(Reason::Short(read)) = ContractMessage::decode(&bytes[..at]).unwrap().body else { panic!() };
    assert_eq!((read.asked.units(), read.holders.len(), read.others), (5, 0, None));
    bytes[at] += 1;
    bytes.extend_from_within(at + 1..at + 1 + 1 + Name::MAX + 8);
    assert!(ContractMessage::decode(&bytes).is_err(), "one holder too many");
}

#[test]
fn an_accept_of_an_older_host_frees_no_upgrade() {
    let accept = messages().find(|message| matches!(message.body, Body::Accept { .. })).unwrap();
    let bytes = accept.encode(Instant::new(5));
    let read = ContractMessage::decode(&bytes[..bytes.len() - 1]).unwrap();
    let Body::Accept { step, granted, frees_upgrade } = read.body else { panic!("{read:?}") };
    assert_eq!((step, granted, frees_upgrade), (7, vector(3), false));
}

#[test]
fn an_older_manager_reads_the_event_and_finds_an_attribute_that_it_does_not_have() {
    let request = messages().next().unwrap().encode(Instant::new(5));
    let event = QualityEvent::decode(&request).unwrap();
    assert_eq!((event.kind, event.attribute), (QualityKind::Request, AttributeId::of("contract")));
    let mut manager = super::super::super::Manager::new("beta".parse().unwrap());
    let input = super::super::super::Input::Control("c".parse().unwrap(), "alpha".parse().unwrap(), event);
    manager.handle(input, Instant::new(6));
    assert_eq!(manager.poll(), None, "no offer, and nothing is held");
}

#[test]
fn a_request_of_another_version_is_refused_with_the_version_of_this_host() {
    let mut bytes = messages().next().unwrap().encode(Instant::new(5));
    bytes[8] = 2;
    let Err(NotReadable::Version { number, version }) = ContractMessage::decode(&bytes) else { panic!("was read") };
    assert_eq!(version, 2);
    let (alpha, mut participant) = ("alpha".parse().unwrap(), Participant::new("beta".parse().unwrap()));
    participant.not_readable(&alpha, number);
    let Some(ParticipantOutput::Send(to, message)) = participant.poll() else { panic!("no answer") };
    let reason = Reason::Version { speaks: VERSION };
    assert_eq!((to, message.body), (alpha, Body::Refuse(reason)));
}

#[test]
fn a_minimum_beyond_the_wanted_amount_is_refused() {
    let (wanted, minimum) = (vector(1), vector(2));
    let part = PartRequest {
        owner: OWNER,
        wanted,
        minimum,
        application: None,
        may_grow: true,
        hold: Nanos::from_millis(3_000),
    };
    let message = ContractMessage { body: Body::Request(part), ..messages().next().unwrap() };
    let refused = ContractMessage::decode(&message.encode(Instant::ZERO)).unwrap_err();
    assert!(matches!(refused, NotReadable::Invalid { number: u64::MAX, .. }), "{refused}");
}

proptest! {
    #[test]
    fn any_change_of_a_message_is_read_or_refused(which in 0..20usize, at in 0..600usize, byte in any::<u8>()) {
        let mut bytes = messages().nth(which).unwrap().encode(Instant::new(5));
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(message) = ContractMessage::decode(&bytes) {
            let again = message.encode(Instant::new(5));
            prop_assert_eq!(ContractMessage::decode(&again), Ok(message));
        }
    }

    #[test]
    fn arbitrary_tails_are_read_or_refused(kind in 0..6usize, tail in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = messages().nth(kind).unwrap().encode(Instant::new(5));
        bytes.truncate(QualityEvent::SIZE);
        bytes.extend(tail);
        drop(ContractMessage::decode(&bytes));
    }
}
