//! Memory reserves as applications meet them: a real daemon, and members in two processes.

mod common;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Host, PATIENCE, connected};
use qfabric_client::{AllocationId, ClientError, Mem, PageKind, ReserveId};
use qfabric_daemon::MemoryAmount;
use qfabric_shm::fds;
use qfabric_types::Bytes;

impl Host {
    /// None, where this host offers no mechanism.
    fn start() -> Option<Host> {
        Host::with(|config| config.memory.global_reserve = Some(MemoryAmount(Bytes::from_mib(256))))
    }

    fn promised(&self) -> Bytes {
        self.client.status().unwrap().memory.unwrap().promised
    }
}

/// The sample of QualMan's §6.4, as far as it concerns memory.
#[test]
fn the_sample_of_the_paper_reserves_locks_allocates_and_frees() {
    let Some(host) = Host::start() else { return };
    let mem = Mem::connect(&host.client).unwrap();
    let reserve = mem.reserve(200 << 20).unwrap();
    match mem.lock_text(reserve) {
        Ok(locked) => assert!(locked > 0),
        Err(error) => assert!(error.to_string().contains("CAP_"), "{error}"),
    }
    let (frame, name) = (mem.alloc(reserve, 500_000).unwrap(), mem.alloc(reserve, 20).unwrap());
    frame.write(499_990, b"0123456789");
    let mut read = [0; 10];
    frame.read(499_990, &mut read);
    assert_eq!((&read, frame.len(), name.as_ptr() as usize % 16), (b"0123456789", 500_000, 0));
    assert_eq!(host.promised(), Bytes::from_mib(200));
    assert_eq!(mem.resize(reserve, 210 << 20).unwrap(), 210 << 20);
    frame.free().unwrap();
    mem.free_reserve(reserve).unwrap();
    assert_eq!(host.promised(), Bytes::ZERO);
}

/// One row of QualMan's Table 4: a limit of System V segments, its default and suggested value, and the file of this
/// host. Linux has no limit of segments per process.
const TABLE_4: [(&str, &str, &str, Option<&str>); 3] = [
    ("largest segment (shmmax)", "1 MB", "5 MB", Some("/proc/sys/kernel/shmmax")),
    ("segments of the host (shmmni)", "100", "1000", Some("/proc/sys/kernel/shmmni")),
    ("segments of a process (shmseg)", "6", "100", None),
];

/// Table 4: what the paper reaches after the administrator has changed system parameters, a reserve reaches without.
#[test]
fn the_segments_of_table_4_need_no_system_parameter() {
    let Some(host) = Host::start() else { return };
    let parameters = || TABLE_4.map(|row| row.3.and_then(|file| std::fs::read_to_string(file).ok()));
    let before = parameters();
    // Ten programs, each with a connection of its own, a hundred segments, and one of 5 MB.
    let program = || {
        let mem = Mem::connect(&host.client).unwrap();
        let reserve = mem.reserve(12 << 20).unwrap();
        let large = mem.alloc(reserve, 5_000_000).unwrap();
        large.write(4_999_999, &[7]);
        let page = 4_096;
        let segments: Vec<_> = (0..99).map(|_| mem.alloc(reserve, page).unwrap()).collect();
        segments.iter().for_each(|segment| segment.write(4_095, &[7]));
        (mem, large, segments)
    };
    let programs: Vec<_> = (0..10).map(|_| program()).collect();
    let segments: usize = programs.iter().map(|(_, _, segments)| segments.len() + 1).sum();
    let of_one = programs[0].2.len() + 1;
    println!("| limit | default of the paper | suggested | System V here | segments of reserves here |");
    let reached = ["5000000 bytes".to_owned(), segments.to_string(), of_one.to_string()];
    for (((name, default, suggested, _), here), reached) in TABLE_4.iter().zip(&before).zip(&reached) {
        let here = here.as_deref().map_or("none", str::trim);
        println!("| {name} | {default} | {suggested} | {here} | {reached} |");
    }
    assert_eq!((segments, of_one), (1_000, 100));
    assert_eq!(parameters(), before, "no system parameter was changed");
    drop(programs);
    let free = || host.promised() == Bytes::ZERO;
    while !free() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_reserve_has_huge_pages_or_says_what_is_missing() {
    let Some(host) = Host::start() else { return };
    let mem = Mem::connect(&host.client).unwrap();
    let huge = mem.reserve_huge(3 << 20).unwrap();
    let frame = mem.alloc(huge.reserve, 3 << 20).unwrap();
    frame.write((3 << 20) - 4, b"last");
    println!("{} bytes, {:?}, missing: {:?}", huge.bytes, frame.pages(), huge.missing);
    assert_eq!((huge.bytes >= 3 << 20, frame.pages() == PageKind::Huge), (true, huge.missing.is_none()));
    if let Some(missing) = &huge.missing {
        assert!(missing.contains("huge pages") && missing.contains("ordinary pages"), "{missing}");
    }
    assert_eq!(host.promised(), Bytes::new(huge.bytes));
    assert_eq!(mem.resize(huge.reserve, huge.bytes + 1).unwrap() % (1 << 20), 0, "it grows by whole huge pages");
    drop(frame);
    mem.free_reserve(huge.reserve).unwrap();
    assert_eq!(host.promised(), Bytes::ZERO);
}

#[test]
fn a_refusal_names_what_is_free_and_changes_nothing() {
    let Some(host) = Host::start() else { return };
    let mem = Mem::connect(&host.client).unwrap();
    let Err(ClientError::Refused(problem)) = mem.reserve(1 << 30) else { panic!("1 GiB was granted") };
    assert_eq!((problem.code.as_str(), problem.shortage.unwrap().largest), ("over_committed", 268_435_456.0));
    assert!(problem.message.contains("asked for 1 GiB"), "{}", problem.message);
    let reserve = mem.reserve(1).unwrap();
    assert!(mem.alloc(reserve, 10_000).unwrap_err().to_string().contains("asked for 12 KiB"));
    assert!(mem.alloc(ReserveId(99), 1).unwrap_err().to_string().contains("no reserve 99"));
}

#[test]
fn garbage_on_the_socket_is_refused_and_disturbs_no_other_connection() {
    let Some(host) = Host::start() else { return };
    let mem = Mem::connect(&host.client).unwrap();
    let reserve = mem.reserve(1 << 20).unwrap();
    let path = host.client.socket().with_file_name("memory.sock");
    let socket = fds::connect(&path, PATIENCE).unwrap();
    let (deep, long) = ("[".repeat(8_000), format!("{{\"reserve\":{}}}", "1".repeat(8_000)));
    let foreign = format!("{{\"free_reserve\":{reserve}}}");
    for text in ["x", "{", "null", "{\"reserve\":-1}", "{\"reserve\":1e400}", "{\"steal\":1}", &deep, &long, &foreign] {
        fds::send(&socket, text.as_bytes(), &[]).unwrap();
        let mut answer = vec![0; 8 << 10];
        let received = fds::recv(&socket, &mut answer).unwrap();
        let refusal = String::from_utf8_lossy(&answer[..received.length]).into_owned();
        assert!(refusal.starts_with("{\"refused\"") && refusal.contains("next_step"), "{text:.80} → {refusal}");
    }
    drop(socket);
    mem.alloc(reserve, 20).unwrap().write(0, b"undisturbed");
    assert_eq!(host.promised(), Bytes::from_mib(1));
}

/// Runs in a child process: joins the reserve, writes into the parent's allocation, makes an own one, and waits to be
/// killed.
#[test]
fn member_in_another_process() {
    let Ok(given) = std::env::var("QFABRIC_TEST_MEMBER") else { return };
    let parts: Vec<&str> = given.split(' ').collect();
    let (reserve, allocation) = (ReserveId(parts[1].parse().unwrap()), AllocationId(parts[2].parse().unwrap()));
    let mem = Mem::connect(&connected(parts[0])).unwrap();
    mem.join(reserve).unwrap();
    mem.open(reserve, allocation).unwrap().write(0, b"hello");
    let _own = mem.alloc(reserve, 40_000).unwrap();
    println!("ready");
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_killed_member_gives_its_allocations_back_and_the_others_keep_theirs() {
    let Some(host) = Host::start() else { return };
    let mem = Mem::connect(&host.client).unwrap();
    let reserve = mem.reserve(100_000).unwrap();
    let shared = mem.alloc(reserve, 5).unwrap();
    let given = format!("{} {reserve} {}", host.client.socket().display(), shared.id());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "member_in_another_process", "--nocapture"])
        .env("QFABRIC_TEST_MEMBER", given)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    until_used(&host, &mut child, 4096 + 40_960);
    let mut read = [0; 5];
    shared.read(0, &mut read);
    assert_eq!(&read, b"hello");
    child.kill().unwrap();
    until_used(&host, &mut child, 4096);
    child.wait().unwrap();
}

/// Runs in a child process: makes reserves, lets them grow and shrink, allocates, opens and frees, until it is killed.
#[test]
fn member_that_never_rests() {
    let Ok(given) = std::env::var("QFABRIC_TEST_CHURN") else { return };
    let (socket, shared) = given.split_once(' ').unwrap();
    let (mem, shared) = (Mem::connect(&connected(socket)).unwrap(), ReserveId(shared.parse().unwrap()));
    mem.join(shared).unwrap();
    println!("ready");
    for round in 0_u64.. {
        let reserve = mem.reserve(1 << 20).unwrap();
        let frames: Vec<_> = (0..4).map(|i| mem.alloc(reserve, 50 + i * 40_000 + round % 900).unwrap()).collect();
        mem.resize(reserve, (2 + round % 3) << 20).unwrap();
        let passed = mem.alloc(shared, 100 + round % 5_000).unwrap();
        mem.open(shared, passed.id()).unwrap().write(0, b"passed on");
        mem.resize(reserve, 512 << 10).unwrap();
        drop(frames);
        mem.free_reserve(reserve).unwrap();
    }
}

/// Kills a member at a moment that may be in the middle of growing, shrinking, or passing an allocation on.
#[test]
fn whenever_a_member_is_killed_everything_of_it_is_free() {
    let Some(host) = Host::start() else { return };
    let mem = Mem::connect(&host.client).unwrap();
    let shared = mem.reserve(1 << 20).unwrap();
    let kept = mem.alloc(shared, 10).unwrap();
    let mut random = std::process::id();
    println!("seed {random}");
    for round in 0..20 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "member_that_never_rests", "--nocapture"])
            .env("QFABRIC_TEST_CHURN", format!("{} {shared}", host.client.socket().display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        assert!(lines.map_while(Result::ok).any(|line| line.contains("ready")), "the child has ended");
        std::thread::sleep(Duration::from_micros(u64::from(random >> 16)));
        assert_eq!(child.try_wait().unwrap(), None, "the child has failed by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        kept.write(0, &[round]);
        until_alone(&host);
    }
    let memory = host.client.status().unwrap().memory.unwrap();
    assert_eq!((memory.promised, memory.pools[0].used), (Bytes::from_mib(1), Bytes::new(4096)));
}

/// Waits until the first reserve is the only one, with one member and one page in use.
fn until_alone(host: &Host) {
    loop {
        let memory = host.client.status().unwrap().memory.unwrap();
        match &memory.pools[..] {
            [pool] if pool.members == 1 && pool.used == Bytes::new(4096) => return,
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Waits until the first reserve has `bytes` in use. A child that has failed by itself fails the test.
fn until_used(host: &Host, child: &mut Child, bytes: u64) {
    while host.client.status().unwrap().memory.unwrap().pools[0].used != Bytes::new(bytes) {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none_or(|status| status.code().is_none()), "{ended:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
