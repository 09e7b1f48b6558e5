//! The WebAssembly that the page loads, run for real: it answers as the same code does in this process.

use std::path::Path;

use qfabric_laboratory::{MOST_REQUEST, check, simulate};
use qfabric_linux::testing::skip;
use serde_json::{Value, json};
use wasmi::{Engine, Instance, Linker, Memory, Module, Store};

struct Laboratory {
    store: Store<()>,
    instance: Instance,
    memory: Memory,
}

impl Laboratory {
    /// None: it was not built.
    fn load() -> Option<Laboratory> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("built/laboratory.wasm");
        let bytes = std::fs::read(file).ok()?;
        let engine = Engine::default();
        let module = Module::new(&engine, &bytes).unwrap();
        assert_eq!(module.imports().count(), 0, "it can reach nothing outside: no clock, no input, no output");
        let mut store = Store::new(&engine, ());
        let instance = Linker::new(&engine).instantiate_and_start(&mut store, &module).unwrap();
        let memory = instance.get_memory(&store, "memory").unwrap();
        Some(Laboratory { store, instance, memory })
    }

    fn call(&mut self, name: &str) -> u32 {
        let function = self.instance.get_typed_func::<(), u32>(&self.store, name).unwrap();
        function.call(&mut self.store, ()).unwrap()
    }

    /// The address for a request of this length.
    fn room(&mut self, length: usize) -> u32 {
        let function = self.instance.get_typed_func::<u32, u32>(&self.store, "request").unwrap();
        function.call(&mut self.store, length.try_into().unwrap()).unwrap()
    }

    /// As the worker of the page does it.
    fn ask(&mut self, call: &str, request: &[u8]) -> String {
        let at = self.room(request.len()) as usize;
        assert_ne!(at, 0, "a request of {} bytes has room", request.len());
        self.memory.write(&mut self.store, at, request).unwrap();
        let mut answer = vec![0; self.call(call) as usize];
        let at = self.call("answer_at") as usize;
        self.memory.read(&self.store, at, &mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }
}

/// The texts of the guide and of the page, and texts that no compiler likes.
fn texts() -> Vec<String> {
    let file = |path: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let guide = file("../../docs/guide/src/policies.md");
    let blocks = guide.split("```ecode\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned());
    let hostile =
        ["", "return", "\u{0}", "é😀 \\", "struct output { long level", "#", "long a[99999999999];"].map(str::to_owned);
    let nested =
        [format!("return {}1;", "(".repeat(20_000)), "{".repeat(60_000), "x".repeat(65_537), "a + ".repeat(15_000)];
    let mut texts: Vec<String> = blocks.chain(hostile).chain(nested).collect();
    texts.push(example());
    texts
}

/// The text with which the laboratory begins.
fn example() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../daemon/src/web/page/laboratory.js");
    let page = std::fs::read_to_string(page).unwrap();
    page.split("const EXAMPLE = `").nth(1).unwrap().split('`').next().unwrap().to_owned()
}

fn of_simulation(policy: &Value, scenario: &str) -> String {
    json!({ "policy": policy, "scenario": scenario }).to_string()
}

#[test]
fn the_example_of_the_page_is_valid_and_loses_less_than_no_policy() {
    let policy = json!({ "channel": "film", "code": example() });
    assert_eq!(check(&policy.to_string()), r#"{"valid":true,"findings":[]}"#);
    let policy = json!({ "kind": "code", "channel": "film", "code": example() });
    for scenario in ["source-link", "viewer-link"] {
        let lost = |policy: &Value| -> u64 {
            let outcome: Value = serde_json::from_str(&simulate(&of_simulation(policy, scenario))).unwrap();
            outcome["lost"].as_u64().unwrap_or_else(|| panic!("{outcome}"))
        };
        let (without, with) = (lost(&Value::Null), lost(&policy));
        println!("{scenario}: {without} events lost without a policy, {with} with the example");
        assert!(with * 2 < without, "{scenario}: {with} of {without}");
    }
}

#[test]
fn diagnostics_are_those_of_the_same_compiler_outside_the_browser() {
    let Some(mut laboratory) = Laboratory::load() else { return skip("make laboratory has not been run") };
    for text in texts() {
        for channel in ["film", "no such name"] {
            let request = json!({ "channel": channel, "code": text }).to_string();
            let start: String = text.chars().take(40).collect();
            assert_eq!(laboratory.ask("run_check", request.as_bytes()), check(&request), "{start:?}");
        }
    }
}

#[test]
fn a_simulation_has_the_same_numbers_as_outside_the_browser() {
    let Some(mut laboratory) = Laboratory::load() else { return skip("make laboratory has not been run") };
    let code = json!({ "kind": "code", "channel": "film", "code": example() });
    for policy in [Value::Null, json!({ "kind": "roles", "channel": "film" }), code] {
        let request = of_simulation(&policy, "source-link");
        let answer = laboratory.ask("run_simulate", request.as_bytes());
        assert!(answer.contains("\"curves\""), "{answer}");
        assert_eq!(answer, simulate(&request));
    }
}

#[test]
fn hostile_requests_are_answered_and_the_module_goes_on() {
    let Some(mut laboratory) = Laboratory::load() else { return skip("make laboratory has not been run") };
    assert_eq!(laboratory.room(MOST_REQUEST + 1), 0);
    assert_eq!(laboratory.room(u32::MAX as usize), 0);
    let deep = "[".repeat(MOST_REQUEST);
    for request in [&b""[..], b"null", b"\xff\xfe", b"{\"scenario\":\"x\"}", deep.as_bytes()] {
        for call in ["run_check", "run_simulate"] {
            assert!(laboratory.ask(call, request).starts_with("{\"error\":"));
        }
    }
    let endless = json!({ "kind": "code", "channel": "film",
        "code": "struct output { long level; }; while (1) output.level += 1; return 1;" });
    assert!(laboratory.ask("run_simulate", of_simulation(&endless, "source-link").as_bytes()).contains("never ends"));
    let valid = json!({ "channel": "film", "code": endless["code"] }).to_string();
    assert_eq!(laboratory.ask("run_check", valid.as_bytes()), check(&valid));
}
