//! Namespaces and cables: hosts 0 and 1 behind one router, 2 and 3 behind another, a trunk between the two.
//!
//! ```text
//!  h0 10.77.0.2 ─┐                                    ┌─ h2 10.77.2.2
//!                r0 10.77.100.1 ══ trunk ══ 10.77.100.2 r1
//!  h1 10.77.1.2 ─┘                                    └─ h3 10.77.3.2
//! ```

use std::process::{self, Command};

use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;

/// Microseconds of the clock that all processes of this machine share.
pub(crate) fn now_us() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// The network of a test, taken down when dropped.
pub(crate) struct Net {
    id: u32,
    hosts: usize,
    /// Certificates and the access list.
    pub folder: TempDir,
}

impl Net {
    /// None: not here, which is said.
    pub(crate) fn new(hosts: usize) -> Option<Net> {
        if !rustix::process::geteuid().is_root() || run("ip", &["netns", "list"]).is_none() {
            qfabric_linux::testing::skip("needs root and `ip netns`");
            return None;
        }
        let net = Net { id: process::id(), hosts, folder: tempfile::tempdir().expect("a folder") };
        if run("ip", &["netns", "add", &net.router(0)]).is_none() {
            qfabric_linux::testing::skip("no network namespaces here");
            return None;
        }
        net.build();
        net.certificates();
        Some(net)
    }

    pub(crate) fn host(&self, host: usize) -> String {
        format!("qf{}h{host}", self.id)
    }

    fn router(&self, router: usize) -> String {
        format!("qf{}r{router}", self.id)
    }

    pub(crate) fn address(&self, host: usize) -> String {
        format!("10.77.{host}.2:7700")
    }

    fn build(&self) {
        ip(&format!("netns add {}", self.router(1)));
        for router in [0, 1] {
            let namespace = self.router(router);
            ip(&format!("-n {namespace} link set lo up"));
            let set = ["netns", "exec", &namespace, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"];
            run("ip", &set).expect("forwarding");
        }
        for host in 0..self.hosts {
            self.add_host(host);
        }
        self.add_trunk();
    }

    fn add_host(&self, host: usize) {
        let (here, router) = (self.host(host), self.router(host / 2));
        ip(&format!("netns add {here}"));
        ip(&format!("-n {here} link set lo up"));
        ip(&format!("link add eth0 netns {here} type veth peer name to{host} netns {router}"));
        ip(&format!("-n {here} addr add 10.77.{host}.2/24 dev eth0"));
        ip(&format!("-n {router} addr add 10.77.{host}.1/24 dev to{host}"));
        ip(&format!("-n {here} link set eth0 up"));
        ip(&format!("-n {router} link set to{host} up"));
        ip(&format!("-n {here} route add default via 10.77.{host}.1"));
    }

    fn add_trunk(&self) {
        let (left, right) = (self.router(0), self.router(1));
        ip(&format!("link add trunk netns {left} type veth peer name trunk netns {right}"));
        ip(&format!("-n {left} addr add 10.77.100.1/24 dev trunk"));
        ip(&format!("-n {right} addr add 10.77.100.2/24 dev trunk"));
        self.trunk(true);
    }

    /// Joins or cuts the trunk.
    pub(crate) fn trunk(&self, up: bool) {
        let state = if up { "up" } else { "down" };
        for router in [0, 1] {
            ip(&format!("-n {} link set trunk {state}", self.router(router)));
        }
        if up {
            ip(&format!("-n {} route replace 10.77.2.0/23 via 10.77.100.2", self.router(0)));
            ip(&format!("-n {} route replace 10.77.0.0/23 via 10.77.100.1", self.router(1)));
        }
    }

    /// Joins or cuts the cable of a host, at the router's end.
    pub(crate) fn cable(&self, host: usize, up: bool) {
        let state = if up { "up" } else { "down" };
        ip(&format!("-n {} link set to{host} {state}", self.router(host / 2)));
    }

    fn certificates(&self) {
        use qfabric_realm::{init_ca, issue};
        let folder = self.folder.path();
        init_ca(folder, &"test".parse().expect("a name")).expect("an authority");
        let hosts: Vec<String> = (0..self.hosts).map(|host| format!("h{host}")).collect();
        for host in &hosts {
            issue(folder, &host.parse().expect("a name"), &[], folder, 1).expect("a certificate");
        }
        let access = format!(
            "hosts = {hosts:?}\n[[rule]]\nchannels = ['video']\nhosts = ['*']\nrights = ['create', 'join', 'send']\n"
        );
        std::fs::write(folder.join("access.toml"), access).expect("written");
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let hosts = (0..self.hosts).map(|host| self.host(host));
        for namespace in hosts.chain([self.router(0), self.router(1)]) {
            run("ip", &["netns", "del", &namespace]);
        }
    }
}

fn ip(arguments: &str) {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    run("ip", &arguments).unwrap_or_else(|| panic!("ip {arguments:?}"));
}

fn run(program: &str, arguments: &[&str]) -> Option<()> {
    let output = Command::new(program).args(arguments).output().ok()?;
    if !output.status.success() {
        eprintln!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success().then_some(())
}
