//! The contestants of round trips, and their requirements.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::Value;

use crate::field::foreign;
use crate::process::Process;
use crate::site::{Host, NET, Policy, Site};
use crate::wire::SIZE;

/// Paths of an event from an application to an application on the other host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Contestant {
    /// Through both daemons, with mutual TLS.
    Qfabric,
    /// The same path, measured by `qfabric channel ping`.
    Ping,
    /// Through two relays without other functions, with mutual TLS: the floor.
    Floor,
    /// A TCP connection between the two applications.
    Tcp,
    /// Zenoh's Rust library, over TCP.
    Zenoh,
    /// The same, with mutual TLS.
    ZenohTls,
    /// NATS, with its server on one of the hosts, over TCP.
    Nats,
    /// ZeroMQ, over TCP.
    Zmq,
    /// Cyclone DDS, over UDP.
    Dds,
    /// Mosquitto on one of the hosts, over TCP.
    Mqtt,
}

impl Contestant {
    /// Neither Q-Fabric nor the floor.
    pub(crate) fn is_rival(self) -> bool {
        use Contestant::{Floor, Ping, Qfabric, Tcp};
        ![Qfabric, Ping, Floor, Tcp].contains(&self)
    }

    /// Name of the contestant in commands of this program.
    fn word(self) -> String {
        self.to_possible_value().expect("every contestant has a value name").get_name().to_owned()
    }

    /// Name of the contestant in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Contestant::Qfabric => "Q-Fabric",
            Contestant::Ping => "qfabric channel ping",
            Contestant::Floor => "floor: relays, TLS",
            Contestant::Tcp => "TCP echo",
            Contestant::Zenoh => "Zenoh",
            Contestant::ZenohTls => "Zenoh, TLS",
            Contestant::Nats => "NATS",
            Contestant::Zmq => "ZeroMQ",
            Contestant::Dds => "Cyclone DDS",
            Contestant::Mqtt => "Mosquitto",
        }
    }

    fn broker(self) -> Option<&'static str> {
        match self {
            Contestant::Nats => Some("nats-server"),
            Contestant::Mqtt => Some("mosquitto"),
            _ => None,
        }
    }

    fn relays(self, site: &Site, policy: Policy) -> Result<Option<[Process; 2]>> {
        (self == Contestant::Floor).then(|| start_relays(site, policy)).transpose()
    }

    /// The reason why the contestant cannot run on this machine; None if it can.
    pub(crate) fn lacks(self) -> Option<String> {
        match (foreign::program(&self.word()), self.broker()) {
            (Some(Err(why)), _) => Some(why),
            (_, Some(broker)) if !is_installed(broker) => Some(format!("{broker} is not installed")),
            _ => None,
        }
    }

    /// Round trips of 100 B in microseconds: p50 and p99.
    pub(crate) fn round_trip(self, site: &Site, policy: Policy, trips: usize, tag: &str) -> Result<[f64; 2]> {
        let trips = trips.to_string();
        let _broker = self.broker().map(|broker| start_broker(site, policy, broker)).transpose()?;
        match self {
            Contestant::Ping => channel_ping(site, policy, &trips),
            Contestant::Zmq | Contestant::Dds => self.ask_foreign(site, policy, &trips),
            _ => self.ask(site, policy, tag, &trips),
        }
    }

    /// The answering process is on the left host, the asking process on the right one.
    fn ask(self, site: &Site, policy: Policy, tag: &str, trips: &str) -> Result<[f64; 2]> {
        let _relays = self.relays(site, policy)?;
        let mut echo = start(&site.left, policy, &["echo"], &self.path(&site.left, tag))?;
        echo.line("ready")?;
        let ping = [self.path(&site.right, tag), vec![trips.to_owned()]].concat();
        start(&site.right, policy, &["ping"], &ping)?.numbers()
    }

    /// Name of the contestant, and how an application of this host connects.
    fn path(self, host: &Host, tag: &str) -> Vec<String> {
        let word = self.word();
        match self {
            Contestant::Qfabric => vec![word, host.socket().display().to_string(), tag.to_owned()],
            Contestant::Floor => vec![word, host.relay().display().to_string()],
            Contestant::Tcp => vec![word, format!("{NET}.1:7700")],
            Contestant::ZenohTls => vec![word, host.folder.display().to_string(), host.name.to_owned()],
            _ => vec![word],
        }
    }

    /// The publisher is on the left host, the counting subscriber on the right one.
    pub(crate) fn start_flow(self, site: &Site, part: &str, topic: &str, tag: &str) -> Result<Flow> {
        let relays = self.relays(site, Policy::Fair)?;
        let mut source = start(&site.left, Policy::Fair, &[part], &self.path(&site.left, tag))?;
        source.line("ready")?;
        let mut drain = start(&site.right, Policy::Fair, &["drain", topic], &self.path(&site.right, tag))?;
        drain.line("ready")?;
        Ok(Flow { source, drain, relays })
    }

    fn ask_foreign(self, site: &Site, policy: Policy, trips: &str) -> Result<[f64; 2]> {
        let program =
            foreign::program(&self.word()).context("the contestant has a C program")?.map_err(anyhow::Error::msg)?;
        let settings = foreign::dds_settings("eth0", &[&site.left.address, &site.right.address]);
        let start = |host: &Host, part: &[&str]| {
            let mut command = host.command(policy, &program);
            Process::start(command.args(part).env("CYCLONEDDS_URI", &settings))
        };
        let size = SIZE.to_string();
        let mut echo = start(&site.left, &["echo", &self.word(), NET, &size])?;
        echo.line("ready")?;
        start(&site.right, &["ping", &self.word(), NET, &size, trips])?.numbers()
    }
}

/// Events from one process to another.
pub(crate) struct Flow {
    pub source: Process,
    pub drain: Process,
    relays: Option<[Process; 2]>,
}

impl Flow {
    /// Names and ids of the processes that an event may pass.
    pub(crate) fn processes(&self, site: &Site) -> Vec<(&'static str, u32)> {
        let daemons = [("left daemon", site.left.daemon_id()), ("right daemon", site.right.daemon_id())];
        let daemons = daemons.into_iter().filter_map(|(name, id)| Some((name, id?)));
        let relays = self.relays.iter().flatten().map(Process::id);
        let relays = ["left relay", "right relay"].into_iter().zip(relays);
        let ends = [("publisher", self.source.id()), ("subscriber", self.drain.id())];
        ends.into_iter().chain(daemons).chain(relays).collect()
    }
}

/// Starts a part of this program on a host.
fn start(host: &Host, policy: Policy, part: &[&str], path: &[String]) -> Result<Process> {
    Process::start(host.command(policy, &env::current_exe()?).arg("play").args(part).args(path))
}

/// A busy loop for each CPU.
pub(crate) fn start_hogs() -> Result<Vec<Process>> {
    let (program, cpus) = (env::current_exe()?, thread::available_parallelism()?.get());
    let hogs = (0..cpus).map(|_| Process::start(Command::new(&program).args(["play", "hog"]))).collect();
    thread::sleep(Duration::from_millis(300));
    hogs
}

fn start_relays(site: &Site, policy: Policy) -> Result<[Process; 2]> {
    let relay = |host: &Host, role: &str| {
        let (socket, folder) = (host.relay(), host.folder.display().to_string());
        let _ = fs::remove_file(&socket);
        let words = [socket.display().to_string(), folder];
        start(host, policy, &["relay", host.name, role, &format!("{NET}.1:7700")], &words)
    };
    let mut relays = [relay(&site.left, "listens")?, relay(&site.right, "calls")?];
    relays.iter_mut().try_for_each(|relay| relay.line("ready").map(drop))?;
    Ok(relays)
}

/// Runs `qfabric channel ping`: it does not count the time of the answering application.
fn channel_ping(site: &Site, policy: Policy, trips: &str) -> Result<[f64; 2]> {
    let mut command = site.right.command(policy, &site.program);
    command.args(["channel", "ping", "left", "--count", trips, "--interval", "500us", "--json", "--socket"]);
    let output = command.arg(site.right.socket()).stderr(Stdio::inherit()).output()?;
    let answer: Value = serde_json::from_slice(&output.stdout).context("qfabric channel ping")?;
    let of = |part: &str| answer["round_trip"][part].as_f64().with_context(|| format!("no answer: {answer}"));
    Ok([of("p50_us")?, of("p99_us")?])
}

fn start_broker(site: &Site, policy: Policy, broker: &str) -> Result<Process> {
    let (address, file) = (&site.left.address, site.folder.path().join("mosquitto.conf"));
    let mut command = site.left.command(policy, Path::new(broker));
    match broker {
        "mosquitto" => {
            fs::write(&file, format!("listener 7700 {address}\nallow_anonymous true\nuser root\n"))?;
            command.arg("-c").arg(file)
        }
        _ => command.args(["-a", address, "-p", "7700"]),
    };
    let broker = Process::start(command.stderr(Stdio::null()));
    thread::sleep(Duration::from_millis(500));
    broker
}

fn is_installed(program: &str) -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).map(|folder| folder.join(program)).any(|file: PathBuf| file.is_file())
}
