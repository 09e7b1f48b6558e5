//! Short rounds of the demo under the mechanism `ext`, with the real player and a small clip, and their report. They run
//! in the test machine (`make vm-test`). The test checks the structure of the report; the demo measures the quality.

use std::path::{Path, PathBuf};
use std::process::Command;

use qfabric_client::Client;
use qfabric_daemon::{Config, Embedded, Fallback};
use qfabric_demo::children::{Hogs, Stop};
use qfabric_demo::clips::Clip;
use qfabric_demo::live::{Run, Stage};
use qfabric_demo::plan::Scenario;
use qfabric_demo::policy::{self, Policy, RoundSettings, Skip};
use qfabric_demo::record::{JobLine, RunRecord};
use qfabric_demo::report::{Agenda, Machine, Measured, Report};
use qfabric_demo::scenes::Size;
use qfabric_demo::trial::{self, Trace};
use qfabric_demo::{MechanismName, Silent};
use qfabric_linux::ext::Ext;
use qfabric_linux::testing::{live_lock, skip};
use qfabric_types::{Nanos, Share};
use serde_json::Value;

/// Jobs of each player in a round, the warm-up included.
const JOBS: usize = 30;
const PLAYERS: u32 = 2;

fn player() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_qfabric-player"))
}

/// A clip of 50 small frames, a third of which no other frame needs.
fn clip(folder: &Path) -> Clip {
    let path = folder.join("small.mkv");
    let made = Command::new("ffmpeg")
        .args(["-v", "error", "-f", "lavfi", "-i", "testsrc2=s=176x144:r=25", "-frames:v", "50"])
        .args(["-pix_fmt", "yuv420p", "-c:v", "mpeg2video", "-g", "12", "-bf", "2", "-threads", "1"])
        .arg(&path)
        .status()
        .expect("the program ffmpeg is not installed; try: apt-get install ffmpeg");
    assert!(made.success());
    Clip { name: "small".into(), title: "small".into(), path, size: Size(5), frames: 50 }
}

fn settings() -> RoundSettings {
    RoundSettings {
        period: Nanos::from_millis(40),
        server_period: Nanos::from_millis(10),
        capacity: Share::from_ppm(400_000),
        players: PLAYERS,
        soft_share: Share::from_ppm(200_000),
        early: 0.25,
        mean_share: 0.05,
        contract: Vec::new(),
    }
}

/// The service under `ext`, as the demo starts it.
fn service() -> Embedded {
    let mut config = Config::default();
    config.mechanism.name = MechanismName::Ext;
    config.mechanism.fallback = Fallback::None;
    Embedded::start(config).unwrap()
}

/// The clip with its trial execution, and two hogs.
struct World {
    folder: tempfile::TempDir,
    clips: [Clip; 1],
    traces: Vec<Trace>,
    trace_files: [PathBuf; 1],
    hogs: Hogs,
    stop: Stop,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let clips = [clip(folder.path())];
        let trace_files = [folder.path().join("trace.txt")];
        let stop = Stop::never();
        let traces = trial::run(player(), &[clips[0].path.clone()], &trace_files, &stop).unwrap();
        World { folder, clips, traces, trace_files, hogs: Hogs::start(player(), 2).unwrap(), stop }
    }

    fn round(&self, policy: Policy, socket: &Path) -> RunRecord {
        let stage = Stage {
            player: player(),
            clips: &self.clips,
            traces: &self.traces,
            trace_files: &self.trace_files,
            folder: self.folder.path(),
            hogs: &self.hogs,
            socket,
            stop: &self.stop,
        };
        let scenario = Scenario::Shift.name().to_owned();
        let run = Run { scenario, policy, jobs: JOBS, shifts: false, hogs: true, releases: Vec::new(), cycle: 0 };
        stage.run(&run, &settings(), &mut Silent).unwrap()
    }
}

/// The report of these rounds.
fn report(records: Vec<RunRecord>) -> Report {
    let agenda = Agenda {
        rows: records.iter().map(|round| (round.scenario.clone(), round.policy.clone())).collect(),
        rounds: records.len(),
        left_out: Vec::new(),
        cells: Vec::new(),
        seed: 1,
    };
    let machine = Machine { cpus: 1, mechanism: MechanismName::Ext.to_string(), ..Machine::default() };
    Report::new(Measured { records, missing: Vec::new(), machine, clips: Vec::new(), loads: Vec::new() }, &agenda)
}

fn check_json(summary: &Value, policies: &[Policy]) {
    let rows = summary["rows"].as_array().unwrap();
    let labels: Vec<&str> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(labels, policies.iter().map(Policy::label).collect::<Vec<_>>());
    for row in rows {
        let number = |key: &str| row[key].as_u64().unwrap_or_else(|| panic!("{key}: {row}"));
        assert_eq!((number("jobs"), number("players"), number("hogs")), (2 * (JOBS as u64 - 12), 2, 2));
        assert!(number("skipped") <= number("misses") && number("misses") <= number("jobs"), "{row}");
    }
    let verdicts = summary["verdicts"].as_array().unwrap();
    let claims: Vec<&str> = verdicts.iter().map(|verdict| verdict["claim"].as_str().unwrap()).collect();
    assert!(claims.iter().all(|claim| claim.starts_with("under ext, ")), "{claims:?}");
    assert!(claims.iter().any(|claim| claim.contains("one soft server per job")), "{claims:?}");
    assert!(verdicts.iter().all(|verdict| verdict["state"] == "disturbed"), "36 jobs are too few for a verdict");
    assert_eq!(summary["complete"], true);
    assert_eq!(summary["machine"]["mechanism"], "ext");
}

#[test]
fn the_policies_play_under_ext_and_every_job_is_in_the_report() {
    let _lock = live_lock();
    if let Err(why) = Ext::supported() {
        skip(why.to_string());
        return;
    }
    let world = World::new();
    let skips = policy::skipping(policy::soft(), Skip::Predicted);
    let policies = [policy::equal_shares(true), policy::headline(), policy::soft(), skips];
    let mut records = vec![world.round(policies[0].clone(), Path::new(""))];
    let service = service();
    records.extend(policies[1..].iter().map(|policy| world.round(policy.clone(), service.socket())));
    let status = Client::connect_to(service.socket()).unwrap().status().unwrap();
    assert_eq!((status.mechanism.as_str(), status.fallback), ("ext", None), "until the last round");
    for round in &records[2..] {
        let lines = || round.players.iter().flat_map(|player| &player.lines);
        let mut served = lines().filter(|line| line.bandwidth().is_some()).peekable();
        assert!(served.peek().is_some(), "no job was served by a server: {round:?}");
        let is_soft = |line: &JobLine| (line.server_period_ns, line.budget_ns) == (round.period, Nanos::from_millis(8));
        assert!(served.all(is_soft), "one server period per job, with the same share: {round:?}");
        assert!(lines().all(|line| !line.skipped || line.kind == 'B'), "a frame that other frames need was skipped");
    }
    assert!(records[2].players.iter().all(|player| player.lines.iter().all(|line| !line.skipped)));
    let summary: Value = serde_json::from_str(&report(records).summary_json().unwrap()).unwrap();
    check_json(&summary, &policies);
}
