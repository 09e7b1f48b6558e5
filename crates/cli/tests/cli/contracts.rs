//! `qfabric contract explain`: the guide's example, JSON, and wrong files.

use std::path::Path;

use crate::harness::{Answer, qfabric};

const PAGE: &str = include_str!("../../../../docs/guide/src/contracts.md");

/// The first block of the page that begins with `opening`.
fn block(opening: &str) -> &'static str {
    let (_, after) = PAGE.split_once(opening).unwrap();
    after.split_once("```").unwrap().0
}

fn explain(folder: &Path, text: &str, options: &[&str]) -> Answer {
    std::fs::write(folder.join("stream.toml"), text).unwrap();
    Answer::of(qfabric(folder).current_dir(folder).args(["contract", "explain", "stream.toml"]).args(options))
}

#[test]
fn the_example_of_the_page_prints_the_lines_of_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let answer = explain(folder.path(), block("```toml\n"), &[]);
    answer.expect(0, &[]);
    let printed: Vec<&str> = answer.out.lines().map(str::trim_end).collect();
    for line in block("```text\n").lines().filter(|line| !line.is_empty() && *line != "...") {
        assert!(printed.contains(&line.trim_end()), "{line:?} is not in\n{}", answer.out);
    }
}

#[test]
fn json_has_the_documented_keys_and_every_resource_of_both_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let answer = explain(folder.path(), block("```toml\n"), &["--json"]);
    answer.expect(0, &[]);
    let json = answer.json();
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&json), ["resources", "steps"]);
    for step in json["steps"].as_array().unwrap() {
        assert_eq!(keys(step), ["formula", "inputs", "name", "unit", "value"]);
        assert!(step["value"].is_number() && step["inputs"].is_array());
    }
    let mut names = Vec::new();
    for found in json["resources"].as_array().unwrap() {
        assert_eq!(keys(found), ["amount", "host", "resource", "unit"]);
        assert!(found["amount"].as_f64().unwrap() > 0.0);
        names.push(format!("{} {}", found["host"].as_str().unwrap(), found["resource"].as_str().unwrap()));
    }
    let ends = [("local", "eth0"), ("bob", "eth1")];
    let expected = ends.map(|(host, link)| {
        ["cpu".to_owned(), "memory".to_owned(), format!("network {link} out"), format!("network {link} in")]
            .map(|resource| format!("{host} {resource}"))
    });
    assert_eq!(names, expected.concat());
}

#[test]
fn a_wrong_file_ends_with_2_and_names_line_column_and_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let good = block("```toml\n");
    for (right, wrong, parts) in [
        ("frame_rate", "frame_raet", ["line 8, column 1", "frame_raet", "try: write frame_rate"]),
        ("\"20kB\"", "\"20 parsecs\"", ["line 9, column 20", "20 parsecs", "such as \"20kB\""]),
        ("48000", "-48000", ["line 14, column 15", "-48000", "within 1 to 10000000"]),
        ("[video]", "[video", ["line 7, column", "not TOML", "try:"]),
    ] {
        explain(folder.path(), &good.replacen(right, wrong, 1), &[]).expect(2, &parts);
    }
    let binary = folder.path().join("binary.toml");
    std::fs::write(&binary, [0xFF; 8]).unwrap();
    Answer::of(qfabric(folder.path()).args(["contract", "explain"]).arg(&binary)).expect(2, &["line 1"]);
    explain(folder.path(), &"#".repeat(70_000), &[]).expect(2, &["65536 bytes"]);
}

#[test]
fn a_file_that_cannot_be_read_or_fulfilled_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.toml");
    Answer::of(qfabric(folder.path()).args(["contract", "explain"]).arg(missing)).expect(2, &["missing.toml"]);
    let short = block("```toml\n").replace("\"250ms\"", "\"20ms\"");
    explain(folder.path(), &short, &[]).expect(2, &["delay must be longer", "try: allow a longer delay"]);
}

#[test]
fn a_profile_gives_the_computation_time() {
    let folder = tempfile::tempdir().unwrap();
    let profiles = folder.path().join("qfabric/profiles");
    std::fs::create_dir_all(&profiles).unwrap();
    std::fs::write(profiles.join("mpv.json"), r#"{"costs_ns": [3000000, 5000000]}"#).unwrap();
    let text = "[video]\nframe_rate = 25\nframe_size = \"1kB\"\n[local]\nprofile = \"mpv\"";
    explain(folder.path(), text, &[]).expect(0, &["C = 4 ms, T = 40 ms", "0.1 CPU"]);
    explain(folder.path(), &text.replace("mpv", "vlc"), &[]).expect(2, &["vlc", "qfabric probe"]);
}
