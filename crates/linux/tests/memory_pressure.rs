//! Memory under pressure, with swap on zram: a program in a protected group and a program with locked pages have no major
//! fault where an equal program without a reserve has at least 100. The same holds for an unmodified program that was
//! swapped out before it got its promise, once its pages are fetched. A group above its promise gives a notice of
//! pressure. QualMan §7.2. Needs the test machine.

use std::fs;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use qfabric_linux::cgroup::Mounts;
use qfabric_linux::memory_groups::{MemoryGroups, memory_root};
use qfabric_linux::prefault::prefault;
use qfabric_linux::testing::skip;
use qfabric_types::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
/// Data of each program.
const DATA: usize = 48 * MIB;
/// Promised to the protected program: its data, and room for its stack, heap and text.
const PROMISE: Bytes = Bytes::from_mib(64);
/// The pressure is sufficient if this many KiB of the program without a reserve are swapped out.
const SWAPPED_KIB: u64 = 16 << 10;
/// Steps of 8 MiB after which the hog gives up.
const MOST_STEPS: usize = 256;

/// A copy of this test program with another task.
struct Worker {
    child: Child,
    stdin: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Worker {
    fn start(task: &str) -> Worker {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "worker", "--nocapture"])
            .env("QFABRIC_TEST_WORKER", task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Worker { child, stdin, lines: BufReader::new(stdout) }
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Lets the worker take its next step, and returns the number in its answer.
    fn step(&mut self) -> u64 {
        writeln!(self.stdin, "go").unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "the worker has ended");
            if let Some(number) = line.trim().strip_prefix("answer ") {
                return number.parse().unwrap();
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The task of a copy of this program; without a task, nothing.
#[test]
fn worker() {
    let Ok(task) = std::env::var("QFABRIC_TEST_WORKER") else { return };
    let mut steps = std::io::stdin().lines().map_while(Result::ok);
    let answer = |number: u64| println!("\nanswer {number}");
    if task == "hog" {
        let mut held = Vec::new();
        for _ in steps {
            held.push(filled(8 * MIB));
            answer(held.len() as u64);
        }
        return;
    }
    steps.next();
    let data = filled(DATA);
    if task == "locked" {
        lock(&data);
    }
    answer(0);
    for _ in steps {
        // The program text of all workers is the same file pages, which belong to none of the groups: load the text of
        // the loop and of the measurement first, so that only data counts.
        touch(&data[..PAGE]);
        major_faults();
        let before = major_faults();
        touch(&data);
        answer(major_faults() - before);
    }
}

/// Pages of which a half is random, so that zram compresses them to about a half.
fn filled(bytes: usize) -> Vec<u8> {
    let mut state = std::process::id() as u64 | 1;
    let mut data = vec![0; bytes];
    for word in data.chunks_exact_mut(16) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word[..8].copy_from_slice(&state.to_le_bytes());
    }
    data
}

#[allow(unsafe_code)] // a system call with the address of the data
fn lock(data: &[u8]) {
    // SAFETY: the range is the whole vector, which lives to the end of the program; locking changes no contents.
    let done = unsafe { libc::mlock(data.as_ptr().cast(), data.len()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

fn touch(data: &[u8]) {
    data.iter().step_by(PAGE).for_each(|byte| _ = black_box(*byte));
}

/// Page faults of this process that waited for a device.
fn major_faults() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    after_name.split_whitespace().nth(9).unwrap().parse().unwrap()
}

/// KiB of a process that are swapped out.
fn swapped(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSwap:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

fn swap_on_zram() {
    fs::write("/sys/block/zram0/disksize", "1G").unwrap();
    for (program, file) in [("mkswap", "/dev/zram0"), ("swapon", "/dev/zram0")] {
        let done = Command::new(program).arg(file).output().unwrap();
        assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

/// Lets a hog take memory until this much of a program is swapped out.
fn press(hog: &mut Worker, program: &Worker) {
    let pressed = (0..MOST_STEPS).any(|_| hog.step() > 0 && swapped(program.pid()) >= SWAPPED_KIB);
    assert!(pressed, "only {} KiB are swapped out", swapped(program.pid()));
}

/// A worker whose end the kernel prefers when memory is exhausted.
fn hog() -> Worker {
    let hog = Worker::start("hog");
    fs::write(format!("/proc/{}/oom_score_adj", hog.pid()), "1000").unwrap();
    hog
}

/// Whether the kernel gives a notice while the program waits for memory. `memory.high` stands for a host that has no more
/// memory: the kernel delays allocations above it.
fn is_noticed(groups: &MemoryGroups, base: &Path, program: &mut Worker) -> bool {
    let trigger = groups.reserve_group(2).pressure().unwrap();
    fs::write(base.join("reserve-2/memory.high"), "4M").unwrap();
    writeln!(program.stdin, "go").unwrap();
    let mut polled = [PollFd::new(&trigger, PollFlags::PRI)];
    poll(&mut polled, Some(&Timespec { tv_sec: 60, tv_nsec: 0 })).unwrap() > 0 && polled[0].revents() == PollFlags::PRI
}

/// A program that was swapped out gets a promise, and its pages are fetched before it needs them.
fn promise_late(groups: &mut MemoryGroups, program: &mut Worker) {
    let before = swapped(program.pid());
    groups.protect(3, program.pid(), PROMISE).unwrap();
    let fetched = prefault(program.pid(), PROMISE).unwrap();
    let faults = program.step();
    let pages = DATA / PAGE;
    println!("promised late: {before} KiB were swapped out, {fetched} fetched, {faults} major faults of {pages} pages");
    assert!(faults == 0 && fetched >= Bytes::new(SWAPPED_KIB << 10), "{faults} major faults, {fetched} fetched");
}

#[test]
fn reserved_programs_have_no_major_fault_where_an_equal_one_has_a_hundred() {
    if std::env::var_os("QFABRIC_VM").is_none() {
        return skip("memory pressure needs the test machine: make vm-test");
    }
    let base = memory_root(&Mounts::here()).unwrap().join(format!("qfabric-{}", std::process::id()));
    swap_on_zram();
    let run = tempfile::tempdir().unwrap();
    let mut groups = MemoryGroups::open(run.path()).unwrap();
    let [mut plain, mut reserved, mut locked, mut late] = ["plain", "reserved", "locked", "late"].map(Worker::start);
    groups.protect(1, reserved.pid(), PROMISE).unwrap();
    for worker in [&mut plain, &mut reserved, &mut locked, &mut late] {
        worker.step();
    }
    let charged = groups.reserve_group(1).usage().unwrap().charged;
    assert!(charged >= Bytes::new(DATA as u64), "{charged} are charged to the group");

    let mut taking = hog();
    press(&mut taking, &plain);
    press(&mut taking, &late);
    let faults = [&mut reserved, &mut locked, &mut plain].map(Worker::step);
    let mut small = Worker::start("hog");
    groups.protect(2, small.pid(), Bytes::from_mib(1)).unwrap();
    let noticed = is_noticed(&groups, &base, &mut small);
    println!("memory pressure in a group of 1 MiB: {:?}, noticed {noticed}", groups.reserve_group(2).usage());
    drop((taking, small));

    println!("major faults of {} pages: protected group, locked pages, no reserve: {faults:?}", DATA / PAGE);
    promise_late(&mut groups, &mut late);
    assert!(faults[0] == 0 && faults[1] == 0 && faults[2] >= 100, "{faults:?}");
    assert!(noticed, "no notice of pressure");
    (1..=3).for_each(|reserve| groups.release(reserve).unwrap());
    assert!(!run.path().join("memory.json").exists());
}
