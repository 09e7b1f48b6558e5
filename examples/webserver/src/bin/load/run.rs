//! Runs the experiment: first it measures the capacity, then it offers each load to each server. Every run has a
//! newly started server.

use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use crate::generators::{self, HttperfResult};
use crate::options::{Options, Server};
use crate::servers::Launcher;

/// Seconds during which a capacity is measured.
const CAPACITY_SECONDS: u32 = 3;

/// One point of the plots.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub server: Server,
    /// Offered load in multiples of the capacity.
    pub factor: f64,
    /// The result of the run with the median of replies.
    pub seen: HttperfResult,
    /// Smallest and largest number of completed replies per second among the repeats.
    pub spread: (f64, f64),
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// Replies per second of the example server when it is never idle; 0 if not measured.
    pub capacity: f64,
    /// Replies per second of nginx when it is never idle; 0 if not measured.
    pub nginx_capacity: f64,
    /// Nominal CPU time that a request costs, in milliseconds.
    pub work_ms: f64,
    /// Number of connections without requests beside the load.
    pub idle: usize,
    /// Duration of each load in seconds.
    pub seconds: f64,
    /// Seconds after which a request was given up.
    pub timeout: f64,
    /// The points, ordered by server.
    pub rows: Vec<Row>,
}

impl Report {
    /// Replies per second of this server when it is never idle; 0 if not measured.
    pub(crate) fn capacity_of(&self, server: Server) -> f64 {
        if server.is_nginx() { self.nginx_capacity } else { self.capacity }
    }
}

/// Runs every combination of server and load that the options name.
pub(crate) fn run(options: &Options, stop: &dyn Fn() -> bool) -> Result<Report> {
    allow_descriptors()?;
    let launcher = Launcher::new(options)?;
    let mut report = Report {
        capacity: capacity(options, &launcher, |s| !s.is_nginx(), Server::Epoll, stop)?,
        nginx_capacity: capacity(options, &launcher, Server::is_nginx, Server::Nginx, stop)?,
        work_ms: options.work.as_f64() / 1e6,
        idle: options.idle,
        seconds: options.seconds,
        timeout: options.timeout,
        rows: Vec::new(),
    };
    let bar = progress(options);
    for &server in &options.servers {
        for &factor in &options.factors {
            bar.set_message(format!("{} at {factor}x", server.label()));
            let rate = factor * report.capacity_of(server);
            report.rows.push(point(options, &launcher, (server, factor, rate), &bar, stop)?);
        }
    }
    bar.finish_and_clear();
    Ok(report)
}

/// Replies per second for the small page of each server: the median of the repeats.
pub(crate) fn busy(options: &Options, connections: usize, stop: &dyn Fn() -> bool) -> Result<Vec<(Server, f64)>> {
    allow_descriptors()?;
    let launcher = Launcher::new(options)?;
    let mut rows = Vec::new();
    for &server in options.servers.iter().filter(|server| server.shows_mechanism()) {
        let mut runs = Vec::new();
        for _ in 0..options.repeats {
            let _serving = launcher.start(server, options)?;
            let _idle = idle(options)?;
            runs.push(generators::busy(options, connections, stop)?);
        }
        runs.sort_by(f64::total_cmp);
        rows.push((server, runs[runs.len() / 2]));
    }
    Ok(rows)
}

fn allow_descriptors() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

fn progress(options: &Options) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}").expect("the template is valid");
    ProgressBar::new((options.servers.len() * options.factors.len() * options.repeats) as u64).with_style(style)
}

fn capacity(
    options: &Options,
    launcher: &Launcher,
    needs_capacity: impl Fn(Server) -> bool,
    measured: Server,
    stop: &dyn Fn() -> bool,
) -> Result<f64> {
    if !options.servers.iter().any(|&server| needs_capacity(server)) {
        return Ok(0.0);
    }
    let _serving = launcher.start(measured, options)?;
    generators::capacity(options, &Launcher::target(measured), CAPACITY_SECONDS, stop)
}

/// Offers one load to one server, repeatedly. Returns the run with the median of replies.
fn point(
    options: &Options,
    launcher: &Launcher,
    (server, factor, rate): (Server, f64, f64),
    bar: &ProgressBar,
    stop: &dyn Fn() -> bool,
) -> Result<Row> {
    let mut runs = Vec::new();
    for _ in 0..options.repeats {
        let _serving = launcher.start(server, options)?;
        let _idle = idle(options)?;
        runs.push(generators::offer(options, &Launcher::target(server), rate, stop)?);
        bar.inc(1);
    }
    runs.sort_by(|a, b| a.replies.total_cmp(&b.replies));
    let spread = (runs[0].replies, runs[runs.len() - 1].replies);
    Ok(Row { server, factor, seen: runs[runs.len() / 2], spread })
}

/// Opens connections that send no request.
fn idle(options: &Options) -> Result<Vec<TcpStream>> {
    let address = SocketAddr::from(([127, 0, 0, 1], options.port));
    let connect = |_| TcpStream::connect(address).context("the server refused an idle connection");
    (0..options.idle).map(connect).collect()
}
