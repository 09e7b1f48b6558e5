//! Attacks at the limits of timers, sockets, memory, policies, the timeline, the web page and metrics on TCP.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use qfabric_client::channel::{Channels, Spec};
use qfabric_client::ecalls::{Ecalls, MemoryUp, SubscriptionBuilder};
use qfabric_client::{Client, Mem};
use qfabric_types::Instant;
use serde_json::json;

use super::{FRAME, MANY, holds, stay};
use crate::Outcome;

/// Does `act` in several threads without a pause. Refusals are expected.
fn repeat(threads: usize, act: impl Fn() -> Outcome<()> + Clone + Send + 'static) -> ! {
    for _ in 0..threads {
        let act = act.clone();
        thread::spawn(move || {
            loop {
                _ = act();
            }
        });
    }
    holds(&format!("{threads} threads"));
    stay()
}

pub(super) fn timers(socket: &Path) -> Outcome<()> {
    let ecalls = Ecalls::connect(&Client::connect_to(socket)?)?;
    let every_ms = || SubscriptionBuilder::to("timer").option("period", "1ms").memory_up(MemoryUp::default());
    let held: Vec<_> = (0..MANY).map_while(|_| ecalls.subscribe(&every_ms()).ok()).collect();
    holds(&format!("{} timers", held.len()));
    stay()
}

/// Two sockets send each other bytes; each page watches both.
pub(super) fn sockets(socket: &Path) -> Outcome<()> {
    let client = Client::connect_to(socket)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut one = TcpStream::connect(listener.local_addr()?)?;
    let mut other = listener.accept()?.0;
    let page = || -> Outcome<_> {
        let ecalls = Ecalls::connect(&client)?;
        let page = ecalls.sockets()?;
        page.add(&one)?;
        page.add(&other)?;
        Ok((ecalls, page))
    };
    let held: Vec<_> = (0..MANY).map_while(|_| page().ok()).collect();
    holds(&format!("{} pages of ready sockets", held.len()));
    loop {
        one.write_all(&[0])?;
        other.read_exact(&mut [0])?;
    }
}

/// Halves the size at each refusal, then lets the largest reserve shrink and grow: the last one may be a single page.
pub(super) fn reserves(socket: &Path) -> Outcome<()> {
    let mem = Mem::connect(&Client::connect_to(socket)?)?;
    let (mut held, mut bytes, mut sum) = (Vec::new(), 1_u64 << 40, 0);
    while held.len() < MANY && bytes >= 4_096 {
        match mem.reserve(bytes) {
            Ok(reserve) => {
                held.push((reserve, bytes));
                sum += bytes;
            }
            Err(_) => bytes /= 2,
        }
    }
    let (reserve, whole) = *held.first().ok_or("no reserve is admitted")?;
    holds(&format!("{} reserves with {} MiB", held.len(), sum >> 20));
    loop {
        // A refused size changes nothing.
        _ = mem.resize(reserve, whole / 2);
        _ = mem.resize(reserve, whole);
    }
}

/// Each policy has a channel of its own, because two policies that decide the same do not run together. The readings of
/// the first channel call its policy.
pub(super) fn policies(socket: &Path) -> Outcome<()> {
    let channels = Channels::connect(&Client::connect_to(socket)?)?;
    let code = "struct input { long value; }; struct output { long level; }; long i; long s; \
                for (i = 0; i < 20000; i++) s += input.value; output.level = s & 3; return 1;";
    let start = |number: usize| -> Outcome<_> {
        let name = format!("decided-{number}");
        let channel = channels.create(&name, &Spec::of(FRAME))?;
        let policy = json!({ "kind": "code", "channel": name, "code": code, "attributes": ["app.value"] });
        channels.start_policy(&serde_json::from_value(policy)?)?;
        Ok(channel)
    };
    // The account for channels may be used up by an earlier round; it earns one channel each second.
    let first = (0..60).find_map(|_| start(0).inspect_err(|_| std::thread::sleep(Duration::from_secs(1))).ok());
    let rest = (1..MANY).map_while(|number| start(number).ok());
    let held: Vec<_> = first.into_iter().chain(rest).collect();
    let application = channels.register("hostile", "decided-0", &[])?;
    holds(&format!("{} policies", held.len()));
    for value in 0.. {
        // Values above the limit are dropped by the service.
        _ = application.report("app.value", value);
    }
    Ok(())
}

pub(super) fn timeline(socket: &Path) -> Outcome<()> {
    let client = Client::connect_to(socket)?;
    repeat(8, move || Ok(client.timeline(0, Instant::ZERO).map(drop)?))
}

/// The address of the page, and the user's token.
fn web(socket: &Path) -> Outcome<(String, String)> {
    let url = Client::connect_to(socket)?.web_page()?.url;
    let parts = url.strip_prefix("http://").and_then(|rest| rest.split_once("/#token="));
    let (address, token) = parts.ok_or("the address of the page has another form")?;
    Ok((address.to_owned(), token.to_owned()))
}

pub(super) fn page(socket: &Path) -> Outcome<()> {
    let (address, token) = web(socket)?;
    let request = format!(
        "GET /v1/status HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    repeat(16, move || {
        let mut stream = TcpStream::connect(&address)?;
        stream.write_all(request.as_bytes())?;
        stream.read_to_end(&mut Vec::new())?;
        Ok(())
    })
}

/// The service writes the address of its metrics on TCP beside its sockets.
pub(super) fn scrapes(socket: &Path) -> Outcome<()> {
    let address = std::fs::read_to_string(socket.with_file_name(crate::METRICS))?;
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    repeat(8, move || {
        let mut stream = TcpStream::connect(&address)?;
        stream.write_all(request.as_bytes())?;
        stream.read_to_end(&mut Vec::new())?;
        Ok(())
    })
}

/// The service closes connections without a token after a time; then the next ones open.
pub(super) fn strangers(socket: &Path) -> Outcome<()> {
    let (address, _) = web(socket)?;
    repeat(64, move || {
        let mut stream = TcpStream::connect(&address)?;
        stream.read_to_end(&mut Vec::new())?;
        // A refused connection is closed at once.
        thread::sleep(Duration::from_millis(20));
        Ok(())
    })
}
