//! Zenoh's settings that differ from its defaults, with reasons.

use serde_json::{Value, json};
use zenoh::config::Config as ZenohConfig;

use super::rules;
use crate::config::{Address, Buffers, Config, Role, Scouting, Security};
use crate::engine::SIGNS;
use crate::{Error, LEASE, MAX_FRAME, MAX_HOSTS, Tls};

/// Microseconds after which a peer that takes no control frames loses its connection. The sending thread waits for this
/// time, so it is also the longest time for which a stopped peer holds up this host, once.
const WAIT_BEFORE_CLOSE: u32 = 20_000;

/// Batches of 64 KiB that may wait for a peer. Control: 1 MiB, enough for many announcements. Data: frames behind its
/// queue would be late anyway.
const CONTROL_QUEUE: u32 = 16;
const DATA_QUEUE: u32 = 4;
/// Bulk data waits at its source; the bytes that a node has under way (`Limits::BULK_UNDER_WAY`) have to fit in the
/// queue.
const BULK_QUEUE: u32 = 16;

/// Type of service of control frames, for switches and access points that use it: CS5, signalling (RFC 4594).
const CONTROL_SERVICE: u8 = 0xa0;

/// Milliseconds for opening a connection, including the check of certificates. The accepting side has to give up well
/// before the connecting side: a connection that only one side considers open loses declarations. And Zenoh 1.10 drops
/// its work half done when this time ends: if the other side has just agreed, the connection sends, but never receives.
///
/// While the path is cut, TCP repeats its request after 1, 3 and 7 s. Of the time until just before the fourth request,
/// 3.9 s are left after the third one. The accepting side takes the accept timeout twice at most, for the handshake of
/// TLS and for that of Zenoh, so it has given up before.
const OPEN_TIMEOUT: u32 = 6_900;
const ACCEPT_TIMEOUT: u32 = 1_800;
/// Connections that may open at the same time, after the handshake of TLS; Zenoh closes further ones at once, and
/// their hosts try again within a second. With TLS only hosts of the realm take such a place. `tls_listener`
/// bounds the handshakes of TLS before that.
const OPENING: u32 = 64;

pub(crate) fn settings(config: &Config) -> Result<ZenohConfig, Error> {
    let mut settings = ZenohConfig::default();
    for (key, value) in pairs(config)? {
        let refused = |error| Error::Zenoh(format!("{key} = {value}: {error}"));
        settings.insert_json5(key, &value.to_string()).map_err(refused)?;
    }
    Ok(settings)
}

/// Whether two configurations give the same settings; invalid configurations are never the same.
pub(crate) fn is_same(one: &Config, other: &Config) -> bool {
    pairs(one).is_ok_and(|one| pairs(other).is_ok_and(|other| one == other))
}

fn pairs(config: &Config) -> Result<Vec<(&'static str, Value)>, Error> {
    let mut pairs = vec![
        ("mode", json!(if config.role == Role::Router { "router" } else { "peer" })),
        ("listen/endpoints", json!(endpoints(config, &config.listen)?)),
        ("connect/endpoints", json!(endpoints(config, &config.calls())?)),
        ("connect/retry", json!({"period_init_ms": 100, "period_max_ms": 1000, "period_increase_factor": 2})),
        ("scouting/delay", json!(0)), // opening does not wait: hosts are reported as they appear
        ("open/return_conditions/connect_scouted", json!(false)),
        ("open/return_conditions/declares", json!(false)),
        ("scouting/multicast/enabled", json!(config.scouting == Scouting::Multicast)),
        ("scouting/gossip/enabled", json!(config.scouting != Scouting::Configured)),
        ("scouting/gossip/autoconnect_strategy", json!({"peer": {"to_router": "always", "to_peer": "greater-zid"}})),
    ];
    pairs.extend(transport());
    if let Security::Tls(tls) = &config.security {
        pairs.extend(certificates(tls));
        pairs.push(("access_control", rules::access_control(&config.realm, &config.host, &tls.access)));
    }
    Ok(pairs)
}

/// Two connections to each peer, so that bulk data never delays control; a silent peer is detected within the lease.
fn transport() -> Vec<(&'static str, Value)> {
    vec![
        ("transport/unicast/max_sessions", json!(MAX_HOSTS)),
        ("transport/unicast/max_links", json!(2)),
        ("transport/unicast/open_timeout", json!(OPEN_TIMEOUT)),
        ("transport/unicast/accept_timeout", json!(ACCEPT_TIMEOUT)),
        ("transport/unicast/accept_pending", json!(OPENING)),
        ("transport/link/tx/lease", json!(LEASE.as_millis() as u64)),
        ("transport/link/tx/keep_alive", json!(SIGNS)),
        ("transport/link/tx/queue/size/real_time", json!(CONTROL_QUEUE)),
        ("transport/link/tx/queue/size/data", json!(DATA_QUEUE)),
        ("transport/link/tx/queue/size/data_low", json!(BULK_QUEUE)),
        ("transport/link/tx/queue/congestion_control/drop/wait_before_drop", json!(0)),
        ("transport/link/tx/queue/congestion_control/drop/max_wait_before_drop_fragments", json!(0)),
        ("transport/link/tx/queue/congestion_control/block/wait_before_close", json!(WAIT_BEFORE_CLOSE)),
        ("transport/link/rx/max_message_size", json!(MAX_FRAME + 1024)),
        ("transport/shared_memory/enabled", json!(false)),
    ]
}

/// Host names in certificates are not checked against addresses: the access list binds a host's name to the keys that
/// it uses, and addresses change.
fn certificates(tls: &Tls) -> Vec<(&'static str, Value)> {
    vec![
        ("transport/link/protocols", json!(["tls"])),
        ("transport/link/tls/root_ca_certificate", json!(tls.ca)),
        ("transport/link/tls/listen_certificate", json!(tls.certificate)),
        ("transport/link/tls/listen_private_key", json!(tls.key)),
        ("transport/link/tls/connect_certificate", json!(tls.certificate)),
        ("transport/link/tls/connect_private_key", json!(tls.key)),
        ("transport/link/tls/enable_mtls", json!(true)),
        ("transport/link/tls/verify_name_on_connect", json!(false)),
        ("transport/link/tls/close_link_on_expiration", json!(true)),
    ]
}

/// Each address becomes two: control priorities use its port, data priorities the next one.
fn endpoints(config: &Config, addresses: &[Address]) -> Result<Vec<String>, Error> {
    let protocol = if config.security == Security::Insecure { "tcp" } else { "tls" };
    // A silent connection is closed as soon as one whose opening is not answered.
    let handshake = (protocol == "tls").then_some(("tls_handshake_timeout_ms", ACCEPT_TIMEOUT));
    let Buffers { send, receive } = config.buffers;
    let buffers = [("so_sndbuf", send), ("so_rcvbuf", receive)].into_iter().filter(|(_, bytes)| *bytes > 0);
    let control = options([("dscp", u32::from(CONTROL_SERVICE))].into_iter().chain(handshake));
    let data = options(buffers.chain(handshake));
    let mut endpoints = Vec::new();
    for address in addresses {
        let Address::Tcp { host, port } = address else { return Err(Error::UnixZenoh(address.clone())) };
        let next = port.checked_add(1).filter(|next| *next > 1).ok_or_else(|| Error::Ports(address.clone()))?;
        let at = |port| Address::Tcp { host: host.clone(), port };
        endpoints.push(format!("{protocol}/{}?prio=1-3{control}", at(*port)));
        endpoints.push(format!("{protocol}/{}?prio=4-7{data}", at(next)));
    }
    Ok(endpoints)
}

/// The options of an endpoint, with the sign in front of them; empty if there are none.
fn options(all: impl Iterator<Item = (&'static str, u32)>) -> String {
    let all: Vec<String> = all.map(|(key, value)| format!("{key}={value}")).collect();
    if all.is_empty() { String::new() } else { format!("#{}", all.join(";")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zenoh_takes_the_settings_and_limits_and_keeps_two_links_for_each_address() {
        let mut config = Config::new("a".parse().unwrap());
        config.listen = vec!["127.0.0.1:7700".parse().unwrap()];
        let settings = settings(&config).unwrap();
        let listen = settings.get_json("listen/endpoints").unwrap();
        assert!(listen.contains("tcp/127.0.0.1:7700?prio=1-3"), "{listen}");
        assert!(listen.contains("tcp/127.0.0.1:7701?prio=4-7"), "{listen}");
        let unicast = |key: &str| settings.get_json(&format!("transport/unicast/{key}")).unwrap();
        let limits = ["max_sessions", "max_links", "accept_pending"].map(unicast);
        assert_eq!(limits, ["1024", "2", "64"], "SECURITY.md states these numbers");
    }

    #[test]
    fn buffers_are_those_of_the_configuration_or_the_kernels_own() {
        let data = |send, receive| {
            let mut config = Config::new("a".parse().unwrap());
            config.buffers = Buffers { send, receive };
            let both = endpoints(&config, &["127.0.0.1:7700".parse().unwrap()]).unwrap();
            settings(&Config { listen: vec!["127.0.0.1:7700".parse().unwrap()], ..config }).unwrap();
            both[1].clone()
        };
        let Buffers { send, receive } = Buffers::default();
        assert_eq!(data(send, receive), "tcp/127.0.0.1:7701?prio=4-7#so_sndbuf=65536;so_rcvbuf=262144");
        assert_eq!(data(0, 1 << 20), "tcp/127.0.0.1:7701?prio=4-7#so_rcvbuf=1048576");
        assert_eq!(data(0, 0), "tcp/127.0.0.1:7701?prio=4-7");
    }

    #[test]
    fn an_address_without_a_second_port_is_refused() {
        let mut config = Config::new("a".parse().unwrap());
        for address in ["127.0.0.1:65535", "127.0.0.1:0"] {
            config.listen = vec![address.parse().unwrap()];
            assert!(matches!(settings(&config), Err(Error::Ports(_))));
        }
    }
}
