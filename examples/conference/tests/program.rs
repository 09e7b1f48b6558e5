//! The program: wrong uses are refused with the value and the next step.

use std::process::Command;

/// What the program says when it is refused, without a daemon.
fn refused(words: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_qfabric-conference"));
    command.args(words.split(' ')).args(["--socket", "/nonexistent/qfabric.sock"]).env_remove("QFABRIC_TLS");
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{words}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn wrong_uses_are_refused_with_the_value_and_the_next_step() {
    for (words, said) in [
        ("serve /nonexistent/film.mp4", &["/nonexistent/film.mp4"][..]),
        ("serve test --level jpeg:96:352x288", &["quality 96", "1 to 95"]),
        ("serve test --level h261:15:640x480", &["640x480", "176x144"]),
        ("serve test --codecs jpeg --level h264:15:640x480", &["h264", "--codecs"]),
        ("serve test --fragment 100", &["100", "16344"]),
        ("level jpeg:20:352x288", &["/nonexistent/qfabric.sock"]),
        ("join a --fps 0", &["0", "1..=100"]),
        ("join a --transport metp", &["--tls FOLDER", "qfabric channel issue"]),
        ("serve test --transport metp --tls /nonexistent --listen nowhere", &["nowhere"]),
        ("serve test --transport metp --tls /nonexistent --tls-host a", &["/nonexistent", "check the path"]),
    ] {
        let refusal = refused(words);
        assert!(said.iter().all(|part| refusal.contains(part)), "{words}: {refusal}");
    }
}

/// Ends by itself, and says once why it cannot begin.
#[test]
fn without_a_daemon_the_programs_wait_for_it_and_say_so_once() {
    for words in ["serve test --seconds 1", "join a --seconds 1"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_qfabric-conference"));
        let output = command.args(words.split(' ')).args(["--socket", "/nonexistent/qfabric.sock"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && said.matches("trying again").count() == 1, "{words}: {said}");
    }
}
