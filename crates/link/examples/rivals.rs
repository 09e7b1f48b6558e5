//! What a link costs beside its rivals, measured in one run:
//! `cargo run --release -p qfabric-link --example rivals [-- --short]`
//!
//! Round trips of 100 B between two processes on loopback, idle and with every processor 100 % busy, there with the
//! default policy and with all threads at SCHED_FIFO (`chrt`, needs root); and the CPU time of submitting to sinks on
//! other hosts. Engines take turns; medians of rounds.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, thread};

use qfabric_channel::{
    Config as NodeConfig, Delivery, Destination, Event, EventType, Incarnation, Lane, Node, Notice, Port, SinkId,
    SinkSpec, SourceId, SourceSpec, Spec, Submission,
};
use qfabric_link::{Address, Config, EngineKind, Inside, Link, Listener, one_receive_thread};
use qfabric_types::channel::{ChannelId, Plane};
use qfabric_types::format::Format;
use rustix::time::{ClockId, clock_gettime};
use zenoh::Wait;
use zenoh::qos::{CongestionControl, Priority};

/// How this program was started again.
const ROLE: &str = "QFABRIC_RIVALS_ROLE";
const SIZE: usize = 100;
const RIVALS: [&str; 4] = ["tcp", "plain", "zenoh", "link"];

fn main() {
    match env::var(ROLE) {
        Ok(role) => play(&role),
        Err(_) => conduct(env::args().any(|argument| argument == "--short")),
    }
}

// ---- the conductor: starts pairs of processes and prints tables

fn conduct(short: bool) {
    let (rounds, trips) = if short { (1, 500) } else { (3, 4000) };
    println!("round trip of {SIZE} B, us: p50 / p99");
    println!("{:10} {:>16} {:>16} {:>20}", "", "idle", "100 % load", "100 % load, FIFO");
    let tables: Vec<[Vec<(f64, f64)>; 3]> = measure_trips(rounds, trips);
    for (rival, conditions) in RIVALS.iter().zip(tables) {
        let cells = conditions.map(|runs| {
            let (half, most): (Vec<f64>, Vec<f64>) = runs.into_iter().unzip();
            format!("{:.0} / {:.0}", median(half), median(most))
        });
        println!("{rival:10} {:>16} {:>16} {:>20}", cells[0], cells[1], cells[2]);
    }
    println!("\nCPU of the submitting process, us per event to 1 / 8 / 100 sinks on as many hosts");
    let counts = if short { vec![1, 8] } else { vec![1, 8, 100] };
    for rival in ["zenoh", "link", "plain"] {
        let cells: Vec<String> = counts
            .iter()
            .map(|count| median((0..rounds).map(|_| submission(rival, *count)).collect()))
            .map(|cost| format!("{cost:.1}"))
            .collect();
        println!("{rival:10} {}", cells.join(" / "));
    }
}

fn measure_trips(rounds: usize, trips: usize) -> Vec<[Vec<(f64, f64)>; 3]> {
    let mut tables: Vec<[Vec<(f64, f64)>; 3]> = RIVALS.iter().map(|_| Default::default()).collect();
    for _ in 0..rounds {
        for condition in 0..3 {
            let hogs = if condition == 0 { Vec::new() } else { hogs() };
            for (table, rival) in tables.iter_mut().zip(RIVALS) {
                table[condition].push(round_trip(rival, trips, condition == 2));
            }
            drop(hogs);
        }
    }
    tables
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A process that is ended with its handle.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(role: &str, fifo: bool) -> Guard {
    let this = env::current_exe().expect("this program");
    let mut command = if fifo { Command::new("chrt") } else { Command::new(&this) };
    if fifo {
        command.args(["-f", "50"]).arg(&this);
    }
    Guard(command.env(ROLE, role).stdout(Stdio::piped()).stdin(Stdio::piped()).spawn().expect("a process"))
}

fn hogs() -> Vec<Guard> {
    let processors = thread::available_parallelism().map_or(2, usize::from);
    (0..processors).map(|_| start("hog", false)).collect()
}

/// The next line that begins so, without that beginning.
fn line(process: &mut Guard, beginning: &str) -> String {
    let output = process.0.stdout.as_mut().expect("its output");
    let mut lines = BufReader::with_capacity(1, output).lines();
    loop {
        let line = lines.next().expect("it goes on").expect("text");
        if let Some(rest) = line.strip_prefix(beginning) {
            return rest.trim().to_owned();
        }
    }
}

fn round_trip(rival: &str, trips: usize, fifo: bool) -> (f64, f64) {
    let net = fresh_net();
    let mut echo = start(&format!("echo {rival} {net}"), fifo);
    line(&mut echo, "ready");
    let mut ping = start(&format!("ping {rival} {net} {trips}"), fifo);
    let result = line(&mut ping, "result");
    let (half, most) = result.split_once(' ').expect("two numbers");
    (half.parse().expect("a number"), most.parse().expect("a number"))
}

fn submission(rival: &str, sinks: usize) -> f64 {
    let net = fresh_net();
    let mut from = start(&format!("source {rival} {net} {sinks}"), false);
    line(&mut from, "ready");
    let _to = start(&format!("sinks {rival} {net} {sinks}"), false);
    line(&mut from, "result").parse().expect("a number")
}

/// Part of a loopback address that no other run has.
fn fresh_net() -> String {
    static NEXT: Mutex<u8> = Mutex::new(0);
    let mut next = NEXT.lock().expect("one at a time");
    *next += 1;
    format!("127.{}.{next}", 100 + std::process::id() % 100)
}

// ---- the players

fn play(role: &str) {
    thread::spawn(end_with_the_conductor);
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["hog"] => loop {
            std::hint::spin_loop();
        },
        ["echo", "tcp", net] => return tcp_echo(net),
        ["ping", "tcp", net, trips] => return tcp_ping(net, trips.parse().expect("a number")),
        _ => one_receive_thread(),
    }
    match words[..] {
        ["echo", "zenoh", net] => zenoh_echo(net),
        ["ping", "zenoh", net, trips] => zenoh_ping(net, trips.parse().expect("a number")),
        ["echo", rival, net] => link_echo(rival, net),
        ["ping", rival, net, trips] => link_ping(rival, net, trips.parse().expect("a number")),
        ["source", "zenoh", net, sinks] => zenoh_source(net, sinks.parse().expect("a number")),
        ["sinks", "zenoh", net, sinks] => zenoh_sinks(net, sinks.parse().expect("a number")),
        ["source", rival, net, sinks] => link_source(rival, net, sinks.parse().expect("a number")),
        ["sinks", rival, net, sinks] => link_sinks(rival, net, sinks.parse().expect("a number")),
        _ => {}
    }
}

/// Its end closes this process's input.
fn end_with_the_conductor() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}

fn say(text: &str) {
    let mut output = std::io::stdout();
    let _ = writeln!(output, "{text}");
    let _ = output.flush();
}

fn forever() -> ! {
    loop {
        thread::park();
    }
}

/// Goes there and back `trips` times, one a millisecond, and says how long it took.
fn report(trips: usize, mut trip: impl FnMut()) {
    (0..100).for_each(|_| trip());
    let mut times: Vec<f64> = (0..trips)
        .map(|_| {
            thread::sleep(Duration::from_millis(1));
            let begin = Instant::now();
            trip();
            begin.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    say(&format!("result {:.1} {:.1}", times[trips / 2], times[trips * 99 / 100]));
}

/// Submits a thousand events, one a millisecond, and says what CPU time one took.
fn report_cost(mut submit: impl FnMut()) {
    (0..100).for_each(|_| {
        submit();
        thread::sleep(Duration::from_millis(1));
    });
    let cpu = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
    };
    let before = cpu();
    for _ in 0..1000 {
        submit();
        thread::sleep(Duration::from_millis(1));
    }
    say(&format!("result {:.2}", (cpu() - before) / 1000.0));
}

fn tcp_echo(net: &str) {
    let listener = TcpListener::bind(format!("{net}.1:7700")).expect("an address");
    say("ready");
    let mut stream = listener.accept().expect("a call").0;
    stream.set_nodelay(true).expect("nodelay");
    let mut bytes = [0; SIZE];
    while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {}
}

fn tcp_ping(net: &str, trips: usize) {
    let mut stream = TcpStream::connect(format!("{net}.1:7700")).expect("an echo");
    stream.set_nodelay(true).expect("nodelay");
    let mut bytes = [0; SIZE];
    report(trips, || {
        stream.write_all(&bytes).expect("sent");
        stream.read_exact(&mut bytes).expect("back");
    });
}

/// As its users would set it up for this: express, the highest priority, one receive thread.
fn zenoh_session(listen: Option<String>, connect: Option<String>) -> zenoh::Session {
    let mut config = zenoh::Config::default();
    let list = |address: Option<String>| format!("{:?}", Vec::from_iter(address));
    config.insert_json5("listen/endpoints", &list(listen)).expect("a setting");
    config.insert_json5("connect/endpoints", &list(connect)).expect("a setting");
    config.insert_json5("scouting/multicast/enabled", "false").expect("a setting");
    config.insert_json5("scouting/gossip/enabled", "false").expect("a setting");
    zenoh::open(config).wait().expect("a session")
}

fn zenoh_publisher(session: &zenoh::Session, key: &'static str) -> zenoh::pubsub::Publisher<'static> {
    let publisher = session.declare_publisher(key).express(true).priority(Priority::RealTime);
    publisher.congestion_control(CongestionControl::Drop).wait().expect("a publisher")
}

fn zenoh_echo(net: &str) {
    let session = zenoh_session(Some(format!("tcp/{net}.1:7700")), None);
    let back = zenoh_publisher(&session, "pong");
    let echo = move |sample: zenoh::sample::Sample| _ = back.put(sample.payload().clone()).wait();
    let _subscriber = session.declare_subscriber("ping").callback(echo).wait().expect("a subscriber");
    say("ready");
    forever()
}

fn zenoh_ping(net: &str, trips: usize) {
    let session = zenoh_session(None, Some(format!("tcp/{net}.1:7700")));
    let (came, comes) = sync_channel(1);
    let note = move |_: zenoh::sample::Sample| _ = came.try_send(());
    let _subscriber = session.declare_subscriber("pong").callback(note).wait().expect("a subscriber");
    let publisher = zenoh_publisher(&session, "ping");
    thread::sleep(Duration::from_secs(1));
    report(trips, || {
        publisher.put([0_u8; SIZE]).wait().expect("sent");
        comes.recv_timeout(Duration::from_secs(5)).expect("back");
    });
}

fn zenoh_source(net: &str, sinks: usize) {
    let session = zenoh_session(Some(format!("tcp/{net}.1:7700")), None);
    let (came, comes) = sync_channel(1000);
    let note = move |_: zenoh::sample::Sample| _ = came.try_send(());
    let _subscriber = session.declare_subscriber("here").callback(note).wait().expect("a subscriber");
    let publisher = zenoh_publisher(&session, "events");
    say("ready");
    (0..sinks).for_each(|_| comes.recv_timeout(Duration::from_secs(60)).expect("a sink"));
    thread::sleep(Duration::from_secs(1));
    report_cost(|| publisher.put([0_u8; SIZE]).wait().expect("sent"));
}

fn zenoh_sinks(net: &str, sinks: usize) {
    let sessions: Vec<_> = (0..sinks).map(|_| zenoh_session(None, Some(format!("tcp/{net}.1:7700")))).collect();
    let wanted = |session: &zenoh::Session| session.declare_subscriber("events").callback(|_| {}).wait();
    let _subscribers: Vec<_> = sessions.iter().map(|session| wanted(session).expect("a subscriber")).collect();
    thread::sleep(Duration::from_millis(1500));
    sessions.iter().for_each(|session| session.put("here", "").wait().expect("sent"));
    forever()
}

/// Passes on that an event came.
struct Told(SyncSender<()>);

impl Listener for Told {
    fn deliver(&self, _sink: SinkId, _event: &Event<'_>) {
        let _ = self.0.try_send(());
    }

    fn ready(&self, _sink: SinkId) {}

    fn writable(&self, _source: SourceId) {}

    fn notice(&self, _notice: Notice) {}
}

fn host_of(rival: &str, net: &str, host: usize, listen: bool) -> (Config, Node) {
    let name = format!("host-{host}");
    let mut config = Config::new(name.parse().expect("a name"));
    config.engine = if rival == "plain" { EngineKind::Plain } else { EngineKind::Zenoh };
    let address: Address = format!("{net}.1:7700").parse().expect("an address");
    if listen {
        config.listen = vec![address]
    } else {
        config.peers = vec![address]
    }
    let time = clock_gettime(ClockId::Monotonic);
    let now = qfabric_types::Instant::new(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
    let node = NodeConfig::new(config.host.clone(), Incarnation::new(1, host as u32 + std::process::id()));
    (config, Node::new(node, now))
}

fn link_of(rival: &str, net: &str, host: usize, listen: bool) -> (Link, Receiver<()>) {
    let (config, node) = host_of(rival, net, host, listen);
    let (came, comes) = sync_channel(1);
    (Link::open(&config, node, Arc::new(Told(came)), || {}).expect("a link"), comes)
}

fn channel(name: &str) -> ChannelId {
    ChannelId { plane: Plane::Data, name: name.parse().expect("a name") }
}

fn sink(link: &Link, name: &str) {
    link.with(|node, now, port| join(node, name, now, port));
}

fn join(node: &mut Node, name: &str, now: qfabric_types::Instant, port: &mut dyn Port) {
    create(node, name, now, port);
    let spec = SinkSpec { delivery: Delivery::Call, ..SinkSpec::default() };
    node.sink_subscribe(&channel(name), spec, now, port).expect("a sink");
}

fn source(link: &Link, name: &str) -> SourceId {
    link.with(|node, now, port| {
        create(node, name, now, port);
        node.source_subscribe(&channel(name), SourceSpec::default(), now, port).expect("a source")
    })
}

fn create(node: &mut Node, name: &str, now: qfabric_types::Instant, port: &mut dyn Port) {
    let format = Format { name: "bytes".into(), size: 0, align: 1, fields: Vec::new() };
    let spec = Spec { types: vec![EventType { format }], ..Spec::default() };
    if node.open(&channel(name), now, port).is_err() {
        node.create(&channel(name), spec, now, port).expect("a channel");
    }
}

fn submit(link: &Link, from: SourceId) -> u32 {
    let event = Submission { payload: &[0; SIZE], ..Submission::default() };
    link.with(|node, now, port| node.submit(from, &event, now, port)).expect("submitted").remote
}

/// Answers where a resource manager does: behind the lock, before the next frame is looked at.
struct Echo {
    node: Node,
    back: Option<SourceId>,
}

/// A port that notes whether an event came.
struct Catch<'a> {
    port: &'a mut dyn Port,
    came: bool,
}

impl Inside for Echo {
    fn call<R>(
        &mut self,
        now: qfabric_types::Instant,
        port: &mut dyn Port,
        act: impl FnOnce(&mut Node, &mut dyn Port) -> R,
    ) -> R {
        let mut catch = Catch { port, came: false };
        let result = act(&mut self.node, &mut catch);
        if let (true, Some(back)) = (catch.came, self.back) {
            let event = Submission { payload: &[0; SIZE], ..Submission::default() };
            self.node.submit(back, &event, now, port).expect("submitted");
        }
        result
    }

    fn next_wakeup(&self) -> Option<qfabric_types::Instant> {
        self.node.next_wakeup()
    }

    fn wake(&mut self, now: qfabric_types::Instant, port: &mut dyn Port) {
        self.node.wake(now, port);
    }
}

impl Port for Catch<'_> {
    fn send(&mut self, to: Destination<'_>, lane: Lane, frame: &[u8]) {
        self.port.send(to, lane, frame);
    }

    fn listen(&mut self, channel: &ChannelId) {
        self.port.listen(channel);
    }

    fn ignore(&mut self, channel: &ChannelId) {
        self.port.ignore(channel);
    }

    fn deliver(&mut self, _sink: SinkId, _event: &Event<'_>) {
        self.came = true;
    }

    fn ready(&mut self, _sink: SinkId) {}

    fn writable(&mut self, _source: SourceId) {}

    fn notice(&mut self, _notice: Notice) {}
}

fn link_echo(rival: &str, net: &str) {
    let (config, node) = host_of(rival, net, 0, true);
    let told = Arc::new(Told(sync_channel(1).0));
    let link = Link::open(&config, Echo { node, back: None }, told, || {}).expect("a link");
    link.with(|echo, now, port| {
        join(&mut echo.node, "ping", now, port);
        create(&mut echo.node, "pong", now, port);
        let back = echo.node.source_subscribe(&channel("pong"), SourceSpec::default(), now, port);
        echo.back = Some(back.expect("a source"));
    });
    say("ready");
    forever()
}

fn link_ping(rival: &str, net: &str, trips: usize) {
    let (link, comes) = link_of(rival, net, 1, false);
    thread::sleep(Duration::from_secs(1));
    sink(&link, "pong");
    let from = source(&link, "ping");
    thread::sleep(Duration::from_secs(1));
    report(trips, || {
        submit(&link, from);
        comes.recv_timeout(Duration::from_secs(5)).expect("back");
    });
}

fn link_source(rival: &str, net: &str, sinks: usize) {
    let (link, _comes) = link_of(rival, net, 0, true);
    let from = source(&link, "events");
    say("ready");
    while submit(&link, from) < sinks as u32 {
        thread::sleep(Duration::from_millis(100));
    }
    thread::sleep(Duration::from_secs(1));
    report_cost(|| _ = submit(&link, from));
}

fn link_sinks(rival: &str, net: &str, sinks: usize) {
    let links: Vec<_> = (1..=sinks).map(|host| link_of(rival, net, host, false).0).collect();
    thread::sleep(Duration::from_secs(1));
    links.iter().for_each(|link| sink(link, "events"));
    forever()
}
