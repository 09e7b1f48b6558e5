//! The daemon's memory promises under pressure, in the test machine with swap on zram and huge pages (QualMan §7.2): a
//! program with a contract and a program that links the library have no major fault where an equal program has at least
//! 100; a program that was swapped out before its contract is fetched; a program above its promise causes a notice, and the
//! offered promise is accepted; reserves take huge pages and return them; dying programs give everything back.

use std::fs;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use qfabric_client::{
    Allocation, Application, ApplicationRequest, ApplicationScope, Bytes, Client, Contract, Mem, MemoryProtection,
    Nanos, PageKind,
};
use qfabric_daemon::{Config, Embedded, MemoryAmount};
use qfabric_linux::testing::{live_lock, skip};
use qfabric_types::JobSource;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;
/// Data of each program.
const DATA: usize = 48 * MIB;
/// Promised to a program: its data, and room for its stack, heap and text.
const PROMISE: Bytes = Bytes::from_mib(64);
/// The pressure is sufficient if this many KiB of a program without a promise are swapped out.
const SWAPPED_KIB: u64 = 16 << 10;
/// Steps of 8 MiB after which the hog gives up.
const MOST_STEPS: usize = 256;
/// Ends a test that hangs; emulated machines are slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// The arguments of a copy of this test program.
const WORKER: [&str; 3] = ["--exact", "worker", "--nocapture"];

/// A copy of this test program with another task.
struct Worker {
    child: Child,
    stdin: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Worker {
    fn start(task: &str, socket: &Path) -> Worker {
        let mut command = Command::new(std::env::current_exe().unwrap());
        Worker::spawn(command.args(WORKER), task, socket)
    }

    /// A worker that waits for its first step before its program is loaded, as `qfabric run` holds a program until it is
    /// admitted: all its pages are charged to its group, its stack too.
    fn held(task: &str, socket: &Path) -> Worker {
        let mut command = Command::new("sh");
        command.args(["-c", "read _; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
        Worker::spawn(command.args(WORKER), task, socket)
    }

    fn spawn(command: &mut Command, task: &str, socket: &Path) -> Worker {
        command.env("QFABRIC_TEST_WORKER", task).env("QFABRIC_SOCKET", socket);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Worker { child, stdin, lines: BufReader::new(stdout) }
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Lets the worker begin its next step.
    fn go(&mut self) {
        writeln!(self.stdin, "go").unwrap();
    }

    /// Lets the worker take its next step, and returns the number in its answer.
    fn step(&mut self) -> u64 {
        self.go();
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
    let data = if task == "linked" { Data::reserved() } else { Data::Plain(filled(DATA)) };
    answer(0);
    for _ in steps {
        // The text of this program is the same file pages for all workers, which belong to none of the groups: load the
        // text of the loop and of the measurement first, so that only data counts.
        data.touch(1);
        major_faults();
        let before = major_faults();
        data.touch(DATA / PAGE);
        answer(major_faults() - before);
    }
}

/// The pages that a worker touches.
enum Data {
    Plain(Vec<u8>),
    /// Locked by the daemon.
    Reserved(Mem, Allocation),
}

impl Data {
    fn reserved() -> Data {
        let mem = Mem::connect(&Client::connect().unwrap()).unwrap();
        let reserve = mem.reserve(DATA as u64).unwrap();
        let data = mem.alloc(reserve, DATA as u64).unwrap();
        (0..DATA / PAGE).for_each(|page| data.write(page * PAGE, &[7]));
        Data::Reserved(mem, data)
    }

    fn touch(&self, pages: usize) {
        use std::sync::atomic::Ordering::Relaxed;
        match self {
            Data::Plain(data) => data.iter().step_by(PAGE).take(pages).for_each(|byte| _ = black_box(*byte)),
            Data::Reserved(_mem, data) => {
                data.bytes().iter().step_by(PAGE).take(pages).for_each(|byte| _ = black_box(byte.load(Relaxed)));
            }
        }
    }
}

/// Pages of which a half is random, so that zram compresses them to about a half.
fn filled(bytes: usize) -> Vec<u8> {
    let (mut state, mut page) = (u64::from(std::process::id()) | 1, [0; PAGE]);
    for word in page[..PAGE / 2].chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
    let mut data = vec![0; bytes];
    for (number, copy) in data.chunks_exact_mut(PAGE).enumerate() {
        copy.copy_from_slice(&page);
        copy[..8].copy_from_slice(&number.to_le_bytes());
    }
    data
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
fn hog(socket: &Path) -> Worker {
    let hog = Worker::start("hog", socket);
    fs::write(format!("/proc/{}/oom_score_adj", hog.pid()), "1000").unwrap();
    hog
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn with_memory(memory: Bytes) -> Contract {
    Contract { memory, jobs: JobSource::Consumption, ..Contract::new("worker", Nanos::from_millis(100)) }
}

/// A contract with a promise of memory, as `qfabric run --memory` asks for it.
fn promise(client: &Client, worker: &Worker, memory: Bytes) -> Application {
    let (pid, contract) = (worker.pid(), with_memory(memory));
    let admitted = client.admit(&ApplicationRequest { pid, covers: ApplicationScope::Program, contract }).unwrap();
    eventually("the program is protected", || {
        let status = client.application(admitted.id).unwrap().memory.unwrap();
        assert_eq!(status.missing, None, "{status:?}");
        (status.protection == MemoryProtection::Group).then_some(())
    });
    admitted
}

fn service() -> (Embedded, Client) {
    let mut config = Config::default();
    config.log.filter = "error".into();
    config.memory.global_reserve = Some(MemoryAmount(Bytes::from_mib(256)));
    let service = Embedded::start(config).unwrap();
    let client = Client::connect_to(service.socket()).unwrap().with_patience(PATIENCE);
    (service, client)
}

fn promised(client: &Client) -> Bytes {
    client.status().unwrap().memory.unwrap().promised
}

/// A program above its promise waits for memory: the daemon counts a notice and offers a larger promise, and the program
/// gets it with a changed contract. `memory.high` stands for a host that has no more memory.
fn renegotiate(client: &Client, socket: &Path) {
    let mut small = Worker::start("hog", socket);
    let app = promise(client, &small, Bytes::from_mib(1));
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", small.pid())).unwrap();
    let path = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap().to_owned();
    let root = qfabric_linux::memory_groups::memory_root(&qfabric_linux::cgroup::Mounts::here()).unwrap();
    let group = root.join(path.trim_start_matches('/'));
    fs::write(group.join("memory.high"), "4M").unwrap();
    small.go();
    let status = || client.application(app.id).unwrap().memory.unwrap();
    let pressure = eventually("a notice of pressure", || status().pressure);
    let offered = eventually("an offer", || status().pressure?.offered);
    println!("1 MiB promised, {} used, {} notices, {offered} offered", pressure.used, pressure.notices);
    fs::write(group.join("memory.high"), "max").unwrap();
    let changed = client.change(app.id, &with_memory(offered)).unwrap().memory.unwrap();
    assert!(changed.promised >= offered, "{changed:?}");
    let protected = || fs::read_to_string(group.join("memory.min")).unwrap().trim().parse::<u64>().ok();
    eventually("the group is protected with it", || protected().filter(|bytes| *bytes >= offered.get()));
    assert!(client.status().unwrap().memory.unwrap().pressure_notices >= 1);
}

/// A program that was swapped out gets its promise, and the daemon fetches its pages before it needs them.
fn promise_late(client: &Client, program: &mut Worker) {
    let before = swapped(program.pid());
    let app = promise(client, program, PROMISE);
    let fetched = eventually("the pages are fetched", || {
        let fetched = client.application(app.id).unwrap().memory.unwrap().prefaulted;
        (fetched >= Bytes::new(SWAPPED_KIB << 10)).then_some(fetched)
    });
    let faults = program.step();
    println!("promised late: {before} KiB were swapped out, {fetched} fetched, {faults} major faults");
    assert_eq!(faults, 0);
}

#[test]
fn programs_of_the_daemon_have_no_major_fault_where_an_equal_one_has_a_hundred() {
    if std::env::var_os("QFABRIC_VM").is_none() {
        return skip("memory pressure needs the test machine: make vm-test");
    }
    let _alone = live_lock();
    swap_on_zram();
    let (service, client) = service();
    let socket = service.socket();
    let [mut plain, mut linked, mut late] = ["plain", "linked", "late"].map(|task| Worker::start(task, socket));
    let mut reserved = Worker::held("reserved", socket);
    let app = promise(&client, &reserved, PROMISE);
    reserved.go();
    for worker in [&mut plain, &mut reserved, &mut linked, &mut late] {
        worker.step();
    }
    assert_eq!(promised(&client), PROMISE + Bytes::new(DATA as u64));
    let mut taking = hog(socket);
    press(&mut taking, &plain);
    press(&mut taking, &late);
    let faults = [&mut reserved, &mut linked, &mut plain].map(Worker::step);
    println!("major faults of {} pages: contract, library, neither: {faults:?}", DATA / PAGE);
    let shown = client.application(app.id).unwrap().memory.unwrap();
    drop(taking);

    promise_late(&client, &mut late);
    renegotiate(&client, socket);
    assert!(faults[0] == 0 && faults[1] == 0 && faults[2] >= 100, "{faults:?}");
    assert_eq!((shown.swapped, shown.pressure), (Bytes::ZERO, None), "{shown:?}");
    // The programs die without a word.
    drop((reserved, linked, late));
    eventually("everything is free", || (promised(&client) == Bytes::ZERO).then_some(()));
    service.stop().unwrap();
}

/// Huge pages that no program has.
fn free_huge_pages() -> u64 {
    qfabric_linux::memory::huge_pages().unwrap().free
}

#[test]
fn a_reserve_takes_huge_pages_of_the_host_and_returns_them() {
    if std::env::var_os("QFABRIC_VM").is_none() {
        return skip("huge pages are taken from the host only in the test machine: make vm-test");
    }
    let _alone = live_lock();
    fs::write("/proc/sys/vm/nr_hugepages", "8").unwrap();
    let all = free_huge_pages();
    assert!(all >= 4, "only {all} huge pages could be made");
    let (service, client) = service();
    let mem = Mem::connect(&client).unwrap();
    let reserve = mem.reserve_huge((all + 2) * 2 * MIB as u64).unwrap();
    let missing = reserve.missing.clone().unwrap();
    assert!(
        missing.contains(&format!("{all} of {}", all + 2)) && missing.contains("raise vm.nr_hugepages"),
        "{missing}"
    );
    let large = mem.alloc(reserve.reserve, 4 * MIB as u64).unwrap();
    large.write(4 * MIB - 1, &[7]);
    assert_eq!((large.pages(), free_huge_pages()), (PageKind::Huge, all - 2), "really taken");
    // The second one does not fit into the rest: ordinary pages, which the kernel may combine.
    let rest = mem.alloc(reserve.reserve, all * 2 * MIB as u64).unwrap();
    rest.write(all as usize * 2 * MIB - 1, &[7]);
    assert_eq!((rest.pages(), free_huge_pages()), (PageKind::Advised, all - 2));
    large.free().unwrap();
    drop(rest);
    eventually("the huge pages are free", || (free_huge_pages() == all).then_some(()));
    let again = mem.alloc(reserve.reserve, 2 * MIB as u64).unwrap();
    assert_eq!((again.pages(), free_huge_pages()), (PageKind::Huge, all - 1));
    drop((again, mem));
    eventually("the connection's end frees them", || (free_huge_pages() == all).then_some(()));
    fs::write("/proc/sys/vm/nr_hugepages", "0").unwrap();
    service.stop().unwrap();
}
