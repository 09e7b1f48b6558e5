//! `qfabric contract`: the guide's example, JSON, wrong files, and contracts of a real daemon.

use std::path::Path;

use qfabric_client::{Nanos, Profile, Profiles};

use crate::harness::{Answer, qfabric};
use crate::live::{Daemon, live, wait_until};

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
    let stored = Profiles::at(&profiles, qfabric_client::platform());
    let costs = vec![Nanos::from_millis(10)];
    stored.store(&"vlc,size=640x480".parse().unwrap(), &Profile { costs, hints: Vec::new() }).unwrap();
    explain(folder.path(), &text.replace("mpv", "vlc,size=640x480"), &[]).expect(0, &["C = 10 ms", "0.25 CPU"]);
    let other = explain(folder.path(), &text.replace("mpv", "vlc"), &[]);
    other.expect(2, &["no profile vlc for ", "vlc,size=640x480 on ", "qfabric probe"]);
}

/// A local stream: 0.25 CPU at 25 frames per second, 0.1 CPU at 10, and somewhat more than 16 MiB.
const LOCAL: &str = "[video]\nframe_rate = { min = 10, max = 25 }\nframe_size = \"8kB\"\n\
                     [local]\nmemory = \"16MiB\"\ncomputation = \"10ms\"\n";

/// 0.6 CPU to promise: the control thread has no reservation.
const CONFIG: &str = "[control]\nbudget = \"0s\"\n[limits]\ncapacity = 0.6\n[memory]\nglobal_reserve = \"64M\"\n\
                      [channels]\nhost = \"alpha\"\n[log]\nfilter = \"error\"\n";

/// Runs `contract` with the words of `line`, in a folder with a daemon.
fn contract(folder: &Path, line: &str) -> Answer {
    Answer::of(qfabric(folder).current_dir(folder).arg("contract").args(line.split_whitespace()))
}

#[test]
fn a_contract_is_applied_listed_shown_and_removed() {
    let Some(_alone) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), CONFIG);
    std::fs::write(folder.path().join("stream.toml"), LOCAL).unwrap();
    let run = |line: &str| contract(folder.path(), line);
    run("ls").expect(0, &["no joint contract is in force", "qfabric contract apply"]);
    let applied = run("apply stream.toml");
    applied.expect(0, &["is in force", "cpu", "0.25 CPU", "memory", "end it: qfabric contract rm"]);
    let id = applied.out.split(' ').nth(1).unwrap().to_owned();
    run("ls").expect(0, &[&id, "in force"]);
    run(&format!("show {id}")).expect(0, &["in force", "0.25 CPU"]);
    let json = run("apply stream.toml --json").json();
    assert_eq!(json["resources"][0]["resource"], "cpu");
    assert_eq!(
        (json["resources"][0]["asked"].as_f64(), json["resources"][0]["granted"].as_f64()),
        (Some(0.25), Some(0.25))
    );
    assert_eq!(run("ls --json").json().as_array().unwrap().len(), 2);
    let other = json["id"].as_str().unwrap();
    assert_eq!(run(&format!("show {other} --json")).json(), json);
    let partial = run("apply stream.toml");
    partial.expect(0, &["0.1 CPU", "partly satisfied", "enough for 10 frames/s", "qfabric contract show"]);
    let third = partial.out.split(' ').nth(1).unwrap();
    run(&format!("rm {id} alpha:0000000000000007 {other} {third}"))
        .expect(3, &[&format!("contract {id} has ended"), "no contract alpha:0000000000000007", "contract ls"]);
    run("ls").expect(0, &["no joint contract is in force"]);
}

#[test]
fn a_refused_contract_ends_with_3_names_the_resource_and_holds_nothing() {
    let Some(_alone) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), CONFIG);
    let run = |text: &str, options: &str| {
        std::fs::write(folder.path().join("stream.toml"), text).unwrap();
        contract(folder.path(), &format!("apply stream.toml {options}"))
    };
    let large = LOCAL.replace("16MiB", "128MiB");
    run(&large, "").expect(3, &["memory", "64 MiB", "try: "]);
    let refused = run(&large, "--json");
    refused.expect(3, &[]);
    let json = refused.json();
    let mib = f64::from(1 << 20);
    assert_eq!(
        (&json["resource"], json["free"].as_f64(), json["largest"].as_f64()),
        (&"memory".into(), Some(64.0 * mib), Some(64.0 * mib))
    );
    assert!(json["refused_by"].is_string() && json["asked"].as_f64() > Some(128.0 * mib), "{json}");
    let quick = LOCAL.replace("10ms", "30ms");
    run(&quick, "--whole").expect(3, &["cpu", "0.75 CPU"]);
    run(&quick, "").expect(0, &["partly satisfied", "enough for 20 frames/s"]);
    let peer = format!("{LOCAL}interface = \"lo\"\n[peer]\nhost = \"bob\"\ninterface = \"lo\"\n");
    let alone = run(&peer, "--json");
    alone.expect(3, &["host bob", "contracts = true"]);
    assert!(alone.json()["resource"].is_null() && alone.json()["free"].is_null());
    run(LOCAL, "--patience 61s").expect(2, &["61000 ms", "60000 ms"]);
    assert_eq!(contract(folder.path(), "ls --json").json().as_array().unwrap().len(), 1);
}

#[test]
fn a_contract_ends_with_its_command_and_with_a_process() {
    let Some(_alone) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), CONFIG);
    std::fs::write(folder.path().join("stream.toml"), LOCAL).unwrap();
    let run = |line: &str| contract(folder.path(), line);
    let mut with = qfabric(folder.path());
    with.current_dir(folder.path()).args(["contract", "apply", "stream.toml", "--", "sh", "-c"]);
    let script = format!("{} contract show $QFABRIC_CONTRACT; exit 7", env!("CARGO_BIN_EXE_qfabric"));
    Answer::of(with.arg(script)).expect(7, &["in force", "0.25 CPU"]);
    wait_until(|| run("ls").out.contains("no joint contract is in force"));
    let mut holder = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    run(&format!("apply stream.toml --while {}", holder.id())).expect(0, &["is in force"]);
    holder.kill().unwrap();
    holder.wait().unwrap();
    wait_until(|| run("ls").out.contains("no joint contract is in force"));
    run(&format!("apply stream.toml --while {}", holder.id())).expect(3, &["try: "]);
    run("apply stream.toml -- /nowhere/program").expect(127, &["/nowhere/program"]);
    run("apply stream.toml --while 1 -- true").expect(2, &["--while"]);
    run("apply stream.toml --application bob").expect(2, &["HOST=NAME"]);
    run("apply stream.toml --application bob=player").expect(2, &["host bob", "contract explain"]);
    wait_until(|| run("ls").out.contains("no joint contract is in force"));
}

#[test]
fn answers_for_an_application_are_set_listed_and_ended() {
    let Some(_alone) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), &format!("{CONFIG}[joint]\napplications = {{ camera = 54321 }}\n"));
    let run = |line: &str| contract(folder.path(), line);
    run("consent").expect(0, &["you answer for no application", "--accept"]);
    run("consent player").expect(2, &["no answer given", "--accept"]);
    run("consent no/name --accept").expect(2, &["no/name"]);
    run("consent player --accept").expect(0, &["consents to every contract"]);
    assert_eq!(run("consent --json").json()[0]["policy"], "accept");
    run("consent player --decline --while 1").expect(0, &["declines every contract"]);
    run("consent").expect(0, &["player", "decline"]);
    run("consent player --forget").expect(0, &["nobody answers"]);
    run("upgrade alpha:0000000000000007 --accept --wait 0s").expect(3, &["no contract alpha:0000000000000007"]);
    run("upgrade alpha:0000000000000007").expect(2, &["--accept"]);
}

#[test]
fn wrong_identities_files_and_sockets_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = |line: &str| contract(folder.path(), line);
    for line in ["show alpha", "rm alpha:xyz", "show alpha:123456789012345678901"] {
        run(line).expect(2, &["is not a contract", "HOST:NUMBER"]);
    }
    run("rm").expect(2, &["<ID>"]);
    run("apply missing.toml").expect(2, &["missing.toml"]);
    std::fs::write(folder.path().join("stream.toml"), LOCAL.replace("frame_rate", "frame_raet")).unwrap();
    run("apply stream.toml").expect(2, &["qfabric: stream.toml: line 2, column 1", "try: write frame_rate"]);
    std::fs::write(folder.path().join("stream.toml"), LOCAL).unwrap();
    for line in ["apply stream.toml", "ls", "show alpha:1", "rm alpha:1"] {
        run(&format!("{line} --socket /nowhere.sock")).expect(4, &["/nowhere.sock", "qfabric daemon"]);
    }
}

#[test]
fn another_user_neither_sees_a_contract_nor_ends_it() {
    let Some(_alone) = live() else { return };
    if !rustix::process::geteuid().is_root() {
        return qfabric_linux::testing::skip("only root may become another user");
    }
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), CONFIG);
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(folder.path().join("stream.toml"), LOCAL).unwrap();
    let program = folder.path().join("program");
    std::fs::copy(env!("CARGO_BIN_EXE_qfabric"), &program).unwrap();
    let as_nobody = |line: &str| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "54321", "--regid", "54321", "--clear-groups"]).arg(&program).arg("contract");
        command.env("QFABRIC_SOCKET", folder.path().join("qfabric/qfabric.sock")).current_dir(folder.path());
        Answer::of(command.args(line.split_whitespace()))
    };
    let roots = contract(folder.path(), "apply stream.toml --json").json();
    let id = roots["id"].as_str().unwrap();
    as_nobody(&format!("show {id}")).expect(3, &["try: "]);
    assert!(!as_nobody("ls").out.contains(id));
    as_nobody(&format!("rm {id}")).expect(3, &["54321", "try: "]);
    let own = as_nobody("apply stream.toml --json").json();
    as_nobody(&format!("rm {}", own["id"].as_str().unwrap())).expect(0, &["has ended"]);
    contract(folder.path(), &format!("rm {id}")).expect(0, &["has ended"]);
}
