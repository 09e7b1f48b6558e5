//! `kill -9` at each step of a joint reservation, of the client, of the daemon that it asked, and of another host's daemon:
//! nothing stays reserved on any host.

use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::contracts::{Partners, begin, call, part};
use crate::host::{Host, eventually};

/// Hosts of the tests. Each of the first three gives one resource; the last one answers when all others hold theirs.
const HOSTS: usize = 4;

/// The step after which the kill comes. The resources are held in this order, because the later hosts do not answer.
#[derive(Clone, Copy, Debug)]
enum Step {
    Cpu,
    Memory,
    Network,
    Commit,
}

impl Step {
    const ALL: [Step; 4] = [Step::Cpu, Step::Memory, Step::Network, Step::Commit];

    /// The number of hosts that hold their part.
    fn holding(self) -> usize {
        match self {
            Step::Cpu => 1,
            Step::Memory => 2,
            Step::Network => 3,
            Step::Commit => HOSTS,
        }
    }
}

fn parts() -> Vec<Value> {
    let rate = json!([{"interface": "eth0", "direction": "out", "rate_bps": 1_000_000}]);
    let of = |host: &str, amounts: Value| json!({"host": host, "wanted": amounts, "minimum": amounts});
    let memory = of("h1", json!({"memory_bytes": 1 << 20}));
    vec![part(0, 0.3, 0.3), memory, of("h2", json!({"network_bps": rate})), part(3, 0.3, 0.3)]
}

/// Four hosts with an open link each.
fn partners() -> Option<Partners> {
    let partners = Partners::new(HOSTS)?;
    partners.0.hosts().iter().for_each(open_link);
    Some(partners)
}

fn open_link(host: &Host) {
    host.run(&["net", "link", "add", "eth0", "--rate", "10M", "--htb"]).expect(0, &["eth0 in:"]);
}

/// Whether the host holds a part, and whether it is in force. One request, so that a short hold is seen.
fn held(host: &Host) -> Option<bool> {
    let status = call(host, "GET /v1/status", &Value::Null).1;
    status["joint"][0]["in_force"].as_bool()
}

/// No broker of the host has promised anything.
fn is_free(host: &Host) -> bool {
    let status = call(host, "GET /v1/status", &Value::Null).1;
    let link = &call(host, "GET /v1/net/eth0", &Value::Null).1["link"];
    let sums = [&status["guaranteed"], &status["memory"]["promised_bytes"], &link["promised_bps"]];
    assert!(sums.iter().all(|sum| sum.is_number()), "{status} {link}");
    status["joint"].is_null() && sums.iter().all(|sum| sum.as_f64() == Some(0.0))
}

/// The process that asks: the lease of its contract, and the connection of its request.
struct Client {
    process: Child,
    request: Option<UnixStream>,
}

impl Client {
    /// Asks the first host, and waits until the step is reached and no later one.
    fn at(partners: &Partners, step: Step) -> Client {
        let mut client = None;
        eventually(&format!("{step:?} is reached"), || {
            client = Client::reaching(partners, step);
            client.is_some()
        });
        client.unwrap()
    }

    /// None: the request was refused before a look found the step, because a starving machine looks late.
    fn reaching(partners: &Partners, step: Step) -> Option<Client> {
        let site = &partners.0;
        (step.holding()..HOSTS).for_each(|host| site[host].signal("STOP"));
        let process = Command::new("sleep").arg("1000").spawn().unwrap();
        let body = json!({"parts": parts(), "lease_pid": process.id()});
        let mut client = Client { process, request: Some(begin(&site[0], &body)) };
        let in_force = matches!(step, Step::Commit);
        let mut is_reached = false;
        eventually("the step is reached, or the request is refused", || {
            let is_refused = !in_force && client.is_answered();
            is_reached = (0..step.holding()).all(|host| held(&site[host]) == Some(in_force));
            is_reached || is_refused
        });
        if is_reached {
            return Some(client);
        }
        client.kill();
        (step.holding()..HOSTS).for_each(|host| site[host].signal("CONT"));
        partners.meet(HOSTS);
        all_are_free(partners, step);
        None
    }

    fn is_answered(&self) -> bool {
        let mut request = self.request.as_ref().unwrap();
        request.set_nonblocking(true).unwrap();
        request.read(&mut [0]).is_ok()
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.request = None;
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Every host answers again, and holds nothing.
fn all_are_free(partners: &Partners, step: Step) {
    eventually(&format!("all is free after {step:?}"), || partners.0.hosts().iter().all(is_free));
}

/// Kills the daemon of a host at each step.
fn daemon_is_killed(killed: usize) {
    let Some(mut partners) = partners() else { return };
    for step in Step::ALL {
        let mut client = Client::at(&partners, step);
        partners.0.kill(killed);
        (step.holding()..HOSTS).filter(|host| *host != killed).for_each(|host| partners.0[host].signal("CONT"));
        let survivors = (0..HOSTS).filter(|host| *host != killed);
        eventually(&format!("the others are free after {step:?}"), || {
            survivors.clone().all(|h| is_free(&partners.0[h]))
        });
        client.kill();
        partners.start(killed);
        open_link(&partners.0[killed]);
        partners.meet(HOSTS);
        all_are_free(&partners, step);
    }
}

#[test]
fn a_client_that_is_killed_at_each_step_leaves_nothing_reserved() {
    let Some(partners) = partners() else { return };
    for step in Step::ALL {
        let mut client = Client::at(&partners, step);
        client.kill();
        (step.holding()..HOSTS).for_each(|host| partners.0[host].signal("CONT"));
        all_are_free(&partners, step);
    }
}

#[test]
fn a_client_that_is_killed_while_it_translates_reserves_nothing() {
    let Some(partners) = partners() else { return };
    let host = &partners.0[0];
    // The client waits for the rest of its file.
    let file = host.folder.join("stream.toml");
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let mut client = host.command(&["contract", "apply", "stream.toml"]).stderr(Stdio::null()).spawn().unwrap();
    let mut writer = None;
    eventually("the client reads", || {
        writer = std::fs::File::options()
            .write(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
            .open(&file)
            .ok();
        writer.is_some()
    });
    client.kill().unwrap();
    client.wait().unwrap();
    assert!(partners.0.hosts().iter().all(is_free));
    assert_eq!(host.metric("qfabric_contracts_in_force"), 0.0);
}

#[test]
fn a_daemon_that_is_killed_at_each_step_of_its_own_contract_leaves_nothing_reserved() {
    daemon_is_killed(0);
}

#[test]
fn a_daemon_that_is_killed_at_each_step_of_another_hosts_contract_leaves_nothing_reserved() {
    daemon_is_killed(1);
}
