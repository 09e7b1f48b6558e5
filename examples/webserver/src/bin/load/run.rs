//! The runs: capacity first, then each load on each server, each on a server started for it.

use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use crate::generators::{self, Seen};
use crate::options::{Options, Server};
use crate::servers::Stable;

/// Seconds in which a capacity is measured.
const CAPACITY_SECONDS: u32 = 3;

/// One point of the plots.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What served.
    pub server: Server,
    /// Offered load in multiples of the capacity.
    pub factor: f64,
    /// What came of it.
    pub seen: Seen,
    /// Least and most completed replies per second of the repeats.
    pub spread: (f64, f64),
}

/// The whole experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Replies per second of the example server that is never idle; 0: not measured.
    pub capacity: f64,
    /// The same of nginx.
    pub nginx_capacity: f64,
    /// CPU time a request costs, nominal, in milliseconds.
    pub work_ms: f64,
    /// Connections without requests beside the load.
    pub idle: usize,
    /// Seconds of each load.
    pub seconds: f64,
    /// After how many seconds a request was given up.
    pub timeout: f64,
    /// The points, by server.
    pub rows: Vec<Row>,
}

/// Runs everything that the options name.
pub fn run(options: &Options, stop: &dyn Fn() -> bool) -> Result<Report> {
    allow_descriptors()?;
    let stable = Stable::new(options)?;
    let mut report = Report {
        capacity: capacity(options, &stable, |s| !s.is_nginx(), Server::Epoll, stop)?,
        nginx_capacity: capacity(options, &stable, Server::is_nginx, Server::Nginx, stop)?,
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
            let rate = factor * if server.is_nginx() { report.nginx_capacity } else { report.capacity };
            report.rows.push(point(options, &stable, (server, factor, rate), &bar, stop)?);
        }
    }
    bar.finish_and_clear();
    Ok(report)
}

/// Replies per second of the small page, by server: the median of the repeats.
pub fn busy(options: &Options, connections: usize, stop: &dyn Fn() -> bool) -> Result<Vec<(Server, f64)>> {
    allow_descriptors()?;
    let stable = Stable::new(options)?;
    let mut rows = Vec::new();
    for &server in options.servers.iter().filter(|server| server.shows_mechanism()) {
        let mut runs = Vec::new();
        for _ in 0..options.repeats {
            let _serving = stable.start(server, options)?;
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
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}").expect("the template is sound");
    ProgressBar::new((options.servers.len() * options.factors.len() * options.repeats) as u64).with_style(style)
}

fn capacity(
    options: &Options,
    stable: &Stable,
    concerned: impl Fn(Server) -> bool,
    measured: Server,
    stop: &dyn Fn() -> bool,
) -> Result<f64> {
    if !options.servers.iter().any(|&server| concerned(server)) {
        return Ok(0.0);
    }
    let _serving = stable.start(measured, options)?;
    generators::capacity(options, &Stable::target(measured), CAPACITY_SECONDS, stop)
}

/// One load on one server, repeated; the run with the median of replies.
fn point(
    options: &Options,
    stable: &Stable,
    (server, factor, rate): (Server, f64, f64),
    bar: &ProgressBar,
    stop: &dyn Fn() -> bool,
) -> Result<Row> {
    let mut runs = Vec::new();
    for _ in 0..options.repeats {
        let _serving = stable.start(server, options)?;
        let _idle = idle(options)?;
        runs.push(generators::offer(options, &Stable::target(server), rate, stop)?);
        bar.inc(1);
    }
    runs.sort_by(|a, b| a.replies.total_cmp(&b.replies));
    let spread = (runs[0].replies, runs[runs.len() - 1].replies);
    Ok(Row { server, factor, seen: runs[runs.len() / 2], spread })
}

/// Connections that are open and silent.
fn idle(options: &Options) -> Result<Vec<TcpStream>> {
    let address = SocketAddr::from(([127, 0, 0, 1], options.port));
    let connect = |_| TcpStream::connect(address).context("an idle connection was refused");
    (0..options.idle).map(connect).collect()
}
