//! Plays one short round of each kind on this machine, with the real player and small clips.
//!
//! The tests check that every job is recorded and that all changes are undone. The quality of a policy is measured
//! by the demo, on a machine without other load.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use qfabric_demo::children::{Hogs, Interrupted, Stop};
use qfabric_demo::clips::Clip;
use qfabric_demo::live::{Run, Stage};
use qfabric_demo::policy::{self, Knowledge, Policy, RoundSettings, Skip};
use qfabric_demo::record::{JobLine, RunRecord};
use qfabric_demo::scenes::Size;
use qfabric_demo::trial::Trace;
use qfabric_demo::{Silent, rows, trial};
use qfabric_types::{Nanos, Share};

/// Builds the player in the folder of this test, with the same profile.
fn player() -> &'static Path {
    static PLAYER: OnceLock<PathBuf> = OnceLock::new();
    PLAYER.get_or_init(|| {
        let folder = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "-q", "-p", "qfabric-player", "--target-dir"]).arg(folder.parent().unwrap());
        if folder.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "qfabric-player does not build");
        folder.join("qfabric-player")
    })
}

/// Release of the second player's jobs after those of the first, in periods.
const PHASE: f64 = 0.3;

struct World {
    folder: tempfile::TempDir,
    clips: [Clip; 2],
    traces: Vec<Trace>,
    trace_files: [PathBuf; 2],
    hogs: Hogs,
    stop: Stop,
}

impl World {
    /// Two clips of 50 small frames with their trial executions, and two hogs.
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let clips = ["testsrc2", "mandelbrot"].map(|source| clip(folder.path(), source));
        let trace_files = [0, 1].map(|i| folder.path().join(format!("trace{i}.txt")));
        let stop = Stop::never();
        let paths = [clips[0].path.clone(), clips[1].path.clone()];
        let traces = trial::run(player(), &paths, &trace_files, &stop).unwrap();
        World { clips, traces, trace_files, hogs: Hogs::start(player(), 2).unwrap(), stop, folder }
    }

    fn round(&self, shifts: bool, policy: Policy, socket: &Path) -> anyhow::Result<RunRecord> {
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
        let releases = vec![0.0, PHASE];
        let run = Run { scenario: "test".into(), policy, jobs: 30, shifts, hogs: true, releases, cycle: 0 };
        let record = stage.run(&run, &settings(), &mut Silent)?;
        assert!(record.players.iter().all(|p| p.lines.len() <= 30));
        Ok(record)
    }

    fn run(&self, shifts: bool, policy: Policy, socket: &Path) -> anyhow::Result<rows::Row> {
        self.round(shifts, policy, socket).map(|record| rows::row(&[&record]))
    }
}

fn clip(folder: &Path, source: &str) -> Clip {
    let path = folder.join(format!("{source}.mkv"));
    let made = Command::new("ffmpeg")
        .args(["-v", "error", "-f", "lavfi", "-i", &format!("{source}=s=176x144:r=25"), "-frames:v", "50"])
        .args(["-pix_fmt", "yuv420p", "-c:v", "mpeg2video", "-g", "12", "-bf", "2", "-threads", "1"])
        .arg(&path)
        .status()
        .expect("the program ffmpeg is not installed; try: apt-get install ffmpeg");
    assert!(made.success());
    Clip { name: source.into(), title: source.into(), path, size: Size(5), frames: 50 }
}

fn settings() -> RoundSettings {
    RoundSettings {
        period: Nanos::from_millis(40),
        server_period: Nanos::from_millis(10),
        capacity: Share::from_ppm(200_000),
        players: 2,
        soft_share: Share::from_ppm(100_000),
        early: 0.25,
        mean_share: 0.05,
        contract: Vec::new(),
    }
}

#[test]
fn players_without_a_reservation_leave_a_row_without_bandwidth() {
    let world = World::new();
    let row = world.run(true, Policy::Plain, Path::new("")).unwrap();
    assert_eq!((row.jobs, row.players, row.hogs), (2 * (30 - 12), 2, 2));
    assert!(row.mean_bandwidth.is_none() && row.mean_demand > 0.0 && row.jitter_p99_ns > 0);
}

#[test]
fn a_round_records_its_surroundings() {
    let world = World::new();
    let round = world.round(false, Policy::Plain, Path::new("")).unwrap();
    assert!(!round.around.steal.is_empty() && round.around.speed.is_some_and(|speed| speed > 0.0));
    for (player, phase) in round.players.iter().zip([0.0, PHASE]) {
        let release = |line: &JobLine| line.job.release.since(round.start).as_f64() / round.period.as_f64();
        assert!(player.lines.iter().all(|line| (release(line) - line.job.k as f64 - phase).abs() < 1e-6));
        let late = rows::points(&round, player).iter().map(|point| point.error).fold(f64::MAX, f64::min);
        assert!(late > -1.0, "a job never ends before its release: {late}");
    }
    assert!(round.around.run_delay >= 0.0 && (0.0..=1.0).contains(&round.around.foreign));
}

#[test]
fn skipped_frames_count_as_missed() {
    let world = World::new();
    let policy = policy::skipping(policy::equal_shares(true), Skip::Predicted);
    assert!(policy.predicts() && !policy.is_qfabric());
    // No frame fits into this budget: every B frame is late and is not decoded.
    let starved = RoundSettings { capacity: Share::from_ppm(4_000), ..settings() };
    if !qfabric_linux::testing::may_reserve() {
        return;
    }
    let _live = qfabric_linux::testing::live_lock();
    let releases = Vec::new();
    let run = Run { scenario: "test".into(), policy, jobs: 30, shifts: false, hogs: true, releases, cycle: 0 };
    let stage = Stage {
        player: player(),
        clips: &world.clips,
        traces: &world.traces,
        trace_files: &world.trace_files,
        folder: world.folder.path(),
        hogs: &world.hogs,
        socket: Path::new(""),
        stop: &world.stop,
    };
    let record = stage.run(&run, &starved, &mut Silent).unwrap();
    let lines = || record.players.iter().flat_map(|player| &player.lines);
    assert!(lines().all(|line| !line.skipped || line.kind == 'B'), "a frame that other frames need was skipped");
    let row = rows::row(&[&record]);
    assert!(row.skipped <= row.misses && row.misses <= row.jobs, "{row:?}");
}

#[test]
fn static_and_tuned_reservations_leave_rows_with_bandwidth() {
    if !qfabric_linux::testing::may_reserve() {
        return;
    }
    let _live = qfabric_linux::testing::live_lock();
    let world = World::new();
    let row = world.run(false, policy::equal_shares(false), Path::new("")).unwrap();
    assert!((row.mean_bandwidth.unwrap() - 0.1).abs() < 1e-6 && row.sd_bandwidth.unwrap() < 1e-9);

    let daemon = qfabric_daemon::Embedded::start(qfabric_daemon::Config::default()).unwrap();
    for tuned in [policy::headline(), policy::qfabric(Knowledge::Oracle, true)] {
        let row = world.run(true, tuned, daemon.socket()).unwrap();
        assert!(row.mean_bandwidth.unwrap() > 0.0 && row.jobs == 36, "{row:?}");
    }
}

#[test]
fn an_interrupted_run_leaves_no_child() {
    let world = World::new();
    world.stop.0.store(true, Ordering::Relaxed);
    let error = world.run(true, Policy::Plain, Path::new("")).unwrap_err();
    assert!(error.is::<Interrupted>(), "{error:#}");
    let hogs = world.hogs.ids();
    drop(world);
    assert!(hogs.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));
}
