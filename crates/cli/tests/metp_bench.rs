//! `qfabric metp bench`, with the real processes of its engines behind an emulated link. Counts decide, never times.
#![cfg(feature = "metp")]

use std::collections::BTreeSet;
use std::process::{Command, Output};

use qfabric_linux::testing::{live_lock, skip};
use serde_json::Value;

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qfabric"));
    command.args(["metp", "bench", "--rounds", "1"]).args(arguments);
    command
}

/// The rows and the whole document. `None`, with a reason, where links cannot be made.
fn measured(arguments: &[&str]) -> Option<(Vec<Value>, Value)> {
    if !rustix::process::geteuid().is_root() || !std::path::Path::new("/dev/net/tun").exists() {
        skip("an emulated link needs root and /dev/net/tun");
        return None;
    }
    let _alone = live_lock();
    let Output { status, stdout, stderr } = bench(arguments).arg("--json").output().unwrap();
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let all: Value = serde_json::from_slice(&stdout).unwrap();
    Some((all["rows"].as_array().unwrap().clone(), all))
}

/// A run may be repeated or lost on a machine that delays the emulator; then its reason is told. None may fail.
fn expect_rows(rows: &[Value], all: &Value, count: usize) {
    let told = |key: &str| all[key].as_array().unwrap().len();
    assert!(told("failures") == 0 && (rows.len() == count || told("invalid") > 0), "{all:#}");
}

#[test]
fn every_engine_has_a_row_with_the_keys_of_the_contract() {
    let Some((rows, all)) = measured(&["--frames", "25", "--loss", "1%", "--engines", "metp,metp-streams,quic,tcp"])
    else {
        return;
    };
    let documented = ["engine", "frames", "in_time", "p50_ms", "p99_ms", "sent_bytes", "delivered_bytes", "cpu_ms"];
    expect_rows(&rows, &all, 4);
    for row in &rows {
        let number = |key: &str| row[key].as_f64().unwrap();
        assert!(documented.iter().all(|key| row.get(key).is_some()), "{row}");
        assert!(number("in_time") <= number("delivered") && number("delivered") <= 25.0, "{row}");
        assert!(number("sent_bytes") > number("delivered_bytes") && number("cpu_ms") > 0.0, "{row}");
    }
    assert!(all["emulator_late_p99_ms"].is_number());
}

#[test]
fn a_tcp_flow_beside_the_frames_carries_bits() {
    let arguments = ["--frames", "25", "--engines", "metp", "--beside", "tcp", "--granted", "15M"];
    let Some((rows, all)) = measured(&arguments) else { return };
    expect_rows(&rows, &all, 1);
    assert_eq!(all["unreserved_bps"], 15e6);
    assert!(rows.iter().all(|row| row["beside_bps"].as_f64().unwrap() > 0.0), "{all:#}");
}

#[test]
fn each_flow_of_a_test_case_of_the_rfc_has_a_row_and_a_pause_sends_no_frames() {
    let arguments = ["--scenario", "5.8", "--shorten", "20", "--engines", "metp,tcp"];
    let Some((rows, all)) = measured(&arguments) else { return };
    expect_rows(&rows, &all, 6);
    for (at, row) in rows.iter().enumerate() {
        // 119 s of 25 frames, of which 20 s are the pause.
        let frames = if at % 3 == 1 { 123 } else { 148 };
        assert!(row["frames"] == frames && row["delivered"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["flow"].as_str().unwrap().starts_with("up, 0 to 119 s"), "{row}");
    }
}

#[test]
fn the_short_tcp_flows_of_the_rfc_carry_bits_beside_two_media_flows() {
    let arguments = ["--scenario", "rfc8867-5.7", "--shorten", "30", "--engines", "metp"];
    let Some((rows, all)) = measured(&arguments) else { return };
    expect_rows(&rows, &all, 2);
    assert!(rows.iter().all(|row| row["beside_bps"].as_f64().unwrap() > 0.0), "{all:#}");
    assert!(all["conditions"].as_str().unwrap().contains("times divided by 30"), "{all:#}");
}

#[test]
fn every_large_frame_crosses_the_loopback() {
    let Some((rows, all)) = measured(&["--frames", "50", "--loopback", "--engines", "metp,metp-streams,quic"]) else {
        return;
    };
    let engines: BTreeSet<_> = rows.iter().map(|row| row["engine"].as_str().unwrap()).collect();
    assert_eq!(engines, ["metp", "metp-streams", "quic"].into(), "{all:#}");
    assert!(rows.iter().all(|row| row["delivered"] == 50.0 && row["mbit_per_s"].as_f64().unwrap() > 0.0), "{all:#}");
}

#[test]
fn a_rival_that_is_not_installed_names_the_command_that_installs_it() {
    let output = bench(&["--engines", "srt120,rist200"]).env("PATH", "/nowhere").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("apt-get install gcc libsrt-openssl-dev"), "{text}");
    assert!(text.contains("apt-get install gcc librist-dev"), "{text}");
}

#[test]
fn frames_and_rounds_have_bounds() {
    for wrong in [
        ["--frames", "9"],
        ["--frames", "100001"],
        ["--rounds", "0"],
        ["--loss", "200%"],
        ["--rtt", "40"],
        ["--scenario", "5.9"],
    ] {
        let output = bench(&wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
