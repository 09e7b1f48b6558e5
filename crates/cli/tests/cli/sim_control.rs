//! `qfabric sim control`: the JSON and the exit codes on which tools rely.

use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use crate::harness::{Answer, answer, qfabric};

const LINE: &str = "sim control --trace - --period 40ms --server-period 2.5ms --max-bandwidth 0.4";

fn sim(options: &str, trace: &str) -> Answer {
    let folder = tempfile::tempdir().unwrap();
    let mut command = qfabric(folder.path());
    command.args(LINE.split(' ')).args(options.split_whitespace());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Ignored: if the options are refused before the trace is read, the pipe has no reader.
    let _ = child.stdin.take().unwrap().write_all(trace.as_bytes());
    Answer::from(child.wait_with_output().unwrap())
}

/// A third of the jobs costs twice as much as the others, and has twice the hint.
fn trace(jobs: usize) -> String {
    (0..jobs).map(|k| if k % 3 == 0 { "10000000 2000\n" } else { "5000000 1000\n" }).collect()
}

#[test]
fn the_json_has_the_documented_keys() {
    let answer = sim("--json --predictor mma:3,12 --rho 1.0 --choose left", &trace(100));
    answer.expect(0, &[]);
    let json = answer.json();
    assert_eq!(json["jobs"].as_array().unwrap().len(), 100);
    for key in ["k", "c_ns", "low_ns", "high_ns", "budget_ns", "error_ns"] {
        assert!(json["jobs"][99].get(key).is_some_and(Value::is_number), "{key}: {}", json["jobs"][99]);
    }
    for key in ["in_target", "mean_error", "sd_error", "mean_bandwidth", "sd_bandwidth", "misses", "recovery_jobs_mean"]
    {
        assert!(json["summary"].get(key).is_some_and(Value::is_number), "{key}: {}", json["summary"]);
    }
}

#[test]
fn jobs_of_the_warm_up_run_at_the_maximum_and_count_in_no_statistic() {
    let json = sim("--json --predictor ma:12", &trace(30)).json();
    for (k, job) in json["jobs"].as_array().unwrap().iter().enumerate() {
        assert_eq!(job["warm_up"] == true, k < 12, "{job}");
        assert!(k >= 12 || job["budget_ns"] == 1_000_000.0, "{job}");
    }
    assert_eq!(json["summary"]["jobs"], 18);
}

#[test]
fn errors_follow_equation_3() {
    let (period, server_period, max) = (40e6, 2.5e6, 1e6);
    let json = sim("--json --predictor ma:3", "5000000\n22000000\n5000000\n5000000\n").json();
    // Job 1 does not fit into its 16 server periods: ceil(22/1)·2.5 − 40 ms.
    assert_eq!(json["jobs"][0]["error_ns"], (5e6_f64 / max).ceil() * server_period - period);
    assert_eq!(json["jobs"][1]["error_ns"], 15e6);
    assert_eq!(json["jobs"][2]["error_ns"], 15e6 + 12.5e6 - period);
}

#[test]
fn every_predictor_and_every_choice_of_the_contract_works() {
    for predictor in ["ma:12", "mma:3,12", "ol:36,60", "hint:24"] {
        for choice in ["left", "middle", "right", "zero"] {
            let answer = sim(&format!("--json --predictor {predictor} --choose {choice}"), &trace(200));
            answer.expect(0, &[]);
            assert!(answer.json()["summary"]["in_target"].is_number());
        }
    }
}

#[test]
fn rival_controllers_are_compared_and_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let (errors, costs) = (folder.path().join("8.svg"), folder.path().join("7.svg"));
    let mut command = qfabric(folder.path());
    command.args("sim control --stream 1 --server-period 1ms --max-bandwidth 0.25 --choose middle".split(' '));
    command.args("--predictor mma:3,12 --against ol:36,60 --against 20% --against 0.25".split(' '));
    command.arg("--svg").arg(&errors).arg("--trace-svg").arg(&costs);
    Answer::of(&mut command).expect(0, &["mma:3,12", "ol:36,60", "fixed 20.0 %", "fixed 25.0 %", "BACK AFTER"]);
    let drawn = std::fs::read_to_string(errors).unwrap();
    assert_eq!(drawn.matches("<polyline").count(), 4, "a curve per controller");
    let drawn = std::fs::read_to_string(costs).unwrap();
    assert!(drawn.matches("<polyline").count() == 2 && drawn.contains("autocorrelation"));
}

#[test]
fn a_fixed_bandwidth_is_the_budget_of_every_job() {
    let json = sim("--json --fixed 20% --against ma:3", &trace(30)).json();
    assert!(json["jobs"].as_array().unwrap().iter().all(|job| job["budget_ns"] == 500_000.0));
    assert_eq!((&json["summary"]["jobs"], &json["against"][0]["controller"]), (&30.into(), &"ma:3".into()));
    sim("--against often", &trace(30)).expect(2, &["often", "25% or 0.25"]);
}

#[test]
fn the_table_for_people_names_its_units() {
    sim("", &trace(100)).expect(0, &["88 jobs every 40 ms under ma:12, 12 more to warm up", "of one CPU", "in target"]);
}

#[test]
fn invalid_input_ends_with_2_and_is_named() {
    for (options, trace, named) in [
        ("", "", "has no jobs"),
        ("", "1000\nabc\n", "line 2: \"abc\""),
        ("", "-5\n", "\"-5\""),
        ("", "NaN\n", "NaN"),
        ("", "1000 inf\n", "inf"),
        ("--predictor kalman:3", "1000\n", "mma:3,12"),
        ("--choose best", "1000\n", "left, middle"),
        ("--rho NaN", "1000\n", "NaN"),
        ("--early -1", "1000\n", "-1"),
    ] {
        sim(options, trace).expect(2, &[named]);
    }
    answer("sim control --trace /nowhere").expect(2, &["/nowhere"]);
    for option in
        ["--max-bandwidth 0", "--max-bandwidth 1.5", "--max-bandwidth nan", "--period 0ms", "--server-period 7ms"]
    {
        answer(&format!("sim control --trace /proc/self/loginuid {option}")).expect(2, &[]);
    }
}

#[test]
fn a_folder_or_a_binary_file_is_refused_as_trace() {
    answer("sim control --trace /").expect(2, &["directory"]);
    answer("sim control --trace /bin/sh").expect(2, &["/bin/sh"]);
}
