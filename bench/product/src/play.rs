//! The parts of this program's processes, each on one of the two hosts.

use std::io::{BufRead, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::field::{Peer, bare::Bare, nats::Nats};
use crate::flow;
use crate::mqtt::Mqtt;
use crate::relay::{self, Role};
use crate::service::Service;
use crate::site::NET;
use crate::wire::{self, CalledBack, Packets, Tcp};

/// Plays the part that the conductor started this process for.
pub(crate) fn play(words: &[String]) -> Result<()> {
    thread::spawn(answer_conductor);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["hog"] => loop {
            std::hint::spin_loop();
        },
        ["relay", host, role, address, socket, folder] => {
            let role = if role == "listens" { Role::Listens(address) } else { Role::Calls(address) };
            relay::run(Path::new(socket), Path::new(folder), host, role, || say("ready"))
        }
        ["echo", "tcp", address] => echo(&mut Tcp::accept(address, || say("ready"))?),
        ["echo", "floor", socket] => echo(&mut print_ready(Packets::connect(Path::new(socket))?)),
        ["echo", "qfabric", socket, tag] => echo(&mut print_ready(Service::new(socket, tag).wire("pong", "ping")?)),
        ["echo", ref rival @ ..] => {
            let peer = peer(rival, 0)?;
            peer.echo();
            print_ready(());
            forever()
        }
        ["ping", "tcp", address, trips] => ping(&mut Tcp::connect(address)?, trips),
        ["ping", "floor", socket, trips] => ping(&mut Packets::connect(Path::new(socket))?, trips),
        ["ping", "qfabric", socket, tag, trips] => {
            let service = Service::new(socket, tag);
            let mut wire = service.wire("ping", "pong")?;
            service.wait_for("ping", 1);
            thread::sleep(Duration::from_millis(700));
            ping(&mut wire, trips)
        }
        ["ping", ref rival @ .., trips] => ping(&mut CalledBack::new(&*peer(rival, 1)?), trips),
        ["drain", topic, ref rival @ ..] => {
            let peer = peer(rival, 1)?;
            flow::drain(&*peer, if topic == "stream" { "stream" } else { "bulk" });
            forever()
        }
        ["stream", ref rival @ ..] => flowing(rival, flow::stream),
        ["rate", ref rival @ ..] => flowing(rival, flow::rate),
        ["submit", ref rival @ ..] => flowing(rival, flow::submit),
        _ => bail!("there is no part {words:?}"),
    }
}

/// Answers the conductor until it ends.
fn answer_conductor() {
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if line == "tell" {
            flow::print_counts();
        }
    }
    std::process::exit(0);
}

pub(crate) fn say(text: &str) {
    let mut output = std::io::stdout();
    let _ = writeln!(output, "{text}");
    let _ = output.flush();
}

fn print_ready<T>(thing: T) -> T {
    say("ready");
    thing
}

fn forever() -> ! {
    loop {
        thread::park();
    }
}

fn echo(wire: &mut dyn wire::Wire) -> Result<()> {
    wire::echo(wire);
    Ok(())
}

fn ping(wire: &mut dyn wire::Wire, trips: &str) -> Result<()> {
    let [half, most] = wire::ping(wire, trips.parse()?)?;
    say(&format!("result {half} {most}"));
    Ok(())
}

/// Runs a flow, then waits until the conductor has asked the other side.
fn flowing(rival: &[&str], flow: fn(&dyn Peer)) -> Result<()> {
    let peer = peer(rival, 0)?;
    flow(&*peer);
    forever()
}

/// Peer 0 is on the left host, to which the other one connects and on which brokers run.
fn peer(rival: &[&str], number: usize) -> Result<Box<dyn Peer>> {
    Ok(match rival {
        ["qfabric", socket, tag] => Box::new(Service::new(socket, tag)),
        ["floor", socket] => Box::new(Packets::connect(Path::new(socket))?),
        ["zenoh"] => Box::new(Bare::open(NET, number)),
        ["zenoh-tls", folder, host] => {
            Box::new(Bare::open_with(&format!("tls/{NET}.1:7700"), number, &mutual_tls(folder, host)))
        }
        ["nats"] => Box::new(Nats::open(NET)),
        ["mqtt"] => Box::new(Mqtt::open(NET)),
        _ => bail!("there is no rival {rival:?}"),
    })
}

/// Zenoh's settings for the daemons' own certificates, which have no addresses in them.
fn mutual_tls(folder: &str, host: &str) -> [(&'static str, String); 7] {
    let [authority, certificate, key] =
        ["ca.pem", &format!("{host}.pem"), &format!("{host}.key")].map(|file| format!("\"{folder}/{file}\""));
    [
        ("transport/link/tls/root_ca_certificate", authority),
        ("transport/link/tls/listen_certificate", certificate.clone()),
        ("transport/link/tls/listen_private_key", key.clone()),
        ("transport/link/tls/connect_certificate", certificate),
        ("transport/link/tls/connect_private_key", key),
        ("transport/link/tls/enable_mtls", "true".to_owned()),
        ("transport/link/tls/verify_name_on_connect", "false".to_owned()),
    ]
}
