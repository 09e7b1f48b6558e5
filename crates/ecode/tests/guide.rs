//! Tests the examples of the guide. Every block marked `ecode` must compile; if it contains a line `// verdict:
//! N`, an event of zeros must give this verdict. Every block marked `ecode,refused` must be refused with the
//! messages in its lines `// error: …`.

use qfabric_ecode::{CallContext, Engine, Environment, Interpreter, Limits, compile, pretty};

const PAGES: [&str; 2] =
    [include_str!("../../../docs/guide/src/ecode.md"), include_str!("../../../docs/guide/src/evpath.md")];

/// The blocks with this mark, each with its line number in its page.
fn blocks(mark: &str) -> Vec<(usize, String)> {
    PAGES.iter().flat_map(|page| blocks_of(page, mark)).collect()
}

fn blocks_of(page: &str, mark: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(marked) = line.strip_prefix("```").filter(|marked| !marked.is_empty()) {
            let block: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
            if marked == mark {
                blocks.push((number + 1, block.join("\n")));
            }
        }
    }
    blocks
}

fn promised<'a>(block: &'a str, what: &str) -> Vec<&'a str> {
    let promise = format!("// {what}: ");
    block.lines().filter_map(|line| line.strip_prefix(&promise)).collect()
}

#[test]
fn every_program_of_the_guide_compiles_and_gives_the_stated_verdict() {
    let blocks = blocks("ecode");
    assert!(blocks.len() > 12, "the guide has its examples");
    for (line, text) in blocks {
        let compiled = compile(&text, &Environment::default());
        let program =
            compiled.unwrap_or_else(|errors| panic!("line {line}:\n{}", errors.render("guide", &text, false)));
        let mut engine = Interpreter::new(&program, Limits::default());
        let event = vec![0; program.input.size as usize];
        let verdict = engine.call(&event, &CallContext::default(), &mut |_| ());
        for promise in promised(&text, "verdict") {
            assert_eq!(verdict, Ok(promise.parse().expect("a number")), "line {line} of the guide");
        }
        assert!(pretty(&text).is_ok(), "line {line} of the guide");
    }
}

#[test]
fn every_mistake_of_the_guide_is_refused_with_the_stated_message() {
    let blocks = blocks("ecode,refused");
    assert!(blocks.len() > 3, "the guide has its counterexamples");
    for (line, text) in blocks {
        let errors = compile(&text, &Environment::default()).expect_err("refused");
        let said: Vec<&str> = errors.iter().map(|error| error.message()).collect();
        assert_eq!(said, promised(&text, "error"), "line {line} of the guide");
    }
}
