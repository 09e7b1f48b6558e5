//! The policy laboratory in a browser: a policy is written, simulated, compared, started, watched and taken back.

use qfabric_linux::testing::{live_lock, skip};

use super::browser::Browser;
use super::views::talk;
use super::*;

/// What runs before the laboratory is opened.
const PRESENT: &str = r#"{"kind":"code","name":"present","channel":"film","attributes":["app.rate_milli"],
    "code":"struct output { long rate_milli; }; output.rate_milli = 20000; return 1;"}"#;
const WRONG: &str = "struct output { long rate_milli; };\noutput.rate = 7000;\nreturn 1;";
const RIGHT: &str = "struct output { long rate_milli; };\noutput.rate_milli = 7000;\nreturn 1;";

/// The names of the policies that run on the service.
fn running(service: &Embedded) -> Vec<String> {
    let (_, policies) = call(service.socket(), "GET", "/v1/policies", "");
    let policies: Vec<serde_json::Value> = serde_json::from_str(&policies).unwrap();
    policies.iter().map(|policy| policy["name"].as_str().unwrap().to_owned()).collect()
}

/// Waits until the first simulation has ended: its results move what is below them, and a check follows it.
fn is_ready(browser: &mut Browser) {
    browser.shows("#state", "Ready");
    browser.shows("#verdict", "The compiler accepts the text");
}

fn opened_laboratory() -> Option<(Browser, Embedded, Client)> {
    let mut browser = Browser::start()?;
    if !cfg!(laboratory) {
        skip("the laboratory was not built; see make laboratory");
        return None;
    }
    let (service, client, page) = opened_with(with_channels());
    browser.show(&page);
    browser.click("a[href='/laboratory.html']");
    is_ready(&mut browser);
    Some((browser, service, client))
}

#[test]
fn the_laboratory_shows_errors_at_their_places_while_the_text_is_written() {
    let _lock = live_lock();
    let Some((mut browser, _service, _client)) = opened_laboratory() else { return };
    browser.write("#code", WRONG);
    browser.shows("#verdict", "Errors: 1");
    browser.shows("#findings .error", "rate");
    assert_eq!(browser.value("[one('#simulate').disabled, one('#start').disabled]"), serde_json::json!([true, true]));
    browser.click("#findings button");
    let selected = browser.value("one('#code').value.slice(one('#code').selectionStart, one('#code').selectionEnd)");
    assert!(selected.as_str().unwrap().contains("rate"), "{selected}");
    browser.write("#code", RIGHT);
    browser.shows("#verdict", "The compiler accepts the text; warnings: 0");
    assert_eq!(browser.text("#findings"), "");
    browser.until("!one('#simulate').disabled && !one('#start').disabled");
}

#[test]
fn two_policies_are_simulated_side_by_side() {
    let _lock = live_lock();
    let Some((mut browser, _service, _client)) = opened_laboratory() else { return };
    browser.shows("#simulation", "no policy: ");
    browser.write("#code", RIGHT);
    browser.value("one('#scenario').value = 'viewer-link', one('#present').value = 'the kind roles'");
    browser.click("#simulate");
    browser.shows("#simulation", "the kind roles: ");
    assert!(browser.text("#simulation").contains("the text: "));
    let means = |policy: &str| {
        format!(
            "all('#results tbody tr').filter((row) => row.cells[2].innerText === '{policy}') \
             .map((row) => Number(row.cells[5].innerText))"
        )
    };
    for policy in ["the kind roles", "the text"] {
        assert_eq!(browser.value(&format!("{}.length", means(policy))), 3, "a row for each viewer under {policy}");
    }
    // The text decides 7 events per second for every viewer.
    let results = browser.text("#results");
    let is_held = format!("{}.every((mean) => mean > 5 && mean < 8)", means("the text"));
    assert_eq!(browser.value(&is_held), true, "{results}");
    browser.draws(2);
}

#[test]
fn a_policy_is_started_on_the_live_system_watched_and_rolled_back() {
    let _lock = live_lock();
    let Some((mut browser, service, client)) = opened_laboratory() else { return };
    let _talk = talk(&client, "film");
    assert_eq!(call(service.socket(), "POST", "/v1/policies", PRESENT).0, 201);
    browser.write("#code", RIGHT);
    browser.until("[...one('#present').options].some((option) => option.value === 'present')");
    browser.value("one('#present').value = 'present'");
    browser.click("#start");
    browser.shows("#live", "code.film runs: ");
    assert_eq!(running(&service), ["code.film"], "the text replaces the policy that it is compared with");
    browser.shows("#decisions", "app.rate_milli 7000 for alpha");
    // A tab that is loaded again still knows what it has replaced.
    browser.reload();
    is_ready(&mut browser);
    assert_eq!(browser.value("one('#code').value"), RIGHT);
    browser.click("#back");
    browser.shows("#live", "No policy code.film runs");
    // Between the end of one policy and the start of the other, none runs.
    eventually("the former policy runs again", || running(&service) == ["present"]);
    browser.until("!one('#start').disabled && one('#back').disabled");
}
