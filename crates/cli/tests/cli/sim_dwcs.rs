//! `qfabric sim dwcs`: the JSON, the texts and the exit codes on which tools rely.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Answer, qfabric};

/// Runs `sim dwcs` on the given files, then calls `after` with the answer and the folder.
fn sim_then<T>(tasks: &str, events: &str, options: &str, after: impl FnOnce(Answer, &Path) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tasks.json"), tasks).unwrap();
    std::fs::write(folder.path().join("ev.json"), events).unwrap();
    let mut command = qfabric(folder.path());
    command.current_dir(folder.path()).args(["sim", "dwcs", "--tasks", "tasks.json", "--events", "ev.json"]);
    let answer = Answer::of(command.args(options.split_whitespace()));
    after(answer, folder.path())
}

fn sim(tasks: &str, events: &str, options: &str) -> Answer {
    sim_then(tasks, events, options, |answer, _| answer)
}

fn pair(periods: [u64; 2], work_conserving: bool) -> String {
    let task = |id: &str, period: u64, window: [u64; 2]| {
        json!({"id": id, "period": period, "service": 1, "window": window, "work_conserving": work_conserving,
               "arrival": 0})
    };
    json!([task("T1", periods[0], [1, 2]), task("T2", periods[1], [1, 4])]).to_string()
}

fn event(at: f64) -> String {
    json!([{"at": at, "sink": "T1", "deadline": null}]).to_string()
}

/// The task of each tick.
fn timeline(answer: &Answer) -> Vec<String> {
    let json = answer.json();
    let ticks = json["timeline"].as_array().unwrap().iter();
    ticks.map(|tick| tick.as_array().and_then(|who| who[0].as_str()).unwrap().to_owned()).collect()
}

#[test]
fn the_four_cases_of_figure_15_are_reproduced_to_the_tick() {
    for (tasks, at, options, dispatched) in [
        (pair([4, 2], false), 2.5, "", 3),
        (pair([4, 2], true), 2.5, "", 3),
        (pair([3, 3], true), 2.5, "", 3),
        (pair([3, 3], true), 4.5, "--task-server", 6),
    ] {
        let answer = sim(&tasks, &event(at), &format!("--json --ticks 12 {options}"));
        answer.expect(0, &[]);
        let expected = json!([{"at": at, "sink": "T1", "dispatched_at": dispatched}]);
        assert_eq!(answer.json()["events"], expected, "{answer:?}");
        assert_eq!(timeline(&answer)[dispatched], "T1");
    }
}

#[test]
fn the_json_has_the_documented_form() {
    let tasks =
        r#"[{"id":"b","period":2,"service":1,"window":[0,1]},{"id":"a","period":8,"service":2,"window":[1,2]}]"#;
    let json = sim(tasks, "[]", "--json --ticks 8").json();
    let expected = json!({
        "timeline": [["b"], ["a"], ["b"], ["a"], ["b"], ["BE"], ["b"], ["BE"]],
        "tasks": {"b": {"served": 4, "missed": 0, "violations": 0}, "a": {"served": 1, "missed": 0, "violations": 0}},
        "events": [],
    });
    assert_eq!(json, expected);
}

#[test]
fn without_best_effort_free_ticks_are_idle() {
    let tasks = r#"[{"id":"a","period":4,"service":1,"window":[0,1]}]"#;
    let ticks = timeline(&sim(tasks, "[]", "--json --ticks 4 --no-best-effort"));
    assert_eq!(ticks, ["a", "idle", "idle", "idle"]);
}

/// Tasks that are equal in all rules: the earlier arrival comes first, then the id that is lower in the order of text.
#[test]
fn ties_go_to_the_earlier_arrival_and_then_to_the_lower_id() {
    let task = |id: &str| json!({"id": id, "period": 3, "service": 1, "window": [1, 3]});
    let equal = json!([task("c"), task("a"), task("b")]).to_string();
    assert_eq!(timeline(&sim(&equal, "[]", "--json --ticks 3")), ["a", "b", "c"]);
    let earlier = json!([
        {"id": "a", "period": 2, "service": 2, "window": [0, 1], "arrival": 2},
        {"id": "z", "period": 4, "service": 2, "window": [0, 3]},
    ]);
    let ticks = timeline(&sim(&earlier.to_string(), "[]", "--json --ticks 4"));
    assert_eq!(ticks, ["z", "z", "a", "a"]);
}

#[test]
fn a_period_that_ends_with_the_run_counts() {
    let tasks =
        r#"[{"id":"a","period":2,"service":2,"window":[0,1]},{"id":"b","period":2,"service":1,"window":[0,1]}]"#;
    let answer = sim(tasks, "[]", "--json --ticks 10");
    answer.expect(0, &["U = 1.5000 CPU is above 1 CPU", "--admit"]);
    let json = answer.json();
    for task in ["a", "b"] {
        let count = |what: &str| json["tasks"][task][what].as_u64().unwrap();
        assert_eq!(count("served") + count("missed"), 5, "{json}");
        assert_eq!(count("violations"), count("missed"), "{json}");
    }
}

#[test]
fn only_dwcs_violates_no_window() {
    let tasks = r#"[{"id":"a","period":2,"service":1,"window":[2,3]},{"id":"b","period":2,"service":1,"window":[0,1]},
                    {"id":"c","period":2,"service":1,"window":[2,3]}]"#;
    let violations = |policy: &str| {
        let json = sim(tasks, "[]", &format!("--json --ticks 600 --policy {policy}")).json();
        ["a", "b", "c"].map(|task| json["tasks"][task]["violations"].as_u64().unwrap()).iter().sum::<u64>()
    };
    assert_eq!(violations("dwcs"), 0);
    assert!(violations("edf") > 0 && violations("rm") > 0);
}

#[test]
fn a_known_network_queue_orders_equal_deadlines_by_probability() {
    let task = |id: &str, percent: u64| json!({"id": id, "period": 2, "service": 1, "window": [0, 1], "network_probability": percent});
    let tasks = json!([task("quiet", 0), task("busy", 100)]).to_string();
    assert_eq!(timeline(&sim(&tasks, "[]", "--json --ticks 2")), ["busy", "quiet"]);
    assert_eq!(timeline(&sim(&tasks, "[]", "--json --ticks 2 --network empty")), ["quiet", "busy"]);
    assert_eq!(timeline(&sim(&tasks, "[]", "--json --ticks 2 --network waiting")), ["busy", "quiet"]);
}

#[test]
fn an_event_after_its_deadline_is_dropped_and_reported() {
    let tasks =
        r#"[{"id":"T1","period":8,"service":1,"window":[0,1]},{"id":"T2","period":4,"service":4,"window":[0,1]}]"#;
    let events = r#"[{"at":0.5,"sink":"T1","deadline":2.25}]"#;
    let answer = sim(tasks, events, "--json --ticks 8");
    assert_eq!(answer.json()["events"], json!([{"at": 0.5, "sink": "T1", "dispatched_at": null}]));
    sim(tasks, events, "--ticks 8").expect(0, &["event at 0.5 for T1: not delivered", "1 events dropped"]);
}

#[test]
fn the_text_shows_the_numbers_the_guarantee_and_the_rules() {
    sim(&pair([4, 2], false), &event(2.5), "--ticks 100").expect(
        0,
        &["100 ticks under dwcs; U = Σ(1 − x/y)·C/T = 0.5000 CPU", "guaranteed", "WINDOW", "1/4", "tick 3 by rule 2"],
    );
}

#[test]
fn without_a_guarantee_admit_refuses_with_task_numbers_and_remedy() {
    let over =
        r#"[{"id":"film","period":2,"service":2,"window":[0,1]},{"id":"b","period":2,"service":1,"window":[1,2]}]"#;
    let answer = sim(over, "[]", "--admit");
    answer.expect(3, &["U = Σ(1 − x/y)·C/T = 1.2500 CPU", "1 CPU may be promised", "allow more losses"]);
    assert_eq!(answer.out, "");
    let unequal =
        r#"[{"id":"hog","period":1,"service":1,"window":[1,5]},{"id":"film","period":4,"service":1,"window":[1,5]}]"#;
    sim(unequal, "[]", "--admit").expect(3, &["= 1.0000 CPU", "task hog would violate", "or bring ΣC/T down"]);
    sim(&pair([4, 2], false), "[]", "--admit --capacity 0.45")
        .expect(3, &["ΣC/T = 0.7500 CPU, 0.45 CPU may be promised"]);
    sim(&pair([4, 2], false), "[]", "--admit --task-server").expect(0, &["guaranteed"]);
}

#[test]
fn the_picture_and_the_trace_show_every_run_event_and_miss() {
    let options = "--ticks 12 --task-server --svg out.svg --perfetto out.json";
    sim_then(&pair([3, 3], true), &event(4.5), options, |answer, folder| {
        answer.expect(0, &[]);
        let svg = std::fs::read_to_string(folder.join("out.svg")).unwrap();
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n") && svg.contains(">5</text>"), "{svg}");
        let trace: Value = serde_json::from_str(&std::fs::read_to_string(folder.join("out.json")).unwrap()).unwrap();
        let all = trace["traceEvents"].as_array().unwrap();
        let of = |kind: &'static str| all.iter().filter(move |event| event["ph"] == kind);
        assert_eq!(of("X").map(|slice| slice["dur"].as_u64().unwrap()).sum::<u64>(), 12_000);
        assert!(of("i").any(|mark| mark["name"] == "delivered by rule 5" && mark["ts"] == 6_000));
        assert!(of("i").any(|mark| mark["name"] == "miss" && mark["ts"] == 6_000));
        assert!(of("M").any(|name| name["args"]["name"] == "T2"));
    });
}

#[test]
fn names_are_escaped_in_the_picture() {
    let tasks = json!([{"id": "<b>&\"", "period": 2, "service": 1, "window": [0, 1]}]).to_string();
    sim_then(&tasks, "[]", "--ticks 4 --svg out.svg", |answer, folder| {
        answer.expect(0, &[]);
        let svg = std::fs::read_to_string(folder.join("out.svg")).unwrap();
        assert!(svg.contains("&lt;b&gt;&amp;&quot;") && !svg.contains("<b>"), "{svg}");
    });
}

fn task_with(field: &str, value: Value) -> String {
    let mut task = json!({"id": "film", "period": 4, "service": 1, "window": [1, 2]});
    task[field] = value;
    json!([task]).to_string()
}

#[test]
fn an_invalid_task_is_refused_with_its_name_its_numbers_and_the_remedy() {
    for (tasks, message) in [
        (task_with("window", json!([2, 2])), "film: window 2/2"),
        (task_with("window", json!([3, 2])), "use x below y"),
        (task_with("window", json!([0, 0])), "film: window 0/0"),
        (task_with("window", json!([1, 1000])), "longer than 255"),
        (task_with("service", json!(5)), "film: service 5 does not fit into period 4"),
        (task_with("service", json!(0)), "the service is 0; use at least 1"),
        (task_with("period", json!(0)), "the period is 0; use at least 1"),
        (task_with("period", json!(u64::MAX)), "coarser unit"),
        (task_with("arrival", json!(u64::MAX)), "coarser unit"),
        (task_with("arrival", json!(-1)), "times are whole ticks"),
        (task_with("period", json!(2.5)), "times are whole ticks"),
        (task_with("network_probability", json!(101)), "101 %; use 0 to 100"),
        (task_with("perod", json!(4)), "unknown field `perod`"),
        (task_with("id", json!("BE")), "\"BE\" is not a valid id"),
        (task_with("id", json!("")), "1 to 64 bytes"),
        ("[]".into(), "no tasks"),
        ("{}".into(), "line 1"),
        ("[\n{\"id\":\"a\",\n}]".into(), "line 3"),
    ] {
        let answer = sim(&tasks, "[]", "--ticks 4");
        answer.expect(2, &["tasks.json", message]);
        assert_eq!(answer.out, "");
    }
    let twice = json!([
        {"id": "film", "period": 4, "service": 1, "window": [1, 2]},
        {"id": "film", "period": 4, "service": 1, "window": [1, 2]},
    ]);
    sim(&twice.to_string(), "[]", "").expect(2, &["task 2: the id \"film\" was given to task 1"]);
}

#[test]
fn an_invalid_event_is_refused_with_its_place_and_the_valid_values() {
    for (events, message) in [
        (r#"[{"at":1,"sink":"T3"}]"#, "event 1: there is no task \"T3\"; the sink is one of T1, T2"),
        (r#"[{"at":1,"sink":"T1"},{"at":-1,"sink":"T1"}]"#, "event 2: at -1"),
        (r#"[{"at":1e300,"sink":"T1"}]"#, "event 1: at"),
        (r#"[{"at":1,"sink":"T1","deadline":-3}]"#, "deadline -3"),
        (r#"[{"at":"now","sink":"T1"}]"#, "line 1"),
        (r#"[{"sink":"T1"}]"#, "missing field `at`"),
        ("[\n", "line 2"),
    ] {
        sim(&pair([4, 2], false), events, "--ticks 4").expect(2, &["ev.json", message]);
    }
}

#[test]
fn options_out_of_range_are_refused_before_the_simulation() {
    for (options, message) in [
        ("--ticks 0", "between 1 and 10000000"),
        ("--ticks 10000001", "between 1 and 10000000"),
        ("--ticks 5000 --svg x.svg", "at most 2000 ticks"),
        ("--svg /nowhere/x.svg", "/nowhere/x.svg"),
        ("--perfetto /nowhere/x.json", "/nowhere/x.json"),
        ("--capacity 0", "part of one processor"),
        ("--capacity NaN", "part of one processor"),
        ("--capacity 1.5", "part of one processor"),
        ("--policy lottery", "dwcs, edf, rm"),
    ] {
        sim(&pair([4, 2], false), "[]", options).expect(2, &[message]);
    }
}

#[test]
fn the_largest_times_do_not_overflow() {
    let largest = 1u64 << 61;
    let tasks = json!([
        {"id": "a", "period": largest, "service": largest, "window": [254, 255], "arrival": 0},
        {"id": "b", "period": largest, "service": 1, "window": [0, 1], "arrival": largest, "work_conserving": true},
    ]);
    let events = r#"[{"at":1e12,"sink":"b"},{"at":0,"sink":"b","deadline":1e12}]"#;
    sim(&tasks.to_string(), events, "--ticks 100 --task-server --json").expect(0, &[]);
}

#[test]
fn too_many_periods_are_refused_before_the_simulation() {
    let task = |k: u64| json!({"id": k.to_string(), "period": 1, "service": 1, "window": [254, 255]});
    let many = Value::from((0..200).map(task).collect::<Vec<_>>()).to_string();
    sim(&many, "[]", "--ticks 10000000").expect(2, &["2000000000 periods end within 10000000 ticks", "fewer ticks"]);
    sim(&many, "[]", "--ticks 10").expect(0, &["200"]);
}

#[test]
fn a_missing_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    Answer::of(qfabric(folder.path()).args(["sim", "dwcs", "--tasks", "/nowhere.json"])).expect(2, &["/nowhere.json"]);
}
