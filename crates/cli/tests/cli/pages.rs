//! Help, man pages and completions, and the answers to wrong command lines.

use std::path::Path;

use qfabric_types::api::channel::Policy;

use crate::harness::{Answer, answer, qfabric};

const COMMANDS: [&str; 52] = [
    "run",
    "attach",
    "probe",
    "doctor",
    "status",
    "top",
    "trace",
    "web",
    "daemon",
    "restore",
    "sim conference",
    "sim control",
    "sim dwcs",
    "sim energy",
    "demo",
    "services",
    "ecode check",
    "ecode fmt",
    "ecode run",
    "ecode install",
    "ecode ls",
    "ecode rm",
    "ecode trace",
    "energy status",
    "energy calibrate",
    "guard",
    "lab",
    "contract explain",
    "contract apply",
    "contract ls",
    "contract show",
    "contract rm",
    "contract upgrade",
    "contract consent",
    "channel ls",
    "channel show",
    "channel watch",
    "channel pub",
    "channel sub",
    "channel bench",
    "channel ping",
    "channel init-ca",
    "channel issue",
    "metp send",
    "metp recv",
    "metp bench",
    "monitor ls",
    "monitor set",
    "monitor watch",
    "policy why",
    "conference",
    "group ls",
];

#[test]
fn the_help_of_every_command_shows_usage_and_an_example() {
    for command in COMMANDS {
        answer(&format!("{command} --help")).expect(0, &["Usage:", "Example", &format!("qfabric {command}")]);
    }
    for kind in Policy::KINDS {
        let command = format!("policy start {kind}");
        answer(&format!("{command} --help")).expect(0, &["Usage:", "Example", &format!("qfabric {command}")]);
    }
}

#[test]
fn the_help_lists_the_exit_codes() {
    answer("--help").expect(0, &["Exit codes: 0 done", "3 refused", "128+n", "Applications keep their deadlines"]);
}

#[test]
fn a_wrong_command_line_ends_with_2_and_a_hint() {
    answer("restor").expect(2, &["unrecognized subcommand 'restor'", "'restore'"]);
    answer("").expect(2, &["Usage:"]);
    answer("run").expect(2, &["required", "PROGRAM"]);
    answer("run --fps 25 --mechanism magic -- true").expect(2, &["magic", "deadline"]);
}

#[test]
fn the_version_is_the_version_of_the_package() {
    answer("--version").expect(0, &[env!("CARGO_PKG_VERSION")]);
}

#[test]
fn there_is_a_man_page_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    Answer::of(qfabric(folder.path()).args(["generate", "man"]).arg(folder.path())).expect(0, &[]);
    for command in COMMANDS {
        let page = folder.path().join(format!("qfabric-{}.1", command.replace(' ', "-")));
        let text = std::fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        assert!(text.contains(".SH NAME") && text.contains("Example"), "{}", page.display());
    }
    let generate = |into: &Path| Answer::of(qfabric(folder.path()).args(["generate", "man"]).arg(into));
    generate(&folder.path().join("new")).expect(0, &[]);
    generate(&folder.path().join("new/qfabric.1/below")).expect(1, &["new/qfabric.1/below"]);
}

#[test]
fn there_are_completions_for_every_common_shell() {
    for shell in ["bash", "zsh", "fish"] {
        answer(&format!("generate completions {shell}")).expect(0, &["server-period", "predictor"]);
    }
    answer("generate completions cmd").expect(2, &["bash"]);
}

#[test]
fn without_a_daemon_status_and_top_end_with_4_and_name_qfabric_daemon() {
    answer("status --socket /nowhere.sock").expect(4, &["/nowhere.sock", "qfabric daemon"]);
    answer("web --print-url --socket /nowhere.sock").expect(4, &["/nowhere.sock", "qfabric daemon"]);
    answer("top --socket /nowhere.sock").expect(4, &["qfabric daemon"]);
    answer("energy status --socket /nowhere.sock").expect(4, &["/nowhere.sock", "qfabric daemon"]);
}

#[test]
fn an_invalid_contract_ends_with_2_and_names_the_value() {
    for (options, named) in [
        ("--period 0ms", "period 0 ms"),
        ("--period 40", "with its unit"),
        ("--period 40ms --server-period 7ms", "7 ms does not divide"),
        ("--period 10s", "10 s is outside"),
        ("--fps 0", "from 0.2385 to 10000"),
        ("--fps 0.21", "from 0.2385 to 10000"),
        ("--predictor kalman:3", "mma:3,12"),
        ("--predictor ma:0", "ma:N"),
        ("--choose best", "left, middle, right, zero or cost"),
        ("--max-bandwidth 0", "budget 0 ms"),
        ("--max-bandwidth -1", "-1"),
        ("--class D", "A, B or C"),
        ("--weight 0", "1 to 10000"),
        ("--priority 10", "0 (last) to 9 (first)"),
        ("--rho NaN", "NaN"),
        ("--early 1.5", "1.5"),
        ("--guaranteed 0.99", "0.99"),
        ("--profile /nowhere/p.json", "qfabric probe"),
    ] {
        answer(&format!("run {options} -- true")).expect(2, &[named]);
    }
}
