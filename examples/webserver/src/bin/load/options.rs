use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use qfabric_types::Nanos;

/// Offer each server more load than it can serve, and measure how many requests it still completes
///
/// The server and the load generator run on separate CPUs, so that the server is the bottleneck. `wrk` measures
/// how many requests a server completes per second (its capacity). `httperf` then offers multiples of the
/// capacity, with one request per connection, and gives up a request after --timeout.
#[derive(Parser, Debug)]
#[command(
    version,
    after_help = "Examples:\n  qfabric-webload --servers select,epoll --factors 1,2,3\n  \
                  sudo qfabric-webload --out out/web          # everything, with table, JSON and plots\n  \
                  sudo qfabric-webload --busy 8 --idle 900    # compare the event mechanisms"
)]
pub(crate) struct Options {
    /// Servers to compare
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Server::value_variants().to_vec())]
    pub servers: Vec<Server>,
    /// Offered load in multiples of the capacity
    #[arg(long, value_delimiter = ',', default_values_t = [0.5, 1.0, 1.5, 2.0, 3.0])]
    pub factors: Vec<f64>,
    /// Duration of each load in seconds, at most 20
    #[arg(long, value_name = "N", default_value_t = 8.0)]
    pub seconds: f64,
    /// Runs per load; the table shows the run with the median of completed replies
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub repeats: usize,
    /// CPU time that a request costs the server
    #[arg(long, value_name = "TIME", default_value = "5ms")]
    pub work: Nanos,
    /// Number of connections that stay open beside the load and send no request
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub idle: usize,
    /// Instead of overload: measure replies per second for the small page over N persistent connections, beside
    /// the idle ones
    #[arg(long, value_name = "N")]
    pub busy: Option<usize>,
    /// Seconds after which a request is given up
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub timeout: f64,
    /// CPU of the servers
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub server_cpu: usize,
    /// CPU of httperf and wrk
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub client_cpu: usize,
    /// Port of the servers
    #[arg(long, value_name = "N", default_value_t = 18_080)]
    pub port: u16,
    /// The program qfabric, for the daemon and the guard [default: beside this program, or in the path]
    #[arg(long, value_name = "PATH")]
    pub qfabric: Option<PathBuf>,
    /// Write report.json, replies.svg and times.svg into this folder
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Server {
    /// The example server with select()
    Select,
    /// The example server with poll()
    Poll,
    /// The example server with epoll
    Epoll,
    /// The example server with the I/O module of ECalls
    Ecalls,
    /// Like ecalls, with the overload controller in the kernel, which reads the number of open connections of the
    /// server
    EcallsControlled,
    /// nginx, which compresses a text for each request
    Nginx,
    /// The same nginx behind `qfabric guard`
    NginxGuard,
}

impl Server {
    /// The server's name in tables.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Server::Select => "select",
            Server::Poll => "poll",
            Server::Epoll => "epoll",
            Server::Ecalls => "ecalls",
            Server::EcallsControlled => "ecalls + controller",
            Server::Nginx => "nginx",
            Server::NginxGuard => "nginx + guard",
        }
    }

    /// Whether the server is nginx; all others are the example server.
    pub(crate) fn is_nginx(self) -> bool {
        matches!(self, Server::Nginx | Server::NginxGuard)
    }

    /// Whether the server differs from the others only by its event mechanism.
    pub(crate) fn shows_mechanism(self) -> bool {
        matches!(self, Server::Select | Server::Poll | Server::Epoll | Server::Ecalls)
    }

    pub(crate) fn uses_daemon(self) -> bool {
        matches!(self, Server::Ecalls | Server::EcallsControlled)
    }
}

impl Options {
    /// Checks that each option is in its range.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!((0.5..=20.0).contains(&self.seconds), "--seconds {} is not between 0.5 and 20", self.seconds);
        ensure!((0.1..=60.0).contains(&self.timeout), "--timeout {} is not between 0.1 and 60", self.timeout);
        ensure!((1..=9).contains(&self.repeats), "--repeats {} is not between 1 and 9", self.repeats);
        ensure!(self.busy.is_none_or(|n| (1..=1_000).contains(&n)), "--busy is not between 1 and 1000");
        ensure!(
            self.busy.is_none() || self.servers.iter().any(|server| server.shows_mechanism()),
            "--busy compares select, poll, epoll and ecalls; name one of them with --servers"
        );
        ensure!(self.idle <= 20_000, "--idle {} is above 20000", self.idle);
        for factor in &self.factors {
            ensure!((0.01..=100.0).contains(factor), "--factors {factor} is not between 0.01 and 100");
        }
        ensure!(self.server_cpu != self.client_cpu, "--server-cpu and --client-cpu are both {}", self.server_cpu);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_out_of_range_is_refused_and_named() {
        for (option, named) in [
            ("--seconds=0", "0"),
            ("--factors=1,NaN", "NaN"),
            ("--repeats=10", "10"),
            ("--client-cpu=0", "both 0"),
            ("--busy=0", "--busy"),
        ] {
            let refusal = Options::parse_from(["load", option]).check().unwrap_err().to_string();
            assert!(refusal.contains(named), "{refusal}");
        }
        let nothing = Options::parse_from(["load", "--busy=8", "--servers=nginx,ecalls-controlled"]);
        assert!(nothing.check().unwrap_err().to_string().contains("--servers"));
    }
}
