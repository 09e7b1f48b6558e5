//! Texts that describe an emulated link, and the first bytes of a connection of METP.

use qfabric_carrier::testing::{STREAM_HEADER, read_hello, read_stream_header};
use qfabric_netlab::{EmulatedLink, LinkRate, LinkSettings, LossModel, QueueLimit, Schedule, Trace};
use qfabric_types::{Instant, Nanos};

/// The first message of a connection reads back as it was written, or is refused with the next step.
pub fn hello(bytes: &[u8]) {
    read_hello(bytes);
}

/// The header of a stream reads back as it was written, and its message has at most the admitted size.
pub fn stream_header(bytes: &[u8]) {
    let (first, rest) = bytes.split_at(bytes.len().min(8));
    let largest = first.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)) % (16 << 20);
    let mut header = [0; STREAM_HEADER];
    let length = rest.len().min(STREAM_HEADER);
    header[..length].copy_from_slice(&rest[..length]);
    if let Some(size) = read_stream_header(&header, largest) {
        assert!((1..=largest).contains(&u64::from(size)));
    }
}

/// A trace, a schedule and the properties of a link are refused with a reason, or a link that follows them carries
/// packets: it comes to rest after each time, and its time never runs backwards.
pub fn link_text(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(error) = Schedule::parse(text) {
        assert!(!error.to_string().is_empty());
    }
    match Trace::parse(text) {
        Ok(trace) => carry(LinkSettings { rate: LinkRate::Trace(trace.into()), ..LinkSettings::default() }),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let mut words = text.split_whitespace();
    let (rate, queue, loss) = (words.next(), words.next(), words.next());
    let settings = LinkSettings {
        rate: rate.and_then(|word| word.parse().ok()).unwrap_or_default(),
        queue: queue.and_then(|word| word.parse().ok()).unwrap_or(QueueLimit::Time(Nanos::from_millis(10))),
        loss: loss.and_then(|word| word.parse().ok()).unwrap_or(LossModel::None),
        ..LinkSettings::default()
    };
    if settings.check().is_ok() {
        carry(settings);
    }
}

fn carry(settings: LinkSettings) {
    const PACKETS: u64 = 20;
    let mut now = Instant::ZERO;
    let mut link = EmulatedLink::new(settings, &[Nanos::ZERO], 1, now);
    (0..PACKETS).for_each(|packet| link.arrive(now, packet, 1_500, 0));
    for _ in 0..4 * PACKETS {
        while link.deliver(now).is_some() {}
        let Some(next) = link.next_wakeup() else { break };
        assert!(next >= now, "{next:?} is before {now:?}");
        now = next;
    }
    let counters = link.counters();
    assert!(counters.delivered <= PACKETS && counters.packets == PACKETS);
}
