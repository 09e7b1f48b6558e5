//! A host that is let in and speaks another version of the protocol, and nonsense.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use qfabric_channel::PROTOCOL;
use qfabric_channel::{DestinationRef, Incarnation, Lane};
use qfabric_link::{Config, Engine, EngineEvent, Security, Tls};
use qfabric_types::channel::Name;

use crate::host::{Answer, Site, eventually};

/// In the environment of its process: its folder, its name, and its peer's address and name, by spaces.
const SETTINGS: &str = "QFABRIC_TEST_STRANGER";

/// Runs it in the place of a host, until all is said to another one.
pub(crate) fn talks_nonsense(site: &Site, host: usize, to: usize) {
    let Some(namespace) = Some(site.lan.namespace(host)) else { return };
    let (folder, name) = (site[host].folder.join("tls"), &site[host].name);
    let settings = format!("{} {name} {}:7700 {}", folder.display(), site.lan.address(to), site[to].name);
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{namespace}")).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "stranger::stranger_process", "--nocapture"]).env(SETTINGS, settings);
    Answer::of(&mut command).expect(0, &[]);
}

/// Started by [`talks_nonsense`].
#[test]
fn stranger_process() {
    let Ok(settings) = std::env::var(SETTINGS) else { return };
    let parts: Vec<&str> = settings.split(' ').collect();
    let [folder, name, peer, other] = parts[..] else { panic!("{settings}") };
    let (name, folder): (Name, &std::path::Path) = (name.parse().unwrap(), folder.as_ref());
    let mut config = Config::new(name.clone());
    config.realm = "studio".parse().unwrap();
    config.peers = vec![peer.parse().unwrap()];
    let tls = Tls::from_folder(folder, &name, &folder.join("access.toml")).unwrap();
    config.security = Security::Tls(Box::new(tls));
    let met = Arc::new(AtomicBool::new(false));
    let (seen, other): (_, Name) = (met.clone(), other.parse().unwrap());
    let handler = move |_: &dyn Engine, event: EngineEvent<'_>| {
        if let EngineEvent::Appeared { .. } = event {
            seen.store(true, Ordering::Relaxed);
        }
    };
    let engine = qfabric_link::open(&config, Incarnation(1 << 33), Arc::new(handler), || {}).unwrap();
    eventually("they meet", || met.load(Ordering::Relaxed));
    for _ in 0..20 {
        for frame in frames() {
            engine.send(DestinationRef::Everyone, Lane::Control, &frame);
            engine.send(DestinationRef::Host(&other), Lane::Data, &frame);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    engine.close();
}

/// Another version; no frame at all; a known kind with nothing in it; one of an earlier life.
fn frames() -> Vec<Vec<u8>> {
    let of = |version: u8, kind: u8, life: u64| [&[version, kind][..], &life.to_le_bytes()].concat();
    vec![of(9, 2, 1 << 33), vec![PROTOCOL], of(PROTOCOL, 2, 1 << 33), of(PROTOCOL, 2, 5)]
}
