use std::io::Write;

use qfabric_types::Nanos;

use super::file::hold;
use super::*;
use crate::power::clamp_of;
use crate::testing::Worker;
use crate::testing::power::PowerTree;
use crate::threads;

fn run_folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn touched(tid: i32, start: u64) -> Touched {
    Touched { tid: ThreadId(tid), start, was: SchedAttr::fair(3), slack_ns: Some(50_000) }
}

fn write(dir: &Path, text: &str) {
    options().create(true).open(dir.join(FILE)).unwrap().write_all(text.as_bytes()).unwrap();
}

fn boot_line() -> String {
    format!("{{\"boot\":\"{}\"}}\n", release::boot_id())
}

fn refusal(dir: &Path) -> String {
    restore(dir).unwrap_err().to_string()
}

#[test]
fn written_records_are_read_back() {
    let run = run_folder();
    let mut journal = Journal::open(run.path()).unwrap();
    for tid in [10, 11, 12] {
        journal.touching(touched(tid, 99)).unwrap();
    }
    journal.released(ThreadId(11)).unwrap();
    let left = read(journal.path(), &journal.file).unwrap().unwrap();
    assert_eq!(left.threads.into_values().collect::<Vec<_>>(), [touched(10, 99), touched(12, 99)]);
}

#[test]
fn a_dispatched_thread_is_read_back_with_its_cpus_also_after_a_rewrite() {
    let run = run_folder();
    let mut journal = Journal::open(run.path()).unwrap();
    let of = |tid| Dispatched { thread: touched(tid, 99), cpus: CpuList::parse("0-3,8").unwrap() };
    [10, 11, 12].into_iter().for_each(|tid| journal.dispatching(of(tid)).unwrap());
    journal.released(ThreadId(11)).unwrap();
    for rewritten in [false, true] {
        if rewritten {
            journal.rewrite().unwrap();
        }
        let left = read(journal.path(), &journal.file).unwrap().unwrap();
        assert_eq!(left.dispatched.into_values().collect::<Vec<_>>(), [of(10), of(12)]);
    }
}

#[test]
fn a_dispatched_thread_with_impossible_cpus_is_refused() {
    let run = run_folder();
    let record = Record::Dispatched(Dispatched { thread: touched(10, 99), cpus: CpuList::parse("0").unwrap() });
    let line = serde_json::to_string(&record).unwrap().replace("\"cpus\":\"0\"", "\"cpus\":\"3-1\"");
    write(run.path(), &format!("{}{line}\n", boot_line()));
    assert!(refusal(run.path()).contains("\"3-1\" is not a list of CPUs"), "{}", refusal(run.path()));
}

#[test]
fn restore_without_a_journal_does_nothing() {
    assert_eq!(restore(run_folder().path()).unwrap(), Restored::default());
}

#[test]
fn only_one_service_holds_a_journal() {
    let run = run_folder();
    let journal = Journal::open(run.path()).unwrap();
    assert!(matches!(Journal::open(run.path()), Err(JournalError::Held { .. })));
    assert!(matches!(restore(run.path()), Err(JournalError::Held { .. })));
    drop(journal);
    assert!(Journal::open(run.path()).is_ok());
}

#[test]
fn an_incomplete_last_line_is_ignored() {
    let run = run_folder();
    write(run.path(), &format!("{}{{\"released\":7}}\n{{\"thread\":{{\"tid\":99", boot_line()));
    assert_eq!(restore(run.path()).unwrap(), Restored::default());
    write(run.path(), "{\"boot");
    assert_eq!(restore(run.path()).unwrap(), Restored::default());
}

#[test]
fn a_journal_of_an_earlier_boot_is_ignored() {
    let run = run_folder();
    write(run.path(), "{\"boot\":\"another\"}\n{\"released\":\"whatever\"}\n");
    assert_eq!(restore(run.path()).unwrap(), Restored::default());
    assert!(Journal::open(run.path()).is_ok());
}

#[test]
fn a_thread_that_reuses_an_id_is_not_changed() {
    let run = run_folder();
    let worker = Worker::sleeping();
    let before = SchedAttr::of(worker.thread).unwrap();
    let mut journal = Journal::open(run.path()).unwrap();
    let start = threads::start_time(worker.thread).unwrap();
    journal.touching(touched(worker.thread.0, start + 1)).unwrap();
    journal.touching(touched(i32::MAX, 5)).unwrap();
    drop(journal);
    let restored = restore(run.path()).unwrap();
    assert_eq!((restored.threads, restored.skipped), (0, 2));
    assert_eq!(SchedAttr::of(worker.thread).unwrap(), before);
}

/// Leaves a journal that lists `changes` of a former service.
fn left_by_a_former_service(changes: impl FnOnce(&mut Journal)) -> tempfile::TempDir {
    let run = run_folder();
    let mut journal = Journal::open(run.path()).unwrap();
    changes(&mut journal);
    drop(journal);
    run
}

fn listed(journal: &Journal) -> Unrestored {
    read(journal.path(), &journal.file).unwrap().unwrap()
}

#[test]
fn a_thread_that_is_no_longer_changed_is_not_inherited() {
    let worker = Worker::sleeping();
    let record = touched(worker.thread.0, threads::start_time(worker.thread).unwrap());
    let run = left_by_a_former_service(|journal| journal.touching(record).unwrap());
    assert!(listed(&Journal::open(run.path()).unwrap()).threads.is_empty());
}

/// `Journal::open` refused such a journal, so one thread prevented the start of the service.
#[test]
fn a_thread_that_a_former_service_left_reserved_stays_listed_until_it_is_put_back() {
    let _alone = crate::testing::live_lock();
    if !crate::testing::may_reserve() {
        return;
    }
    let worker = Worker::sleeping();
    let start = threads::start_time(worker.thread).unwrap();
    let before = Touched { was: SchedAttr::of(worker.thread).unwrap(), ..touched(worker.thread.0, start) };
    let run = left_by_a_former_service(|journal| journal.touching(before).unwrap());
    let ten_ms = Nanos::from_millis(10);
    let reservation = qfabric_types::Reservation::new(Nanos::from_micros(200), ten_ms).unwrap();
    SchedAttr::deadline(reservation, false).give(worker.thread).unwrap();
    let mut next = Journal::open(run.path()).expect("one thread does not prevent the start");
    let again = Touched { was: SchedAttr::of(worker.thread).unwrap(), ..before };
    next.touching(again).unwrap();
    next.released(worker.thread).unwrap();
    next.rewrite().unwrap();
    assert_eq!(listed(&next).threads.into_values().collect::<Vec<_>>(), [before]);
    drop(next);
    assert_eq!(restore(run.path()).unwrap().threads, 1);
    assert_eq!(SchedAttr::of(worker.thread).unwrap(), before.was);
}

/// The limit of the size of a file is that of the process, so this program starts again as a service.
#[test]
fn a_record_that_does_not_fit_on_the_disk_leaves_the_journal_readable() {
    let run = run_folder();
    let this = std::env::current_exe().unwrap();
    let script = "trap '' XFSZ; ulimit -S -f 2; exec \"$0\" --ignored --exact journal::tests::a_service_on_a_full_disk";
    let service = std::process::Command::new("sh").args(["-c", script]).arg(this).env("FOLDER", run.path()).output();
    let service = service.unwrap();
    assert!(service.status.success(), "{}", String::from_utf8_lossy(&service.stdout));
    let restored = restore(run.path()).unwrap();
    assert!(restored.skipped > 0, "{restored:?}");
}

#[test]
#[ignore = "run by a_record_that_does_not_fit_on_the_disk_leaves_the_journal_readable"]
fn a_service_on_a_full_disk() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let mut journal = Journal::open(Path::new(&std::env::var_os("FOLDER").unwrap())).unwrap();
    let full = (1_000..2_000).find(|tid| journal.touching(touched(*tid, 1)).is_err()).expect("the disk is full");
    setrlimit(Resource::Fsize, Rlimit { current: None, maximum: None }).unwrap(); // somebody freed room
    journal.released(ThreadId(1_000)).unwrap();
    let left = listed(&journal).threads;
    assert_eq!(left.into_keys().collect::<Vec<_>>(), (1_001..full).collect::<Vec<_>>());
}

/// A `restore` opened the file before a running service replaced it. It may lock the old file then, whose lock is free.
#[test]
fn the_lock_of_a_replaced_file_is_not_the_lock_of_the_journal() {
    let run = run_folder();
    let mut journal = Journal::open(run.path()).unwrap();
    let opened_before = options().open(journal.path()).unwrap();
    journal.rewrite().unwrap();
    assert!(hold(journal.path(), opened_before).unwrap().is_none());
    let opened_after = options().open(journal.path()).unwrap();
    assert!(matches!(hold(journal.path(), opened_after), Err(JournalError::Held { .. })));
}

#[test]
fn invalid_content_is_refused_with_its_line_number() {
    let thread = |was: &str| format!("{{\"thread\":{{\"tid\":99,\"start\":1,\"was\":{was},\"slack_ns\":null}}}}\n");
    let attr = |policy: u32, nice: i32, priority: u32| {
        format!(
            "{{\"policy\":{policy},\"flags\":0,\"nice\":{nice},\"priority\":{priority},\
             \"runtime_ns\":0,\"deadline_ns\":0,\"period_ns\":0}}"
        )
    };
    let feature =
        |root: &str| format!("{{\"feature\":{{\"root\":\"{root}\",\"feature\":\"HRTICK_DL\",\"was_on\":false}}}}\n");
    let nonsense = [
        "rubbish\n".to_owned(),
        "{\"run\":\"rm -rf /\"}\n".to_owned(),
        boot_line(),
        thread(&attr(0, -100, 0)),
        thread(&attr(1, 0, 100)),
        thread(&attr(77, 0, 0)),
        thread(&attr(0, 0, 0)).replace(":99", ":1"),
        thread(&attr(0, 0, 0)).replace("\"start\"", "\"begin\""),
        feature("relative/path"),
        feature("/sys/kernel/../../etc"),
        feature("/sys").replace("HRTICK_DL", "WA_WEIGHT"),
        "\u{0}\n".to_owned(),
        format!("{}\n", "[".repeat(100_000)),
    ];
    for line in nonsense {
        let run = run_folder();
        write(run.path(), &format!("{}{line}", boot_line()));
        let refused = refusal(run.path());
        assert!(refused.contains("line 2"), "{line}: {refused}");
    }
}

#[test]
fn a_file_without_a_boot_record_is_refused() {
    let run = run_folder();
    write(run.path(), "{\"released\":7}\n");
    assert!(refusal(run.path()).contains("line 1"));
}

#[test]
fn a_file_that_other_users_can_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let run = run_folder();
    write(run.path(), &boot_line());
    fs::set_permissions(run.path().join(FILE), fs::Permissions::from_mode(0o666)).unwrap();
    assert!(refusal(run.path()).contains("other users may write"));
    fs::set_permissions(run.path().join(FILE), fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(run.path().join(FILE), run.path().join("other")).unwrap();
    assert!(refusal(run.path()).contains("2 hard links"));
}

#[test]
fn a_link_a_pipe_or_a_folder_is_refused_as_a_journal() {
    let run = run_folder();
    std::os::unix::fs::symlink("/etc/passwd", run.path().join(FILE)).unwrap();
    assert!(matches!(Journal::open(run.path()), Err(JournalError::Io { .. })));
    fs::remove_file(run.path().join(FILE)).unwrap();
    fs::create_dir(run.path().join(FILE)).unwrap();
    assert!(restore(run.path()).is_err());
    fs::remove_dir(run.path().join(FILE)).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, run.path().join(FILE), rustix::fs::Mode::RWXU).unwrap();
    assert!(refusal(run.path()).contains("not a regular file"));
}

#[test]
fn a_file_over_the_size_limit_is_refused_unread() {
    let run = run_folder();
    write(run.path(), &boot_line());
    File::options().write(true).open(run.path().join(FILE)).unwrap().set_len(MAX_BYTES + 1).unwrap();
    assert!(refusal(run.path()).contains("bytes"));
}

#[test]
fn the_file_stays_small_when_a_program_starts_many_threads() {
    let run = run_folder();
    let mut journal = Journal::open(run.path()).unwrap();
    journal.touching(touched(500, 1)).unwrap();
    for tid in 0..20_000 {
        journal.touching(touched(1_000 + tid, 1)).unwrap();
        journal.released(ThreadId(1_000 + tid)).unwrap();
    }
    assert!(fs::metadata(journal.path()).unwrap().len() < 4 << 20);
    assert!(matches!(restore(run.path()), Err(JournalError::Held { .. })), "the new file is not locked");
    let left = read(journal.path(), &journal.file).unwrap().unwrap();
    assert_eq!(left.threads.into_values().collect::<Vec<_>>(), [touched(500, 1)]);
}

/// `doctor --fix` after `doctor --fix --exact`: the fix stays in force, and `restore` knows the value before it.
#[test]
fn a_switched_feature_stays_switched_when_the_journal_is_opened_again() {
    let root = run_folder();
    let file = root.path().join("sched/features");
    fs::create_dir(root.path().join("sched")).unwrap();
    fs::write(&file, "PLACE_LAG NO_HRTICK NO_HRTICK_DL\n").unwrap();
    let run = run_folder();
    let mut journal = Journal::open(run.path()).unwrap();
    let switched = Switched { root: root.path().to_owned(), feature: Feature::HrtickDl, was_on: false };
    journal.append(&Record::Feature(switched.clone())).unwrap();
    drop(journal);
    fs::write(&file, "PLACE_LAG NO_HRTICK HRTICK_DL\n").unwrap();
    let again = Journal::open(run.path()).unwrap();
    assert_eq!((&again.features, listed(&again).features), (&vec![switched.clone()], vec![switched]));
    assert!(fs::read_to_string(&file).unwrap().contains(" HRTICK_DL"), "it was switched off");
}

fn tree_of_clocks(at: &Path) -> crate::testing::power::PowerTree {
    let tree = PowerTree::new(at);
    tree.clock("policy0", 900_000, (800_000, 3_600_000));
    tree
}

const MOST: &str = "devices/system/cpu/cpufreq/policy0/scaling_max_freq";

/// The limit in the file before the first turn, and what the journal puts back.
fn put_back(before: u64, cause: impl Fn(&PowerTree)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let tree = PowerTree::new(folder.path());
    tree.clock("policy0", 1_000_000, (800_000, 3_600_000));
    tree.set(MOST, before);
    cause(&tree);
    let mut journal = Journal::open(folder.path()).unwrap();
    let knob = crate::power::clocks(tree.root())[0].knob(crate::power::KnobName::MaxFrequency);
    assert!(journal.turn(&knob, "1200000").unwrap());
    assert_eq!(journal.turn_back(), Vec::<String>::new());
    tree.get(MOST)
}

#[test]
fn a_limit_by_heat_or_firmware_does_not_become_the_limit_of_the_user() {
    let cooling = |kind: &'static str, state: u64| {
        move |tree: &PowerTree| {
            tree.set("class/thermal/cooling_device0/type", kind);
            tree.set("class/thermal/cooling_device0/cur_state", state);
        }
    };
    assert_eq!(put_back(2_000_000, |_| {}), "2000000", "the user's own limit");
    assert_eq!(put_back(2_000_000, cooling("cpufreq-cpu0", 3)), "3600000");
    assert_eq!(put_back(2_000_000, cooling("Processor", 3)), "3600000");
    assert_eq!(put_back(2_000_000, cooling("cpufreq-cpu0", 0)), "2000000", "the device is idle");
    assert_eq!(put_back(2_000_000, cooling("Fan", 1)), "2000000", "a fan limits no clock");
    let firmware = |tree: &PowerTree| tree.set("devices/system/cpu/cpufreq/policy0/bios_limit", 2_000_000);
    assert_eq!(put_back(2_000_000, firmware), "3600000");
    assert_eq!(put_back(1_500_000, firmware), "1500000", "lower than the firmware's");
}

#[test]
fn a_knob_returns_to_its_value_before_the_first_turn_also_after_a_rewrite() {
    for rewritten in [false, true] {
        let (run, sys) = (run_folder(), run_folder());
        let tree = tree_of_clocks(sys.path());
        let knob = crate::power::clocks(tree.root())[0].knob(crate::power::KnobName::MaxFrequency);
        let mut journal = Journal::open(run.path()).unwrap();
        assert!(journal.turn(&knob, "2000000").unwrap() && journal.turn(&knob, "1200000").unwrap());
        assert!(!journal.turn(&knob, "1200000").unwrap(), "it has the value already");
        if rewritten {
            journal.rewrite().unwrap();
        }
        drop(journal);
        assert_eq!(tree.get(MOST), "1200000");
        assert_eq!(restore(run.path()).unwrap().settings, 1);
        assert_eq!(tree.get(MOST), "3600000");
        assert_eq!(restore(run.path()).unwrap(), Restored::default());
    }
}

#[test]
fn a_knob_that_is_back_or_vanished_needs_no_restore() {
    let (run, sys) = (run_folder(), run_folder());
    let tree = tree_of_clocks(sys.path());
    let clock = crate::power::clocks(tree.root()).remove(0);
    let knob = clock.knob(crate::power::KnobName::MaxFrequency);
    let mut journal = Journal::open(run.path()).unwrap();
    journal.turn(&knob, "1200000").unwrap();
    assert_eq!(journal.turn_back(), Vec::<String>::new());
    assert_eq!(tree.get(MOST), "3600000");
    journal.turn(&knob, "1300000").unwrap();
    tree.remove("devices");
    assert_eq!(journal.turn_back(), Vec::<String>::new());
    let refused = journal.turn(&knob, "1300000").unwrap_err().to_string();
    assert!(refused.contains("scaling_max_freq does not exist"), "{refused}");
    drop(journal);
    assert_eq!(restore(run.path()).unwrap(), Restored::default());
}

#[test]
fn a_knob_that_exists_and_cannot_be_read_stays_listed() {
    let (run, sys) = (run_folder(), run_folder());
    let tree = tree_of_clocks(sys.path());
    let knob = crate::power::clocks(tree.root())[0].knob(crate::power::KnobName::MaxFrequency);
    let file = sys.path().join(MOST);
    let mut journal = Journal::open(run.path()).unwrap();
    journal.turn(&knob, "1200000").unwrap();
    // A folder exists and cannot be read, as the files of a clock whose CPUs are offline.
    fs::rename(&file, file.with_extension("aside")).unwrap();
    fs::create_dir(&file).unwrap();
    let failed = journal.turn_back();
    assert!(failed.len() == 1 && failed[0].contains("set them online"), "{failed:?}");
    drop(journal);
    let mut next = Journal::open(run.path()).unwrap();
    fs::remove_dir(&file).unwrap();
    fs::rename(file.with_extension("aside"), &file).unwrap();
    assert_eq!(next.turn_back(), Vec::<String>::new());
    assert_eq!(tree.get(MOST), "3600000");
}

#[test]
fn a_knob_that_could_not_be_put_back_keeps_its_first_value_also_for_the_next_service() {
    let sys = run_folder();
    let tree = tree_of_clocks(sys.path());
    let knob = crate::power::clocks(tree.root())[0].knob(crate::power::KnobName::MaxFrequency);
    let file = sys.path().join(MOST);
    let run = left_by_a_former_service(|journal| {
        journal.turn(&knob, "2000000").unwrap();
        // A folder in the place of the file cannot be written, not even by root.
        fs::rename(&file, file.with_extension("aside")).unwrap();
        std::os::unix::fs::symlink("/proc/self/stat", &file).unwrap();
        assert_eq!(journal.turn_back().len(), 1);
        assert_eq!(journal.knobs.values().collect::<Vec<_>>(), ["3600000"], "a rewrite would lose it");
    });
    assert_eq!(restore(run.path()).unwrap().failed.len(), 1);
    let mut next = Journal::open(run.path()).expect("one knob does not prevent the start");
    fs::rename(file.with_extension("aside"), &file).unwrap();
    next.turn(&knob, "1200000").unwrap();
    assert_eq!(next.turn_back(), Vec::<String>::new());
    assert_eq!(tree.get(MOST), "3600000");
}

#[test]
fn a_knob_that_does_not_obey_is_refused_and_put_back() {
    let (run, sys) = (run_folder(), run_folder());
    let tree = tree_of_clocks(sys.path());
    let knob = crate::power::clocks(tree.root())[0].knob(crate::power::KnobName::MaxFrequency);
    let mut journal = Journal::open(run.path()).unwrap();
    let written = std::cell::RefCell::new(Vec::new());
    let ignores = |_: &Knob, value: &str| {
        written.borrow_mut().push(value.to_owned());
        Ok(())
    };
    let refused = journal.turn_by(&knob, "1200000", ignores).unwrap_err();
    assert!(matches!(&refused, TurnError::Disobeyed { now, .. } if now == "3600000"), "{refused}");
    assert_eq!(*written.borrow(), ["1200000", "3600000"]);
    let rounds = |knob: &Knob, _: &str| knob.write("1300000");
    assert!(journal.turn_by(&knob, "1234567", rounds).unwrap(), "the kernel may round");
}

#[test]
fn a_record_of_another_file_or_value_is_refused_and_nothing_is_written() {
    let sys = run_folder();
    let tree = tree_of_clocks(sys.path());
    let sys = tree.root().display().to_string();
    let good =
        format!(r#"{{"knob":{{"knob":{{"sys":"{sys}","policy":"policy0","name":"max_frequency"}},"was":"7"}}}}"#);
    for (part, other) in [
        ("policy0", "../../../../etc"),
        ("policy0", "policy"),
        ("policy0", "policy0/../policy1"),
        ("max_frequency", "scaling_setspeed"),
        (r#""was":"7""#, r#""was":"7\n8""#),
        (r#""was":"7""#, r#""was":"""#),
        (&*sys, "relative"),
        (&*sys, "/sys/../etc"),
    ] {
        let run = run_folder();
        write(run.path(), &format!("{}{}\n", boot_line(), good.replace(part, other)));
        assert!(refusal(run.path()).contains("line 2"), "{other}: {}", refusal(run.path()));
    }
    assert_eq!(tree.get(MOST), "3600000");
}

#[test]
fn a_record_of_power_save_names_an_interface() {
    let good = r#"{"power_save":{"radio":{"name":"wlan9","index":2147483647},"was_on":true}}"#;
    let run = run_folder();
    write(run.path(), &format!("{}{good}\n", boot_line()));
    assert_eq!(restore(run.path()).unwrap().failed, Vec::<String>::new(), "no interface has this number");
    for (part, other) in [("wlan9", "../wlan9"), ("wlan9", ""), ("2147483647", "0"), ("true", "7")] {
        let run = run_folder();
        write(run.path(), &format!("{}{}\n", boot_line(), good.replace(part, other)));
        assert!(refusal(run.path()).contains("line 2"), "{other}: {}", refusal(run.path()));
    }
}

#[test]
fn an_interface_whose_record_would_be_refused_stays_as_it_is() {
    let run = run_folder();
    let radio = Radio { name: "wl\u{e4}n0".to_owned(), index: 2_147_483_647 };
    let mut journal = Journal::open(run.path()).unwrap();
    let refused = journal.power_save(&radio, true).unwrap_err().to_string();
    assert!(refused.contains("rename the interface"), "{refused}");
}

#[test]
fn a_thread_that_inherited_a_clamp_gets_that_of_its_program_back() {
    let run = run_folder();
    let mut journal = Journal::open(run.path()).unwrap();
    journal.set_clamps.insert(300);
    let (first, thread, ended) = (ThreadId(7), ThreadId(8), ThreadId(i32::MAX));
    journal.clamped.insert(first.0, Clamped { tid: first, start: 1, was: 800 });
    assert_eq!(journal.former_clamp(thread, first, 300), Some(800));
    assert_eq!(journal.former_clamp(thread, ended, 300), Some(1_024));
    assert_eq!(journal.former_clamp(thread, first, 400), None, "its own clamp");
    assert_eq!(journal.former_clamp(first, first, 300), None);
}

#[test]
fn a_thread_that_a_clamped_one_starts_gets_the_former_clamp_back() {
    let (run, other) = (run_folder(), Worker::sleeping());
    let mut journal = Journal::open(run.path()).unwrap();
    let own = ThreadId(rustix::thread::gettid().as_raw_nonzero().get());
    let before = clamp_of(own).unwrap();
    if journal.clamp(own, 300, own).is_err() {
        return assert!(!crate::power::has_clamps());
    }
    let child = Worker::sleeping();
    assert_eq!(clamp_of(child.thread).unwrap(), 300, "inherited");
    journal.adopt(child.thread, own).unwrap();
    journal.adopt(other.thread, own).unwrap();
    assert_eq!(journal.clamped().len(), 2, "a thread with another clamp is not recorded");
    assert!(journal.clamped().into_iter().all(|thread| journal.unclamp(thread).unwrap()));
    assert_eq!([own, child.thread].map(|thread| clamp_of(thread).unwrap()), [before; 2]);
}

#[test]
fn a_clamped_thread_is_restored_and_a_kernel_without_clamps_refuses() {
    let (run, worker) = (run_folder(), Worker::sleeping());
    let before = clamp_of(worker.thread).unwrap();
    let mut journal = Journal::open(run.path()).unwrap();
    let clamped = journal.clamp(worker.thread, 300, worker.thread);
    assert_eq!(clamped.is_ok(), crate::power::has_clamps(), "{clamped:?}");
    drop(journal);
    let restored = restore(run.path()).unwrap();
    assert_eq!((restored.threads, restored.failed.len()), (usize::from(clamped.is_ok()), 0));
    assert_eq!(clamp_of(worker.thread).unwrap(), before);
}
