//! The hostile user, at each limit that a user has.

mod local;

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use qfabric_client::channel::{Channels, Direction, Filter, SinkOptions, SourceOptions, Spec, Submission};
use qfabric_client::ecalls::{Ecalls, MemoryUp, Subscription, SubscriptionBuilder};
use qfabric_client::{Client, Contract, Foresight, Nanos, Session, Share};

use crate::Outcome;
use crate::ordinary::{CHANNEL, FRAME, SAMPLE};

pub(crate) const SERVICE: &str = "hostile.sample";
/// More than any limit allows.
const MANY: usize = 5_000;

/// An attack at one limit.
pub(crate) struct Attack {
    pub name: &'static str,
    pub about: &'static str,
    /// Prints what it holds, then continues.
    act: fn(&Path) -> Outcome<()>,
}

const fn attack(name: &'static str, about: &'static str, act: fn(&Path) -> Outcome<()>) -> Attack {
    Attack { name, about, act }
}

pub(crate) const ALL: &[Attack] = &[
    attack("hog", "uses a CPU, and not the service (for comparison)", |_| spin("1 thread")),
    attack("places", "all places of the request socket, silent", places),
    attack("requests", "GET /metrics, without a pause", requests),
    attack("leases", "all connections for events and channels, silent", leases),
    attack("records", "job records, without a pause", records),
    attack("applications", "all applications, 200 jobs/s each", applications),
    attack("reservations", "all CPU time that may be promised, used", reservations),
    attack("handlers", "all handlers, the longest allowed, events without a pause", handlers),
    attack("switches", "the longest handlers at sched.switch, switches without a pause", switches),
    attack("members", "all sinks of the ordinary user's channel, none reads", members),
    attack("filters", "all filters of that channel, the longest allowed", filters),
    attack("events", "events on an own channel, without a pause", events),
    attack("policies", "all policies, long ones, and values that call one of them without a pause", local::policies),
    attack("channels", "all channels", channels),
    attack("registrations", "all registrations, in one group", registrations),
    attack("reports", "values of an application on that channel, without a pause", reports),
    attack("timers", "all timers, of 1 ms", local::timers),
    attack("sockets", "all pages of ready sockets, on two sockets that never rest", local::sockets),
    attack("reserves", "all memory that may be promised, one reserve resized without a pause", local::reserves),
    attack("timeline", "GET /v1/timeline, without a pause", local::timeline),
    attack("page", "the web page's requests for the state, on a new connection each, without a pause", local::page),
    attack("scrapes", "GET /metrics on TCP, on a new connection each, without a pause", local::scrapes),
    attack("strangers", "all connections to the web page without a token, silent", local::strangers),
    // The last of a round: it uses up the account for channels of its user, which `policies` and `channels` need.
    attack("openings", "ever new channels, without a pause", openings),
];

pub(crate) fn be(name: &str, socket: &Path) -> Outcome<()> {
    let attack = ALL.iter().find(|attack| attack.name == name).ok_or("no such attack")?;
    (attack.act)(socket)
}

/// Prints what the attack holds; the measuring process waits for this line.
fn holds(what: &str) {
    println!("{what}");
}

/// Waits until killed.
fn stay() -> ! {
    loop {
        thread::park();
    }
}

fn spin(what: &str) -> ! {
    holds(what);
    loop {
        std::hint::spin_loop();
    }
}

/// Keeps all places taken: the service closes silent connections after a time, and this function opens new ones.
fn places(socket: &Path) -> Outcome<()> {
    let mut held = Vec::new();
    let connect = |held: &mut Vec<UnixStream>| -> Outcome<bool> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_millis(20)))?;
        // A refused connection receives an answer; one with a place receives none.
        let silent = (&stream).read(&mut [0; 1]).is_err();
        if silent {
            held.push(stream);
        }
        Ok(silent)
    };
    while connect(&mut held)? {}
    holds(&format!("{} connections", held.len()));
    loop {
        held.retain(|stream| stream.peek_is_open());
        while connect(&mut held)? {}
        thread::sleep(Duration::from_millis(20));
    }
}

trait Peek {
    fn peek_is_open(&self) -> bool;
}

impl Peek for UnixStream {
    fn peek_is_open(&self) -> bool {
        // With O_NONBLOCK the read returns at once.
        self.set_nonblocking(true).is_ok() && !matches!((&mut &*self).read(&mut [0; 1]), Ok(0))
    }
}

fn requests(socket: &Path) -> Outcome<()> {
    let ask = |socket: &Path| -> Outcome<()> {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: q\r\nconnection: close\r\n\r\n")?;
        stream.read_to_end(&mut Vec::new())?;
        Ok(())
    };
    for _ in 0..8 {
        let socket = socket.to_owned();
        // Refusals are expected.
        thread::spawn(move || {
            loop {
                _ = ask(&socket)
            }
        });
    }
    holds("8 threads");
    stay()
}

fn leases(socket: &Path) -> Outcome<()> {
    let client = Client::connect_to(socket)?;
    let ecalls: Vec<_> = (0..MANY).map_while(|_| Ecalls::connect(&client).ok()).collect();
    let channels: Vec<_> = (0..MANY).map_while(|_| Channels::connect(&client).ok()).collect();
    holds(&format!("{} and {} connections", ecalls.len(), channels.len()));
    stay()
}

fn contract(name: &str, most: f64) -> Contract {
    Contract { max_bandwidth: Share::from_f64(most), ..Contract::new(name, Nanos::from_millis(40)) }
}

fn records(socket: &Path) -> Outcome<()> {
    let mut session = Session::start(&Client::connect_to(socket)?, contract("records", 0.5))?;
    holds("1 application");
    loop {
        session.end_cycle(Foresight::Nothing);
    }
}

/// Starts threads that each are an application.
fn applications(socket: &Path) -> Outcome<()> {
    let client = Client::connect_to(socket)?;
    let (told, heard) = std::sync::mpsc::channel();
    let one = move |client: &Client| {
        let contract =
            Contract { max_bandwidth: Share::from_f64(0.007), ..Contract::new("many", Nanos::from_millis(5)) };
        let session = Session::start(client, contract);
        _ = told.send(session.is_ok());
        let Ok(mut session) = session else { return };
        loop {
            session.end_cycle(Foresight::Nothing);
            session.wait_for_next_job();
        }
    };
    let mut held = 0;
    for _ in 0..MANY {
        let (client, one) = (client.clone(), one.clone());
        thread::spawn(move || one(&client));
        if !heard.recv()? {
            break;
        }
        held += 1;
    }
    holds(&format!("{held} applications"));
    stay()
}

fn reservations(socket: &Path) -> Outcome<()> {
    let client = Client::connect_to(socket)?;
    let share = |held: f64| Share::from_f64(held);
    let guaranteed = |most: f64| Contract {
        class: qfabric_client::Class::B,
        guaranteed: Some(share(most)),
        ..contract("holder", most)
    };
    for percent in (1..=50).rev() {
        let most = f64::from(percent) / 100.0;
        if let Ok(mut session) = Session::start(&client, guaranteed(most)) {
            holds(&format!("{most} CPU"));
            loop {
                // Jobs as long as the reservation allows.
                let until = qfabric_client::clock::thread_cpu() + Nanos::from_millis(20);
                while qfabric_client::clock::thread_cpu() < until {}
                session.end_cycle(Foresight::Nothing);
            }
        }
    }
    Err("no reservation is admitted".into())
}

/// Subscribes with the longest loops that are admitted, until none is.
fn longest(ecalls: &Ecalls, service: &dyn Fn() -> SubscriptionBuilder) -> Vec<Subscription> {
    let (mut held, mut turns) = (Vec::new(), 1 << 20);
    while held.len() < MANY && turns > 0 {
        let code = format!("long i; long s; for (i = 0; i < {turns}; i++) s += i; attr.sum = s; return 1;");
        match ecalls.subscribe(&service().code(&code)) {
            Ok(subscription) => held.push(subscription),
            Err(_) => turns /= 2,
        }
    }
    held
}

fn handlers(socket: &Path) -> Outcome<()> {
    let ecalls = Ecalls::connect(&Client::connect_to(socket)?)?;
    let service = ecalls.register_service(SERVICE, "", SAMPLE, false)?;
    let held = longest(&ecalls, &|| SubscriptionBuilder::to(SERVICE).memory_up(MemoryUp::default()));
    holds(&format!("{} handlers", held.len()));
    loop {
        // Full queues drop events and count them.
        _ = service.raise_event(-1, &1u64.to_le_bytes(), Nanos::ZERO, false);
    }
}

fn switches(socket: &Path) -> Outcome<()> {
    let ecalls = Ecalls::connect(&Client::connect_to(socket)?)?;
    let own = std::process::id() as i32;
    let held =
        longest(&ecalls, &|| SubscriptionBuilder::to("sched.switch").process(own).memory_up(MemoryUp::default()));
    let pipes: Vec<(OwnedFd, OwnedFd)> = (0..2).map(|_| rustix::pipe::pipe()).collect::<Result<_, _>>()?;
    let [(a, b), (c, d)]: [(OwnedFd, OwnedFd); 2] = pipes.try_into().map_err(|_| "two pipes")?;
    // Two threads that wake each other.
    thread::spawn(move || while rustix::io::read(&a, &mut [0; 1]).and_then(|_| rustix::io::write(&d, &[0])).is_ok() {});
    holds(&format!("{} handlers", held.len()));
    while rustix::io::write(&b, &[0]).and_then(|_| rustix::io::read(&c, &mut [0; 1])).is_ok() {}
    Err("a pipe broke".into())
}

fn members(socket: &Path) -> Outcome<()> {
    let channels = Channels::connect(&Client::connect_to(socket)?)?;
    let channel = channels.open(CHANNEL)?;
    let held: Vec<_> = (0..MANY).map_while(|_| channel.sink(&SinkOptions::default()).ok()).collect();
    holds(&format!("{} sinks", held.len()));
    stay()
}

fn filters(socket: &Path) -> Outcome<()> {
    let channels = Channels::connect(&Client::connect_to(socket)?)?;
    let channel = channels.open(CHANNEL)?;
    let (mut held, mut turns) = (Vec::new(), 1 << 20);
    while held.len() < MANY && turns > 0 {
        let sink = channel.sink(&SinkOptions::default())?;
        let code = format!("long i; long s; for (i = 0; i < {turns}; i++) s += i; return s > 0;");
        let filter = Filter { code, sink: Some(sink.number().to_string()), ..Filter::default() };
        match channel.install(Direction::In, &format!("h{}", held.len()), &filter) {
            Ok(installed) if installed.hosts.iter().all(|host| host.refused.is_none()) => held.push((sink, turns)),
            _ => turns /= 2,
        }
    }
    let turns = held.iter().map(|(_, turns)| turns).max().copied().unwrap_or_default();
    holds(&format!("{} filters of up to {turns} turns", held.len()));
    stay()
}

fn events(socket: &Path) -> Outcome<()> {
    let channels = Channels::connect(&Client::connect_to(socket)?)?;
    let channel = channels.create("flood", &Spec::of(FRAME))?;
    let sink = channel.sink(&SinkOptions::default())?;
    let source = channel.source_subscribe(&SourceOptions::default())?;
    holds("1 source, 1 sink");
    loop {
        // Refused while the service makes the source wait.
        _ = source.submit(&Submission { payload: &[0; 8], ..Submission::default() });
        std::hint::black_box(&sink);
    }
}

fn channels(socket: &Path) -> Outcome<()> {
    let channels = Channels::connect(&Client::connect_to(socket)?)?;
    let create = |number: usize| channels.create(&format!("held-{number}"), &Spec::of(FRAME)).ok();
    let held: Vec<_> = (0..MANY).map_while(create).collect();
    holds(&format!("{} channels", held.len()));
    stay()
}

fn openings(socket: &Path) -> Outcome<()> {
    let channels = Channels::connect(&Client::connect_to(socket)?)?;
    // Closed at once.
    let opens = |number: usize| channels.create(&format!("new-{number}"), &Spec::of(FRAME)).is_ok();
    let opened = (0..MANY).take_while(|number| opens(*number)).count();
    holds(&format!("{opened} openings"));
    let mut number = MANY;
    loop {
        // Most are refused.
        _ = opens(number);
        number += 1;
    }
}

fn registrations(socket: &Path) -> Outcome<()> {
    let channels = Channels::connect(&Client::connect_to(socket)?)?;
    let register = |number: usize| channels.register(&format!("application-{number}"), "hostile", &[]).ok();
    let held: Vec<_> = (0..MANY).map_while(register).collect();
    holds(&format!("{} registrations", held.len()));
    stay()
}

fn reports(socket: &Path) -> Outcome<()> {
    let channels = Channels::connect(&Client::connect_to(socket)?)?;
    let _open = channels.open(CHANNEL)?;
    let application = channels.register("hostile", CHANNEL, &[])?;
    let values: Vec<String> = (0..1_000).map(|value| format!("app.value-{value}")).collect();
    holds(&format!("{} values of 1 application", values.len()));
    loop {
        // Values above the limit are dropped by the service.
        values.iter().for_each(|value| _ = application.report(value, 1));
    }
}
