//! The guide quotes a service; the quotation must match the code.

#[test]
fn the_guides_service_is_the_one_that_is_compiled() {
    let page = include_str!("../../../docs/guide/src/services.md");
    let shown = page.split("```rust,ignore\n").nth(1).and_then(|rest| rest.split("```").next());
    let file = include_str!("../src/ecalls/services/proc_fork.rs");
    assert!(file.contains(shown.expect("the page shows a service")));
}
