//! Tests of the API with arbitrary input: every answer is documented, and the service continues.

mod common;
mod web;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use common::*;
use proptest::prelude::*;
use qfabric_linux::testing::live_lock;
use qfabric_shm::fds;
use qfabric_types::{channel_wire, ecalls_wire};

const METHODS: [&str; 8] = ["GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS", "BREW"];

/// Paths similar to valid ones, and arbitrary ones.
fn path() -> impl Strategy<Value = String> {
    let id = prop_oneof!["[0-9]{1,25}", "[a-z%./]{0,12}", Just("-1".to_owned()), Just("1e3".to_owned())];
    prop_oneof![
        id.prop_map(|id| format!("/v1/applications/{id}")),
        Just("/v1/applications".to_owned()),
        Just("/v1/status".to_owned()),
        "/[A-Za-z0-9._~%/:@-]{0,60}",
        "/v1/(\\.\\./){0,5}[a-z]{0,9}",
    ]
}

/// Bodies similar to a contract, and arbitrary ones.
fn body() -> impl Strategy<Value = String> {
    let number = prop_oneof![any::<f64>().prop_map(|n| n.to_string()), any::<i64>().prop_map(|n| n.to_string())];
    let key = prop_oneof![
        Just("period_ns"),
        Just("server_period_ns"),
        Just("rho"),
        Just("early"),
        Just("max_bandwidth"),
        Just("guaranteed"),
        Just("weight"),
        Just("priority"),
        Just("predictor"),
    ];
    let value = prop_oneof![number, "\"[a-z:0-9,]{0,12}\"", Just("null".to_owned()), Just("[[]]".to_owned())];
    let contract = prop::collection::vec((key, value), 0..5).prop_map(|pairs| {
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        format!(r#"{{"pid":2147483000,"contract":{{{}}}}}"#, pairs.join(","))
    });
    prop_oneof![contract, ".{0,200}", Just("[".repeat(100_000)), Just(format!("{{\"pid\":{}}}", "9".repeat(5_000)))]
}

#[test]
fn every_request_is_answered_with_a_document_or_a_problem() {
    let _lock = live_lock();
    let (service, client) = service(quiet());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(400));
    let asked = (prop::sample::select(&METHODS[..]), path(), body());
    let answered = runner.run(&asked, |(method, path, body)| {
        let (status, answer) = call(service.socket(), method, &path, &body);
        prop_assert!((200..=599).contains(&status), "{method} {path}: {status} {answer}");
        if status >= 400 && method != "HEAD" {
            let problem = serde_json::from_str::<qfabric_types::api::Problem>(&answer);
            prop_assert!(problem.is_ok_and(|p| !p.code.is_empty()), "{method} {path}: {status} {answer}");
        }
        prop_assert!(status != 500 && status != 201, "{method} {path} {body}: {status} {answer}");
        Ok(())
    });
    answered.unwrap();
    assert!(client.status().unwrap().applications.is_empty());
}

#[test]
fn a_path_whose_escapes_are_no_text_is_refused_by_a_problem() {
    let _lock = live_lock();
    let (service, _client) = service(quiet());
    for path in ["/v1/applications/%aa", "/v1/channels/%ff%fe", "/v1/joint/%c3", "/metrics/%80"] {
        let (status, answer) = call(service.socket(), "GET", path, "");
        let problem = serde_json::from_str::<qfabric_types::api::Problem>(&answer);
        assert!(status == 404 && problem.is_ok_and(|p| p.code == "no_such_path"), "{path}: {status} {answer}");
    }
}

/// Calls like the client library of this version. Returns status and body of the answer.
fn call_as(socket: &std::path::Path, agent: &str, method: &str, path: &str) -> (u16, String) {
    let head = format!("{method} {path} HTTP/1.1\r\nhost: q\r\nuser-agent: {agent}\r\nconnection: close\r\n\r\n");
    let text = String::from_utf8_lossy(&send_raw(socket, head.as_bytes())).into_owned();
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (status, text.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
}

#[test]
fn an_older_and_a_newer_library_are_refused_with_both_versions_and_can_read_the_daemons() {
    let _lock = live_lock();
    let (service, _client) = service(quiet());
    let own = env!("CARGO_PKG_VERSION");
    let other_patch = format!("qfabric-client/{own}-rc1");
    for theirs in ["0.0.9", "0.99.0", "7.1.0", "nonsense", ""] {
        let agent = format!("qfabric-client/{theirs}");
        for (method, path) in [("GET", "/v1/limits"), ("POST", "/v1/applications"), ("GET", "/v1/contracts")] {
            let (status, answer) = call_as(service.socket(), &agent, method, path);
            let problem = problem(&answer);
            assert_eq!((status, problem.code.as_str()), (409, "other_version"), "{path}: {answer}");
            let named = [format!("the daemon is version {own}, "), format!("this program {theirs}")];
            assert!(named.iter().all(|part| problem.message.contains(part)), "{problem}");
            assert!(problem.next_step.contains("same minor version"), "{problem}");
        }
        let (status, answer) = call_as(service.socket(), &agent, "GET", "/v1/status");
        assert!(status == 200 && answer.contains(own), "{answer}");
    }
    for agent in [other_patch.as_str(), "curl/8.14.1"] {
        assert_eq!(call_as(service.socket(), agent, "GET", "/v1/limits").0, 200, "{agent}");
    }
}

/// The first answer to a greeting on a socket of the service.
fn greeted(path: &std::path::Path, hello: &[u8]) -> Vec<u8> {
    let socket = fds::connect(path, PATIENCE).unwrap();
    fds::send(&socket, hello, &[]).unwrap();
    let mut answer = vec![0; 1 << 16];
    let length = fds::recv(&socket, &mut answer).unwrap().length;
    answer.truncate(length);
    answer
}

#[test]
fn an_older_and_a_newer_protocol_are_refused_on_the_sockets_of_events_with_both_versions() {
    let _lock = live_lock();
    let mut config = quiet();
    config.channels.enabled = true;
    config.channels.engine = qfabric_daemon::EngineName::None;
    config.channels.host = Some("alpha".parse().unwrap());
    let (_service, client) = service(config);
    let says = |why: &str, socket: &str, own: u8, theirs: u8| {
        let named =
            format!("this daemon speaks version {own} of {socket}, the client {theirs}; install the same version");
        assert!(why.contains(&named), "{why}");
    };
    for away in [-1_i8, 1] {
        let (mut hello, theirs) = (Vec::new(), channel_wire::VERSION.wrapping_add_signed(away));
        channel_wire::FromClient::Hello { version: theirs }.encode(&mut hello);
        let answer = greeted(&client.channels_socket(), &hello);
        match channel_wire::FromDaemon::decode(&answer) {
            Some(channel_wire::FromDaemon::Refused(refused)) => {
                says(refused.why, "channels.sock", channel_wire::VERSION, theirs);
            }
            other => panic!("{other:?}"),
        }
        let (mut hello, theirs) = (Vec::new(), ecalls_wire::VERSION.wrapping_add_signed(away));
        ecalls_wire::FromClient::Hello { version: theirs }.encode(&mut hello);
        let answer = greeted(&client.ecalls_socket(), &hello);
        match ecalls_wire::FromDaemon::decode(&answer) {
            Some(ecalls_wire::FromDaemon::Refused(why)) => says(why, "ecalls.sock", ecalls_wire::VERSION, theirs),
            other => panic!("{other:?}"),
        }
    }
}

/// The end of an empty body that the daemon did not wait for once met a closed socket.
#[test]
fn a_call_without_a_body_always_gets_its_answer() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    for call in 0..200 {
        let refused = client.save_energy(qfabric_types::AppId(4_711)).unwrap_err();
        assert!(matches!(refused, qfabric_client::ClientError::Refused(_)), "call {call}: {refused}");
    }
}

#[test]
fn bytes_that_are_not_http_close_only_their_connection() {
    let _lock = live_lock();
    let (service, client) = service(quiet());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(200));
    let sent = runner.run(&prop::collection::vec(any::<u8>(), 0..2_000), |bytes| {
        send_raw(service.socket(), &bytes);
        Ok(())
    });
    sent.unwrap();
    send_raw(service.socket(), format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000)).as_bytes());
    send_raw(service.socket(), format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(5_000)).as_bytes());
    client.status().unwrap();
}

#[test]
fn any_first_message_on_the_ring_socket_is_answered() {
    let _lock = live_lock();
    let (_service, client) = service(quiet());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(200));
    let sent = runner.run(&prop::collection::vec(any::<u8>(), 1..200), |bytes| {
        let socket = fds::connect(&client.ring_socket(), PATIENCE).unwrap();
        fds::send(&socket, &bytes, &[]).unwrap();
        let length = fds::recv(&socket, &mut [0; 512]).map(|got| got.length);
        prop_assert!(length.is_ok_and(|length| length > 0));
        Ok(())
    });
    sent.unwrap();
    client.status().unwrap();
}

#[test]
fn slow_and_silent_callers_give_their_places_back() {
    let _lock = live_lock();
    let mut config = quiet();
    config.api.timeout = qfabric_types::Nanos::from_millis(200);
    config.api.max_connections = 4;
    let (service, client) = service(config);
    let mut idle: Vec<_> = (0..8).map(|_| UnixStream::connect(service.socket()).unwrap()).collect();
    idle[0].write_all(b"POST /v1/applications HTTP/1.1\r\nhost: q\r\ncontent-length: 100\r\n\r\n{").unwrap();
    idle[1].write_all(b"GET /v1/st").unwrap();
    eventually("a place becomes free", || client.status().is_ok());
}

#[test]
fn the_description_and_the_metrics_are_served() {
    let _lock = live_lock();
    let (service, _client) = service(quiet());
    let (status, text) = call(service.socket(), "GET", "/v1/openapi.json", "");
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, document["paths"]["/v1/applications"]["post"].is_object()), (200, true));
    let (status, text) = call(service.socket(), "GET", "/metrics", "");
    assert_eq!(status, 200);
    for name in ["qfabric_capacity_cpus", "qfabric_control_wakeups_total", "qfabric_notes_dropped_total"] {
        assert!(text.contains(name), "{name} is not in\n{text}");
    }
}

/// Run by the next test as another user: opens connections, prints how many have a place, and keeps them open.
#[test]
#[ignore = "a role"]
fn silent_connections() {
    let connect = |_| UnixStream::connect(given("SOCKET")).unwrap();
    let mut all: Vec<UnixStream> = (0..8).map(connect).collect();
    // The daemon accepts them in order: when the last one is refused, the others have been decided.
    let mut answer = String::new();
    all[7].read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("too_many_connections"), "{answer}");
    let mut held = 0;
    for connection in &mut all[..7] {
        connection.set_nonblocking(true).unwrap();
        held += usize::from(connection.read(&mut [0; 512]).is_err());
    }
    println!("\nheld={held}");
    loop {
        std::thread::park();
    }
}

#[test]
fn users_that_take_every_place_leave_some_to_root() {
    if !rustix::process::geteuid().is_root() {
        return qfabric_linux::testing::skip("only root can be several users");
    }
    let _lock = live_lock();
    let mut config = quiet();
    // Longer than any test, so that no place becomes free by a timeout.
    config.api.timeout = qfabric_types::Nanos::from_millis(600_000);
    config.api.max_connections = 17;
    let (service, client) = service(config);
    drop(client);
    let (socket, mut holders, mut held) = (service.socket().to_str().unwrap().to_owned(), Vec::new(), Vec::new());
    for uid in [NOBODY, NOBODY - 1, NOBODY - 2, NOBODY - 3, NOBODY - 4] {
        let mut holder = role("silent_connections", Some(uid), &[("SOCKET", &socket)]);
        let lines = BufReader::new(holder.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        held.extend(lines.filter_map(|line| line.strip_prefix("held=")?.parse::<usize>().ok()).next());
        holders.push(holder);
    }
    assert_eq!(held, [4, 4, 4, 3, 0], "a quarter for each user, and an eighth is left");
    assert_eq!(call(service.socket(), "GET", "/v1/status", "").0, 200);
    let (_, metrics) = call(service.socket(), "GET", "/metrics", "");
    let refused = metrics.lines().find_map(|line| line.strip_prefix("qfabric_connections_refused_total "));
    assert!(refused.is_some_and(|refused| refused.parse::<u64>().unwrap() >= 25), "{refused:?}");
}
