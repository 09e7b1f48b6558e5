//! Writes the first inputs of the fuzzer: `cargo run -p qfabric-hostile --example seeds -- FOLDER` writes
//! FOLDER/TARGET/NUMBER. Run it again when a format changes: inputs of another version are refused at their first
//! byte.

use std::fs;
use std::path::{Path, PathBuf};

use qfabric_channel::{
    Direction, FilterCommand, FilterId, FilterSpec, Key, Lane, Node, QosRange, Registration, SinkSpec, SourceId,
    SourceSpec, Submission, Target,
};
use qfabric_conference::Level;
use qfabric_conference::wire::{Feedback, FrameHeader};
use qfabric_daemon::answer::{MessageId, Part};
use qfabric_ecode::testing::texts::Text;
use qfabric_host::manager::contracts::{Body, CapScope, ContractMessage, NoConsent, OverCap, PartRequest, Reason};
use qfabric_hostile::{NodeOutputs, seeding};
use qfabric_metp::testing::{LinkSettings, Loss, Pair, Side};
use qfabric_metp::{Config, FrameKind, Mode, Outgoing};
use qfabric_types::api::contracts::JointId;
use qfabric_types::channel::Name;
use qfabric_types::channel_wire::{Attributes, Destination, FromClient, LateReport, Report, SubmitRequest};
use qfabric_types::ecalls_wire::{self, RaiseRequest};
use qfabric_types::{Bytes, Instant, Nanos, Owner, Resources};

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).map(PathBuf::from).expect("usage: seeds FOLDER");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let ecode = ecode(&root)?;
    keep(&folder, "ecode_source", &ecode)?;
    keep(&folder, "ecode_engines", &ecode)?;
    keep(&folder, "filter", &texts(&FILTERS))?;
    keep(&folder, "format", &[texts(&FORMATS), ecode].concat())?;
    keep(&folder, "event", &texts(&EVENTS))?;
    keep(&folder, "access", &texts(&ACCESS))?;
    keep(&folder, "answer", &[answers()])?;
    keep(&folder, "conference", &[conference()])?;
    keep(&folder, "config", &[fs::read(root.join("packaging/daemon.toml"))?])?;
    keep(&folder, "api_body", &texts(&BODIES))?;
    keep(&folder, "words", &texts(&WORDS))?;
    keep(&folder, "hello", &texts(&HELLOS))?;
    keep(&folder, "link_text", &texts(&LINKS))?;
    keep(&folder, "stream_header", &[stream_header()])?;
    keep(&folder, "contract_message", &contracts())?;
    keep(&folder, "channel_frame", &frames())?;
    keep(&folder, "metp", &[false, true].map(metp))?;
    keep(&folder, "metp_pair", &[0, 1, 4].map(metp_pair))?;
    keep(&folder, "local_message", &messages())?;
    keep(&folder, "message_ring", &rings())?;
    keep(&folder, "host_stream", &[stream()])
}

/// A message in three parts, out of order and with a repeated one, its acknowledgment, and messages of more senders
/// than an answerer keeps.
fn answers() -> Vec<u8> {
    let arrival =
        |sender: u8, datagram: &[u8]| [&[sender][..], &(datagram.len() as u16).to_le_bytes(), datagram].concat();
    let sent = |sender: u8, part: Part| {
        let mut datagram = [0; 18];
        part.write(&mut datagram);
        arrival(sender, &datagram)
    };
    let id = |number| MessageId { run: 7, number };
    let parts: Vec<Part> = Part::all(id(1), 4_000).map(|(part, _)| part).collect();
    let mut all: Vec<u8> = [2, 0, 0, 1].into_iter().flat_map(|at: usize| sent(1, parts[at])).collect();
    all.extend(arrival(1, &id(1).acknowledgment()));
    all.extend((0..70).flat_map(|sender| sent(sender, parts[0])));
    all.extend((1..3).flat_map(|at: usize| sent(0, parts[at])));
    all
}

/// Two pictures in two parts each, feedback, and a wanted level.
fn conference() -> Vec<u8> {
    let setting: Level = "jpeg:60:352x288".parse().expect("a level");
    let mut events =
        vec![setting.encode().to_vec(), Feedback { stream: 7, shown: 20_000, ..Feedback::default() }.encode().to_vec()];
    for (number, part) in [(1, 0), (1, 1), (2, 0), (2, 1)] {
        let (stream, sent, bytes, parts, key, level, generated) = (7, number, 9, 2, true, 0, Instant::new(5));
        let header = FrameHeader { stream, number, sent, bytes, part, parts, setting, key, level, generated };
        let mut event = Vec::new();
        header.encode(&[3; 9], &mut event);
        events.push(event);
    }
    events.iter().flat_map(|event| [&(event.len() as u16).to_le_bytes()[..], event].concat()).collect()
}

/// Inputs that write pieces into the memory: positions at 8 (written) and 16 (read), messages from 24 on, the
/// other ring from 32,792 on.
fn rings() -> Vec<Vec<u8>> {
    let piece = |word: u16, words: &[u64]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        [&word.to_le_bytes()[..], &(bytes.len() as u16).to_le_bytes(), &bytes, &[3, 0, 1, 2, 3]].concat()
    };
    let honest = [piece(24, &[12, 1, 2, 8, 3]), piece(8, &[5])].concat();
    let too_long = [piece(24, &[301]), piece(8, &[60])].concat();
    let impossible = [piece(8, &[u64::MAX]), piece(8, &[3, 1])].concat();
    let reader = [piece(32_808, &[7, 1]), piece(32_808, &[u64::MAX])].concat();
    vec![honest, too_long, impossible, reader]
}

/// The first messages of connections, of both sides.
const HELLOS: [&str; 5] = [
    r#"{"open":{"service":"film","engine":"metp"}}"#,
    r#"{"attach":{"session":"00112233445566778899aabbccddeeff"}}"#,
    r#""attached""#,
    r#"{"opened":{"session":"0011"}}"#,
    r#"{"refused":{"code":"unknown_service","message":"no","next_step":"ask"}}"#,
];
const LINKS: [&str; 4] =
    ["30M 100ms 2%", "1M 15kB ge:1%,30%", "# trace\n0\n1\n1\n40\n", "at 0s rate 1M\nat 40s up loss 5% delay 20ms\n"];

/// The largest message of the session, and a header: kind, mode, number, size, dropped messages, deadline.
fn stream_header() -> Vec<u8> {
    let (largest, number) = (1_048_576u64.to_be_bytes(), 7u64.to_be_bytes());
    let words = [1_000u32, 2, 150_000].map(u32::to_be_bytes);
    [&largest[..], &[1, 1, 1], &number, words.as_flattened()].concat()
}

fn keep(folder: &Path, target: &str, inputs: &[Vec<u8>]) -> std::io::Result<()> {
    let folder = folder.join(target);
    fs::create_dir_all(&folder)?;
    inputs.iter().enumerate().try_for_each(|(number, input)| fs::write(folder.join(format!("seed-{number}")), input))
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| [text.as_bytes(), &[0; 60]].concat()).map(|text| trimmed(&text)).collect()
}

/// Removes zero bytes from the end of texts of whole files; code keeps them.
fn trimmed(text: &[u8]) -> Vec<u8> {
    let is_code = text.starts_with(b"struct") || text.starts_with(b"return") || text.starts_with(b"static");
    let end = if is_code { text.len() } else { text.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1) };
    text[..end].to_vec()
}

fn ecode(root: &Path) -> std::io::Result<Vec<Vec<u8>>> {
    let mut all: Vec<Vec<u8>> = (0..60).map(|seed| Text::random(seed, seed % 3 == 0).ecode().into_bytes()).collect();
    for folder in ["crates/ecode/tests/corpus", "crates/ecode/tests/refused", "crates/cli/handlers"] {
        for file in fs::read_dir(root.join(folder))? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "ec") {
                all.push(fs::read(path)?);
            }
        }
    }
    Ok(all)
}

const FILTERS: [&str; 6] = [
    "return input.a > 2;",
    "return input.a >= get_attribute(least);",
    "return input.quality != 3 && input.b[1];",
    "static int n; n++; return n % 3;",
    "struct input { int a; int sinks; struct { long load; } sink[3]; }; struct output { unsigned char chosen[3]; };
     for (int i = 0; i < 3; i++) output.chosen[i] = input.sink[i].load >= 0; return 1;",
    "struct input { long c; struct { long number; long deadline; } event; }; struct output { long c; };
     output.c = input.c * 2; return input.c < 100;",
];

const FORMATS: [&str; 3] = [
    "struct one { int a; short b[2][3]; };",
    "struct inner { char a[3]; }; struct one { int x; struct inner y[2]; unsigned long long z; }; struct two { long z; };",
    r#"{"name":"one","size":8,"align":4,"fields":[{"name":"a","offset":0,"kind":{"scalar":{"bits":32,"signed":true}}},
        {"name":"b","offset":4,"dims":[2],"kind":{"struct":{"name":"x","size":2,"align":2,"fields":[
        {"name":"c","offset":0,"kind":{"scalar":{"bits":16,"signed":false}}}]}}}]}"#,
];

const EVENTS: [&str; 4] = [
    r#"{"x":-7,"in":[{"a":-2,"b":[1,255]},{"a":3,"b":"abc","c":[[1,2],"xy"]}],"u":18446744073709551615,"list":[1,-2]}"#,
    r#"{"h":65535,"u":true,"in":[]}"#,
    "00ff0A",
    "\u{1}\u{2}\u{3}\u{4}",
];

const ACCESS: [&str; 2] = [
    "hosts = [\"cam-1\", \"wall\"]\nrouters = [\"edge\"]\n[[rule]]\nchannels = [\"video\", \"cam-*\", \"*\"]\nhosts = [\"cam-1\"]\n\
     rights = [\"create\", \"send\", \"join\", \"install\"]\n",
    "hosts = [\"a\"]\n[[rule]]\nchannels=[\"x\"]\nhosts=[\"*\"]\nrights=[]\n",
];

const BODIES: [&str; 23] = [
    r#"{"parts":[{"host":"a","wanted":{"cpu":0.5,"memory_bytes":1048576,"network_bps":[{"interface":"eth0",
        "direction":"out","rate_bps":5000000}]},"minimum":{"cpu":0.25},"application":"viewer"}],"patience_ms":500}"#,
    r#"{"pid":4711,"contract":{"class":"A","period_ns":40000000,"server_period_ns":5000000,"predictor":"hint:24",
        "max_bandwidth":400000,"guaranteed":200000,"weight":2,"priority":1}}"#,
    r#"{"period_ns":40000000,"server_period_ns":5000000,"rho":0.5,"early":0.1,"late":0.1}"#,
    r#"{"lease":3,"channel":"video","format":"struct one { int a; };","order":"deadline","pressure":"drop-newest"}"#,
    r#"{"lease":3}"#,
    r#"{"lease":3,"application":"player","attributes":{"load":-3}}"#,
    r#"{"lease":3,"types":["one"],"capacity":16,"attributes":{"role":2},"format":"struct one { int a; };"}"#,
    r#"{"attributes":{"load":3,"role":null}}"#,
    r#"{"lease":1,"application":"player","group":"room","parent":"house","level":2,"qos":[{"metric":"frame_rate","min":10,"max":25}]}"#,
    r#"{"code":"return input.a;","types":["one"],"to":"all","parameters":{"least":3},"sink":"h1/3","lease":3}"#,
    r#"{"parameters":{"least":3},"to":{"hosts":["a","b"]}}"#,
    r#"{"lease":1,"parameter":"least","channel":"quality:video","event_type":"quality","field":"value"}"#,
    r#"{"lease":1,"attribute":"cpu.run_queue","poll_ns":20000000,"threshold":"> 4 until 2","channel":"video"}"#,
    r#"{"kind":"roles","channel":"video","event_bits":80000,"fade":true}"#,
    r#"{"kind":"tree","channel":"video","capacity":100000,"streams":[{"channel":"a","event_bits":3,"weight":1.5}],"links":[]}"#,
    r#"{"interface":"eth0","rate_bps":10000000,"mechanism":"htb"}"#,
    r#"{"rate_bps":1000,"window":"1/3","select":{"mark":7},"period_ns":40000000,"bytes":1500}"#,
    r#"{"parts":[{"host":"a","wanted":{"cpu":0.5},"application":"viewer"},{"host":"b","wanted":{"memory_bytes":4096}}],
        "patience_ms":500,"lease_pid":4711,"upgrades":"ask"}"#,
    r#"{"policy":"ask","pid":4711}"#,
    r#"{"policy":"decline"}"#,
    r#"{"accept":true}"#,
    r#"{"host":"bob","accept":false}"#,
    r#"{"id":"alpha:5f3c09a1d2e4b687","resources":[{"host":"a","resource":"network eth0 out","asked":5e6,"granted":1e6}]}"#,
];

const WORDS: [&str; 18] = [
    "cam-1",
    "quality:video",
    "alpha:5f3c09a1d2e4b687",
    "> 4 until 2",
    "< 80%",
    "> 1.5M",
    "1/3",
    "A",
    "middle",
    "kernel",
    "hint:24",
    "mma:3,12",
    "ol:36,60",
    "udp:10.0.0.1:80-[::1]:90",
    "1.5ms",
    "40%",
    "127.0.0.1:7447",
    "unix:/run/x",
];

fn messages() -> Vec<Vec<u8>> {
    let (mut all, mut out) = (Vec::new(), Vec::new());
    let submit = SubmitRequest {
        source: 3,
        tag: 7,
        confirm: true,
        keep: true,
        event_type: 1,
        priority: 5,
        deadline_ns: 9,
        to: Destination::Sink("h1", 4),
        attributes: Attributes::Listed(&[("quality", -3)]),
        payload: &[1, 2, 3],
    };
    let report = Report { registration: 3, attribute: "app.rate_milli", value: -5 };
    for message in [
        FromClient::Hello { version: 4 },
        FromClient::Submit(submit),
        FromClient::More { sink: 3, events: 9 },
        FromClient::Late(LateReport { sink: 3, host: "left", source: 1, events: 2 }),
        FromClient::Report(report),
    ] {
        message.encode(&mut out);
        all.push(out.clone());
    }
    let raise = RaiseRequest { service: 3, pid: -1, deadline_us: 7, cpu: true, data: &[1; 8] };
    for message in [ecalls_wire::FromClient::Raise(raise), ecalls_wire::FromClient::Reply { call: 3, data: &[2; 5] }] {
        message.encode(&mut out);
        all.push(out.clone());
    }
    all.extend((128..136).map(|kind| [&[kind][..], &[1; 40]].concat()));
    all
}

/// The messages of a contract that `b` initiates, one by one and as a script that `b` sends to `a`.
fn contracts() -> Vec<Vec<u8>> {
    let mut granted = Resources::default();
    granted.memory = Bytes::from_mib(1);
    granted.set_units(&"network eth0 out".parse().expect("a link"), 5_000).expect("one link");
    let (owner, hold) = (Owner { uid: 1, gid: 2 }, Nanos::from_millis(3_000));
    let (wanted, minimum) = (granted.clone(), Resources::default());
    let part = PartRequest { owner, wanted, minimum, application: None, may_grow: true, hold };
    let asked = PartRequest { application: Some(name("viewer")), ..part.clone() };
    let bodies = [
        Body::Request(part),
        Body::Accept { step: 1, granted: granted.clone(), frees_upgrade: false },
        Body::Accept { step: 2, granted: granted.clone(), frees_upgrade: true },
        Body::Request(asked),
        Body::Cancel,
        Body::Offer { granted: granted.clone(), is_upgrade: false },
        Body::Confirm { step: 1, granted },
        Body::Refuse(Reason::Full { limit: 7 }),
        Body::Refuse(Reason::NoConsent(NoConsent::Silent)),
        Body::Refuse(Reason::OverCap(OverCap::Contracts { scope: CapScope::Group(7), cap: 3 })),
    ];
    let id = JointId { host: name("b"), number: 3 };
    let messages = bodies.map(|body| ContractMessage { id: id.clone(), round: 1, body }.encode(Instant::ZERO));
    let sent = |bytes: &Vec<u8>| [&[1, 2][..], &(bytes.len() as u16).to_le_bytes(), bytes].concat();
    let script = [messages.iter().flat_map(sent).collect(), vec![1, 1, 3, 1, 0, 0, 0, 255, 15]].concat();
    [messages.to_vec(), vec![script]].concat()
}

/// What a peer sends over a link with loss: status, data with retransmissions, and reports.
fn metp(is_partial: bool) -> Vec<u8> {
    let mode = if is_partial { Mode::PartiallyReliable } else { Mode::TotallyReliable };
    let config = Config { tag: 0x7171, mode, ..Config::default() };
    let link = LinkSettings { loss: Loss::Bernoulli(0.2), ..LinkSettings::default() };
    let mut pair = Pair::over(config.clone(), config, link, 1);
    pair.keeps_sent = true;
    for (side, size) in [(Side::A, 3), (Side::B, 700), (Side::A, 3_000), (Side::A, 9)] {
        let outgoing =
            Outgoing { kind: FrameKind::P, deadline: Some(Nanos::from_millis(90)), data: &[9; 3_000][..size] };
        pair.with(side, |session, now| session.send(now, outgoing)).expect("accepted");
        pair.run_for(Nanos::from_millis(60));
    }
    pair.with(Side::A, |session, now| session.finish(now));
    pair.run_for(Nanos::from_millis(300));
    let piece = |bytes: &[u8]| [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat();
    let arrival = |bytes: &Vec<u8>| [&[3][..], &piece(bytes), &[1, 1, 90, 200, 0, 0, 0, 9]].concat();
    let sent = pair.end(Side::A).sent.iter().flat_map(|(_, _, bytes)| arrival(bytes));
    [u8::from(is_partial)].into_iter().chain(sent).collect()
}

/// Messages in both directions, of which a datagram is lost, one repeated and one altered if the options allow it.
fn metp_pair(options: u8) -> Vec<u8> {
    let sends = [[2, 0, 1, 184, 11, 90], [2, 1, 0, 9, 0, 90], [2, 0, 2, 0, 64, 200]];
    let passes = [[4, 0, 0], [8, 0, 0], [4, 0, 1], [7, 0, 0], [5, 0, 0]];
    let [wait, alter] = [&[0, 0, 16, 39][..], &[9, 0, 0, 12, 3]];
    let round = |send: &[u8; 6]| [&send[..], &passes.concat(), alter, wait, &passes.concat(), wait].concat();
    let changes = [11, 0, 1, 10, 1, 1, 10, 1, 0, 11, 0, 3, 0, 2, 11, 1, 4, 9, 9];
    [vec![options], sends.iter().flat_map(round).collect(), changes.to_vec(), sends.concat()].concat()
}

fn stream() -> Vec<u8> {
    let hello = b"QFL\n\x01\x00\x07\0\0\0\x01\0\0\0\x01r\x02h1";
    let frames: [(u8, &[u8]); 4] = [(0, hello), (1, b""), (2, b"\x01video"), (4, &[1; 30])];
    let framed = |(kind, body): (u8, &[u8])| [&(body.len() as u32 + 1).to_le_bytes()[..], &[kind], body].concat();
    [vec![7], frames.into_iter().flat_map(framed).collect()].concat()
}

/// Two nodes that exchange frames. `sent` holds the frames of `h1` as pieces.
struct Exchange {
    nodes: [Node; 2],
    now: Instant,
    sent: Vec<u8>,
}

fn frames() -> Vec<Vec<u8>> {
    let mut exchange = Exchange::begin();
    let mut all = vec![exchange.sent.clone()];
    let source = exchange.subscribe();
    all.push(exchange.sent.clone());
    exchange.register();
    exchange.ship_filter_commands();
    all.push(exchange.sent.clone());
    exchange.submit_to_all_and_one(source);
    all.push(exchange.sent.clone());
    exchange.submit_in_fragments(source);
    exchange.with(|node, now| node.leave_source(source, now)).expect("it left");
    all.push(exchange.sent);
    all
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn key(text: &str) -> Key {
    text.parse().expect("a key")
}

impl Exchange {
    fn begin() -> Exchange {
        let nodes = [seeding::node_under_test(), seeding::open_node("h1")];
        let mut exchange = Exchange { nodes, now: seeding::BEGIN, sent: vec![1] };
        let [zero, one] = ["h0", "h1"].map(|name| name.parse().expect("a name"));
        exchange.nodes[0].appeared(&one, exchange.now);
        exchange.nodes[1].appeared(&zero, exchange.now);
        exchange.pass();
        exchange
    }

    /// A sink and a source of the same node.
    fn subscribe(&mut self) -> SourceId {
        self.with(|node, now| {
            let channel = seeding::channel();
            node.open(&channel, now).expect("opened");
            let attributes = [(key("load"), 3)].into_iter().collect();
            let sink = SinkSpec { capacity: 4, attributes, ..SinkSpec::default() };
            node.sink_subscribe(&channel, sink, now).expect("a sink");
            node.source_subscribe(&channel, SourceSpec::default(), now).expect("a source")
        })
    }

    fn register(&mut self) {
        let qos = vec![QosRange { metric: key("frame_rate"), min: 10, max: 25 }];
        let (application, group, parent) = (name("player"), name("g"), Some(name("p")));
        let player = Registration { application, group, parent, level: 2, qos };
        self.with(|node, now| node.register(player, now)).expect("registered");
    }

    fn ship_filter_commands(&mut self) {
        let id = FilterId { channel: seeding::channel(), direction: Direction::Out, name: name("f") };
        let parameters = vec![(key("least"), 2)];
        let text = "return input.a >= get_attribute(least);".to_owned();
        let filter = FilterSpec { id: id.clone(), sink: None, types: vec!["one".to_owned()], text, parameters };
        for command in [
            FilterCommand::Install(filter),
            FilterCommand::Parameter(id.clone(), key("least"), 3),
            FilterCommand::Remove(id),
        ] {
            self.with(|node, now| node.ship(&[name("h0")], &command, now));
        }
    }

    /// Four events with an attribute. The third one has a deadline, the fourth one is for one host.
    fn submit_to_all_and_one(&mut self, source: SourceId) {
        for number in 0..4 {
            let (attributes, host) = ([("quality", number)], name("h0"));
            let target = if number == 3 { Target::Host(&host) } else { Target::All };
            self.with(|node, now| {
                let deadline = (number == 2).then(|| now + Nanos::from_millis(5));
                let event =
                    Submission { attributes: &attributes, payload: &[7; 8], deadline, target, ..Submission::default() };
                node.submit(source, &event, now).expect("submitted")
            });
        }
    }

    /// Two events in fragments. The second one is withdrawn halfway.
    fn submit_in_fragments(&mut self, source: SourceId) {
        for deadline in [None, Some(Nanos::from_millis(1))] {
            self.with(|node, now| {
                let (payload, deadline) = ([7; 100_000], deadline.map(|left| now + left));
                node.submit(source, &Submission { payload: &payload, deadline, ..Submission::default() }, now)
            })
            .expect("submitted");
        }
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut Node, Instant) -> R) -> R {
        let result = act(&mut self.nodes[1], self.now);
        self.pass();
        result
    }

    /// Lets two seconds pass, in steps of 2^20 µs.
    fn pass(&mut self) {
        for _ in 0..2 {
            for at in [0, 1, 0, 1, 0, 1] {
                self.deliver(at);
            }
            self.now = self.now + Nanos::from_micros(1 << 20);
            let now = self.now;
            for at in [0, 1] {
                self.nodes[at].wake(now);
            }
        }
    }

    fn deliver(&mut self, from: usize) {
        let host = ["h0", "h1"][from].parse().expect("a name");
        let mut outputs = NodeOutputs::default();
        outputs.take_from(&mut self.nodes[from]);
        for (lane, frame) in outputs.frames {
            if from == 1 {
                let lane = if lane == Lane::Data { 2 } else { 0 };
                self.sent.push(lane | 10 << 2);
                self.sent.extend((frame.len() as u16).to_le_bytes());
                self.sent.extend(&frame);
            }
            self.nodes[1 - from].arrive(&host, lane, &frame, self.now);
        }
    }
}
