//! `run` and `daemon` with real programs and the real scheduler.
//!
//! If this host offers no mechanism, only the refusal of `run` is tested.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Answer, answer, qfabric};

/// Number of the policy SCHED_DEADLINE.
pub(crate) const DEADLINE: u32 = 6;

/// Locks the scheduler for this test. None if no mechanism works here; then `run` must say so.
pub(crate) fn live() -> Option<File> {
    let lock = qfabric_linux::testing::live_lock();
    if answer("doctor").code == 0 {
        return Some(lock);
    }
    answer("run --fps 25 -- true").expect(4, &["qfabric doctor"]);
    None
}

/// Runs the binary with `options` and a shell script as the program.
pub(crate) fn sh(folder: &Path, options: &str, script: &str) -> Command {
    let mut command = qfabric(folder);
    command.args(options.split_whitespace()).args(["--", "sh", "-c", script]);
    command
}

pub(crate) fn policy(pid: i32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 2..].split(' ').nth(38)?.parse().ok()
}

/// Waits until `what` holds: usually milliseconds, on a loaded machine some seconds.
#[track_caller]
pub(crate) fn wait_until(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !what() {
        assert!(Instant::now() < end, "not within 120 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A daemon that ends when this value is dropped.
pub(crate) struct Daemon(pub Child);

impl Daemon {
    /// Starts a daemon in `folder`, with the configuration `config`.
    pub(crate) fn start(folder: &Path, config: &str) -> Daemon {
        Daemon::start_logging(folder, config, Stdio::null())
    }

    /// As [`Daemon::start`]; its log goes to `log`.
    pub(crate) fn start_logging(folder: &Path, config: &str, log: Stdio) -> Daemon {
        std::fs::write(folder.join("daemon.toml"), config).unwrap();
        let runtime = folder.join("qfabric");
        let mut command = qfabric(folder);
        command.args(["daemon", "--directory"]).arg(&runtime).arg("--config").arg(folder.join("daemon.toml"));
        let daemon = Daemon(command.stderr(log).spawn().unwrap());
        wait_until(|| Answer::of(qfabric(folder).arg("status")).code == 0);
        daemon
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Ignored: a test may have ended the daemon already.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Every user of a host can take a port before the daemon does.
#[test]
fn a_daemon_whose_ports_are_taken_serves_the_rest_and_the_ports_when_they_are_free() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let taken = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [page, metrics] = [0, 1].map(|which| taken[which].local_addr().unwrap());
    let config = format!("[web]\nlisten = \"{page}\"\n[metrics]\nlisten = \"{metrics}\"\n");
    let _daemon = Daemon::start(folder.path(), &config);
    let url = || Answer::of(qfabric(folder.path()).args(["web", "--print-url"]));
    url().expect(3, &["cannot listen at", &page.to_string()]);
    drop(taken);
    wait_until(|| [page, metrics].iter().all(|address| TcpStream::connect(address).is_ok()));
    url().expect(0, &[&page.to_string()]);
}

#[test]
fn run_ends_with_the_exit_code_of_the_program() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (script, code) in [("true", 0), ("false", 1), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)] {
        Answer::of(&mut sh(folder.path(), "run --fps 25", script)).expect(code, &["sh"]);
    }
    Answer::of(&mut sh(folder.path(), "run --fps 25 --quiet", "echo said >&2")).expect(0, &["said\n"]);
}

#[test]
fn a_fixed_share_is_reserved_for_every_thread_whatever_it_uses() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "");
    let mut program = sh(folder.path(), "run --fixed 0.2 --quiet", "sleep 60 & wait").spawn().unwrap();
    let shares = || {
        let status = Answer::of(qfabric(folder.path()).args(["status", "--json"])).json();
        let threads = status["applications"][0]["threads"].as_array().cloned().unwrap_or_default();
        threads.iter().map(|t| t["reservation"]["budget_ns"].as_u64()).collect::<Vec<_>>()
    };
    wait_until(|| shares() == [Some(2_000_000); 2]);
    signal(&program, Signal::TERM);
    assert_eq!(program.wait().unwrap().code(), Some(143));
    wait_until(|| shares().is_empty());
}

#[test]
fn a_program_is_shown_in_overload_until_it_is_granted_its_demand() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "[limits]\ncapacity = 0.3\n");
    let options = "run --fps 50 --max-bandwidth 0.5 --name hog --quiet";
    let mut program = sh(folder.path(), options, "while :; do :; done").spawn().unwrap();
    let status = || Answer::of(qfabric(folder.path()).arg("status"));
    let line = "overload: application 1 (hog) is granted 0.3 CPU of the 0.5 CPU it asks for; its jobs should cost at most \
                60 % of what they cost now\n";
    wait_until(|| status().out.contains(line));
    Answer::of(qfabric(folder.path()).args(["limits", "set", "--capacity", "0.6"])).expect(0, &["all"]);
    wait_until(|| !status().out.contains("overload"));
    signal(&program, Signal::TERM);
    assert_eq!(program.wait().unwrap().code(), Some(143));
}

#[test]
fn a_program_that_saves_energy_is_accounted_and_says_what_is_missing() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "");
    let mut program = sh(folder.path(), "run --energy save --fps 25", "while :; do :; done");
    let program = program.stderr(Stdio::piped()).spawn().unwrap();
    let energy = || Answer::of(qfabric(folder.path()).args(["energy", "status", "--json"])).json();
    wait_until(|| energy()["applications"][0]["cpu_time_ns"].as_u64() > Some(0));
    let amounts = energy()["applications"][0]["energy"].as_array().cloned().unwrap();
    let by_model = amounts.iter().find(|amount| amount["source"] == "model").unwrap();
    assert!(by_model["joules"].as_f64() > Some(0.0), "{amounts:?}");
    let status = || Answer::of(qfabric(folder.path()).args(["status", "--json"])).json();
    // The command asks to save after the application was admitted.
    wait_until(|| status()["applications"][0]["energy"].is_object());
    let saving = &status()["applications"][0]["energy"];
    assert!(saving["limited"] == false && saving["clock_part"].as_f64() > Some(0.0), "{saving}");
    Answer::of(qfabric(folder.path()).arg("status")).expect(0, &["energy: application 1", "of the highest clock"]);
    signal(&program, Signal::TERM);
    let ended = Answer::from(program.wait_with_output().unwrap());
    // No clock is limited without `clocks = true`.
    ended.expect(143, &["qfabric: energy: ", "the clocks stay as they are"]);
    wait_until(|| energy()["ended"][0]["source"].is_string());
}

#[test]
fn a_host_without_a_meter_is_not_calibrated() {
    let folder = tempfile::tempdir().unwrap();
    let has_meter = Answer::of(qfabric(folder.path()).args(["doctor", "--json"])).out.contains("(rapl)");
    if !has_meter {
        answer("energy calibrate").expect(4, &["no meter to calibrate with", "try: "]);
    }
    answer("energy calibrate --seconds 0").expect(2, &["1..=60"]);
    answer("energy calibrate --out /nowhere/x.toml").expect(2, &["/nowhere/x.toml"]);
}

#[test]
fn limits_are_shown_and_changed_and_a_wrong_one_is_named() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "[limits]\ncapacity = 0.5\n[limits.users]\n1000 = 0.2\n");
    let limits = |line: &str| Answer::of(qfabric(folder.path()).arg("limits").args(line.split_whitespace()));
    limits("").expect(0, &["user 1000", "0.2 CPU", "0.5 CPU"]);
    limits("set --user 1000=none --user 1001=30% --level 9=0.4").expect(0, &["user 1001", "0.3 CPU", "level 9"]);
    let now = limits("show --json").json();
    assert_eq!(now["users"], serde_json::json!({"1001": 0.3}));
    limits("set --level 10=0.4").expect(2, &["limits.levels is 10", "0 (last) to 9 (first)"]);
    limits("set --user root=0.4").expect(2, &["root=0.4", "1000=0.5"]);
    limits("set").expect(2, &["required"]);
    assert_eq!(limits("show --json").json(), now, "what is refused changes nothing");
}

#[test]
fn a_program_that_cannot_be_started_ends_as_in_a_shell() {
    answer("run --fps 25 -- no-such-program").expect(127, &["no-such-program: not found"]);
    answer("run --fps 25 -- /etc/passwd").expect(126, &["/etc/passwd: cannot be executed"]);
    answer("run --fps 25 -- /").expect(126, &["cannot be executed"]);
    answer("probe --fps 25 -- no-such-program").expect(127, &["not found"]);
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    let proof = folder.path().join("it-ran");
    let touch = format!("touch {}", proof.display());
    Answer::of(&mut sh(folder.path(), "run --fps 25 --report /nowhere/r.json", &touch)).expect(2, &["/nowhere/r.json"]);
    assert!(!proof.exists());
}

#[test]
fn the_report_has_one_row_with_the_documented_keys() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let options = "run --period 20ms --name sleeper --quiet --report -";
    let rows = Answer::of(&mut sh(folder.path(), options, "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.1; done")).json();
    assert_eq!(rows.as_array().unwrap().len(), 1, "{rows}");
    assert_eq!(rows[0]["policy"], "sleeper");
    for key in "jobs misses in_target mean_error sd_error mean_bandwidth sd_bandwidth jitter_p99_ns".split(' ') {
        assert!(rows[0][key].is_number(), "{key}: {rows}");
    }
    assert!(rows[0]["jobs"].as_u64().unwrap() > 3, "{rows}");
}

/// A shell works in the background: its reservation counts, and all values about jobs are null.
#[test]
fn a_report_without_a_period_has_the_bandwidth_of_the_whole_program_and_no_jobs() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    // The mean of seven threads, of which six sleep, is a seventh of the sum.
    let script = "s=; for i in 1 2 3 4 5 6; do sleep 100 & s=\"$s $!\"; done
        n=0; while [ $n -lt 1000000 ]; do n=$((n+1)); done; kill $s";
    let answer = Answer::of(&mut sh(folder.path(), "run --max-bandwidth 0.8 --report -", script));
    answer.expect(0, &["no period: no jobs to count", "CPU reserved on average"]);
    let row = &answer.json()[0];
    for key in "misses in_target mean_error sd_error jitter_p99_ns".split(' ') {
        assert!(row[key].is_null(), "{key}: {row}");
    }
    assert_eq!(row["jobs"], 0);
    // A reservation follows the use from nothing, and while CPUs idle the program uses more than it has reserved.
    let reserved = row["mean_bandwidth"].as_f64().unwrap();
    let used = answer.err.split_once("on average, ").and_then(|(_, rest)| rest.split_once(" CPU used")).unwrap().0;
    let used: f64 = used.parse().unwrap();
    assert!(used > 0.0 && reserved >= used / 4.0, "{used} CPU used, {row}");
}

#[test]
fn the_program_is_under_its_reservation_from_its_first_instruction() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    // Field 41 of /proc/self/stat, counted from the bracket behind the name.
    let script = "read -r stat < /proc/self/stat; set -- ${stat##*) }; shift 38; echo policy $1";
    Answer::of(&mut sh(folder.path(), "run --period 20ms", script)).expect(0, &["policy 6"]);
}

#[test]
fn an_interrupt_reaches_the_program_and_all_reservations_end() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    // The grandchild outlives both processes. It must not keep its reservation.
    let script = format!("sleep 60 >&- 2>&- & echo $! > {}; wait", pid_file.display());
    let mut command = sh(folder.path(), "run --period 20ms --quiet", &script);
    let mut run = command.stdin(Stdio::null()).spawn().unwrap();
    let orphan = || std::fs::read_to_string(&pid_file).ok()?.trim().parse::<i32>().ok();
    wait_until(|| orphan().and_then(policy) == Some(DEADLINE));
    signal(&run, Signal::TERM);
    assert_eq!(run.wait().unwrap().code(), Some(143));
    let orphan = orphan().unwrap();
    assert_eq!(policy(orphan), Some(0), "the orphan is still under a reservation");
    kill_process(Pid::from_raw(orphan).unwrap(), Signal::KILL).unwrap();
}

/// Does the same as cyclictest at its start: switches to SCHED_FIFO and back with the old interface.
const TO_FIFO_AND_BACK: &str = "import os,sys\n\
    old, par = os.sched_getscheduler(0), os.sched_getparam(0)\n\
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))\n\
    try: os.sched_setscheduler(0, old, par)\n\
    except OSError: sys.exit(1)\n";

/// Waits, for two minutes at most, until it is under SCHED_DEADLINE, and half a second more.
const UNTIL_RESERVED: &str = "import time\n\
    for _ in range(2400):\n    \
        if os.sched_getscheduler(0) & 7 == 6: break\n    \
        time.sleep(0.05)\n\
    time.sleep(0.5)\n";

#[test]
fn the_failure_of_a_program_that_sets_its_scheduling_names_after_and_after_helps() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let python = |options: &str, script: &str| {
        let mut command = qfabric(folder.path());
        Answer::of(command.args(options.split_whitespace()).args(["--", "python3", "-c", script]))
    };
    python("run --fps 25", TO_FIFO_AND_BACK).expect(1, &["put itself under SCHED_FIFO", "EINVAL", "--after 500ms"]);
    let then_wait = format!("{TO_FIFO_AND_BACK}{UNTIL_RESERVED}");
    // On a starving machine, Python needs more than a second to start.
    let attempts = ["1s", "10s"].map(|after| format!("run --fps 25 --after {after}"));
    let answer = attempts.iter().map(|options| python(options, &then_wait)).find(|answer| answer.code == 0);
    answer.expect("it is reserved after its start").expect(0, &["reserved on average"]);
    let report = folder.path().join("report.json");
    let with_report = format!("run --after 30s --report {}", report.display());
    python(&with_report, "pass").expect(0, &["ended within 30 s, before it was reserved"]);
    let rows: Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    assert_eq!((&rows[0]["policy"], &rows[0]["jobs"]), (&"python3".into(), &0.into()), "{rows}");
}

#[test]
fn a_real_time_program_that_an_interrupt_ends_did_not_fail() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let is_fifo = folder.path().join("is-fifo");
    let script = format!(
        "import os,time; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)); open('{}', 'w'); time.sleep(60)",
        is_fifo.display()
    );
    let mut command = qfabric(folder.path());
    command.args(["run", "--fps", "25", "--", "python3", "-c", &script]).stderr(Stdio::piped());
    let run = command.spawn().unwrap();
    wait_until(|| is_fifo.exists());
    signal(&run, Signal::INT);
    let ended = run.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    let text = String::from_utf8_lossy(&ended.stderr);
    assert!(!text.contains("EINVAL") && !text.contains("failed"), "{text}");
}

#[test]
fn a_program_that_is_refused_after_its_start_is_ended() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "[limits]\ncapacity = 0.3\n");
    let proof = folder.path().join("it-went-on");
    // The streams are closed because an orphan that held the pipe would make the test wait.
    let script = format!("sleep 60 >&- 2>&-; touch {}", proof.display());
    let options = "run --fps 25 --class A --guaranteed 0.5 --after 100ms";
    Answer::of(&mut sh(folder.path(), options, &script)).expect(3, &["0.5 CPU"]);
    assert!(!proof.exists());
}

#[test]
fn a_daemon_is_found_and_its_status_has_the_documented_keys() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "");
    let mut run = sh(folder.path(), "run --fps 25 --class A --guaranteed 0.1", "exec sleep 60").spawn().unwrap();
    let status = || Answer::of(qfabric(folder.path()).args(["status", "--json"])).json();
    wait_until(|| status()["applications"].as_array().unwrap().len() == 1);
    let status = status();
    let app = &status["applications"][0];
    assert_eq!((&app["contract"]["name"], &app["contract"]["class"]), (&"sh".into(), &"A".into()), "{app}");
    for (key, is) in [
        ("version", Value::is_string as fn(&Value) -> bool),
        ("mechanism", Value::is_string),
        ("capacity", Value::is_number),
        ("guaranteed", Value::is_number),
        ("granted", Value::is_number),
    ] {
        assert!(is(&status[key]), "{key}: {status}");
    }
    for key in ["id", "pid", "guaranteed", "wanted", "granted", "used"] {
        assert!(app[key].is_number(), "{key}: {app}");
    }
    Answer::of(qfabric(folder.path()).arg("status")).expect(0, &["mechanism deadline", "sh", "40 ms"]);
    signal(&run, Signal::INT);
    assert_eq!(run.wait().unwrap().code(), Some(130));
}

#[test]
fn a_refusal_names_the_requested_and_the_free_share_and_the_holder_of_the_rest() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "[limits]\ncapacity = 0.3\n");
    let mut holder =
        sh(folder.path(), "run --fps 25 --class B --guaranteed 0.25 --name holder", "exec sleep 60").spawn().unwrap();
    wait_until(|| Answer::of(qfabric(folder.path()).arg("status")).out.contains("holder"));
    let proof = folder.path().join("it-ran");
    let touch = format!("touch {}", proof.display());
    let refused = Answer::of(&mut sh(folder.path(), "run --fps 25 --class A --guaranteed 0.2", &touch));
    refused.expect(3, &["0.2 CPU", "0.05 CPU", "holder", "0.25 CPU"]);
    assert!(!proof.exists(), "the program ran without its contract");
    signal(&holder, Signal::TERM);
    assert_eq!(holder.wait().unwrap().code(), Some(143));
}

#[test]
fn doctor_reports_findings_with_state_and_reason() {
    let _lock = qfabric_linux::testing::live_lock();
    let doctor = answer("doctor --json");
    let json = doctor.json();
    assert_eq!(doctor.code, if json["facts"]["mechanism"].is_null() { 4 } else { 0 });
    for finding in json["findings"].as_array().unwrap() {
        assert!(finding["name"].is_string() && finding["reason"].is_string(), "{finding}");
        assert!(
            ["ok", "warn", "missing", "unknown", "absent"].contains(&finding["state"].as_str().unwrap()),
            "{finding}"
        );
    }
    for name in ["hrtick_dl", "cap_sys_nice"] {
        assert!(
            json["findings"].as_array().unwrap().iter().any(|f| f["name"] == name),
            "doctor does not examine {name}"
        );
    }
}

#[test]
fn a_wrong_configuration_is_refused_with_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("daemon.toml");
    std::fs::write(&file, "[limits]\ncapcity = 1\n").unwrap();
    let check = || Answer::of(qfabric(folder.path()).args(["daemon", "--check", "--config"]).arg(&file));
    check().expect(2, &["daemon.toml", "capcity", "capacity"]);
    std::fs::write(&file, "[limits]\ncapacity = 1\n").unwrap();
    check().expect(0, &[]);
}

/// The program must never have run.
#[test]
fn impossible_windows_and_services_are_refused_before_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    for (options, named) in [
        ("--period 40ms --service 10ms --window 5/5", "5/5 lets every period be missed"),
        ("--period 40ms --service 10ms --window 1/0", "1/0 counts over no period"),
        ("--period 40ms --service 50ms", "service 50 ms is longer than the period 40 ms"),
        ("--service 10ms", "--fps"),
        ("--period 40ms --controller kernel --predictor hint:24", "ma:N and mma:N,S"),
    ] {
        let ran = folder.path().join("ran");
        let script = format!("touch {}", ran.display());
        let answer = Answer::of(&mut sh(folder.path(), &format!("run --mechanism ext {options}"), &script));
        answer.expect(2, &[named]);
        assert!(!ran.exists(), "{options}");
    }
}

#[test]
fn without_sched_ext_the_refusal_of_ext_gives_the_reason() {
    let Err(why) = qfabric_linux::ext::Ext::supported() else { return };
    let _lock = qfabric_linux::testing::live_lock();
    let folder = tempfile::tempdir().unwrap();
    let options = "run --mechanism ext --period 40ms --service 10ms --window 1/5";
    let answer = Answer::of(&mut sh(folder.path(), options, "true"));
    answer.expect(4, &["qfabric doctor"]);
    if answer.err.contains("CAP_SYS_NICE") {
        return;
    }
    let refusal = why.problem();
    let next_step = format!("try: {}", refusal.next_step);
    assert!(answer.err.contains(&refusal.message) && answer.err.contains(&next_step), "{answer:?} does not say {why}");
    let directory = folder.path().to_str().unwrap();
    Answer::of(qfabric(folder.path()).args(["daemon", "--mechanism", "ext", "--directory", directory]))
        .expect(4, &[&refusal.message, &next_step]);
}

#[test]
fn the_dispatcher_serves_a_fixed_service_and_refuses_feedback_with_the_option_to_use() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let fixed = "run --mechanism dispatcher --period 100ms --service 40ms";
    Answer::of(&mut sh(folder.path(), fixed, "sleep 1")).expect(0, &["periods of 100 ms", "underruns"]);
    Answer::of(&mut sh(folder.path(), "run --mechanism dispatcher --fps 25", "true")).expect(4, &["--service TIME"]);
    let finer = "run --mechanism dispatcher --period 5ms --service 1ms";
    Answer::of(&mut sh(folder.path(), finer, "true")).expect(3, &["shorter than a slot of 10 ms"]);
}

#[test]
fn a_daemon_with_the_named_setting_gives_a_pinned_program_its_slots() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let options = format!(
        "run --socket {} --mechanism dispatcher --period 100ms --service 40ms",
        folder.path().join("qfabric/qfabric.sock").display()
    );
    let pinned = "taskset -cp 0 $$ >/dev/null; sleep 1";
    let daemon = Daemon::start(folder.path(), "[mechanism]\nname = \"deadline\"\n");
    let setting = "mechanism.name = \"dispatcher\"";
    Answer::of(&mut sh(folder.path(), &options, pinned)).expect(4, &[setting]);
    drop(daemon);
    let _daemon = Daemon::start(folder.path(), setting);
    Answer::of(&mut sh(folder.path(), &options, pinned)).expect(0, &["periods of 100 ms"]);
}

/// What a refusal suggests for a window, under this kernel and with these rights.
fn other_for_windows() -> &'static str {
    let others = qfabric_linux::alternatives("deadline", qfabric_types::DispatchRules::default());
    match others.iter().any(|(name, _)| *name == qfabric_types::MechanismName::Ext) {
        true => "use --mechanism ext",
        false => "no other mechanism of this machine",
    }
}

#[test]
fn a_daemon_with_deadline_refuses_a_window_and_top_prints_json() {
    let Some(_lock) = live() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "[mechanism]\nname = \"deadline\"\n");
    let socket = folder.path().join("qfabric").join("qfabric.sock");
    let windowed = format!("run --socket {} --period 40ms --service 10ms --window 1/5", socket.display());
    Answer::of(&mut sh(folder.path(), &windowed, "true"))
        .expect(4, &["deadline cannot give a window", other_for_windows()]);
    let forced = format!("run --socket {} --mechanism ext --fps 25", socket.display());
    Answer::of(&mut sh(folder.path(), &forced, "true")).expect(4, &["ext is required, but the daemon uses deadline"]);
    let top = ["top", "--json", "--count", "2", "--every", "50ms", "--socket", socket.to_str().unwrap()];
    let answer = Answer::of(qfabric(folder.path()).args(top));
    answer.expect(0, &[]);
    let looks: Vec<Value> = answer.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(looks.len() == 2 && looks.iter().all(|look| look["mechanism"] == "deadline"), "{answer:?}");
}

/// A user of the daemon needs no rights.
#[test]
fn doctor_shows_an_ordinary_user_the_rights_of_the_daemon() {
    let Some(_lock) = live() else { return };
    if !rustix::process::geteuid().is_root() {
        return qfabric_linux::testing::skip("only root may become another user");
    }
    let folder = tempfile::tempdir().unwrap();
    let _daemon = Daemon::start(folder.path(), "");
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.path().join("program");
    std::fs::copy(env!("CARGO_BIN_EXE_qfabric"), &program).unwrap();
    let as_nobody = |word: &str| {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program).args(["doctor", word]);
        command.env("QFABRIC_SOCKET", folder.path().join("qfabric/qfabric.sock"));
        Answer::of(&mut command)
    };
    let doctor = as_nobody("--json");
    doctor.expect(0, &["the daemon reserves for you"]);
    let json = doctor.json();
    assert_eq!(json["daemon"]["mechanism"], "deadline");
    for finding in json["findings"].as_array().unwrap() {
        let of_rights = finding["reason"].as_str().unwrap().contains("CAP_SYS_NICE");
        assert!(finding["state"] != "missing" || !of_rights, "{finding}");
    }
}
