//! Messages of the connection that wait for a reader. Everything is bounded: events by the credit that was given,
//! answers by the threads that wait for them, notices by dropping the oldest.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use qfabric_types::channel_wire::{FromDaemon, MAX_MESSAGE, Member, Sent};

use super::queued::Queued;

/// Notices that wait to be read; the oldest is dropped for the next one.
const WAITING: usize = 256;
/// Emptied messages whose memory is used again, of each of the two sizes, and the largest of them.
const SPARE: usize = 64;
const SPARE_BYTES: usize = 32 << 10;
/// From this number of bytes on, a message keeps the memory that it was read into, and the reader gets other memory:
/// cheaper than a copy.
pub(super) const LARGE: usize = MAX_MESSAGE / 2;

/// Something the daemon tells without being asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An event that nobody waited for was not taken.
    Refused {
        /// The source's number.
        source: u32,
        /// A slow sink holds the channel up until then, nanoseconds of CLOCK_MONOTONIC; 0: another reason.
        blocked_until_ns: u64,
        /// Why, and what to do.
        why: String,
    },
    /// A source ended by itself.
    SourceEnded {
        /// Its number.
        source: u32,
        /// Why.
        why: String,
    },
    /// A sink ended by itself.
    SinkEnded {
        /// Its number.
        sink: u32,
        /// Why.
        why: String,
    },
    /// A resource manager made a decision about a channel on which this process has a source or a sink. An application
    /// that can adapt (an encoder, a player) should do so: otherwise its events are held back.
    Decided {
        /// The channel: `NAME`, or `quality:NAME`.
        channel: String,
        /// Of what, such as `app.rate_milli`: thousandths of an event per second.
        attribute: String,
        /// For the sinks of which host, or for which application.
        subject: String,
        /// How much, 0: stopped; none: it is not decided any more.
        amount: Option<i64>,
    },
}

/// An answer to an event that somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Sent(Sent),
    Refused { tag: u32, blocked_until_ns: u64, why: String },
}

/// Events of one source that waited too long for the reader of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LateEvents {
    pub sink: u32,
    pub host: String,
    pub source: u32,
    pub events: u32,
}

/// The end of a sink that has not been dropped yet.
#[derive(Debug)]
struct Ended {
    why: String,
    /// Whether [`Inbox::untold_end`] has returned it.
    is_told: bool,
}

#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// Events of each sink that has not been dropped, as messages.
    sinks: BTreeMap<u32, VecDeque<Vec<u8>>>,
    /// Sinks in the order in which their events came.
    order: VecDeque<u32>,
    writable: BTreeSet<u32>,
    notices: VecDeque<Notice>,
    ended: BTreeMap<u32, Ended>,
    spare: Vec<Vec<u8>>,
    /// The same, of at least [`LARGE`] bytes.
    spare_large: Vec<Vec<u8>>,
    /// No more than there were events.
    late: VecDeque<LateEvents>,
    /// The event that is waited for.
    pub awaited: Option<u32>,
    /// Events without an answer that nobody waits for.
    pub queued: Queued,
}

impl Inbox {
    /// Sorts a message in; what somebody waits for is handed back. None: nonsense.
    pub(super) fn take_in(&mut self, message: &[u8]) -> Option<Option<Answer>> {
        match FromDaemon::decode(message)? {
            // It was said before.
            FromDaemon::Welcome { .. } => return None,
            FromDaemon::Event(event) => self.keep(event.sink, message),
            FromDaemon::Sent(sent) if self.awaited == Some(sent.tag) => return Some(Some(Answer::Sent(sent))),
            FromDaemon::Sent(sent) => self.queued.answered(sent.tag),
            FromDaemon::Refused(refused) => {
                let (tag, blocked_until_ns, why) = (refused.tag, refused.blocked_until_ns, refused.why.to_owned());
                if tag == 0 || self.awaited == Some(tag) {
                    return Some(Some(Answer::Refused { tag, blocked_until_ns, why }));
                }
                self.queued.answered(tag);
                self.note(Notice::Refused { source: refused.source, blocked_until_ns, why });
            }
            FromDaemon::Writable(source) => drop(self.writable.insert(source)),
            FromDaemon::Ended { member: Member::Source, number, why } => {
                self.queued.forget(number);
                self.note(Notice::SourceEnded { source: number, why: why.to_owned() });
            }
            FromDaemon::Ended { member: Member::Sink, number, why } => {
                self.ended.insert(number, Ended { why: why.to_owned(), is_told: false });
                self.note(Notice::SinkEnded { sink: number, why: why.to_owned() });
            }
            FromDaemon::Decided(decided) => self.note(Notice::Decided {
                channel: decided.channel.to_owned(),
                attribute: decided.attribute.to_owned(),
                subject: decided.subject.to_owned(),
                amount: decided.amount,
            }),
        }
        Some(None)
    }

    /// Like [`Inbox::take_in`], for a large message at the beginning of `buffer`, which has [`MAX_MESSAGE`] bytes. An
    /// event keeps this memory, and `buffer` gets other memory of that size.
    pub(super) fn take_in_buffer(&mut self, buffer: &mut Vec<u8>, length: usize) -> Option<Option<Answer>> {
        let FromDaemon::Event(event) = FromDaemon::decode(&buffer[..length])? else {
            return self.take_in(&buffer[..length]);
        };
        let sink = event.sink;
        let mut kept = self.spare_large.pop().unwrap_or_default();
        kept.resize(MAX_MESSAGE, 0);
        std::mem::swap(&mut kept, buffer);
        kept.truncate(length);
        self.put(sink, kept);
        Some(None)
    }

    fn keep(&mut self, sink: u32, message: &[u8]) {
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(message);
        self.put(sink, kept);
    }

    /// An event of a sink that was dropped while it was under way is dropped, too: nobody would ever take it.
    fn put(&mut self, sink: u32, kept: Vec<u8>) {
        let Some(events) = self.sinks.get_mut(&sink) else { return self.give_back(kept) };
        events.push_back(kept);
        self.order.push_back(sink);
    }

    /// From now on the sink's events are kept, until [`Inbox::forget`].
    pub(super) fn begin(&mut self, sink: u32) {
        self.sinks.entry(sink).or_default();
    }

    /// Whether the sink's events are kept.
    pub(super) fn has(&self, sink: u32) -> bool {
        self.sinks.contains_key(&sink)
    }

    fn note(&mut self, notice: Notice) {
        if self.notices.len() >= WAITING {
            self.notices.pop_front();
        }
        self.notices.push_back(notice);
    }

    /// The oldest event of the sinks that `wanted` says. Those whose time has passed at `now` are dropped, and counted for
    /// [`Inbox::next_late`].
    pub(super) fn next_of(&mut self, now: u64, wanted: impl Fn(u32) -> bool) -> Option<(u32, Vec<u8>)> {
        loop {
            let at = self.order.iter().position(|sink| wanted(*sink))?;
            let sink = self.order.remove(at)?;
            let message = self.sinks.get_mut(&sink)?.pop_front()?;
            match FromDaemon::decode(&message) {
                Some(FromDaemon::Event(event)) if event.deadline_ns != 0 && event.deadline_ns < now => {
                    self.count_late(sink, event.host, event.source);
                }
                _ => return Some((sink, message)),
            }
            self.give_back(message);
        }
    }

    fn count_late(&mut self, sink: u32, host: &str, source: u32) {
        match self.late.back_mut().filter(|late| (late.sink, &*late.host, late.source) == (sink, host, source)) {
            Some(late) => late.events += 1,
            None => self.late.push_back(LateEvents { sink, host: host.to_owned(), source, events: 1 }),
        }
    }

    /// Events that were dropped since this was asked, of one source for one sink.
    pub(super) fn next_late(&mut self) -> Option<LateEvents> {
        self.late.pop_front()
    }

    /// The memory of a message that has been read.
    pub(super) fn give_back(&mut self, message: Vec<u8>) {
        let spare = if message.capacity() < LARGE { &mut self.spare } else { &mut self.spare_large };
        if spare.len() < SPARE && message.capacity() <= SPARE_BYTES {
            spare.push(message);
        }
    }

    /// A sink has left: what is left of it is of no use.
    pub(super) fn forget(&mut self, sink: u32) {
        self.sinks.remove(&sink);
        self.order.retain(|other| *other != sink);
        self.late.retain(|late| late.sink != sink);
        self.ended.remove(&sink);
    }

    /// Why a sink has ended by itself.
    pub(super) fn end_of(&self, sink: u32) -> Option<&str> {
        self.ended.get(&sink).map(|ended| ended.why.as_str())
    }

    /// The end of one of the wanted sinks, and why; each once.
    pub(super) fn untold_end(&mut self, wanted: impl Fn(u32) -> bool) -> Option<(u32, String)> {
        let (sink, ended) = self.ended.iter_mut().find(|(sink, ended)| !ended.is_told && wanted(**sink))?;
        ended.is_told = true;
        Some((*sink, ended.why.clone()))
    }

    /// Whether the source was told that it may try again; once.
    pub(super) fn take_writable(&mut self, source: u32) -> bool {
        self.writable.remove(&source)
    }

    pub(super) fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Drops all notices but decisions.
    pub(super) fn forget_notices(&mut self) {
        self.notices.retain(|notice| matches!(notice, Notice::Decided { .. }));
    }

    /// The oldest decision among the notices.
    pub(super) fn next_decided(&mut self) -> Option<Notice> {
        let at = self.notices.iter().position(|notice| matches!(notice, Notice::Decided { .. }))?;
        self.notices.remove(at)
    }

    /// Whether there is something that nobody has looked at.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty() && self.notices.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::channel_wire::{Decision, Event, Refused};

    fn inbox() -> Inbox {
        let mut inbox = Inbox::default();
        [1, 2].into_iter().for_each(|sink| inbox.begin(sink));
        inbox
    }

    fn give(inbox: &mut Inbox, message: &FromDaemon<'_>) -> Option<Answer> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        inbox.take_in(&bytes).expect("a message of the daemon")
    }

    fn event(sink: u32, number: u64) -> FromDaemon<'static> {
        FromDaemon::Event(Event { sink, number, host: "a", ..Event::default() })
    }

    #[test]
    fn events_are_taken_in_the_order_in_which_they_came_or_sink_by_sink() {
        let mut inbox = inbox();
        for (sink, number) in [(1, 1), (2, 2), (1, 3)] {
            assert!(give(&mut inbox, &event(sink, number)).is_none());
        }
        assert_eq!(inbox.next_of(0, |sink| sink == 2).unwrap().0, 2);
        let (sink, message) = inbox.next_of(0, |_| true).unwrap();
        let Some(FromDaemon::Event(first)) = FromDaemon::decode(&message) else { panic!() };
        assert_eq!((sink, first.number), (1, 1));
        inbox.forget(1);
        assert!(inbox.next_of(0, |_| true).is_none() && inbox.is_empty());
    }

    #[test]
    fn an_event_that_was_under_way_to_a_sink_that_is_dropped_waits_for_nobody() {
        let mut inbox = inbox();
        inbox.forget(1);
        give(&mut inbox, &event(1, 1));
        assert!(inbox.is_empty() && !inbox.has(1) && inbox.has(2));
    }

    #[test]
    fn the_end_of_a_sink_is_told_once_and_known_until_the_sink_is_dropped() {
        let mut inbox = Inbox::default();
        give(&mut inbox, &FromDaemon::Ended { member: Member::Sink, number: 3, why: "closed" });
        assert_eq!((inbox.end_of(3), inbox.end_of(4)), (Some("closed"), None));
        assert!(inbox.untold_end(|sink| sink == 4).is_none());
        assert_eq!(inbox.untold_end(|_| true), Some((3, "closed".to_owned())));
        assert!(inbox.untold_end(|_| true).is_none() && inbox.end_of(3).is_some());
        inbox.forget(3);
        assert!(inbox.end_of(3).is_none());
    }

    #[test]
    fn a_large_event_keeps_the_memory_it_was_read_into() {
        let (mut inbox, payload) = (inbox(), vec![5; LARGE]);
        let mut buffer = vec![0; MAX_MESSAGE];
        for number in 1..4 {
            let event = Event { sink: 1, number, host: "a", payload: &payload, ..Event::default() };
            let mut bytes = Vec::new();
            FromDaemon::Event(event).encode(&mut bytes);
            buffer[..bytes.len()].copy_from_slice(&bytes);
            let memory = buffer.as_ptr();
            assert_eq!(inbox.take_in_buffer(&mut buffer, bytes.len()), Some(None));
            let (_, message) = inbox.next_of(0, |_| true).unwrap();
            assert_eq!((message.as_ptr(), &message, buffer.len()), (memory, &bytes, MAX_MESSAGE));
            inbox.give_back(message);
        }
        buffer[0] = 7;
        assert!(inbox.take_in_buffer(&mut buffer, LARGE).is_none(), "nonsense");
    }

    #[test]
    fn an_event_whose_time_has_passed_is_dropped_and_counted() {
        let mut inbox = inbox();
        for (number, deadline_ns) in [(1, 10), (2, 10), (3, 0), (4, 20)] {
            let event = Event { sink: 1, number, host: "a", source: 7, deadline_ns, ..Event::default() };
            give(&mut inbox, &FromDaemon::Event(event));
        }
        let (_, message) = inbox.next_of(20, |_| true).unwrap();
        let Some(FromDaemon::Event(first)) = FromDaemon::decode(&message) else { panic!() };
        assert_eq!(first.number, 3);
        let late = LateEvents { sink: 1, host: "a".into(), source: 7, events: 2 };
        assert_eq!((inbox.next_late(), inbox.next_late()), (Some(late), None));
        assert!(inbox.next_of(20, |_| true).is_some(), "the end of its time is in time");
    }

    #[test]
    fn an_answer_goes_to_who_waits_and_a_refusal_nobody_waits_for_is_a_notice() {
        let mut inbox = Inbox { awaited: Some(5), ..Inbox::default() };
        let refused = |tag| FromDaemon::Refused(Refused { tag, source: 1, blocked_until_ns: 0, why: "late" });
        assert!(matches!(give(&mut inbox, &refused(5)), Some(Answer::Refused { tag: 5, .. })));
        assert_eq!(give(&mut inbox, &refused(4)), None);
        assert_eq!(inbox.next_notice(), Some(Notice::Refused { source: 1, blocked_until_ns: 0, why: "late".into() }));
        assert!(inbox.take_in(&[7, 7]).is_none(), "nonsense");
    }

    #[test]
    fn a_decision_is_taken_from_among_the_notices() {
        let mut inbox = Inbox::default();
        give(&mut inbox, &FromDaemon::Ended { member: Member::Source, number: 1, why: "closed" });
        let (channel, attribute, subject) = ("video", "app.rate_milli", "low");
        let amount = Some(12_500);
        give(&mut inbox, &FromDaemon::Decided(Decision { channel, attribute, subject, amount }));
        assert!(
            matches!(inbox.next_decided(), Some(Notice::Decided { subject, amount: Some(12_500), .. }) if subject == "low")
        );
        assert!(inbox.next_decided().is_none() && inbox.next_notice().is_some());
    }

    #[test]
    fn notices_that_are_dropped_leave_the_decisions_and_the_ends_of_sinks() {
        let mut inbox = Inbox::default();
        for member in [Member::Source, Member::Sink] {
            give(&mut inbox, &FromDaemon::Ended { member, number: 1, why: "closed" });
        }
        let (channel, attribute, subject, amount) = ("video", "app.rate_milli", "low", None);
        give(&mut inbox, &FromDaemon::Decided(Decision { channel, attribute, subject, amount }));
        inbox.forget_notices();
        assert!(!inbox.is_empty() && inbox.next_decided().is_some());
        assert!(inbox.is_empty() && inbox.untold_end(|_| true).is_some());
    }

    #[test]
    fn the_oldest_notice_makes_room() {
        let mut inbox = Inbox::default();
        for source in 0..WAITING as u32 + 1 {
            give(&mut inbox, &FromDaemon::Ended { member: Member::Source, number: source, why: "closed" });
        }
        assert_eq!(inbox.next_notice(), Some(Notice::SourceEnded { source: 1, why: "closed".into() }));
    }
}
