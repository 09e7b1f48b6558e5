use clap::{CommandFactory, Parser};

use super::*;
use crate::args::{self, Cli};

/// Parses a command line into its policy, without a daemon.
fn parsed(words: &str) -> Policy {
    let cli = Cli::try_parse_from(words.split_whitespace()).unwrap_or_else(|error| panic!("{words}: {error}"));
    match cli.command {
        args::Command::Policy(Args { command: Command::Start(kind) }) => kind.into_call().1,
        other => panic!("{words}: {other:?}"),
    }
}

/// The examples in the help of each kind, with the name of the kind.
fn examples() -> Vec<(String, String)> {
    let mut cli = Cli::command();
    let start = cli.find_subcommand_mut("policy").and_then(|policy| policy.find_subcommand_mut("start")).unwrap();
    let kinds = start.get_subcommands().filter(|kind| kind.get_name() != "help");
    let examples = kinds.flat_map(|kind| {
        let text = kind.get_after_help().unwrap().to_string();
        let lines = text.lines().filter_map(|line| Some(line[line.find("qfabric policy")?..].to_owned()));
        lines.map(|line| (kind.get_name().to_owned(), line)).collect::<Vec<_>>()
    });
    examples.collect()
}

#[test]
fn the_example_of_every_kind_survives_a_round_trip_through_json() {
    let mut known: Vec<&str> = Policy::KINDS.to_vec();
    for (kind, example) in examples() {
        let policy = parsed(&example);
        let json = serde_json::to_value(&policy).unwrap();
        assert_eq!((json["kind"].as_str(), policy.kind()), (Some(kind.as_str()), kind.as_str()));
        assert_eq!(serde_json::from_value::<Policy>(json).unwrap(), policy);
        assert!(policy.name().is_some() && policy.channel().is_some(), "{example}");
        known.retain(|known| *known != kind);
    }
    assert!(known.is_empty(), "no example of {known:?}");
}

#[test]
fn defaults_are_the_same_on_the_command_line_and_in_json() {
    let read = |json: &str| serde_json::from_str::<Policy>(json).unwrap();
    for kind in ["roles", "spread", "sync", "balance"] {
        let typed = parsed(&format!("qfabric policy start {kind} --channel video"));
        assert_eq!(typed, read(&format!(r#"{{"kind": "{kind}", "channel": "video"}}"#)));
    }
    let group = parsed("qfabric policy start group --group crew --attribute app.cpu_most");
    assert_eq!(group, read(r#"{"kind": "group", "group": "crew", "attribute": "app.cpu_most"}"#));
    let media = parsed("qfabric policy start media --group lips --leader sound --follower picture");
    assert_eq!(media, read(r#"{"kind": "media", "group": "lips", "leader": "sound", "follower": "picture"}"#));
}

#[test]
fn the_text_of_a_policy_is_read_from_its_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "return 1;").unwrap();
    let path = file.path().display();
    let policy = with_text(parsed(&format!("qfabric policy start code --channel video --file {path}"))).unwrap();
    let Policy::Code(code) = policy else { panic!("{policy:?}") };
    assert_eq!((code.code.as_str(), code.file), ("return 1;", None));
    assert!(with_text(parsed("qfabric policy start code --channel video --file /nowhere/x.ec")).is_err());
}

#[test]
fn decided_amounts_are_shown_with_their_units() {
    assert_eq!(amount("app.rate_milli", 12_540), "12.5/s");
    assert_eq!(amount("app.show_delay", 55_000_000), "55 ms");
    assert_eq!(
        (amount("app.skip", -900_000_000), amount("app.speed_ppm", 20_000)),
        ("-900 ms".into(), "+2.00 %".into())
    );
    assert_eq!((amount("app.rate_milli", 0), amount("cpu.share", 7)), ("stopped".to_owned(), "7".to_owned()));
    assert!(table(&[]).contains("policy start roles"));
}

#[test]
fn the_cost_of_a_policy_and_the_reason_of_its_suspension_are_shown() {
    let info = |more: serde_json::Value| -> PolicyInfo {
        let mut info = serde_json::json!({
            "name": "hold.video", "policy": { "kind": "hold", "channel": "video", "rate": 25.0 },
            "uid": 1000, "calls": 7, "decisions": 2, "faults": 0, "cpu_ns": 31_000_000, "budget_ns": 10_000_000, "dropped": 3,
        });
        info.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(info).unwrap()
    };
    let quiet = info(serde_json::json!({}));
    assert!(table(std::slice::from_ref(&quiet)).contains("31 ms") && state(&quiet).is_none());
    let resting = state(&info(serde_json::json!({ "suspensions": 2, "suspended": true }))).unwrap();
    assert_eq!(
        resting,
        "\nhold.video: more CPU time than 10 ms in 2 s, suspended for the rest of each; it is suspended now"
    );
    let failed = state(&info(serde_json::json!({ "failed": true }))).unwrap();
    assert!(failed.ends_with("qfabric policy stop hold.video frees its name"), "{failed}");
}
