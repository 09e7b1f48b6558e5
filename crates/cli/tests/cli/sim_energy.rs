//! `qfabric sim energy`: the JSON on which tools rely, the models it refuses, and the outputs on the guide's page.

use serde_json::Value;

use crate::harness::{Answer, answer, qfabric};

const PAGE: &str = include_str!("../../../../docs/guide/src/energy.md");
const FIELDS: [&str; 9] = ["policy", "joules", "saving", "utility", "misses", "late", "wakeups", "awake_ms", "source"];

fn json(line: &str) -> Value {
    let answer = answer(&format!("sim energy {line} --json"));
    answer.expect(0, &[]);
    answer.json()
}

#[test]
fn every_row_has_the_fields_of_the_contract_and_every_joule_its_source() {
    for scenario in ["fig53", "fig54", "fig61", "fig69", "fig73"] {
        let report = json(&format!("--scenario {scenario} --model ipaq-h3870-orinoco"));
        let rows = report["rows"].as_array().unwrap();
        assert!(rows.len() >= 5, "{scenario}");
        for row in rows {
            assert!(FIELDS.iter().all(|field| !row[field].is_null()), "{scenario}: {row}");
            assert!(row["source"] == "model" && row["saved"]["source"] == "model", "{scenario}: {row}");
        }
    }
}

#[test]
fn a_model_is_a_shipped_name_or_a_file_and_a_wrong_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let board =
        file("board.toml", "name = \"board\"\nabout = \"a test\"\ncpu_of = \"rk3399\"\nradio_of = \"x86-server\"\n");
    assert_eq!(json(&format!("--scenario fig53 --model {board}"))["model"]["name"], "board");
    let empty = file("empty.toml", "");
    let refused = |model: &str, named: &[&str]| {
        answer(&format!("sim energy --scenario fig53 --model {model}")).expect(2, named);
    };
    refused(&empty, &["empty.toml", "name"]);
    refused("toaster", &["toaster", "shipped: ipaq-h3870-orinoco"]);
    refused("/dev/zero", &["/dev/zero", "262144"]);
    refused("/", &["cannot read model /"]);
    answer("sim energy --scenario fig1").expect(2, &["fig1", "fig53"]);
    answer("sim energy --scenario fig53 --svg /nowhere/a.svg").expect(2, &["/nowhere/a.svg"]);
}

#[test]
fn two_runs_with_one_seed_print_the_same_picture() {
    let folder = tempfile::tempdir().unwrap();
    let draw = |name: &str| {
        let path = folder.path().join(name);
        answer(&format!("sim energy --scenario fig69 --seed 7 --svg {}", path.display())).expect(0, &["seed 7"]);
        std::fs::read_to_string(path).unwrap()
    };
    let picture = draw("a.svg");
    assert!(picture.starts_with("<svg") && picture.contains("coordinated (ours)") && picture.contains("(model)"));
    assert_eq!(picture, draw("b.svg"));
}

#[test]
fn every_example_prints_the_output_of_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let trimmed = |text: &str| text.trim_end().lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    let mut examples = 0;
    for console in PAGE.split("```console\n").skip(1) {
        let (line, rest) = console.strip_prefix("$ qfabric ").unwrap().split_once('\n').unwrap();
        let expected = &rest[..rest.find("```").unwrap()];
        let answer = Answer::of(qfabric(folder.path()).current_dir(folder.path()).args(line.split(' ')));
        assert_eq!(trimmed(&answer.out), trimmed(expected), "{line}");
        examples += 1;
    }
    assert!(examples >= 3);
}
