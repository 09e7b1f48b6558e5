//! The load generators: `httperf` offers a fixed rate whatever the server answers; `wrk` sends a request as soon
//! as the previous one is answered.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::child;
use crate::options::Options;

/// The requests that a generator sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub page: &'a str,
    /// A header field in the form `Name: value`.
    pub header: Option<&'a str>,
}

/// The results that `httperf` reports for one load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct HttperfResult {
    /// Connections begun per second.
    pub offered: f64,
    /// Complete replies before the timeout, per second of the time during which load was offered.
    pub replies: f64,
    /// Part of all connections that was given up after the timeout.
    pub given_up: f64,
    /// Mean time from request to reply in milliseconds, for answered requests.
    pub response_ms: f64,
    /// Median time from connecting to the end of the connection in milliseconds, for answered requests.
    pub median_ms: f64,
    /// Largest such time in milliseconds.
    pub max_ms: f64,
    /// Part of all connections that was refused or reset.
    pub refused: f64,
    /// Part of all connections that the generator could not begin. If it is not 0, the generator was the
    /// bottleneck, and the run says nothing about the server.
    pub not_begun: f64,
}

impl HttperfResult {
    /// A time of answered requests; `None` if there was no reply: then httperf prints zeros.
    pub(crate) fn time(&self, ms: f64) -> Option<f64> {
        (self.replies > 0.0).then_some(ms)
    }
}

/// Number of connections that `wrk` keeps busy: enough that the server never waits for it.
const BUSY: &str = "4";

/// Replies per second of a server that is never idle, while no request waits long.
pub(crate) fn capacity(options: &Options, target: &Target, seconds: u32, stop: impl Fn() -> bool) -> Result<f64> {
    let mut command = child::command(Path::new("wrk"), options.client_cpu);
    command.args(["-t", "1", "-c", BUSY, "-d", &format!("{seconds}s"), "-H", "Connection: close"]);
    command.args(target.header.iter().flat_map(|header| ["-H", header]));
    command.arg(format!("http://127.0.0.1:{}{}", options.port, target.page));
    let text = child::output("wrk", &mut command, stop)?;
    let replies = number_after(&text, "Requests/sec:")?;
    ensure!(replies > 0.0, "wrk got no reply from the server at port {}", options.port);
    Ok(replies)
}

/// Replies per second for the small page over `busy` persistent connections.
pub(crate) fn busy(options: &Options, busy: usize, stop: impl Fn() -> bool) -> Result<f64> {
    let mut command = child::command(Path::new("wrk"), options.client_cpu);
    command.args(["-t", "1", "-c", &busy.to_string(), "-d", &format!("{}s", options.seconds.ceil())]);
    command.arg(format!("http://127.0.0.1:{}/", options.port));
    number_after(&child::output("wrk", &mut command, stop)?, "Requests/sec:")
}

/// Offers `rate` connections per second with one request each.
pub(crate) fn offer(options: &Options, target: &Target, rate: f64, stop: impl Fn() -> bool) -> Result<HttperfResult> {
    let connections = (rate * options.seconds).round().max(1.0);
    let mut command = child::command(Path::new("httperf"), options.client_cpu);
    command.args(["--server", "127.0.0.1", "--port", &options.port.to_string(), "--uri", target.page]);
    command.args(["--rate", &rate.to_string(), "--num-conns", &connections.to_string()]);
    command.args(["--timeout", &options.timeout.to_string()]);
    command.args(target.header.map(|header| format!("--add-header={header}\\n")));
    let text = child::output("httperf", &mut command, stop)?;
    parse_report(&text, connections / rate, options.timeout)
}

/// Parses `httperf`'s report about a load of `seconds`. After the load, `httperf` waits for open connections, at
/// most `timeout` seconds.
fn parse_report(text: &str, seconds: f64, timeout: f64) -> Result<HttperfResult> {
    let connections = number_after(text, "Total: connections ")?;
    let seconds = seconds.max(number_after(text, "test-duration ")? - timeout);
    let errors = line(text, "Errors: total")?;
    let more = line(text, "Errors: fd-unavail")?;
    Ok(HttperfResult {
        offered: connections / seconds,
        replies: number_after(line(text, "Total: ")?, "replies ")? / seconds,
        given_up: (number_after(errors, "client-timo ")? + number_after(errors, "socket-timo ")?) / connections,
        response_ms: number_after(text, "Reply time [ms]: response ")?,
        median_ms: number_after(line(text, "Connection time [ms]: min")?, "median ")?,
        max_ms: number_after(line(text, "Connection time [ms]: min")?, "max ")?,
        refused: (number_after(errors, "connrefused ")? + number_after(errors, "connreset ")?) / connections,
        not_begun: (number_after(more, "fd-unavail ")? + number_after(more, "addrunavail ")?) / connections,
    })
}

fn line<'a>(text: &'a str, beginning: &str) -> Result<&'a str> {
    let found = text.lines().find(|line| line.starts_with(beginning));
    found.with_context(|| format!("the report has no line {beginning:?}:\n{text}"))
}

fn number_after(text: &str, words: &str) -> Result<f64> {
    let at = text.find(words).with_context(|| format!("the report has no {words:?}:\n{text}"))?;
    let rest = text[at + words.len()..].trim_start();
    let word = rest.split(|c: char| c.is_whitespace() || c == '/').next().unwrap_or_default();
    word.parse().with_context(|| format!("{word:?} after {words:?} is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
Total: connections 3200 requests 2437 replies 334 test-duration 8.999 s

Connection rate: 355.6 conn/s (2.8 ms/conn, <=400 concurrent connections)
Connection time [ms]: min 5.3 avg 453.3 max 987.7 median 440.5 stddev 275.0
Connection time [ms]: connect 0.0

Reply rate [replies/s]: min 66.8 avg 66.8 max 66.8 stddev 0.0 (1 samples)
Reply time [ms]: response 453.3 transfer 0.0

Errors: total 2866 client-timo 2866 socket-timo 0 connrefused 0 connreset 32
Errors: fd-unavail 16 addrunavail 0 ftab-full 0 other 0
";

    #[test]
    fn a_report_is_read_per_second_of_offered_load() {
        let seen = parse_report(REPORT, 8.0, 1.0).unwrap();
        assert_eq!((seen.replies, seen.offered, seen.response_ms, seen.median_ms), (41.75, 400.0, 453.3, 440.5));
        assert_eq!((seen.max_ms, seen.refused, seen.not_begun), (987.7, 0.01, 0.005));
        assert!((seen.given_up - 0.895_625).abs() < 1e-9);
    }

    #[test]
    fn a_generator_that_was_slower_than_asked_offered_less() {
        let report = REPORT.replace("8.999 s", "11 s");
        assert_eq!(parse_report(&report, 8.0, 1.0).unwrap().offered, 320.0);
    }

    #[test]
    fn a_report_without_a_figure_is_no_report() {
        let cut = &REPORT[..200];
        assert!(parse_report(cut, 8.0, 1.0).unwrap_err().to_string().contains("Errors"));
    }
}
