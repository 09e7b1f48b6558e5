//! `services` and `ecode`: in user space, and on the real kernel.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Answer, qfabric};
use crate::live::Daemon;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

/// Runs the binary with `folder` as its working directory.
fn run(folder: &TempDir, words: &[&str]) -> Answer {
    Answer::of(qfabric(folder.path()).args(words).current_dir(folder.path()))
}

/// Locks the kernel for this test. None if handlers or reservations are not possible here.
fn live() -> Option<File> {
    let lock = qfabric_linux::testing::live_lock();
    (qfabric_linux::testing::may_reserve() && qfabric_linux::ecalls::Kernel::open().is_ok()).then_some(lock)
}

const SUM: &str = "struct input { int a; };\nstatic long sum;\nsum += input.a;\nattr.calls += 1;\nreturn sum;\n";

/// The first program in the guide is the first one that a reader tries.
#[test]
fn the_first_program_of_the_guide_compiles_alone_and_for_packets() {
    let guide = include_str!("../../../../docs/guide/src/ecode.md");
    let first = guide.split("```ecode\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let folder = folder(&[("f.ec", first)]);
    run(&folder, &["ecode", "check", "f.ec"]).expect(0, &["good"]);
    run(&folder, &["ecode", "check", "f.ec", "--service", "net.rx"]).expect(0, &["good"]);
}

#[test]
fn a_valid_program_is_measured_and_an_error_is_shown_with_its_line() {
    let folder = folder(&[("sum.ec", SUM), ("bad.ec", "struct input { int a; };\nreturn input.b;\n")]);
    run(&folder, &["ecode", "check", "sum.ec"]).expect(0, &["sum.ec: good", "8 bytes that persist", "calls"]);
    run(&folder, &["ecode", "check", "sum.ec", "--asm"]).expect(0, &["exit", "r0 = *(u64 *)(r8"]);
    let code = run(&folder, &["ecode", "check", "sum.ec", "--asm", "--json"]).json()["asm"].clone();
    assert!(code.as_str().unwrap().contains("exit"), "{code}");
    let summary = run(&folder, &["ecode", "check", "sum.ec", "--json"]).json();
    assert!(summary["instructions"].as_u64().unwrap() > 3 && summary["attributes"] == json!(["calls"]), "{summary}");
    let turns = "long n = 0; for (int i = 0; i < 3000; i++) n += i * i; return n;";
    let check = |rest: &[&str]| run(&folder, &[&["ecode", "check", "--code", turns], rest].concat());
    check(&["--service", "net.rx"]).expect(0, &["good", "with all turns"]);
    check(&["--service", "sched.switch"]).expect(3, &["sched.switch", "10000 is the limit", "fewer turns"]);
    let refused = check(&["--service", "sched.switch", "--json"]);
    let (worst, limit) = (&refused.json()["worst_case_instructions"], &refused.json()["limit_instructions"]);
    assert!(worst.as_u64() > Some(30_000) && limit == 10_000, "{worst} of {limit}");
    run(&folder, &["ecode", "check", "bad.ec"]).expect(2, &["bad.ec:2:14", "no member `b`", "help"]);
    run(&folder, &["ecode", "check", "none.ec"]).expect(2, &["none.ec", "No such file"]);
    run(&folder, &["ecode", "check"]).expect(2, &["--code"]);
    run(&folder, &["ecode", "check", "--code", "return 1;", "--service", "no.such"]).expect(2, &["no.such", "timer"]);
}

#[test]
fn a_suspicious_text_is_accepted_with_warnings() {
    let folder = folder(&[("warn.ec", "int a;\nif (a = 1) return 1;\n")]);
    let check = |rest: &[&str]| run(&folder, &[&["ecode", "check", "warn.ec"], rest].concat());
    check(&[]).expect(0, &["warn.ec: good"]);
    let warnings = &check(&["--json"]).json()["warnings"];
    assert_eq!((&warnings[0]["line"], &warnings[0]["column"]), (&json!(2), &json!(7)), "{warnings}");
    assert_eq!(warnings[0]["message"], "this condition is an assignment");
}

#[test]
fn ten_megabytes_of_text_are_refused_because_of_their_length() {
    let folder = folder(&[("long.ec", &"x += 1;\n".repeat(1_300_000))]);
    run(&folder, &["ecode", "check", "long.ec"]).expect(2, &["long.ec", "bytes"]);
    let events = ["ecode", "run", "--code", "return 1;", "--input", "long.json"];
    std::fs::write(folder.path().join("long.json"), " ".repeat(17 << 20)).unwrap();
    run(&folder, &events).expect(2, &["long.json", "longer than 16 MiB"]);
}

#[test]
fn the_engines_in_user_space_give_the_same_results() {
    let folder =
        folder(&[("sum.ec", SUM), ("in.json", r#"[{"a": 3}, {"a": 4}]"#), ("far.json", r#"{"a": 99999999999}"#)]);
    for engine in ["interp", "jit"] {
        let line = ["ecode", "run", "sum.ec", "--input", "in.json", "--engine", engine, "--attr", "calls=5", "--json"];
        let report = run(&folder, &line).json();
        let verdicts: Vec<_> = report["calls"].as_array().unwrap().iter().map(|call| call["verdict"].clone()).collect();
        assert_eq!((verdicts, &report["attributes"]["calls"]), (vec![json!(3), json!(7)], &json!(7)), "{engine}");
    }
    run(&folder, &["ecode", "run", "sum.ec", "--input", "far.json"]).expect(2, &["event 1", "a is 99999999999"]);
    run(&folder, &["ecode", "run", "sum.ec", "--attr", "x=1"]).expect(2, &["no attribute x", "calls"]);
    run(&folder, &["ecode", "run", "--code", "int i; return 1 / i;"]).expect(1, &["division by zero in line 1"]);
    let call = ["ecode", "run", "--code", "int f(int r) { return r * 4; } int g(int d) { return d; }", "--call", "f"];
    run(&folder, &call).expect(0, &["verdict 0"]);
}

#[test]
fn fmt_formats_texts_and_checks_the_format() {
    let folder = folder(&[("f.ec", "if(input.a>1)return 1;  // large\nreturn 0;")]);
    run(&folder, &["ecode", "fmt", "f.ec", "--check"]).expect(1, &["f.ec", "--write"]);
    run(&folder, &["ecode", "fmt", "f.ec", "--write"]).expect(0, &[]);
    run(&folder, &["ecode", "fmt", "f.ec", "--check"]).expect(0, &[]);
    run(&folder, &["ecode", "fmt", "f.ec"]).expect(0, &["if (input.a > 1)", "// large"]);
    run(&folder, &["ecode", "fmt", "-", "--write"]).expect(2, &["--write", "standard input"]);
    assert!(!folder.path().join("-").exists());
}

#[test]
fn install_without_a_daemon_ends_with_4() {
    let folder = folder(&[]);
    let line = ["ecode", "install", "--code", "return 1;", "--service", "timer"];
    run(&folder, &line).expect(4, &["no daemon", "qfabric daemon"]);
    run(&folder, &["ecode", "ls"]).expect(4, &["no daemon"]);
}

#[test]
fn trace_works_without_a_daemon_and_ends_at_ctrl_c() {
    let Some(_lock) = live() else { return };
    let folder = folder(&[]);
    let trace = ["ecode", "trace", "--service", "timer", "--option", "period=5ms", "--json"];
    let three = run(&folder, &[&trace[..], &["--code", "return input.count > 2;", "--count", "3"]].concat());
    let counts: Vec<Value> =
        three.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["event"]["count"].clone()).collect();
    assert_eq!((three.code, counts), (0, vec![json!(3), json!(4), json!(5)]));
    let counted = run(&folder, &[&trace[..], &["--histogram", "count", "--count", "3"]].concat()).json();
    let histogram = &counted["histograms"][0];
    assert_eq!([&histogram["least"], &histogram["largest"], &histogram["count"]], [1, 3, 3], "{counted}");
    let unknown = run(&folder, &[&trace[..], &["--histogram", "size"]].concat());
    unknown.expect(2, &["no field size", "count"]);

    let mut endless = qfabric(folder.path()).args(trace).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(endless.stdout.take().unwrap()).read_line(&mut first).unwrap();
    kill_process(Pid::from_child(&endless), Signal::INT).unwrap();
    assert!(endless.wait().unwrap().code() == Some(0) && first.contains("\"count\":1"), "{first}");
    run(&folder, &["ecode", "trace", "--service", "timer"]).expect(3, &["period"]);
    run(&folder, &["ecode", "trace", "--service", "no.such"]).expect(3, &["no.such", "qfabric services"]);
}

#[test]
fn a_handler_is_listed_until_it_is_removed_or_its_process_ends() {
    let Some(_lock) = live() else { return };
    let folder = folder(&[("w.ec", "attr.wakes += 1; return 0;")]);
    let _daemon = Daemon::start(folder.path(), "");
    let mut sleeper = Command::new("sh").args(["-c", "while :; do sleep 0.01; done"]).spawn().unwrap();
    let pid = sleeper.id().to_string();
    let install = ["ecode", "install", "w.ec", "--service", "sched.wakeup", "--pid", &pid, "--json"];
    let (first, second) = (run(&folder, &install).json(), run(&folder, &install).json());
    assert_eq!(first["in_kernel"], json!(["k_code"]), "{first}");
    let list = || run(&folder, &["ecode", "ls", "--json"]).json();
    let until = Instant::now() + Duration::from_secs(120);
    while list()[0]["counters"]["events"].as_u64() < Some(2) {
        assert!(Instant::now() < until, "no wake-up was seen: {}", list());
    }
    assert!(list()[0]["attributes"][0][1].as_i64().unwrap() >= 2);
    run(&folder, &["ecode", "ls"]).expect(0, &["sched.wakeup", &pid, "kernel", "active"]);
    run(&folder, &["ecode", "rm", &first["id"].to_string()]).expect(0, &[]);
    run(&folder, &["ecode", "rm", &first["id"].to_string()])
        .expect(3, &["there is no subscription", "qfabric ecode ls"]);
    assert_eq!(list()[0]["id"], second["id"]);
    sleeper.kill().and_then(|()| sleeper.wait()).unwrap();
    while list() != json!([]) {
        assert!(Instant::now() < until, "the handler outlived its process: {}", list());
    }
    let refused = ["ecode", "install", "--code", "return input.nope;", "--service", "sched.wakeup"];
    run(&folder, &refused).expect(2, &["no member `nope`", "--code:1:14"]);
    assert_eq!(list(), json!([]));
}

/// The handler of the guide, in front of a web server that knows nothing of it.
/// Waits with `epoll`, as most web servers do, and prints its port. A server that blocks in `recv` sees `EAGAIN` when the
/// kernel answers for it.
const WEB_SERVER: &str = r"
import asyncio
async def answer(reader, writer):
    while await reader.readline() not in (b'', b'\r\n'):
        pass
    writer.write(b'HTTP/1.0 200 OK\r\n\r\nfrom the server')
    writer.close()
async def serve():
    server = await asyncio.start_server(answer, '127.0.0.1', 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(serve())
";

#[test]
fn the_kernel_answers_a_page_on_a_connection_of_an_unmodified_web_server() {
    let Some(_lock) = live() else { return };
    let guide = include_str!("../../../../docs/guide/src/ecalls.md");
    let code =
        guide.split("```c\n").filter_map(|rest| rest.split("```").next()).find(|code| code.contains("input.tail"));
    let folder = folder(&[("hi.ec", code.unwrap())]);
    let Ok(mut server) = Command::new("python3").args(["-c", WEB_SERVER]).stdout(Stdio::piped()).spawn() else {
        return qfabric_linux::testing::skip("python3 is not installed");
    };
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port = line.trim();
    let _daemon = Daemon::start(folder.path(), "");
    let hello = "HTTP/1.0 200 OK\r\n\r\nfrom the kernel";
    let (listen, answers) = (format!("listen=:{port}"), format!("answers={}:{hello},", hello.len()));
    let options = ["--option", &listen, "--option", &answers, "--json"];
    let install = ["ecode", "install", "hi.ec", "--service", "sock.stream"];
    run(&folder, &[&install[..], &options[..]].concat()).expect(0, &[]);
    let mut client = TcpStream::connect(("127.0.0.1", port.parse::<u16>().unwrap())).unwrap();
    for _ in 0..3 {
        client.write_all(b"GET /hi HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = vec![0; hello.len()];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), hello);
    }
    client.write_all(b"GET /ho HTTP/1.0\r\n\r\n").unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("from the server"), "{rest}");
    server.kill().and_then(|()| server.wait()).unwrap();
}

#[test]
fn services_are_listed_with_their_formats() {
    let Some(_lock) = live() else { return };
    let folder = folder(&[]);
    run(&folder, &["services"]).expect(0, &["sched.wakeup", "net.rx", "sched.deadline_miss", "kernel", "daemon"]);
    run(&folder, &["services", "net.rx"])
        .expect(0, &["struct net_rx", "interface: name of the interface", "destination_port"]);
    let list = run(&folder, &["services", "--json"]).json();
    assert!(list.as_array().unwrap().len() >= 14);
    run(&folder, &["services", "no.such"]).expect(2, &["no.such", "timer"]);
}
