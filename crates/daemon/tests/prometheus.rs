//! The metrics and the alerts, read by a real Prometheus and its checker where these are installed.

mod common;

use std::io::{Read, Seek, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::*;
use qfabric_linux::testing::{live_lock, skip};
use serde_json::Value;

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/prometheus").canonicalize().unwrap()
}

/// An address of loopback at which nobody listens.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The answer of Prometheus's API; none: it does not answer yet.
fn get(prometheus: SocketAddr, path: &str) -> Option<Value> {
    let mut stream = TcpStream::connect(prometheus).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    // Answers to version 1.0 are not chunked.
    stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: {prometheus}\r\n\r\n").as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
}

/// The value of the first series; none: it has no sample yet.
fn query(prometheus: SocketAddr, metric: &str) -> Option<f64> {
    let answer = get(prometheus, &format!("/api/v1/query?query={metric}"))?;
    answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
}

#[test]
fn promtool_accepts_the_alerts_their_tests_and_the_metrics() {
    if !is_installed("promtool") {
        return skip("promtool is not installed");
    }
    let promtool = |words: &str, input: Stdio| {
        let mut promtool = Command::new("promtool");
        promtool.args(words.split(' ')).current_dir(packaging()).stdin(input);
        let output = promtool.output().unwrap();
        assert!(output.status.success(), "promtool {words}: {output:?}");
    };
    promtool("check rules qfabric.rules.yml", Stdio::null());
    promtool("test rules qfabric.test.yml", Stdio::null());
    let _lock = live_lock();
    let (service, _client) = service(quiet());
    let (status, text) = call(service.socket(), "GET", "/metrics", "");
    assert_eq!(status, 200);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.rewind().unwrap();
    promtool("check metrics", file.into());
}

#[test]
fn a_real_prometheus_reads_the_metrics_and_evaluates_every_rule() {
    if !is_installed("prometheus") {
        return skip("prometheus is not installed");
    }
    let _lock = live_lock();
    let (metrics, prometheus) = (free_address(), free_address());
    let mut config = quiet();
    config.metrics.listen = Some(metrics);
    let (_service, _client) = service(config);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prometheus.yml");
    let rules = packaging().join("qfabric.rules.yml");
    let text = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [\"{}\"]\nscrape_configs:\n  \
         - job_name: qfabric\n    static_configs: [{{ targets: [\"{metrics}\"] }}]\n",
        rules.display()
    );
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", file.display())).arg(format!("--web.listen-address={prometheus}"));
    command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
    let _process = Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    eventually("the daemon is scraped", || query(prometheus, "up").is_some_and(|up| up > 0.5));
    eventually("its values are there", || query(prometheus, "qfabric_capacity_cpus").is_some_and(|cpus| cpus > 0.0));
    eventually("every rule is evaluated", || {
        let answer = get(prometheus, "/api/v1/rules").unwrap_or_default();
        let rules = answer["data"]["groups"][0]["rules"].as_array();
        rules.is_some_and(|rules| !rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok"))
    });
}
