//! Tests of the library from C: the header, compiling, linking, running.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use qfabric_client::{Class, Client, Contract, Nanos, ReservedRate, Session, Share};
use qfabric_daemon::{Config, Embedded, EngineName, Lend, MemoryAmount};
use qfabric_linux::namespace::Namespace;
use qfabric_linux::net::testing::{Interface, own_network};
use qfabric_linux::testing::{live_lock, may_reserve};
use qfabric_types::api::net::{LinkRequest, NetMechanism, Selector, StreamSpec};
use qfabric_types::{BitRate, Bytes};
use tempfile::TempDir;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Folder of the built libraries: the parent of the folder of this test program.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().unwrap().parent().unwrap().to_owned();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "qfabric-ffi", "--target-dir"]).arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.current_dir(CRATE).status().unwrap().success());
    profile
}

struct Program {
    path: PathBuf,
    libraries: PathBuf,
    _folder: TempDir,
}

/// Compiles a program with warnings as errors.
fn compile(compiler: &str, source: &Path, linking: impl Fn(&Path) -> Vec<String>) -> Program {
    let (folder, libraries) = (tempfile::tempdir().unwrap(), libraries());
    let path = folder.path().join("program");
    let output = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-I"])
        .arg(format!("{CRATE}/include"))
        .arg(source)
        .arg("-o")
        .arg(&path)
        .args(linking(&libraries))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Program { path, libraries, _folder: folder }
}

fn shared(libraries: &Path) -> Vec<String> {
    vec![format!("-L{}", libraries.display()), "-lqfabric".into()]
}

fn example(name: &str) -> PathBuf {
    PathBuf::from(format!("{CRATE}/../../examples/c/{name}"))
}

impl Program {
    fn run(&self, socket: &Path, args: &[&str]) -> Output {
        self.command(socket, args).output().unwrap()
    }

    fn command(&self, socket: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(args).env("QFABRIC_SOCKET", socket).env("LD_LIBRARY_PATH", &self.libraries);
        command
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_committed_header_is_the_generated_one() {
    let (generated, committed) = (concat!(env!("OUT_DIR"), "/qfabric.h"), format!("{CRATE}/include/qfabric.h"));
    let same = fs::read(generated).unwrap() == fs::read(&committed).unwrap_or_default();
    assert!(same, "the C interface changed; bring the header up to date:\n  cp {generated} {committed}");
}

#[test]
fn without_a_daemon_the_error_names_the_call_the_socket_and_the_command() {
    for (name, call) in [
        ("periodic.c", "qf_init"),
        ("probe.c", "qf_cpu_reserve"),
        ("ecalls.c", "qf_ecalls_connect"),
        ("channels.c", "qf_channels_connect"),
    ] {
        let output = compile("cc", &example(name), shared).run(Path::new("/nowhere/qfabric.sock"), &[]);
        let shown = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{shown}");
        for named in [call, "/nowhere/qfabric.sock", "`qfabric daemon`"] {
            assert!(shown.contains(named), "{shown} does not name {named}");
        }
    }
}

#[test]
fn the_static_library_links_too() {
    let linking = |libraries: &Path| {
        let library = libraries.join("libqfabric.a").display().to_string();
        [&library, "-lpthread", "-ldl", "-lm"].map(String::from).to_vec()
    };
    let output = compile("cc", &example("periodic.c"), linking).run(Path::new("/nowhere/qfabric.sock"), &[]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn c_programs_run_under_a_real_daemon() {
    if !may_reserve() {
        return;
    }
    let (periodic, probe) = (compile("cc", &example("periodic.c"), shared), compile("cc", &example("probe.c"), shared));
    let _alone = live_lock();
    let daemon = Embedded::start(Config::default()).unwrap();
    let output = periodic.run(daemon.socket(), &["25"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.starts_with("25 jobs, ") && shown.contains("in every 10.00 ms"), "{shown}");
    let output = probe.run(daemon.socket(), &[]);
    assert!(output.status.success() && text(&output.stdout).contains("reserved: "), "{}", text(&output.stderr));
}

#[test]
fn a_c_program_raises_filters_reads_and_is_signalled() {
    if !may_reserve() {
        return;
    }
    let program = compile("cc", &example("ecalls.c"), shared);
    let _alone = live_lock();
    let daemon = Embedded::start(Config::default()).unwrap();
    let output = program.run(daemon.socket(), &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert_eq!(shown, "memory 3, signal 3\nmemory 4, signal 4\n2 events, 4 seen by the handler\n");
}

#[test]
fn a_c_program_registers_submits_filters_and_is_called() {
    if !may_reserve() {
        return;
    }
    let program = compile("cc", &example("channels.c"), shared);
    let _alone = live_lock();
    let mut config = Config::default();
    config.channels.enabled = true;
    config.channels.engine = EngineName::None;
    config.channels.host = Some("alpha".parse().unwrap());
    let daemon = Embedded::start(config).unwrap();
    let output = program.run(daemon.socket(), &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert_eq!(shown, "frame 1 of alpha\nframe 3 of alpha\n3 submitted, 1 filtered, 2 handled\n");
}

/// A daemon on a lending host with a capacity of 0.4 CPU.
fn lender(folder: &Path, name: &str, other: &str) -> Embedded {
    let address = |name: &str| format!("unix:{}/{name}.link", folder.display());
    let mut config = Config::default();
    config.limits.capacity = Some(Share::from_ppm(400_000));
    config.channels.enabled = true;
    config.channels.insecure = true;
    config.channels.engine = EngineName::Tcp;
    config.channels.host = Some(name.parse().unwrap());
    config.channels.listen = vec![address(name)];
    config.channels.connect = vec![address(other)];
    config.channels.lend = Lend::First;
    Embedded::start(config).unwrap()
}

#[test]
fn a_c_program_reads_an_offer_claims_the_loan_and_gives_one_back() {
    if !may_reserve() {
        return;
    }
    let source = PathBuf::from(format!("{CRATE}/tests/offer.c"));
    let program = compile("cc", &source, shared);
    let (_alone, folder) = (live_lock(), tempfile::tempdir().unwrap());
    let (alpha, beta) = (lender(folder.path(), "alpha", "beta"), lender(folder.path(), "beta", "alpha"));
    let clients = [&alpha, &beta].map(|host| Client::connect_to(host.socket()).unwrap());
    let lends = |client: &Client| client.groups().unwrap().iter().any(|group| group.members.len() == 2);
    while !clients.iter().all(lends) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let share = Share::from_ppm(300_000);
    let contract = Contract { class: Class::A, guaranteed: Some(share), max_bandwidth: share, ..Contract::default() };
    let _full = Session::start(&clients[0], contract).unwrap();
    let output = program.run(alpha.socket(), &[beta.socket().to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "0.3 CPU on beta\n");
}

/// Runs a C program of this folder beside a daemon with a capacity of 0.5 CPU.
fn run_beside_a_daemon(source: &str) {
    if !may_reserve() {
        return;
    }
    let program = compile("cc", &PathBuf::from(format!("{CRATE}/tests/{source}")), shared);
    let _alone = live_lock();
    let mut config = Config::default();
    config.limits.capacity = Some(Share::from_ppm(500_000));
    config.channels.enabled = true;
    config.channels.engine = EngineName::None;
    let daemon = Embedded::start(config).unwrap();
    let output = program.run(daemon.socket(), &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_child_of_a_fork_leaves_its_parents_contract_ring_and_events_alone() {
    run_beside_a_daemon("fork.c");
}

#[test]
fn a_handler_does_not_run_once_its_sink_is_freed() {
    run_beside_a_daemon("handlers.c");
}

#[test]
fn events_that_a_c_program_queues_arrive_in_order() {
    run_beside_a_daemon("queued.c");
}

#[test]
fn a_c_program_transcodes_its_events_and_its_sink_knows_what_was_applied() {
    run_beside_a_daemon("transcode.c");
}

#[test]
fn a_c_program_is_called_when_an_overload_begins_and_ends() {
    run_beside_a_daemon("overload.c");
}

#[test]
fn a_c_program_states_utilities_and_saves_energy() {
    run_beside_a_daemon("utility.c");
}

#[test]
fn a_c_program_reads_and_changes_limits() {
    run_beside_a_daemon("limits.c");
}

#[test]
fn a_c_program_reserves_memory_and_shares_it() {
    run_beside_a_daemon("mem.c");
}

#[test]
fn a_c_program_makes_reads_and_ends_a_joint_contract() {
    run_beside_a_daemon("joint.c");
}

#[test]
fn a_joint_contract_of_a_c_program_ends_with_it_and_asks_before_it_begins_or_grows() {
    run_beside_a_daemon("asking.c");
}

/// A daemon in a network of its own with the open link qf0, and its client.
fn beside_a_link(config: Config) -> (Interface, Embedded, Client) {
    own_network().unwrap();
    for words in ["link set lo up", "addr add 10.9.9.1/24 dev lo"] {
        assert!(Command::new("ip").args(words.split(' ')).status().unwrap().success());
    }
    let interface = Interface::veth("qf0", "qf0-far").unwrap();
    let (daemon, client) = with_link("qf0", config);
    (interface, daemon, client)
}

/// A daemon whose link every user may use.
fn with_link(interface: &str, config: Config) -> (Embedded, Client) {
    let daemon = Embedded::start(config).unwrap();
    let client = Client::connect_to(daemon.socket()).unwrap();
    let link = LinkRequest { mechanism: Some(NetMechanism::Htb), ..LinkRequest::of_rate(BitRate::new(10_000_000)) };
    client.open_link(interface, &link).unwrap();
    (daemon, client)
}

/// The reserve of memory that the programs know.
fn with_memory() -> Config {
    let mut config = Config::default();
    config.memory.global_reserve = Some(MemoryAmount(Bytes::from_mib(256)));
    config
}

#[test]
fn a_c_program_draws_cpu_memory_and_a_rate_from_a_joint_contract() {
    if !may_reserve() {
        return;
    }
    let program = compile("cc", &PathBuf::from(format!("{CRATE}/tests/draw.c")), shared);
    let _alone = live_lock();
    let mut config = with_memory();
    config.limits.capacity = Some(Share::from_ppm(500_000));
    let (_link, daemon, client) = beside_a_link(config);
    let output = program.run(daemon.socket(), &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(client.joint_contracts().unwrap().is_empty() && client.interface("qf0").unwrap().streams.is_empty());
}

/// A folder with the certificates of the hosts cam and wall.
fn certificates() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    qfabric_realm::init_ca(folder.path(), &"studio".parse().unwrap()).unwrap();
    for host in ["cam", "wall"] {
        qfabric_realm::issue(folder.path(), &host.parse().unwrap(), &[], folder.path(), 30).unwrap();
    }
    qfabric_realm::enlist(folder.path(), &["cam", "wall"].map(|host| host.parse().unwrap())).unwrap();
    folder
}

#[test]
fn a_c_program_reserves_the_rate_of_a_connection_also_from_a_contract() {
    if !may_reserve() {
        return;
    }
    let program = compile("cc", Path::new(&format!("{CRATE}/tests/metp_reserve.c")), shared);
    let _alone = live_lock();
    let (folder, (_link, daemon, client)) = (certificates(), beside_a_link(Config::default()));
    let output = program.run(daemon.socket(), &[folder.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(client.interface("qf0").unwrap().streams.is_empty());
}

/// Runs `act` in a forked child, which a timer kills if it hangs. Returns whether it returned true.
#[allow(unsafe_code)] // the standard library has no fork
fn in_child(act: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `act` alone, which takes no lock of another thread, and ends with `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: takes only a number.
        unsafe { libc::alarm(60) };
        let code = if act() { 7 } else { 1 };
        // SAFETY: ends the child without running the parent's exit handlers and destructors.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: the status is live, and the child is of this process.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7
}

#[test]
fn a_child_of_a_fork_that_drops_a_reserved_rate_leaves_it_to_its_parent() {
    if !may_reserve() {
        return;
    }
    let _alone = live_lock();
    let (_link, _daemon, client) = beside_a_link(Config::default());
    let spec = StreamSpec { size: 5_000, ..StreamSpec::new(Selector::Mark(7), Nanos::from_millis(40)) };
    let mut held = Some(client.reserve_rate("qf0", &spec).unwrap());
    let dropped = in_child(|| {
        let own = held.take();
        let was_live = own.as_ref().is_some_and(ReservedRate::is_live);
        drop(own);
        !was_live
    });
    assert!(dropped, "the child says that it holds no rate, and ends");
    assert!(held.as_ref().is_some_and(ReservedRate::is_live));
    assert_eq!(client.interface("qf0").unwrap().streams.len(), 1);
    drop(held);
    assert!(client.interface("qf0").unwrap().streams.is_empty());
}

#[test]
fn a_c_program_serves_and_opens_a_connection_over_metp() {
    let folder = certificates();
    let program = compile("cc", Path::new(&format!("{CRATE}/tests/metp.c")), shared);
    let output = program.run(Path::new("/nowhere"), &[folder.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_c_program_stores_profiles_and_finds_them_by_their_key() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("cc", Path::new(&format!("{CRATE}/tests/profiles.c")), shared);
    let output = program.run(Path::new("/nowhere"), &[folder.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(folder.path().join("qfabric/profiles/player.json").exists());
}

#[test]
fn a_c_program_renews_a_profile_of_delays_by_its_messages() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("net-beta-eth0.json");
    let profile = r#"{"host":"beta","interface":"eth0","kernel":"7.3","min_rtt_ns":2000000,"points":[]}"#;
    fs::write(&file, profile).unwrap();
    let program = compile("cc", Path::new(&format!("{CRATE}/tests/delays.c")), shared);
    let output = program.run(Path::new("/nowhere"), &[file.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let renewed: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let of = |point: usize| {
        ["rate_bps", "p99_ns", "arrived", "lost"].map(|key| renewed["points"][point][key].as_u64().unwrap())
    };
    assert_eq!(of(0), [5_000_000, 20_000_000, 100, 1]);
    assert_eq!((of(1), &renewed["min_rtt_ns"]), ([6_000_000, 30_000_000, 100, 0], &4_000_000.into()));
}

/// QualMan's sample program and its server, each on a host with a daemon.
#[test]
fn the_c_sample_reserves_memory_network_and_cpu_and_plays_a_film_from_another_host() {
    if !may_reserve() {
        return;
    }
    let source = |name: &str| PathBuf::from(format!("{CRATE}/../../examples/qualman-sample/{name}.c"));
    let [sample, server] = ["sample", "server"].map(|name| compile("cc", &source(name), shared));
    let _alone = live_lock();
    own_network().unwrap();
    let there = Namespace::new().unwrap();
    let addresses = ["10.79.0.1", "10.79.0.2"].map(|address| address.parse().unwrap());
    let _link = Interface::veth_to("qf0", "eth0", &there, addresses).unwrap();
    let (here, client) = with_link("qf0", with_memory());
    let (far, _) = there.inside(|| with_link("eth0", Config::default())).unwrap();
    let (certificates, service) = (certificates(), "10.79.0.2:7800");
    let folder = certificates.path().to_str().unwrap();

    let mut serving = server.command(far.socket(), &["eth0", service, folder, "wall"]);
    there.enter_at_exec(&mut serving).unwrap();
    let mut serving = serving.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(serving.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(said.next().unwrap(), "listens on port 7800");
    let output = sample.run(here.socket(), &["qf0", service, folder, "cam", "20"]);
    let shown = text(&output.stdout);
    assert!(shown.starts_with("20 frames, brightness 76800, "), "{shown}{}", text(&output.stderr));
    assert!(output.status.success() && client.joint_contracts().unwrap().is_empty());
    assert!(serving.wait().unwrap().success());
    assert_eq!(said.next().unwrap(), "a client is served, 1843200 bit/s are reserved");
    assert_eq!(said.next().unwrap(), "the client has closed the connection", "and not: it was silent for 10 s");
}

#[test]
fn every_misuse_returns_a_status_and_a_text() {
    let output = compile("cc", Path::new(&format!("{CRATE}/tests/misuse.c")), shared).run(Path::new("/nowhere"), &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_c_program_lowers_its_quality_and_takes_it_back() {
    let program = compile("cc", Path::new(&format!("{CRATE}/tests/ladder.c")), shared);
    let output = program.run(Path::new("/nowhere"), &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rates: Vec<&str> = "20 12 20 20 20 20 20 20 20".split(' ').collect();
    let output = compile("cc", &example("ladder.c"), shared).run(Path::new("/nowhere"), &rates);
    let shown = text(&output.stdout);
    assert_eq!(shown, "second 2, too slow: quality 40, size 640\nsecond 8, kept: quality 60, size 640\n");
}

/// A `bool` of Rust with another byte than 0 or 1 is undefined behaviour; `qf_bool` reads any byte. The compiler
/// rejects neither, so this test reads the sources.
#[test]
fn no_type_or_function_for_c_has_a_bool() {
    let mut found = Vec::new();
    for path in fs::read_dir(format!("{CRATE}/src")).unwrap().map(|entry| entry.unwrap().path()) {
        let source = fs::read_to_string(&path).unwrap();
        found.extend(bools_for_c(&source).into_iter().map(|line| format!("{}: {line}", path.display())));
    }
    assert!(found.is_empty(), "use qf_bool: {found:#?}");
    let wrong = ["pub struct a {\n    pub b: bool,\n}", "type c = Option<extern \"C\" fn(d: *mut c_void) -> bool>;"];
    let functions = ["extern \"C\" fn a(\n    b: bool,\n) {\n}", "    called: extern \"C\" fn(u8) -> bool,"];
    for source in wrong.into_iter().chain(functions) {
        assert_eq!(bools_for_c(source).len(), 1, "{source}");
    }
    assert_eq!(bools_for_c("pub unsafe extern \"C\" fn a(\n    b: *mut bool,\n) -> bool {\n}"), [""; 0]);
    assert_eq!(bools_for_c("fn mode(on: bool) -> Mode {\n}\n/// extern \"C\" fn, bool\nlet x: bool = y;"), [""; 0]);
}

/// Lines with a public field of type `bool`, and lines of a signature of `extern "C"` with one. Exceptions: a pointer
/// through which this library writes only, and the result of a function of this library.
fn bools_for_c(source: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let has = |line: &str| line.split(|c| !is_word(c)).any(|word| word == "bool");
    let (mut in_signature, mut is_ours) = (false, false);
    let mut found = Vec::new();
    for line in source.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        in_signature |= line.contains("extern \"C\" fn");
        is_ours |= line.contains("unsafe extern \"C\" fn ");
        let writes = line.contains("*mut bool") || (is_ours && line.contains("-> bool {"));
        let is_field = line.starts_with("pub ") && line.ends_with(',');
        if has(line) && (in_signature || is_field) && !writes {
            found.push(line);
        }
        in_signature &= !line.contains(['{', ';']);
        is_ours &= in_signature;
    }
    found
}

#[test]
fn the_header_serves_cpp() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("program.cpp");
    fs::write(&source, "#include <qfabric.h>\nint main() { return qf_version() == nullptr; }\n").unwrap();
    let output = compile("c++", &source, shared).run(Path::new("/nowhere"), &[]);
    assert!(output.status.success());
}

#[test]
fn the_pkg_config_file_names_only_what_is_replaced() {
    let template = fs::read_to_string(format!("{CRATE}/qfabric.pc.in")).unwrap();
    let filled = template.replace("@PREFIX@", "/usr").replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    assert!(!filled.contains('@') && filled.contains("-lqfabric"), "{filled}");
}
