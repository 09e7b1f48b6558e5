//! The kinds of work of clients: one function each, called repeatedly.

use std::io::Read;
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use qfabric_client::channel::{
    Channel, Channels, Direction, Filter, FilterScope, SinkOptions, SourceOptions, Spec, Submission,
};
use qfabric_client::ecalls::{Ecalls, MemoryUp, Subscription, SubscriptionBuilder};
use qfabric_client::{
    ApplicationRequest, ApplicationScope, Change, ClientError, Connection, Contract, Foresight, LimitsPatch, Nanos,
    Session, Share,
};
use qfabric_linux::net::testing::Interface;
use qfabric_types::api::net::{AttachRequest, NetMechanism, Selector, StreamChange, StreamSpec};
use rand::RngExt;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketType};

use crate::client::{Done, Failed, Work};

/// A user without processes of its own here.
pub(crate) const STRANGER: u32 = 65_534;
/// Longest wait for an event: other clients and daemons start and end meanwhile.
const SOON: Duration = Duration::from_secs(1);
const SAMPLE: &str = "struct sample { long value; };";
const FRAME: &str = "struct frame { int number; int size; };";

pub(crate) struct Kind {
    pub name: &'static str,
    pub act: fn(&mut Work) -> Done,
    /// The work also runs as users other than root.
    pub anybody: bool,
    pub clients: usize,
}

const fn kind(name: &'static str, act: fn(&mut Work) -> Done, anybody: bool, clients: usize) -> Kind {
    Kind { name, act, anybody, clients }
}

pub(crate) const ALL: &[Kind] = &[
    kind("scrape", scrape, true, 2),
    kind("read", read, true, 2),
    kind("nonsense", nonsense, true, 1),
    kind("session", session, true, 3),
    kind("admit", admit, true, 2),
    kind("run", run, true, 2),
    kind("limits", limits, false, 2),
    kind("service", service, true, 2),
    kind("kernel", kernel, true, 2),
    kind("members", members, true, 2),
    kind("events", events, true, 2),
    kind("far", far, true, 2),
    kind("net", net, false, 1),
    kind("interface", interface, false, 1),
];

pub(crate) fn find(name: &str) -> Option<&'static Kind> {
    ALL.iter().find(|kind| kind.name == name)
}

fn scrape(work: &mut Work) -> Done {
    work.get("/metrics")?;
    work.done();
    Ok(())
}

fn read(work: &mut Work) -> Done {
    const PATHS: [&str; 10] = [
        "status",
        "applications",
        "limits",
        "services",
        "subscriptions",
        "channels",
        "hosts",
        "groups",
        "policies",
        "openapi.json",
    ];
    let path = PATHS[work.rng.random_range(0..PATHS.len())];
    work.get(&format!("/v1/{path}")).map_err(|Failed(class)| {
        if class == "no daemon" { Failed(class) } else { Failed(format!("{class} of {path}")) }
    })?;
    work.done();
    Ok(())
}

/// Sends random bytes to each socket; done when the daemon has closed the connection.
fn nonsense(work: &mut Work) -> Done {
    const SOCKETS: [(&str, SocketType); 4] = [
        ("qfabric.sock", SocketType::STREAM),
        ("ring.sock", SocketType::SEQPACKET),
        ("ecalls.sock", SocketType::SEQPACKET),
        ("channels.sock", SocketType::SEQPACKET),
    ];
    let (name, kind) = SOCKETS[work.rng.random_range(0..4)];
    let socket = rustix::net::socket(AddressFamily::UNIX, kind, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(work.folder.join(name))?)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(10)))?;
    let bytes: Vec<u8> = (0..work.rng.random_range(1..2000)).map(|_| work.rng.random()).collect();
    // The daemon may close the connection before all bytes are written or read.
    let _ = rustix::net::send(&socket, &bytes, SendFlags::NOSIGNAL);
    let _ = rustix::net::shutdown(&socket, Shutdown::Write);
    loop {
        match rustix::io::read(&socket, &mut [0; 4096]) {
            Ok(1..) => (),
            Err(Errno::AGAIN) => return Err(Failed(format!("{name} not closed"))),
            _ => break,
        }
    }
    work.done();
    Ok(())
}

fn contract(name: &str, most: f64) -> Contract {
    Contract { max_bandwidth: Share::from_f64(most), ..Contract::new(name, Nanos::from_millis(20)) }
}

/// A program under contract, with jobs; at the end it leaves properly or drops the connection.
fn session(work: &mut Work) -> Done {
    let mut session = Session::start(&work.client()?, contract("soaked", 0.2))?;
    for job in 0..work.rng.random_range(1..60) {
        std::hint::black_box((0..100_000).fold(job, |sum: u64, n| sum ^ n));
        session.end_cycle(Foresight::Nothing);
        session.wait_for_next_job();
        match session.connection() {
            Connection::Joined(_) => work.done(),
            _ if !work.goes_on() => break,
            _ => return Err(Failed("alone".to_owned())),
        }
    }
    if work.rng.random() {
        session.end()?;
    }
    Ok(())
}

/// A child process that is killed with its owner.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        // The process may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Requests, changes and ends a contract for another program.
fn admit(work: &mut Work) -> Done {
    let child = Started(Command::new("sleep").arg("2").stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
    let client = work.client()?;
    let request = ApplicationRequest {
        pid: child.0.id() as i32,
        covers: ApplicationScope::Program,
        contract: contract("slept", 0.1),
    };
    let id = client.admit(&request)?.id;
    client.change(id, &contract("changed", 0.15))?;
    if work.rng.random_ratio(3, 4) {
        client.release(id)?;
    }
    work.done();
    Ok(())
}

/// Runs `qfabric run`; sometimes kills it.
fn run(work: &mut Work) -> Done {
    let mut command = Command::new(&work.program);
    command.args(["run", "--period", "10ms", "--max-bandwidth", "0.1", "--", "sleep", "0.1"]);
    command.env("QFABRIC_SOCKET", work.folder.join("qfabric.sock"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = Started(command.spawn()?);
    if work.rng.random_ratio(1, 5) {
        std::thread::sleep(Duration::from_millis(work.rng.random_range(0..200)));
        return Ok(());
    }
    match child.0.wait()?.code() {
        Some(0) => work.done(),
        Some(4) => return Err(Failed("no daemon".to_owned())),
        code => return Err(Failed(format!("exit code {code:?} ({})", error_text(&mut child)))),
    }
    Ok(())
}

/// First part of the program's error output.
fn error_text(child: &mut Started) -> String {
    let mut text = String::new();
    if let Some(stderr) = &mut child.0.stderr {
        // Ignores output that is not text.
        let _ = stderr.read_to_string(&mut text);
    }
    text.chars().filter(|letter| !letter.is_ascii_digit() && *letter != '\n').take(100).collect()
}

fn limits(work: &mut Work) -> Done {
    let user = (5000 + work.rng.random_range(0..4u32), Some(Share::from_f64(work.rng.random_range(0.1..0.9))));
    let most = Change::Set(work.rng.random_range(100..300));
    let patch = LimitsPatch { users: Change::Set([user].into()), max_applications: most, ..LimitsPatch::default() };
    let limits = work.client()?.change_limits(&patch)?;
    match limits.users.contains_key(&user.0) {
        true => work.done(),
        false => return Err(Failed("the answer does not match the request".to_owned())),
    }
    Ok(())
}

/// A handler of random length that lets some events pass.
fn code(work: &mut Work) -> String {
    let (turns, most) = (work.rng.random_range(1..100), work.rng.random_range(1..9));
    format!("long i; long s; for (i = 0; i < {turns}; i++) s += i; attr.seen += 1; return input.value % 10 <= {most};")
}

/// Registers a service, installs handlers for it, and raises events.
fn service(work: &mut Work) -> Done {
    let ecalls = Ecalls::connect(&work.client()?)?;
    let name = format!("soak.p{}", std::process::id());
    let own = ecalls.register_service(&name, "", SAMPLE, false)?;
    for _ in 0..3 {
        let wanted = if work.rng.random() {
            SubscriptionBuilder::to(&name)
        } else {
            SubscriptionBuilder::to(&name).code("return 1;").thread()
        };
        let mut events = ecalls.subscribe(&wanted.code(&code(work)).memory_up(MemoryUp::default()))?;
        for value in 0..20i64 {
            own.raise_event(-1, &value.to_le_bytes(), Nanos::ZERO, false)?;
        }
        await_event(work, &mut events)?;
        if work.rng.random() {
            events.unsubscribe()?;
        }
    }
    Ok(())
}

fn await_event(work: &Work, events: &mut Subscription) -> Done {
    match events.next(SOON)? {
        Some(_) => work.done(),
        None => return Err(Failed("no event".to_owned())),
    }
    Ok(())
}

/// Events of the kernel: a timer, context switches of own processes, packets; with a handler in the kernel.
fn kernel(work: &mut Work) -> Done {
    let ecalls = Ecalls::connect(&work.client()?)?;
    let wanted = match work.rng.random_range(0..3) {
        0 => SubscriptionBuilder::to("timer").option("period", "20ms"),
        1 => {
            SubscriptionBuilder::to("sched.switch").process(std::process::id() as i32).code("attr.seen += 1; return 1;")
        }
        _ => SubscriptionBuilder::to("net.rx").option("interface", "lo").code("attr.seen += 1; return input.len > 10;"),
    };
    let mut events = ecalls.subscribe(&wanted.memory_up(MemoryUp::default()))?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    for _ in 0..10 {
        // The port has no listener.
        let _ = socket.send_to(&[0; 100], "127.0.0.1:9");
        await_event(work, &mut events)?;
    }
    Ok(())
}

fn enter(channels: &Channels, name: &str) -> Result<Channel, ClientError> {
    channels.open(name).or_else(|_| channels.create(name, &Spec::of(FRAME)))
}

fn frame(number: i32) -> [u8; 8] {
    let [a, b, c, d] = number.to_le_bytes();
    [a, b, c, d, 0, 0, 0, 0]
}

/// Joins a channel, installs a filter, sends an event, and leaves.
fn members(work: &mut Work) -> Done {
    let channels = Channels::connect(&work.client()?)?;
    for _ in 0..work.rng.random_range(1..8) {
        let channel = enter(&channels, &format!("c{}", work.rng.random_range(0..3)))?;
        let mut sink = channel.sink(&SinkOptions::default())?;
        sink.set_attribute("load", Some(work.rng.random_range(0..100)))?;
        let source = channel.source_subscribe(&SourceOptions::default())?;
        let filter = Filter {
            code: "return input.number > get_attribute(least);".to_owned(),
            sink: Some(sink.number().to_string()),
            parameters: [("least".to_owned(), 3)].into(),
            ..Filter::default()
        };
        let name = format!("f{}", std::process::id());
        channel.install(Direction::In, &name, &filter)?;
        for number in 0..6 {
            source.submit_and_wait(&Submission { payload: &frame(number), ..Submission::default() })?;
        }
        if sink.next(SOON)?.is_none() {
            return Err(Failed("no event".to_owned()));
        }
        if work.rng.random() {
            channel.remove_filter(Direction::In, &name, FilterScope::default())?;
        }
        work.done();
    }
    Ok(())
}

/// Sends events to its own sink.
fn events(work: &mut Work) -> Done {
    let channels = Channels::connect(&work.client()?)?;
    let channel = enter(&channels, "steady")?;
    let (mut sink, source) =
        (channel.sink(&SinkOptions::default())?, channel.source_subscribe(&SourceOptions::default())?);
    while work.goes_on() {
        source.submit_and_wait(&Submission { payload: &frame(1), ..Submission::default() })?;
        match sink.next(SOON)? {
            Some(_) => work.done(),
            None => return Err(Failed("no event".to_owned())),
        }
    }
    Ok(())
}

/// Receives events of the other host.
fn far(work: &mut Work) -> Done {
    let (here, there) = (Channels::connect(&work.client()?)?, Channels::connect(&work.peers_client()?)?);
    let (to, from) = (enter(&here, "far")?, enter(&there, "far")?);
    let (mut sink, source) = (to.sink(&SinkOptions::default())?, from.source_subscribe(&SourceOptions::default())?);
    while work.goes_on() {
        source.submit_and_wait(&Submission { payload: &frame(1), ..Submission::default() })?;
        match sink.next(Duration::from_millis(200))? {
            Some(_) => work.done(),
            None => work.failed("nothing came"),
        }
    }
    Ok(())
}

/// Packet scheduling: streams on an interface.
fn net(work: &mut Work) -> Done {
    let client = work.client()?;
    let rate_bps = Some(1_000_000_000);
    let request = AttachRequest { mechanism: Some(NetMechanism::Htb), rate_bps, ..AttachRequest::default() };
    // A killed client may have left the interface attached; no client owns the attachment.
    if client.interface("lo").is_ok() {
        client.detach("lo")?;
    }
    client.attach("lo", &request)?;
    for mark in 1..work.rng.random_range(2..8) {
        let spec = StreamSpec::new(Selector::Mark(mark), Nanos::from_millis(40));
        let stream = client.begin_stream("lo", &spec)?;
        client.change_stream("lo", stream.id, &StreamChange { size: Some(3_000), ..StreamChange::default() })?;
        if work.rng.random() {
            client.end_stream("lo", stream.id)?;
        }
        work.done();
    }
    client.detach("lo")?;
    Ok(())
}

/// The interface that comes and goes, and its other end.
const COMING: [&str; 2] = ["soaked0", "soaked1"];

/// Removes the interface that a killed client has left.
pub(crate) fn remove_interface() {
    // Fails if there is none.
    let _ = Command::new("ip").args(["link", "delete", COMING[0]]).stderr(Stdio::null()).status();
}

/// Packet scheduling on an interface that is added and removed: mostly while it has streams.
fn interface(work: &mut Work) -> Done {
    remove_interface();
    let link = Interface::veth(COMING[0], COMING[1])?;
    let client = work.client()?;
    // The daemon may have an interface of this name that has gone.
    if work.rng.random() && client.interface(COMING[0]).is_ok() {
        client.detach(COMING[0])?;
    }
    let rate_bps = Some(1_000_000_000);
    let request = AttachRequest { mechanism: Some(NetMechanism::Htb), rate_bps, ..AttachRequest::default() };
    client.attach(COMING[0], &request)?;
    for mark in 1..work.rng.random_range(2..6) {
        let stream = client.begin_stream(COMING[0], &StreamSpec::new(Selector::Mark(mark), Nanos::from_millis(40)))?;
        let size = Some(work.rng.random_range(1_000..5_000));
        client.change_stream(COMING[0], stream.id, &StreamChange { size, ..StreamChange::default() })?;
        if work.rng.random_ratio(1, 3) {
            client.end_stream(COMING[0], stream.id)?;
        }
    }
    if work.rng.random_ratio(1, 4) {
        client.detach(COMING[0])?;
    }
    drop(link);
    client.interfaces()?;
    work.done();
    Ok(())
}
