//! The errors and warnings of a text.

use qfabric_channel::interpreter;
use qfabric_ecode::Diagnostic;
use qfabric_host::manager::policies::{Code, InvalidCode, compile_policy};
use qfabric_types::api::channel::CodePolicy;
use serde::Serialize;

use crate::answer;

/// What is wrong with a text.
#[derive(Serialize)]
struct Findings {
    /// Whether a daemon would start the policy, as far as the policy alone decides it.
    valid: bool,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct Finding {
    /// `error` or `warning`.
    level: &'static str,
    /// As `qfabric ecode check` shows it, in one line.
    message: String,
    /// The marked part of the text, in units of UTF-16, as browsers count; absent: the whole text.
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<[usize; 2]>,
}

/// Checks a policy of the kind `code`, given as the body of `POST /v1/policies` without `kind`.
pub fn check(request: &str) -> String {
    answer(request, |request| {
        let policy: CodePolicy = serde_json::from_str(request).map_err(|error| error.to_string())?;
        Ok(findings(&policy))
    })
}

fn findings(policy: &CodePolicy) -> Findings {
    let text = policy.code.as_str();
    let placed = |level| move |found: &Diagnostic| finding(level, found, text);
    match Code::new(policy, &interpreter(), Box::new(|_| {})) {
        Ok(_) => {
            let warnings = compile_policy(text).map(|(_, warnings)| warnings).unwrap_or_default();
            Findings { valid: true, findings: warnings.iter().map(placed("warning")).collect() }
        }
        Err(InvalidCode::Errors(errors)) => {
            Findings { valid: false, findings: errors.iter().map(placed("error")).collect() }
        }
        Err(other) => {
            let finding = Finding { level: "error", message: other.to_string(), range: None };
            Findings { valid: false, findings: vec![finding] }
        }
    }
}

fn finding(level: &'static str, found: &Diagnostic, text: &str) -> Finding {
    let units = |at: usize| text.get(..at).map(|before| before.encode_utf16().count());
    let range = units(found.range().start).zip(units(found.range().end)).map(|(start, end)| [start, end]);
    Finding { level, message: found.to_string(), range }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn checked(code: &str) -> Value {
        serde_json::from_str(&check(&json!({ "channel": "film", "code": code }).to_string())).unwrap()
    }

    #[test]
    fn an_error_names_its_place_in_the_units_of_browsers() {
        let found = checked("/* 😀 */ struct output { long rate_milli; }; output.rate = 1; return 1;");
        assert_eq!(found["valid"], false);
        let [finding] = found["findings"].as_array().unwrap().as_slice() else { panic!("{found}") };
        assert!(finding["message"].as_str().unwrap().contains("rate_milli"), "{finding}");
        // The picture is two units of UTF-16, and four bytes.
        assert_eq!(finding["range"], json!([52, 56]), "{finding}");
    }

    #[test]
    fn a_text_that_decides_nothing_is_an_error_without_a_place() {
        let found = checked("return 1;");
        assert_eq!((&found["valid"], &found["findings"][0]["range"]), (&json!(false), &Value::Null));
        assert!(found["findings"][0]["message"].as_str().unwrap().contains("struct output"), "{found}");
    }

    #[test]
    fn a_valid_text_may_have_warnings() {
        let code = "struct output { long rate_milli; }; output.rate_milli = 25000; return 1;";
        assert_eq!(checked(code), json!({ "valid": true, "findings": [] }));
        let found = checked("struct output { int level; }; if (input.value) ; output.level = 1; return 1;");
        assert_eq!((&found["valid"], &found["findings"][0]["level"]), (&json!(true), &json!("warning")), "{found}");
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for request in ["", "{", "null", "{\"channel\": \"film\", \"unknown\": 1}"] {
            assert!(check(request).starts_with("{\"error\":"), "{}", check(request));
        }
        let long = check(&" ".repeat(crate::MOST_REQUEST + 1));
        assert!(long.contains("1048577 bytes"), "{long}");
        assert_eq!(checked(&"x".repeat(65_537))["findings"][0]["range"], Value::Null);
    }
}
