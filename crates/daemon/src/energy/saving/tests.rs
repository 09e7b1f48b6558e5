//! The clock of applications that save energy, on trees of files.

use proptest::prelude::*;
use qfabric_energy::Model;
use qfabric_linux::testing::power::PowerTree;
use qfabric_types::{Nanos, Reservation, Share};

use super::*;
use crate::metrics::tests::application;

const CPUFREQ: &str = "devices/system/cpu/cpufreq/policy0";

/// An application whose thread has `budget` ms in every 10 ms.
fn app(id: u64, budget: u64) -> Application {
    let reservation = Reservation::new(Nanos::from_millis(budget), Nanos::from_millis(10)).unwrap();
    let thread = qfabric_types::api::ThreadStatus { tid: ThreadId(77), reservation: Some(reservation) };
    let mut app = Application { threads: vec![thread], granted: reservation.share(), ..application(id) };
    // No process has this id: its threads are none.
    app.pid = i32::MAX;
    app.quality.misses = 0;
    app
}

fn saving(tree: &PowerTree, allowed: bool) -> Saving {
    let (sys, root) = (tree.root().to_owned(), tree.root().to_owned());
    let config = EnergyConfig { clocks: allowed, sys, root, ..EnergyConfig::default() };
    let cpu = Model::shipped("x86-server").unwrap().cpu;
    Saving::new(&config, cpu, 2, &tree.root().join("run"))
}

fn tree() -> (tempfile::TempDir, PowerTree) {
    let folder = tempfile::tempdir().unwrap();
    let tree = PowerTree::new(folder.path());
    tree.clock("policy0", 3_000_000, (800_000, 3_000_000));
    (folder, tree)
}

fn most(tree: &PowerTree) -> String {
    tree.get(&format!("{CPUFREQ}/scaling_max_freq"))
}

#[test]
fn the_clock_is_the_lowest_that_all_reservations_need_and_comes_back() {
    let (_folder, tree) = tree();
    let mut saving = saving(&tree, true);
    let other = app(2, 1);
    let state = saving.begin(&app(1, 4), &[app(1, 4), other.clone()]);
    // 0.4 CPU / 0.95 of 3 GHz are 1.26 GHz.
    assert_eq!((state.limited, state.clock_part), (true, 1.3 / 3.0));
    assert_eq!(most(&tree), "1300000");
    saving.look(&[app(1, 4), other.clone()]);
    saving.look(&[app(1, 8), other.clone()]);
    assert_eq!(most(&tree), "1300000", "measured at less than half the clock, the jobs take twice as long");
    let mut fixed = app(3, 8);
    fixed.contract.fixed = Some(fixed.granted);
    saving.follow(&[app(1, 8), fixed]);
    assert_eq!(most(&tree), "2600000");
    saving.follow(&[other]);
    assert_eq!((most(&tree), saving.of(AppId(1))), ("3000000".to_owned(), None));
}

#[test]
fn a_killed_service_leaves_a_journal_that_restores_the_clock() {
    let (_folder, tree) = tree();
    tree.set(&format!("{CPUFREQ}/energy_performance_preference"), "performance");
    let mut saving = saving(&tree, true);
    saving.begin(&app(1, 4), &[app(1, 4)]);
    assert_eq!(tree.get(&format!("{CPUFREQ}/energy_performance_preference")), "balance_power");
    assert_eq!(tree.get(&format!("{CPUFREQ}/scaling_min_freq")), "1300000");
    drop(saving);
    let restored = power::restore(&tree.root().join("run")).unwrap();
    assert_eq!((restored.settings, restored.failed.len()), (3, 0), "{restored:?}");
    assert_eq!(tree.get(&format!("{CPUFREQ}/energy_performance_preference")), "performance");
    assert_eq!(tree.get(&format!("{CPUFREQ}/scaling_min_freq")), "800000");
    assert_eq!(most(&tree), "3000000");
}

#[test]
fn a_clock_that_cannot_be_put_back_is_tried_again_at_the_next_look() {
    let (_folder, tree) = tree();
    let mut saving = saving(&tree, true);
    saving.begin(&app(1, 4), &[app(1, 4)]);
    let file = tree.root().join(CPUFREQ).join("scaling_max_freq");
    // A folder exists and cannot be read, as the files of a clock whose CPUs are offline.
    std::fs::rename(&file, file.with_extension("aside")).unwrap();
    std::fs::create_dir(&file).unwrap();
    saving.follow(&[]);
    std::fs::remove_dir(&file).unwrap();
    std::fs::rename(file.with_extension("aside"), &file).unwrap();
    assert_eq!(most(&tree), "1300000");
    saving.look(&[]);
    assert_eq!(most(&tree), "3000000");
}

#[test]
fn of_many_threads_that_refuse_their_clamp_the_first_is_named() {
    let refused =
        |count: usize| -> Vec<String> { (0..count).map(|at| format!("thread {at} is not limited")).collect() };
    assert_eq!(first_of(refused(0)), None);
    assert_eq!(first_of(refused(1)).unwrap(), "thread 0 is not limited");
    assert!(first_of(refused(3)).unwrap().ends_with("; 2 more threads are not limited"));
}

#[test]
fn a_clock_that_another_program_owns_or_that_is_not_allowed_stays() {
    let (_folder, tree) = tree();
    let lack = |saving: &mut Saving| {
        let state = saving.begin(&app(1, 4), &[app(1, 4)]);
        assert!(!state.limited && state.missing[0].starts_with("the clocks stay"), "{state:?}");
        state.missing[0].clone()
    };
    assert!(lack(&mut saving(&tree, false)).contains("clocks = true in [energy]"));
    tree.set("run/tuned/tuned.pid", 812);
    tree.set("proc/812/comm", "tuned");
    assert!(lack(&mut saving(&tree, true)).contains("tuned manages the clocks"));
    tree.remove("devices");
    assert!(lack(&mut saving(&tree, true)).contains("no cpufreq"));
    assert!(!tree.root().join("devices").exists());
}

/// `app` after `late` of `jobs` jobs.
fn after(mut app: Application, jobs: u64, late: u64) -> Application {
    (app.quality.jobs, app.quality.misses) = (jobs, late);
    app
}

/// The limit in MHz after each look with these numbers of late jobs, of 100 jobs each.
fn limits(tree: &PowerTree, saving: &mut Saving, late: &[u64]) -> Vec<u64> {
    let mut sum = 0;
    let looks = late.iter().enumerate().map(|(at, late)| {
        sum += late;
        saving.look(&[after(app(1, 4), 100 * (at as u64 + 1), sum)]);
        most(tree).parse::<u64>().unwrap() / 1_000
    });
    looks.collect()
}

#[test]
fn late_jobs_hold_the_highest_clock_and_let_it_down_in_steps() {
    let (_folder, tree) = tree();
    let mut saving = saving(&tree, true);
    saving.begin(&after(app(1, 4), 0, 0), &[app(1, 4)]);
    let seen = limits(&tree, &mut saving, &[[0, 20].as_slice(), &[0; 13]].concat());
    assert_eq!(seen, [[1_300].as_slice(), &[3_000; 7], &[2_700, 2_400, 2_100, 1_800, 1_500, 1_300, 1_300]].concat());
}

#[test]
fn a_load_that_is_late_at_a_clock_again_and_again_holds_the_highest_longer_each_time() {
    let (_folder, tree) = tree();
    let mut saving = saving(&tree, true);
    saving.begin(&after(app(1, 4), 0, 0), &[app(1, 4)]);
    let (mut jobs, mut sum, mut highest, mut series) = (0, 0, 0, Vec::new());
    for _ in 0..200 {
        let late = if most(&tree) == "3000000" { 0 } else { 50 };
        (jobs, sum) = (jobs + 100, sum + late);
        saving.look(&[after(app(1, 4), jobs, sum)]);
        match most(&tree) == "3000000" {
            true => highest += 1,
            false => series.push(std::mem::take(&mut highest)),
        }
    }
    assert_eq!(series, [7, 13, 25, 49, 97], "looks at the highest clock before each lower one");
}

#[test]
fn requests_between_looks_do_not_cut_the_sample_of_late_jobs_short() {
    let (_folder, tree) = tree();
    let mut saving = saving(&tree, true);
    saving.begin(&after(app(1, 4), 0, 0), &[app(1, 4)]);
    // Four of 100 jobs are late, all among ten of them.
    saving.follow(&[after(app(1, 4), 50, 0)]);
    saving.follow(&[after(app(1, 4), 60, 4)]);
    assert_eq!(most(&tree), "1300000");
    saving.look(&[after(app(1, 4), 100, 4)]);
    assert_eq!(most(&tree), "1300000", "4 % are late");
}

#[test]
fn a_job_that_joins_or_a_grant_that_rises_between_looks_raises_the_clock() {
    let (_folder, tree) = tree();
    let mut saving = saving(&tree, true);
    saving.begin(&app(1, 4), &[app(1, 4)]);
    assert_eq!(most(&tree), "1300000");
    saving.follow(&[app(1, 4), app(2, 8)]);
    assert_eq!(most(&tree), "2600000");
    let grown = |budget| {
        let mut grown = app(2, budget);
        grown.contract.fixed = Some(grown.granted);
        [app(1, 4), grown]
    };
    saving.raise(&grown(9));
    assert_eq!(most(&tree), "2900000");
    saving.raise(&grown(4));
    assert_eq!(most(&tree), "2900000", "only the next look lowers it");
    saving.follow(&[app(1, 4)]);
    assert_eq!(most(&tree), "1300000", "the other one has left");
}

#[test]
fn a_calibrated_model_with_one_level_still_lowers_the_clock_to_frequencies_of_the_host() {
    let (_folder, tree) = tree();
    tree.set(&format!("{CPUFREQ}/scaling_available_frequencies"), "3000000 2200000 1600000 800000");
    let config = EnergyConfig {
        clocks: true,
        sys: tree.root().to_owned(),
        root: tree.root().to_owned(),
        ..EnergyConfig::default()
    };
    let mut cpu = Model::shipped("x86-server").unwrap().cpu;
    cpu.levels.drain(..cpu.highest());
    let mut saving = Saving::new(&config, cpu, 2, &tree.root().join("run"));
    let state = saving.begin(&app(1, 4), &[app(1, 4)]);
    assert_eq!((most(&tree).as_str(), state.clock_part), ("1600000", 1.6 / 3.0));
    saving.follow(&[app(1, 1)]);
    assert_eq!(most(&tree), "800000", "below the lowest level of the model x86-server");
}

#[test]
fn a_grant_without_a_reservation_counts() {
    let mut waiting = app(1, 4);
    waiting.threads.clear();
    waiting.granted = Share::from_ppm(600_000);
    assert_eq!(load(&[waiting.clone(), app(2, 1)], 2, |_| 1.0), 0.6);
    assert_eq!((load(&[waiting], 2, |_| 0.5), load(&[], 2, |_| 1.0)), (0.3, 0.0));
}

proptest! {
    /// The reservation of an adaptive application is measured at the present clock.
    #[test]
    fn the_clock_of_a_constant_load_settles_and_suffices(load in 0.01..0.95f64, adaptive: bool) {
        let mut part = 1.0;
        let mut parts = Vec::new();
        for _ in 0..6 {
            let seen = if adaptive { load / part } else { load };
            let scale = if adaptive { part } else { 1.0 };
            part = next_part(part, seen * scale / USABLE, seen / USABLE);
            parts.push(part);
        }
        prop_assert!(parts[2..].windows(2).all(|two| two[0] == two[1]), "{parts:?}");
        prop_assert!(part >= load / USABLE - 1e-6, "{part} for {load}");
    }
}

/// A checkpoint of a job that takes `left_run` ms more at the present clock, and has `left_time` ms.
fn left(left_run: u64, left_time: u64, levels: u8) -> Checkpoint {
    Checkpoint { k: 1, left_run: Nanos::from_millis(left_run), left_time: Nanos::from_millis(left_time), levels }
}

/// The lower and the upper limit, in MHz.
fn range(tree: &PowerTree) -> (u64, u64) {
    let mhz = |file: &str| tree.get(&format!("{CPUFREQ}/{file}")).parse::<u64>().unwrap() / 1_000;
    (mhz("scaling_min_freq"), mhz("scaling_max_freq"))
}

/// A host whose only application needs 1.3 GHz.
fn saving_one(tree: &PowerTree) -> Saving {
    let mut saving = saving(tree, true);
    saving.begin(&app(1, 4), &[app(1, 4)]);
    assert_eq!(range(tree), (800, 1_300));
    saving
}

const START: Instant = Instant::new(1_000_000_000);

fn later(ms: u64) -> Instant {
    START + Nanos::from_millis(ms)
}

#[test]
fn a_late_job_gets_the_clock_at_which_its_rest_fits_until_its_deadline() {
    let (_folder, tree) = tree();
    let mut saving = saving_one(&tree);
    assert_eq!(saving.end_raises(START), None);
    // 1.3 GHz · 20 / 15 / 0.95 are 1.82 GHz.
    saving.checkpoint(AppId(1), left(20, 15, 0), START);
    assert_eq!(range(&tree), (1_900, 1_900));
    saving.follow(&[app(1, 4)]);
    assert_eq!((range(&tree), saving.of(AppId(1)).unwrap().clock_part), ((1_900, 1_900), 1.3 / 3.0));
    saving.checkpoint(AppId(1), left(20, 10, 0), later(5));
    assert_eq!(range(&tree), (2_800, 2_800));
    assert_eq!(saving.end_raises(later(14)), Some(later(15)));
    assert_eq!((saving.end_raises(later(15)), range(&tree)), (None, (800, 1_300)));
    saving.checkpoint(AppId(1), left(20, 0, 0), later(20));
    assert_eq!((range(&tree), saving.end_raises(later(21))), ((3_000, 3_000), Some(later(40))));
    saving.follow(&[]);
    assert_eq!(range(&tree), (800, 3_000), "it has left");
    assert_eq!(saving.end_raises(later(21)), None);
}

#[test]
fn a_harder_job_gets_levels_of_this_host_and_a_job_in_time_gives_them_back() {
    let (_folder, tree) = tree();
    let mut saving = saving_one(&tree);
    saving.checkpoint(AppId(1), left(5, 500, 2), START);
    assert_eq!(range(&tree), (1_500, 1_500));
    saving.checkpoint(AppId(1), left(5, 400, 0), later(100));
    assert_eq!((saving.end_raises(later(109)), range(&tree)), (Some(later(110)), (1_500, 1_500)));
    assert_eq!((saving.end_raises(later(110)), range(&tree)), (None, (800, 1_300)));
    tree.set(&format!("{CPUFREQ}/scaling_available_frequencies"), "800000 1300000 2200000 3000000");
    saving.follow(&[app(1, 4)]);
    saving.checkpoint(AppId(1), left(5, 500, 1), later(200));
    assert_eq!(range(&tree), (2_200, 2_200));
    saving.checkpoint(AppId(1), left(5, 400, Checkpoint::MAX_LEVELS), later(300));
    assert_eq!(range(&tree), (3_000, 3_000));
}

#[test]
fn a_raise_ends_with_its_job_but_lasts_at_least_10_ms() {
    let (_folder, tree) = tree();
    let mut saving = saving_one(&tree);
    saving.checkpoint(AppId(1), left(20, 15, 0), START);
    saving.checkpoint(AppId(1), left(0, 12, 0), later(3));
    assert_eq!((saving.end_raises(later(9)), range(&tree)), (Some(later(10)), (1_900, 1_900)));
    assert_eq!((saving.end_raises(later(10)), range(&tree)), (None, (800, 1_300)));
    saving.checkpoint(AppId(1), left(200, 150, 0), later(100));
    saving.checkpoint(AppId(1), left(100, 80, 0), later(170));
    assert_eq!((saving.end_raises(later(180)), range(&tree)), (Some(later(250)), (1_900, 1_900)));
    saving.checkpoint(AppId(1), left(0, 60, 0), later(190));
    assert_eq!((saving.end_raises(later(190)), range(&tree)), (None, (800, 1_300)));
}

#[test]
fn checkpoints_say_whether_a_clock_may_change() {
    let (_folder, tree) = tree();
    for allowed in [true, false] {
        let mut saving = saving(&tree, allowed);
        let limited = saving.limited();
        saving.begin(&app(1, 4), &[app(1, 4)]);
        assert_eq!(limited.load(Ordering::Relaxed), allowed);
        saving.follow(&[]);
        assert!(!limited.load(Ordering::Relaxed), "the application has left");
    }
}

#[test]
fn no_checkpoint_holds_a_clock_for_ever_or_turns_it_down_at_once() {
    let (_folder, tree) = tree();
    let mut saving = saving_one(&tree);
    let day = Checkpoint { k: 0, left_run: Checkpoint::LONGEST, left_time: Checkpoint::LONGEST, levels: 10 };
    saving.checkpoint(AppId(1), day, START);
    assert_eq!((saving.end_raises(START), range(&tree)), (Some(later(10_000)), (2_400, 2_400)));
    saving.checkpoint(AppId(1), Checkpoint { left_time: Nanos::new(1), levels: 0, ..day }, START);
    assert_eq!((saving.end_raises(START), range(&tree)), (Some(later(10)), (3_000, 3_000)));
    saving.checkpoint(AppId(1), left(16, 15, 0), START);
    assert_eq!(range(&tree), (3_000, 3_000));
    saving.end_raises(later(15));
    assert_eq!(range(&tree), (800, 1_300));
    saving.checkpoint(AppId(2), left(20, 0, 10), later(20));
    assert_eq!((saving.end_raises(later(20)), range(&tree)), (None, (800, 1_300)), "it does not save energy");
}

#[test]
fn a_clock_that_is_not_limited_stays_at_a_checkpoint() {
    let (_folder, tree) = tree();
    let mut saving = saving(&tree, false);
    saving.begin(&app(1, 4), &[app(1, 4)]);
    saving.checkpoint(AppId(1), left(20, 0, 10), START);
    assert_eq!((saving.end_raises(START), range(&tree)), (None, (800, 3_000)));
}

#[test]
fn a_killed_service_leaves_a_journal_that_restores_a_raised_clock() {
    let (_folder, tree) = tree();
    let mut saving = saving_one(&tree);
    saving.checkpoint(AppId(1), left(20, 0, 0), START);
    drop(saving);
    let restored = power::restore(&tree.root().join("run")).unwrap();
    assert_eq!((restored.settings, restored.failed.len(), range(&tree)), (2, 0, (800, 3_000)), "{restored:?}");
}

#[test]
fn a_processor_that_chooses_its_clock_itself_is_raised_and_comes_back() {
    let (_folder, tree) = tree();
    tree.set(&format!("{CPUFREQ}/energy_performance_preference"), "performance");
    let mut saving = saving(&tree, true);
    saving.begin(&app(1, 4), &[app(1, 4)]);
    assert_eq!(range(&tree), (1_300, 1_300));
    saving.checkpoint(AppId(1), left(20, 15, 0), START);
    assert_eq!(range(&tree), (1_900, 1_900));
    saving.end_raises(later(15));
    assert_eq!(range(&tree), (1_300, 1_300));
}

/// The memory of a scheduler's clock, and its path.
fn scheduler_clock(tree: &PowerTree) -> (SchedulerClock, PathBuf) {
    let path = tree.root().join("clock");
    let memory = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    memory.set_len(8).unwrap();
    (SchedulerClock::map(&memory.into()).unwrap(), path)
}

#[test]
fn the_preference_of_a_clock_that_follows_the_scheduler_comes_back_after_a_late_job() {
    let (_folder, tree) = tree();
    tree.set("kernel/sched_ext/root/ops", "qfabric");
    let preference = format!("{CPUFREQ}/energy_performance_preference");
    tree.set(&preference, "performance");
    let mut saving = saving(&tree, true);
    saving.ask_scheduler(scheduler_clock(&tree).0);
    saving.begin(&app(1, 4), &[app(1, 4)]);
    saving.checkpoint(AppId(1), left(20, 15, 0), START);
    assert_eq!(tree.get(&preference), "balance_power");
    saving.end_raises(later(15));
    assert_eq!((tree.get(&preference), range(&tree)), ("performance".to_owned(), (800, 3_000)));
}

#[test]
fn a_clock_that_follows_the_scheduler_is_asked_for_and_limited_only_for_a_late_job() {
    let (_folder, tree) = tree();
    tree.set("kernel/sched_ext/root/ops", "qfabric");
    let (clock, path) = scheduler_clock(&tree);
    // Parts of 1/1024 of 3 GHz.
    let asked = || u64::from_le_bytes(std::fs::read(&path).unwrap().try_into().unwrap());
    let mut saving = saving(&tree, true);
    saving.ask_scheduler(clock);
    let state = saving.begin(&app(1, 4), &[app(1, 4)]);
    assert_eq!((state.limited, range(&tree), asked()), (true, (800, 3_000), 444));
    assert!(saving.follows_scheduler(), "no thread is clamped");
    saving.checkpoint(AppId(1), left(20, 15, 0), START);
    assert_eq!((range(&tree), asked()), ((1_900, 1_900), 649));
    saving.end_raises(later(15));
    assert_eq!((range(&tree), asked()), ((800, 3_000), 444));
    tree.set("kernel/sched_ext/root/ops", "other");
    saving.follow(&[app(1, 4)]);
    assert_eq!(range(&tree), (800, 1_300), "the kernel has ended the scheduler");
    tree.set("kernel/sched_ext/root/ops", "qfabric");
    tree.set(&format!("{CPUFREQ}/scaling_governor"), "userspace");
    saving.follow(&[app(1, 4)]);
    assert_eq!(range(&tree), (800, 1_300), "this governor does not follow");
    assert!(!saving.follows_scheduler(), "threads are clamped");
    saving.follow(&[]);
    assert_eq!((range(&tree), asked()), ((800, 3_000), 1_024));
}

/// The governor `userspace` at 900 MHz.
fn userspace(tree: &PowerTree) {
    tree.set(&format!("{CPUFREQ}/scaling_governor"), "userspace");
    tree.set(&format!("{CPUFREQ}/scaling_setspeed"), 900_000);
}

fn speed(tree: &PowerTree) -> String {
    tree.get(&format!("{CPUFREQ}/scaling_setspeed"))
}

#[test]
fn under_the_governor_userspace_the_frequency_itself_is_set_and_comes_back() {
    let (_folder, tree) = tree();
    userspace(&tree);
    let mut saving = saving(&tree, true);
    saving.begin(&app(1, 4), &[app(1, 4)]);
    assert_eq!((speed(&tree).as_str(), range(&tree)), ("1300000", (800, 3_000)), "a limit alone would leave 900 MHz");
    saving.checkpoint(AppId(1), left(20, 15, 0), START);
    assert_eq!((speed(&tree).as_str(), range(&tree)), ("1900000", (800, 3_000)));
    saving.end_raises(later(15));
    assert_eq!(speed(&tree), "1300000");
    drop(saving);
    let restored = power::restore(&tree.root().join("run")).unwrap();
    assert_eq!((restored.settings, restored.failed.len(), speed(&tree).as_str()), (1, 0, "900000"), "{restored:?}");
}

#[test]
fn under_the_governor_userspace_a_limit_of_the_user_holds_and_is_named_if_it_is_too_low() {
    let (_folder, tree) = tree();
    userspace(&tree);
    tree.set(&format!("{CPUFREQ}/scaling_max_freq"), 1_000_000);
    let mut saving = saving(&tree, true);
    let state = saving.begin(&app(1, 4), &[app(1, 4)]);
    assert_eq!((speed(&tree).as_str(), range(&tree)), ("1000000", (800, 1_000)));
    let named = |missing: &String| missing.contains("1000000 kHz") && missing.contains("scaling_max_freq");
    assert!(state.limited && state.missing.iter().any(named), "{state:?}");
    saving.follow(&[]);
    assert_eq!(speed(&tree), "900000");
}

#[test]
fn a_clock_whose_governor_changes_gets_the_knobs_of_the_new_one() {
    let (_folder, tree) = tree();
    let mut saving = saving_one(&tree);
    assert_eq!(range(&tree), (800, 1_300));
    userspace(&tree);
    saving.follow(&[app(1, 4)]);
    assert_eq!((speed(&tree).as_str(), range(&tree)), ("1300000", (800, 3_000)));
    tree.set(&format!("{CPUFREQ}/scaling_governor"), "schedutil");
    tree.set(&format!("{CPUFREQ}/scaling_setspeed"), "<unsupported>");
    saving.follow(&[app(1, 4)]);
    assert_eq!(range(&tree), (800, 1_300));
    saving.follow(&[]);
    assert_eq!((range(&tree), saving.not_back.len()), ((800, 3_000), 0), "nothing is left of the former governor");
    assert_eq!(speed(&tree), "<unsupported>");
}

#[test]
fn the_governor_powersave_gets_the_clock_as_its_lower_limit_too() {
    let (_folder, tree) = tree();
    tree.set(&format!("{CPUFREQ}/scaling_governor"), "powersave");
    let mut saving = saving(&tree, true);
    saving.begin(&app(1, 4), &[app(1, 4)]);
    assert_eq!(range(&tree), (1_300, 1_300), "it keeps the lowest frequency of its limits");
    saving.follow(&[app(1, 2)]);
    assert_eq!(range(&tree).0, range(&tree).1);
    saving.follow(&[]);
    assert_eq!(range(&tree), (800, 3_000));
}
