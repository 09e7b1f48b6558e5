//! A client whose peer is not a daemon, or a broken one: every answer is bounded in size and time, and the error
//! names the cause.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::Duration;

use qfabric_client::channel::Channels;
use qfabric_client::{Client, ClientError, Contract, JointBuilder, Nanos, Resource, Session};
use qfabric_shm::fds;
use qfabric_types::channel_wire::{FromDaemon, Refused, VERSION};
use tempfile::TempDir;

type Answer = fn(&mut UnixStream, &str);

/// A peer that answers every call with `answer(stream, request head)` until the test ends.
fn peer(answer: Answer) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("qfabric.sock")).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let request = whole_request(&mut stream);
            answer(&mut stream, &request);
        }
    });
    dir
}

/// Reads head and body: a peer that closes during the request would be a different test.
fn whole_request(stream: &mut UnixStream) -> String {
    let (mut request, mut part) = (String::new(), [0; 65_536]);
    loop {
        let length = stream.read(&mut part).unwrap_or(0);
        request += &String::from_utf8_lossy(&part[..length]);
        let complete = request.split_once("\r\n\r\n").is_some_and(|(head, body)| body.len() >= body_length(head));
        if complete || length == 0 {
            return request;
        }
    }
}

fn body_length(head: &str) -> usize {
    head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0)
}

fn reply(stream: &mut UnixStream, status: &str, body: &str) {
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    let _ = stream.write_all((head + body).as_bytes());
}

const STATUS: &str =
    r#"{"version":"0.1.0","mechanism":"none","capacity":1.9,"guaranteed":0,"granted":0,"applications":[]}"#;
const APPLICATION: &str = r#"{"id":7,"pid":1,"owner":{"uid":0,"gid":0},"contract":{},"guaranteed":0,"wanted":0,
    "granted":0,"threads":[],"quality":{"policy":"","jobs":0,"misses":0,"in_target":0,"mean_error":0,"sd_error":0,
    "mean_bandwidth":0,"sd_bandwidth":0,"jitter_p99_ns":0},"used":0}"#;

/// Answers like a daemon that admits every contract.
fn daemon(stream: &mut UnixStream, request: &str) {
    match request.split(' ').next() {
        Some("POST") => reply(stream, "201 Created", APPLICATION),
        Some("DELETE") => reply(stream, "204 No Content", ""),
        _ => reply(stream, "200 OK", STATUS),
    }
}

fn error_of(answer: Answer) -> ClientError {
    let dir = peer(answer);
    let socket = dir.path().join("qfabric.sock");
    Client::connect_to(socket).unwrap_err()
}

#[test]
fn a_daemon_of_this_version_is_accepted() {
    let dir = peer(daemon);
    let client = Client::connect_to(dir.path().join("qfabric.sock")).unwrap();
    assert_eq!(client.status().unwrap().mechanism, "none");
}

#[test]
fn a_missing_socket_and_one_without_listener_are_no_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("qfabric.sock");
    let absent = Client::connect_to(&socket).unwrap_err().to_string();
    drop(UnixListener::bind(&socket).unwrap());
    let dead = Client::connect_to(&socket).unwrap_err().to_string();
    for text in [absent, dead] {
        assert!(text.contains(socket.to_str().unwrap()) && text.contains("`qfabric daemon`"), "{text}");
    }
}

#[test]
fn a_path_too_long_for_a_socket_is_no_daemon() {
    assert!(matches!(Client::connect_to("/x".repeat(200)), Err(ClientError::NoDaemon { .. })));
}

#[test]
fn an_older_and_a_newer_daemon_are_refused_naming_both_versions() {
    let old: Answer = |stream, _| reply(stream, "200 OK", &STATUS.replace("0.1.0", "0.0.9"));
    let new: Answer = |stream, _| reply(stream, "200 OK", &STATUS.replace("0.1.0", "0.9.3"));
    for (daemon, answer) in [("0.0.9", old), ("0.9.3", new)] {
        let text = error_of(answer).to_string();
        let named = format!("the daemon is version {daemon}, this library {}; ", env!("CARGO_PKG_VERSION"));
        assert!(text.contains(&named) && text.contains("install the same minor version"), "{text}");
    }
}

/// A daemon that was replaced by another version under a client that is connected already.
#[test]
fn a_client_whose_daemon_was_updated_gets_the_refusal_of_the_new_one() {
    let dir = peer(|stream, request| match request.split(' ').next() {
        Some("POST") if request.contains("user-agent: qfabric-client/") => reply(
            stream,
            "409 Conflict",
            r#"{"code":"other_version","message":"the daemon is version 0.9.3, the library of this program 0.1.0",
                "next_step":"install the same minor version of both"}"#,
        ),
        _ => reply(stream, "200 OK", STATUS),
    });
    let client = Client::connect_to(dir.path().join("qfabric.sock")).unwrap();
    let refused = Session::start(&client, Contract::default()).err().unwrap();
    let text = "the daemon is version 0.9.3, the library of this program 0.1.0; install the same minor version of both";
    assert!(matches!(refused, ClientError::Refused(_)) && refused.to_string() == text, "{refused}");
}

/// What the channels' connection says when `channels.sock` answers its greeting with these bytes.
fn greeted(answer: &[u8]) -> String {
    let dir = peer(daemon);
    let listener = fds::listen(&dir.path().join("channels.sock"), 4).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let caller = rustix::net::accept(&listener).unwrap();
            assert!(fds::recv(&caller, &mut [0; 64]).unwrap().length > 0);
            fds::send(&caller, answer, &[]).unwrap();
        });
        let client = Client::connect_to(dir.path().join("qfabric.sock")).unwrap();
        Channels::connect(&client).err().unwrap().to_string()
    })
}

#[test]
fn a_daemon_with_another_protocol_of_channels_is_named_with_its_reason() {
    let why = "this daemon speaks version 6 of channels.sock, the client 7; install the same version of both";
    let mut refusal = Vec::new();
    FromDaemon::Refused(Refused { tag: 0, source: 0, blocked_until_ns: 0, why }).encode(&mut refusal);
    let text = greeted(&refusal);
    assert!(text.contains(why) && text.contains("channels.sock"), "{text}");
    let text = greeted(&[0xfe; 9]);
    assert!(text.contains(&format!("not in version {VERSION}; install the same version of both")), "{text}");
}

#[test]
fn an_invalid_answer_is_an_error() {
    let garbage: [Answer; 5] = [
        |stream, _| drop(stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n")),
        |stream, _| drop(stream.write_all(&[0xff; 4096])),
        |stream, _| reply(stream, "200 OK", "{\"version\": "),
        |stream, _| reply(stream, "200 OK", "[1,2,3]"),
        |stream, _| reply(stream, "500 Internal Server Error", "<html>oops</html>"),
    ];
    for answer in garbage {
        let error = error_of(answer);
        assert!(matches!(error, ClientError::Answer { .. } | ClientError::Broken { .. }), "{error:?}");
        assert!(error.to_string().contains("GET /v1/status"), "{error}");
    }
}

#[test]
fn a_peer_that_hangs_up_is_an_error() {
    let hang_ups: [Answer; 3] = [
        |_, _| (),
        |stream, _| drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-le")),
        |stream, _| drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{")),
    ];
    for answer in hang_ups {
        let error = error_of(answer);
        assert!(matches!(error, ClientError::Answer { .. } | ClientError::Broken { .. }), "{error:?}");
    }
}

#[test]
fn an_endless_answer_is_an_error() {
    let endless: [Answer; 2] = [
        |stream, _| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while stream.write_all(&[b' '; 65_536]).is_ok() {}
        },
        |stream, _| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
            while stream.write_all(b"x-filler: 0123456789012345678901234567890123456789\r\n").is_ok() {}
        },
    ];
    for answer in endless {
        // The length limit must end the call; the timeout would give a different error.
        let error = error_of(answer);
        assert!(matches!(error, ClientError::Answer { .. }), "{error:?}");
    }
}

#[test]
fn a_silent_or_slow_peer_ends_with_a_timeout() {
    let slow: [Answer; 2] = [
        |_, _| thread::sleep(Duration::from_secs(3)),
        |stream, _| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n");
            while stream.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        },
    ];
    for answer in slow {
        let dir = peer(daemon);
        let client = Client::connect_to(dir.path().join("qfabric.sock")).unwrap();
        let slow = peer(answer);
        std::fs::rename(slow.path().join("qfabric.sock"), dir.path().join("qfabric.sock")).unwrap();
        let client = client.with_patience(Duration::from_millis(200));
        let error = client.status().unwrap_err();
        assert!(matches!(error, ClientError::Timeout { .. }), "{error:?}");
    }
}

#[test]
fn a_refusal_has_the_daemons_message_and_next_step() {
    let dir = peer(|stream, request| match request.starts_with("POST") {
        true => reply(
            stream,
            "409 Conflict",
            r#"{"code":"over_committed","message":"asked 0.9 CPU, 0.2 CPU is free","next_step":"ask for less",
                "asked":0.9,"free":0.2,"holders":[{"id":3,"name":"mpv","share":1.7}]}"#,
        ),
        false => reply(stream, "200 OK", STATUS),
    });
    let client = Client::connect_to(dir.path().join("qfabric.sock")).unwrap();
    match Session::start(&client, Contract::default()).err().unwrap() {
        ClientError::Refused(problem) => {
            assert_eq!((problem.code.as_str(), problem.holders[0].name.as_str()), ("over_committed", "mpv"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_invalid_contract_sends_no_request() {
    let dir = peer(daemon);
    let client = Client::connect_to(dir.path().join("qfabric.sock")).unwrap();
    let nonsense = Contract { period: Nanos::ZERO, ..Contract::default() };
    assert!(matches!(Session::start(&client, nonsense), Err(ClientError::Contract(_))));
}

#[test]
fn a_daemon_that_hands_out_no_usable_ring_gets_its_contract_back() {
    type Ring = fn(&std::os::fd::OwnedFd);
    let rings: [(Ring, &str); 4] = [
        (|_| (), "answered \"\""),
        (|caller| fds::send(caller, b"unknown application 7", &[]).unwrap(), "unknown application 7"),
        (|caller| fds::send(caller, b"ok", &[caller.as_fd()]).unwrap(), "answered \"ok\""),
        (|caller| fds::send(caller, b"ok", &[caller.as_fd(), caller.as_fd()]).unwrap(), "not a memfd"),
    ];
    for (answer, named) in rings {
        let dir = peer(daemon);
        let listener = fds::listen(&dir.path().join("ring.sock"), 4).unwrap();
        let handing_out = thread::spawn(move || {
            let caller = rustix::net::accept(&listener).unwrap();
            let mut id = [0; 32];
            let received = fds::recv(&caller, &mut id).unwrap();
            assert_eq!(&id[..received.length], b"7");
            answer(&caller);
        });
        let client = Client::connect_to(dir.path().join("qfabric.sock")).unwrap();
        let error = Session::start(&client, Contract::default()).err().unwrap();
        assert!(matches!(error, ClientError::Ring { id: 7, .. }) && error.to_string().contains(named), "{error}");
        handing_out.join().unwrap();
    }
}

/// What a client gets when it asks for a joint contract, and for the list of them.
fn joint_errors(answer: Answer) -> [ClientError; 2] {
    let dir = peer(answer);
    let client = Client::connect_to(dir.path().join("qfabric.sock")).unwrap();
    let request =
        JointBuilder::new().want("", Resource::Cpu, 0.5, 0.5).unwrap().request(&"a".parse().unwrap()).unwrap();
    [client.apply(&request).unwrap_err(), client.joint_contracts().unwrap_err()]
}

#[test]
fn a_daemon_without_joint_contracts_is_named_with_its_version() {
    fn with_problem(stream: &mut UnixStream, request: &str) {
        match request.contains("/v1/contracts") {
            true => reply(stream, "404 Not Found", r#"{"code":"no_such_path","message":"no","next_step":"see"}"#),
            false => reply(stream, "200 OK", STATUS),
        }
    }
    fn without_body(stream: &mut UnixStream, request: &str) {
        match request.contains("/v1/contracts") {
            true => reply(stream, "404 Not Found", ""),
            false => reply(stream, "200 OK", STATUS),
        }
    }
    for error in [joint_errors(with_problem), joint_errors(without_body)].into_iter().flatten() {
        let ClientError::Refused(problem) = error else { panic!("{error}") };
        assert_eq!(problem.code, "no_contracts");
        assert!(problem.message.contains("version 0.1.0, knows no joint contracts"), "{problem}");
    }
}

#[test]
fn the_refusal_of_a_joint_contract_is_typed_and_other_answers_are_errors() {
    const REFUSAL: &str = r#"{"refused_by":"b","resource":"memory","asked":2.0,"free":1.0,"largest":1.0,
        "problem":{"code":"contract_refused","message":"host b refused","next_step":"ask for less"}}"#;
    fn refuse(stream: &mut UnixStream, request: &str) {
        match request.split(' ').next() {
            Some("POST") => reply(stream, "409 Conflict", REFUSAL),
            _ => reply(stream, "200 OK", STATUS),
        }
    }
    let [refused, list] = joint_errors(refuse);
    assert_eq!(refused.to_string(), "host b refused; ask for less");
    let ClientError::JointRefused(refusal) = refused else { panic!("{refused}") };
    assert_eq!((refusal.resource, refusal.largest), (Some(Resource::Memory), Some(1.0)));
    assert!(matches!(list, ClientError::Answer { .. }), "{list}");
}
