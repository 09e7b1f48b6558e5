//! Two switches with a cable between them, and hosts on both: each a network namespace.
//!
//! ```text
//!  h0 10.78.0.1 ─┐               ┌─ h2 10.78.0.3
//!                s0 ══ trunk ══ s1
//!  h1 10.78.0.2 ─┘               └─ h3 10.78.0.4
//! ```

use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of networks that this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// The network of a test, taken down when dropped.
pub(crate) struct Lan {
    id: String,
    /// On which switch each host is.
    sides: Vec<usize>,
}

impl Lan {
    /// None: not here, which is said.
    pub(crate) fn new(sides: &[usize]) -> Option<Lan> {
        let id = format!("qd{}n{}", process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let lan = Lan { id, sides: sides.to_vec() };
        if !rustix::process::geteuid().is_root() || !try_ip(&format!("netns add {}", lan.switch(0))) {
            qfabric_linux::testing::skip("needs root and `ip netns`");
            return None;
        }
        lan.build();
        Some(lan)
    }

    pub(crate) fn namespace(&self, host: usize) -> String {
        format!("{}h{host}", self.id)
    }

    pub(crate) fn address(&self, host: usize) -> String {
        format!("10.78.0.{}", host + 1)
    }

    fn switch(&self, side: usize) -> String {
        format!("{}s{side}", self.id)
    }

    fn build(&self) {
        ip(&format!("netns add {}", self.switch(1)));
        for side in [0, 1] {
            ip(&format!("-n {} link add bridge type bridge", self.switch(side)));
            ip(&format!("-n {} link set bridge up", self.switch(side)));
        }
        let (left, right) = (self.switch(0), self.switch(1));
        ip(&format!("link add trunk netns {left} type veth peer name trunk netns {right}"));
        [left, right].iter().for_each(|switch| ip(&format!("-n {switch} link set trunk master bridge up")));
        (0..self.sides.len()).for_each(|host| self.add(host));
    }

    fn add(&self, host: usize) {
        let (here, switch) = (self.namespace(host), self.switch(self.sides[host]));
        ip(&format!("netns add {here}"));
        ip(&format!("-n {here} link set lo up"));
        ip(&format!("link add eth0 netns {here} type veth peer name to{host} netns {switch}"));
        self.give_address(host, true);
        ip(&format!("-n {here} link set eth0 up"));
        ip(&format!("-n {switch} link set to{host} master bridge up"));
    }

    /// Joins or cuts the cable between the switches.
    pub(crate) fn trunk(&self, up: bool) {
        ip(&format!("-n {} link set trunk {}", self.switch(0), if up { "up" } else { "down" }));
    }

    /// Joins or cuts the cable of a host, at the switch's end.
    pub(crate) fn cable(&self, host: usize, up: bool) {
        let state = if up { "up" } else { "down" };
        ip(&format!("-n {} link set to{host} {state}", self.switch(self.sides[host])));
    }

    /// Gives the host its address, or takes it away: then nothing can be listened on.
    pub(crate) fn give_address(&self, host: usize, given: bool) {
        let what = if given { "add" } else { "del" };
        ip(&format!("-n {} addr {what} {}/24 dev eth0", self.namespace(host), self.address(host)));
    }

    /// From now on the switch sends the host no more than that, such as `400kbit`; the rest waits for up to 50 ms.
    pub(crate) fn shape(&self, host: usize, rate: &str) {
        let switch = self.switch(self.sides[host]);
        run("tc", &format!("-n {switch} qdisc replace dev to{host} root tbf rate {rate} burst 8kb latency 50ms"));
    }

    /// From now on the host sends no more than that, in bits per second, to all others together.
    pub(crate) fn shape_uplink(&self, host: usize, rate: f64) {
        let words = format!("-n {} qdisc replace dev eth0 root tbf", self.namespace(host));
        run("tc", &format!("{words} rate {rate:.0}bit burst 8kb latency 50ms"));
    }

    /// As fast as it goes.
    pub(crate) fn unshape(&self, host: usize) {
        run("tc", &format!("-n {} qdisc del dev to{host} root", self.switch(self.sides[host])));
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        let hosts = (0..self.sides.len()).map(|host| self.namespace(host));
        for namespace in hosts.chain([self.switch(0), self.switch(1)]) {
            try_ip(&format!("netns del {namespace}"));
        }
    }
}

fn ip(words: &str) {
    run("ip", words);
}

fn try_ip(words: &str) -> bool {
    Command::new("ip").args(words.split(' ')).output().is_ok_and(|output| output.status.success())
}

fn run(program: &str, words: &str) {
    let output = Command::new(program).args(words.split(' ')).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words}: {error}");
}
