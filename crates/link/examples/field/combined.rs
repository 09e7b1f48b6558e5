//! A hundred hosts whose events go through combiners.
//!
//! ```text
//! direct:  host ─────────────> root        mesh: host ──> combiner ──> root, and a connection to the root
//! tree:    host ──> combiner ──> root, which are routers; the host has no connection to the root
//! ```
//! In `WAY@FOLDER` the folder has certificates and an access list.

use std::path::Path;
use std::{fs, thread};

use qfabric_link::{Config, EngineKind, Role, Security, Tls};
use qfabric_realm::{init_ca, issue};
use qfabric_types::Nanos;
use qfabric_types::channel::Name;

use super::ours::{Ours, node_of};
use super::play::{forever, report, say};
use super::{Peer, until};

/// Hosts of each combiner.
const GROUP: usize = 10;
/// The number of the first combiner's host.
const FIRST: usize = 1000;

fn name(host: usize) -> Name {
    format!("host-{host}").parse().expect("a name")
}

fn combiner_of(host: usize) -> usize {
    FIRST + (host - 1) / GROUP
}

fn config(way: &str, net: &str, host: usize) -> Config {
    let (way, folder) = way.split_once('@').map_or((way, None), |(way, folder)| (way, Some(Path::new(folder))));
    let place = |host: usize| {
        let last = if host == 0 { 1 } else { 2 + host - FIRST };
        format!("{net}.{last}:7700").parse().expect("an address")
    };
    let mut config = Config::new(name(host));
    config.engine = if way == "plain-mesh" { EngineKind::Plain } else { EngineKind::Zenoh };
    let is_inner = host == 0 || host >= FIRST;
    if is_inner {
        config.listen = vec![place(host)];
    }
    if way == "tree" && is_inner {
        config.role = Role::Router;
    }
    config.peers = match (way, host) {
        (_, 0) => vec![],
        ("direct", _) | (_, FIRST..) => vec![place(0)],
        ("tree", _) => vec![place(combiner_of(host))],
        _ => vec![place(0), place(combiner_of(host))],
    };
    if let Some(folder) = folder {
        let tls = Tls::from_folder(folder, &config.host, &folder.join("access.toml")).expect("a certificate");
        config.security = Security::Tls(Box::new(tls));
    }
    config
}

/// Writes the certificates of `hosts` hosts and their combiners, and the access list.
pub(crate) fn write_certificates(folder: &Path, hosts: usize) {
    init_ca(folder, &"bench".parse().expect("a name")).expect("an authority");
    let inner: Vec<usize> = [0].into_iter().chain(FIRST..=combiner_of(hosts)).collect();
    for host in inner.iter().copied().chain(1..=hosts) {
        issue(folder, &name(host), &[], folder, 1).expect("a certificate");
    }
    let list = |hosts: &mut dyn Iterator<Item = usize>| {
        hosts.map(|host| format!("'host-{host}'")).collect::<Vec<_>>().join(", ")
    };
    let access = format!(
        "hosts = [{}, {}]\nrouters = [{}]\n[[rule]]\nchannels = ['*']\nhosts = ['*']\nrights = ['create', 'send', 'join']\n",
        list(&mut inner.iter().copied()),
        list(&mut (1..=hosts)),
        list(&mut inner.iter().copied()),
    );
    fs::write(folder.join("access.toml"), access).expect("written");
}

/// `slack`: events go through the host's combiner, and may wait that long.
pub(crate) fn open(way: &str, net: &str, host: usize, slack: Option<Nanos>) -> Ours {
    let config = config(way, net, host);
    let combiner = slack.map(|_| name(combiner_of(host)));
    Ours::open_node(&config, node_of(&config, host, combiner), slack.unwrap_or(Nanos::ZERO))
}

/// The combiners of this number of hosts.
pub(crate) fn combiners(way: &str, net: &str, hosts: usize) -> ! {
    let all: Vec<Ours> = (FIRST..=combiner_of(hosts)).map(|host| open(way, net, host, None)).collect();
    all.iter().for_each(Ours::ready);
    say("ready");
    forever()
}

/// Hosts that each report `rate` times a second, evenly spread.
pub(crate) fn leaves(way: &str, net: &str, hosts: usize, rate: usize, slack_ms: usize) -> ! {
    let slack = (!way.starts_with("direct")).then(|| Nanos::from_millis(slack_ms as u64));
    let opened = (1..=hosts).map(|host| open(way, net, host, slack)).collect::<Vec<_>>();
    let publish = opened.iter().map(|host| host.publish("control")).collect();
    let topic = super::ours::channel("control");
    for host in &opened {
        until(|| host.with(|node, _| node.directory().channel(&topic).is_some_and(|view| view.sinks > 0)));
    }
    thread::sleep(std::time::Duration::from_secs(3)); // joins and their digests are over
    report(publish, rate)
}
