//! Channels as applications meet them: a daemon without other hosts, and connections to it.

mod common;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Host, PATIENCE};
use qfabric_client::channel::{
    Channel, Channels, Destination, Direction, Filter, Notice, Pressure, SinkOptions, SourceOptions, Spec, Submission,
};
use qfabric_client::{ClientError, clock};
use qfabric_daemon::EngineName;
use qfabric_types::Nanos;

const FRAME: &str = "struct frame { int number; int size; };";
const SOON: Duration = Duration::from_millis(300);

impl Host {
    /// None, where this host offers no mechanism.
    fn start() -> Option<Host> {
        Host::with(|config| {
            config.channels.enabled = true;
            config.channels.engine = EngineName::None;
            config.channels.host = Some("alpha".parse().unwrap());
            config.channels.priority = 0;
        })
    }

    fn connect(&self) -> Channels {
        Channels::connect(&self.client).unwrap()
    }
}

fn payload(number: i32) -> Vec<u8> {
    [number.to_le_bytes(), 0i32.to_le_bytes()].concat()
}

fn number(payload: &[u8]) -> i32 {
    i32::from_le_bytes(*payload.first_chunk().unwrap())
}

fn refusal<T: std::fmt::Debug>(result: Result<T, ClientError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn an_event_comes_to_the_handlers_of_all_sinks_with_its_attributes() {
    let Some(host) = Host::start() else { return };
    let (ours, theirs) = (host.connect(), host.connect());
    assert_eq!(ours.host(), "alpha");
    let video = ours.create("video", &Spec::of(FRAME)).unwrap();
    let same = theirs.open("video").unwrap();
    assert_eq!(same.format(0).unwrap().name, "frame");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    let _sink = same
        .sink_subscribe(&SinkOptions::default(), move |event| {
            kept.lock().unwrap().push((event.number, number(event.payload), event.attributes.get("rate")));
        })
        .unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    for n in 1..=3 {
        let (payload, attributes) = (payload(n), [("rate", 25 - i64::from(n))]);
        let event = Submission { payload: &payload, attributes: &attributes, ..Submission::default() };
        assert_eq!(source.submit_and_wait(&event).unwrap().local, 1);
    }
    let until = Instant::now() + PATIENCE;
    while seen.lock().unwrap().len() < 3 && Instant::now() < until {
        theirs.poll(SOON).unwrap();
    }
    assert_eq!(*seen.lock().unwrap(), [(1, 1, Some(24)), (2, 2, Some(23)), (3, 3, Some(22))]);
}

#[test]
fn events_whose_time_passes_while_they_wait_for_their_reader_are_late_and_not_read() {
    let Some(host) = Host::start() else { return };
    let (ours, theirs) = (host.connect(), host.connect());
    let video = ours.create("video", &Spec::of(FRAME)).unwrap();
    let same = theirs.open("video").unwrap();
    let mut sink = same.sink(&SinkOptions::default()).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let end = clock::now() + Nanos::from_millis(2_000);
    let submit = |n, deadline| {
        let event = Submission { deadline, payload: &payload(n), ..Submission::default() };
        source.submit_and_wait(&event).map_or(0, |sent| u64::from(sent.local))
    };
    // The service has sent them: they are in this process, or on their way to it. On a starving machine, the last may
    // be late before that, and is refused.
    let sent: u64 = (1..=3).map(|n| submit(n, Some(end))).sum();
    assert!(sent > 0 && submit(4, None) == 1);
    std::thread::sleep(Duration::from_nanos(end.since(clock::now()).get()));
    assert_eq!(number(sink.next(PATIENCE).unwrap().unwrap().event().payload), 4);
    let until = Instant::now() + PATIENCE;
    loop {
        let info = host.client.channel(video.id()).unwrap();
        let counts = info.hosts[0].sources[0].counts.unwrap();
        let of_sink = info.hosts[0].sinks[0].counts.unwrap();
        if (counts.late, of_sink.late) == (sent, sent) {
            assert_eq!((counts.sent, counts.delivered, of_sink.delivered), (1 + sent, 1, 1));
            return;
        }
        assert!(Instant::now() < until, "{counts:?} {of_sink:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_was_opened_ends_with_its_connection() {
    let Some(host) = Host::start() else { return };
    let ours = host.connect();
    let video = ours.create("video", &Spec::of(FRAME)).unwrap();
    let (_source, _sink) =
        (video.source_subscribe(&SourceOptions::default()).unwrap(), video.sink(&SinkOptions::default()).unwrap());
    let _registration = ours.register("player", "conference", &[("frame_rate", 10, 25)]).unwrap();
    let looked = &host.client.channels().unwrap()[0];
    assert_eq!((looked.hosts[0].sources.len(), looked.hosts[0].sinks.len()), (1, 1));
    assert_eq!(host.client.groups().unwrap()[0].members[0].application.as_str(), "player");
    drop((video, _source, _sink, _registration, ours));
    let until = Instant::now() + PATIENCE;
    while !(host.client.channels().unwrap().is_empty() && host.client.groups().unwrap().is_empty()) {
        assert!(Instant::now() < until, "{:?}", host.client.channels());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn refusals_name_what_was_asked_and_what_to_do() {
    let Some(host) = Host::start() else { return };
    let ours = host.connect();
    assert!(refusal(ours.open("video")).contains("no channel `video`"));
    assert!(refusal(ours.open("a/b")).contains("a/b"));
    assert!(refusal(ours.create("video", &Spec::of("struct frame { int number }"))).contains("formats"));
    let video = ours.create("video", &Spec::of(FRAME)).unwrap();
    assert!(refusal(ours.create("video", &Spec::of(FRAME))).contains("exists, created by alpha; open it"));
    let formats = "struct frame { long number; int size; };".to_owned();
    let other = SinkOptions { formats, ..SinkOptions::default() };
    assert!(refusal(video.sink(&other)).contains("`number` is long at byte 0 here, but int at byte 0 there"));
    let types = vec!["sound".to_owned()];
    assert!(
        refusal(video.sink(&SinkOptions { types, ..SinkOptions::default() })).contains("no events of type `sound`")
    );
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let short = Submission { payload: &[1, 2], ..Submission::default() };
    assert!(
        refusal(source.submit_and_wait(&short)).contains("an event of 2 bytes does not fit: its format has 8 bytes")
    );
    let long = vec![0; (1 << 20) + 1];
    assert!(
        refusal(source.submit(&Submission { payload: &long, ..Submission::default() }))
            .contains("an event of 1048577 bytes; the limit is 1048576")
    );
    let broken = Filter { code: "return input.numbr;".to_owned(), ..Filter::default() };
    assert!(refusal(video.install(Direction::Out, "f", &broken)).contains("numbr"));
    assert!(refusal(video.remove_filter(Direction::Out, "f", Default::default())).contains("no filter `f`"));
}

#[test]
fn events_of_1_mib_come_to_the_application_whole_and_in_order_with_small_ones_between() {
    let Some(host) = Host::start() else { return };
    let ours = host.connect();
    let video = ours.create("video", &Spec::of(FRAME)).unwrap();
    let mut sink = video.sink(&SinkOptions::default()).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let sizes = [1 << 20, 8, 16_385, 700_000, 16_384, 20_000, (1 << 20) - 3];
    let event = |number: usize| (0..sizes[number]).map(|at| (at / 3 + number) as u8).collect::<Vec<_>>();
    for number in 0..sizes.len() {
        let payload = event(number);
        let sent = source.submit_and_wait(&Submission { payload: &payload, ..Submission::default() }).unwrap();
        assert_eq!((sent.number, sent.local), (1 + number as u64, 1));
        // Half of them wait for their reader, more than the ring and its queue hold at once.
        if number % 2 == 1 {
            for number in [number - 1, number] {
                let received = sink.next(PATIENCE).unwrap().expect("it was given");
                assert!(received.event().payload == event(number), "event {number}");
            }
        }
    }
    let last = sink.next(PATIENCE).unwrap().expect("it was given");
    assert!(last.event().payload == event(sizes.len() - 1));
}

#[test]
fn a_refusal_that_nobody_waits_for_is_a_notice() {
    let Some(host) = Host::start() else { return };
    let ours = host.connect();
    let video = ours.create("video", &Spec::of(FRAME)).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    source.submit(&Submission { payload: &[1], ..Submission::default() }).unwrap();
    let until = Instant::now() + PATIENCE;
    loop {
        match ours.next_notice().unwrap() {
            Some(Notice::Refused { source: from, blocked_until_ns: 0, why }) => {
                assert!(from == source.number() && why.contains("1 bytes"), "{why}");
                return;
            }
            other => assert!(other.is_none() && Instant::now() < until, "{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_reader_that_does_not_read_holds_up_nobody_and_loses_its_oldest_events() {
    let Some(host) = Host::start() else { return };
    let (ours, slow, quick) = (host.connect(), host.connect(), host.connect());
    let video = ours.create("video", &Spec::of(FRAME)).unwrap();
    let options = SinkOptions { capacity: 8, ..SinkOptions::default() };
    let mut sleeper = slow.open("video").unwrap().sink(&options).unwrap();
    let mut reader = quick.open("video").unwrap().sink(&SinkOptions::default()).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    for n in 1..=500 {
        let payload = payload(n);
        source.submit_and_wait(&Submission { payload: &payload, ..Submission::default() }).unwrap();
        let event = reader.next(PATIENCE).unwrap().expect("it does not wait for the other one");
        assert_eq!(number(event.event().payload), n);
    }
    let mut got = Vec::new();
    while got.last() != Some(&500) {
        let event = sleeper.next(PATIENCE).unwrap().unwrap_or_else(|| panic!("the newest is missing: {got:?}"));
        got.push(number(event.event().payload));
    }
    assert_eq!(got.len(), 64 + 8, "its credit, and its queue's newest: {got:?}");
}

fn create_blocking(channels: &Channels) -> Channel {
    let spec = Spec { pressure: Pressure::Block, patience: Nanos::from_millis(10_000), ..Spec::of(FRAME) };
    channels.create("video", &spec).unwrap()
}

#[test]
fn where_the_policy_is_to_wait_the_source_waits_and_nothing_is_lost() {
    let Some(host) = Host::start() else { return };
    let (ours, slow) = (host.connect(), host.connect());
    let video = create_blocking(&ours);
    let options = SinkOptions { capacity: 8, ..SinkOptions::default() };
    let mut sink = slow.open("video").unwrap().sink(&options).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let (full, begin) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || {
        // Ends without a message if the queue was never full.
        let _ = begin.recv();
        let mut got = Vec::new();
        while got.len() < 300 {
            let event = sink.next(PATIENCE).unwrap().expect("none is lost");
            got.push(number(event.event().payload));
        }
        got
    });
    let mut blocked = 0;
    for n in 1..=300 {
        let payload = payload(n);
        let event = Submission { payload: &payload, ..Submission::default() };
        if let Err(error) = source.submit_and_wait(&event) {
            assert!(matches!(error, ClientError::NotSubmitted { blocked_until: Some(_), .. }), "{error}");
            blocked += 1;
            let _ = full.send(());
            source.submit_patiently(&event, PATIENCE).unwrap();
        }
    }
    drop(full);
    assert_eq!(reading.join().unwrap(), (1..=300).collect::<Vec<_>>());
    assert!(blocked > 0, "the queue of 8 was full");
}

#[test]
fn queued_events_wait_in_the_daemon_in_order_while_their_connection_is_read() {
    let Some(host) = Host::start() else { return };
    let ours = host.connect();
    let video = create_blocking(&ours);
    // On the connection of the source: its credit comes behind the events that wait.
    let mut sink = video.sink(&SinkOptions { capacity: 8, ..SinkOptions::default() }).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let reading = std::thread::spawn(move || {
        std::thread::sleep(SOON);
        let read = |_| number(sink.next(PATIENCE).unwrap().expect("none is lost").event().payload);
        (1..=1_000).map(read).collect::<Vec<_>>()
    });
    for n in 1..=1_000 {
        let payload = payload(n);
        source.submit_queued(&Submission { payload: &payload, ..Submission::default() }, PATIENCE).unwrap();
    }
    assert!(source.drain(PATIENCE).unwrap());
    assert_eq!(reading.join().unwrap(), (1..=1_000).collect::<Vec<_>>());
}

#[test]
fn queued_events_end_with_their_patience_with_a_refusal_or_with_their_source() {
    let Some(host) = Host::start() else { return };
    let (ours, slow) = (host.connect(), host.connect());
    let video = create_blocking(&ours);
    let _sink = slow.open("video").unwrap().sink(&SinkOptions { capacity: 8, ..SinkOptions::default() }).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let queue = |payload: &[u8]| source.submit_queued(&Submission { payload, ..Submission::default() }, SOON);
    queue(&[0; 2]).unwrap();
    assert!(source.drain(PATIENCE).unwrap());
    let notice = ours.next_notice().unwrap();
    assert!(matches!(&notice, Some(Notice::Refused { why, .. }) if why.contains("an event of 2 bytes")), "{notice:?}");
    let refused = (1..=1_000).find_map(|n| queue(&payload(n)).err()).expect("the number that waits is bounded");
    assert!(refused.to_string().contains("wait for a slow sink"), "{refused}");
    assert!(!source.drain(SOON).unwrap());
    drop(source);
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    assert!(source.drain(Duration::ZERO).unwrap(), "another source waits for nothing");
    for n in 1..=200 {
        let payload = payload(n);
        let event = Submission { payload: &payload, ..Submission::default() };
        source.submit_queued(&event, SOON).expect("the events of the other source take no room");
    }
}

#[test]
fn an_out_filter_chooses_among_sinks_by_their_attributes_and_its_parameter_changes_while_events_flow() {
    let Some(host) = Host::start() else { return };
    let (ours, theirs) = (host.connect(), host.connect());
    let video = ours.create("video", &Spec::of(FRAME)).unwrap();
    let same = theirs.open("video").unwrap();
    let sink = |load| {
        let attributes = [("load".to_owned(), load)].into();
        same.sink(&SinkOptions { attributes, ..SinkOptions::default() }).unwrap()
    };
    let mut sinks = [sink(10), sink(90)];
    let code = "
        struct input { int number; int size; int sinks; struct { long load; } sink[100]; };
        struct output { unsigned char chosen[100]; };
        int i;
        for (i = 0; i < input.sinks; i = i + 1) output.chosen[i] = input.sink[i].load < get_attribute(most);
        return 1;";
    let parameters = [("most".to_owned(), 50)].into();
    let filter = Filter { code: code.to_owned(), parameters, ..Filter::default() };
    video.install(Direction::Out, "idle", &filter).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let submit = |n| {
        let payload = payload(n);
        source.submit_and_wait(&Submission { payload: &payload, ..Submission::default() }).unwrap()
    };
    let sent = submit(1);
    assert_eq!((sent.local, sent.filtered), (1, 1));
    video.set_parameter(Direction::Out, "idle", "most", 100, Default::default()).unwrap();
    assert_eq!(submit(2).local, 2);
    sinks[0].set_attribute("load", Some(1000)).unwrap();
    assert_eq!(submit(3).filtered, 1);
    let got = sinks.each_mut().map(|sink| {
        let both = [0; 2].map(|_| number(sink.next(PATIENCE).unwrap().expect("two are for it").event().payload));
        assert!(sink.next(SOON).unwrap().is_none(), "more than {both:?}");
        both
    });
    assert_eq!(got, [[1, 2], [2, 3]]);
    assert_eq!(video.look().unwrap().filters[0].calls, 3);
}

#[test]
fn the_descriptor_is_readable_when_there_is_something_to_poll() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Some(host) = Host::start() else { return };
    let ours = host.connect();
    let readable = |ms: i64| {
        let patience = Timespec { tv_sec: ms / 1_000, tv_nsec: ms % 1_000 * 1_000_000 };
        poll(&mut [PollFd::new(&ours.fd(), PollFlags::IN)], Some(&patience)).unwrap() == 1
    };
    let video = ours.create("video", &Spec::of(FRAME)).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let _sink = video.sink_subscribe(&SinkOptions::default(), |_| ()).unwrap();
    assert!(!readable(50));
    let payload = payload(1);
    // The answer and the event come on the same connection: waiting for one may read the other.
    source.submit_and_wait(&Submission { payload: &payload, ..Submission::default() }).unwrap();
    source.submit_and_wait(&Submission { payload: &payload, ..Submission::default() }).unwrap();
    assert!(readable(PATIENCE.as_millis() as i64));
    let mut handled = 0;
    while handled < 2 {
        handled += ours.poll(PATIENCE).unwrap();
    }
    assert!(!readable(50));
}

#[test]
fn an_event_may_be_for_one_host_and_another_one_is_nobodys() {
    let Some(host) = Host::start() else { return };
    let ours = host.connect();
    let video = ours.create("video", &Spec::of(FRAME)).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let sinks = [(); 2].map(|()| video.sink(&SinkOptions::default()).unwrap());
    let payload = payload(1);
    let sent = |to| source.submit_and_wait(&Submission { payload: &payload, to, ..Submission::default() }).unwrap();
    assert_eq!(sent(Destination::All).local, 2);
    assert_eq!(sent(Destination::Host("alpha")).local, 2);
    assert_eq!(sent(Destination::Sink("alpha", sinks[1].number())).local, 1);
    assert_eq!(sent(Destination::Host("beta")).local, 0);
}

#[test]
fn without_channels_the_refusal_says_how_to_switch_them_on() {
    let Some(host) = Host::with(|_| {}) else { return };
    let said = refusal(Channels::connect(&host.client));
    assert!(said.contains("enabled = true") && said.contains("[channels]"), "{said}");
}

#[test]
fn a_poll_ends_in_time_beside_events_that_nobody_takes() {
    let Some(host) = Host::start() else { return };
    let ours = host.connect();
    let video = ours.create("video", &Spec::of(FRAME)).unwrap();
    let source = video.source_subscribe(&SourceOptions::default()).unwrap();
    let _unread = video.sink(&SinkOptions::default()).unwrap();
    let payload = payload(1);
    source.submit_and_wait(&Submission { payload: &payload, ..Submission::default() }).unwrap();
    let begin = Instant::now();
    assert_eq!(ours.poll(SOON).unwrap(), 0);
    assert!(begin.elapsed() >= SOON, "{:?}", begin.elapsed());
}
