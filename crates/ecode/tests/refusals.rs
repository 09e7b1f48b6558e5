//! Tests the messages for refused texts. `refused/TOPIC.ec` contains the texts and `refused/TOPIC.txt` the stored
//! messages, so that a review shows every changed message. `QFABRIC_REFUSALS=write` writes the stored messages
//! anew.

use qfabric_ecode::{Environment, compile, parse_formats};
use qfabric_types::format::{Field, Format, Kind, Scalar};

/// The format of a service, for the tests that need an input.
fn environment() -> Environment {
    let field = |name: &str, offset, ty| Field { name: name.to_owned(), offset, kind: Kind::Scalar(ty), dims: vec![] };
    let fields = vec![field("len", 0, Scalar::U32), field("port", 4, Scalar::U16), field("when_ns", 8, Scalar::U64)];
    let input = Format { name: "packet".to_owned(), size: 16, align: 8, fields };
    Environment { input: Some(input), constants: [("LIMIT".to_owned(), 1400)].into(), ..Environment::default() }
}

/// The texts of a topic with their names. Each text follows a line `//// NAME`.
fn texts(topic: &str) -> Vec<(String, String)> {
    let path = format!("{}/tests/refused/{topic}.ec", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read_to_string(path).expect("the topic's texts");
    let parts = file.split("//// ").skip(1);
    parts
        .map(|part| part.split_once('\n').expect("a name, then a text"))
        .map(|(name, text)| (name.to_owned(), text.trim_end().to_owned() + "\n"))
        .collect()
}

fn compare_with_stored(topic: &str, answers: &str) {
    let path = format!("{}/tests/refused/{topic}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var("QFABRIC_REFUSALS").as_deref() == Ok("write") {
        std::fs::write(&path, answers).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        stored, answers,
        "{path} differs; if the new messages are intended, run again with QFABRIC_REFUSALS=write"
    );
}

fn check_refusals(topic: &str, env: &Environment) {
    let mut answers = String::new();
    for (name, text) in texts(topic) {
        let errors = compile(&text, env).expect_err(&format!("{topic}: {name} is refused"));
        for error in errors.iter() {
            assert!(!error.message().is_empty() && error.line() > 0 && error.column() > 0, "{name}");
        }
        answers.push_str(&format!("//// {name}\n{}\n\n", without_sizes(&errors.render("f.ec", &text, false))));
    }
    compare_with_stored(topic, &answers);
}

/// Hides the number of instructions, which changes with the code generator.
fn without_sizes(shown: &str) -> String {
    let Some((before, after)) = shown.split_once("code would have ") else { return shown.to_owned() };
    let after = after.trim_start_matches(|letter: char| letter.is_ascii_digit());
    format!("{before}code would have …{after}")
}

#[test]
fn invalid_tokens_are_refused() {
    check_refusals("words", &Environment::default());
}

#[test]
fn syntax_errors_are_refused() {
    check_refusals("syntax", &Environment::default());
}

#[test]
fn unsupported_parts_of_c_are_refused() {
    check_refusals("not_offered", &Environment::default());
}

#[test]
fn unknown_and_duplicate_names_are_refused() {
    check_refusals("names", &environment());
}

#[test]
fn values_of_the_wrong_type_are_refused() {
    check_refusals("values", &environment());
}

#[test]
fn invalid_declarations_are_refused() {
    check_refusals("declarations", &environment());
}

#[test]
fn endless_loops_and_misplaced_jumps_are_refused() {
    check_refusals("control", &environment());
}

#[test]
fn invalid_functions_are_refused() {
    check_refusals("functions", &Environment::default());
}

#[test]
fn mismatched_formats_are_refused() {
    check_refusals("formats", &environment());
}

#[test]
fn programs_beyond_a_limit_are_refused() {
    check_refusals("limits", &Environment::default());
}

#[test]
fn several_errors_are_shown_in_one_run() {
    let text = "int a = b;\nint c = a +;\nreturn d(c);\n";
    let errors = compile(text, &Environment::default()).unwrap_err();
    assert_eq!(errors.iter().count(), 1, "a text with syntax errors is not checked: {errors}");
    let text = "int a = b;\nint c = a + e;\nreturn d(c);\n";
    let errors = compile(text, &Environment::default()).unwrap_err();
    let lines: Vec<u32> = errors.iter().map(|error| error.line()).collect();
    assert_eq!(lines, [1, 2, 3], "{errors}");
}

#[test]
fn errors_beyond_the_first_twenty_are_counted() {
    let text: String = (0..100).map(|number| format!("a{number} = 1;\n")).collect();
    let errors = compile(&text, &Environment::default()).unwrap_err();
    assert_eq!(errors.iter().count(), 20);
    assert!(errors.render("f.ec", &text, false).ends_with("error: 80 more errors are not shown"));
}

#[test]
fn columns_count_characters_and_not_bytes() {
    let errors = compile("/* äöü */ x = 1;", &Environment::default()).unwrap_err();
    let error = errors.iter().next().unwrap();
    assert_eq!((error.line(), error.column()), (1, 11));
    assert_eq!(error.range(), 13..14);
}

#[test]
fn an_error_is_shown_on_one_line() {
    let errors = compile("return lenght;", &Environment::default()).unwrap_err();
    let said = "line 1, column 8: `lenght` is not defined here: unknown name \
                (help: declare a variable, `int lenght;`, or a constant, `#define lenght …`)";
    assert_eq!(errors.to_string(), said);
}

#[test]
fn a_text_of_formats_may_contain_only_structures_and_constants() {
    let errors = parse_formats("struct a { int x; };\nreturn 1;\nint f(int x) { return x; }\n").unwrap_err();
    let messages: Vec<&str> = errors.iter().map(|error| error.message()).collect();
    assert_eq!(messages, ["only structures and constants are allowed here"; 2]);
}

#[test]
fn colours_are_only_for_terminals() {
    let errors = compile("x", &Environment::default()).unwrap_err();
    assert!(errors.render("f.ec", "x", true).contains("\u{1b}["));
    assert!(!errors.render("f.ec", "x", false).contains('\u{1b}'));
}

#[test]
fn rendering_with_a_different_text_is_safe() {
    let errors = compile("int a = 1;\nreturn b;", &Environment::default()).unwrap_err();
    for other in ["", "x", "äöüäöüäöüäöüäöüäöü", &"\n".repeat(99)] {
        assert!(errors.render("f.ec", other, false).starts_with("error: `b` is not defined here"));
    }
}
