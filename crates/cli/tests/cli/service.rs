//! How commands find the daemon, and how they end without a terminal.

use std::io::{Read, Write, pipe};
use std::os::unix::net::UnixListener;

use crate::harness::{Answer, qfabric};

#[test]
fn a_daemon_of_another_version_is_named_and_no_second_one_starts() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("qfabric")).unwrap();
    let listener = UnixListener::bind(folder.path().join("qfabric/qfabric.sock")).unwrap();
    let daemon = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        let (head, body) = ("HTTP/1.1 200 OK\r\ncontent-type: application/json", "{\"version\": \"99.0.0\"}");
        write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    });
    let mut run = qfabric(folder.path());
    Answer::of(run.args(["run", "--", "true"])).expect(1, &["the daemon is version 99.0.0"]);
    daemon.join().unwrap();
}

#[test]
fn a_failure_keeps_its_exit_code_when_the_terminal_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let ended = qfabric(folder.path()).args(["ecode", "check"]).stderr(writer).status().unwrap();
    assert_eq!(ended.code(), Some(2));
}
