//! Binary compatibility: a program that was compiled against an earlier `qfabric.h` of the same major version keeps
//! running. Each declaration of `abi/qfabric-0.h`, the header of the last release, is still in the present header,
//! unchanged. A release replaces that file.

use std::collections::BTreeSet;

/// The declarations of a header, without comments, one line each.
fn declarations(header: &str) -> BTreeSet<String> {
    let mut code = String::new();
    for (at, part) in header.split("/*").enumerate() {
        code.push_str(if at == 0 { part } else { part.split_once("*/").map_or("", |(_, rest)| rest) });
    }
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code: Vec<&str> = lines.filter(|line| !line.trim_start().starts_with('#')).collect();
    let (mut found, mut open, mut one) = (BTreeSet::new(), 0usize, String::new());
    for word in code.join(" ").split_inclusive([';', '{', '}']) {
        one.push_str(word);
        open = if word.ends_with('{') { open + 1 } else { open.saturating_sub(usize::from(word.ends_with('}'))) };
        if word.ends_with(';') && open == 0 {
            found.insert(one.split_whitespace().collect::<Vec<_>>().join(" "));
            one.clear();
        }
    }
    found
}

/// Like [`declarations`], without the block `extern "C" {`, which would hide the declarations inside it.
fn read(header: &str) -> BTreeSet<String> {
    let plain = header.replace("extern \"C\" {", "").replace("}  // extern \"C\"", "").replace("} // extern \"C\"", "");
    declarations(&plain)
}

#[test]
fn declarations_of_the_last_release_are_still_there() {
    let (released, today) = (read(include_str!("../abi/qfabric-0.h")), read(include_str!("../include/qfabric.h")));
    assert!(released.len() > 50, "{} declarations were found", released.len());
    let lost: Vec<_> = released.difference(&today).collect();
    assert!(lost.is_empty(), "programs compiled earlier break, this needs a new major version: {lost:#?}");
}

#[test]
fn a_changed_member_and_a_removed_function_are_noticed() {
    let before = read("/* a; */ typedef struct { int a; long b; } qf_x;\nint qf_f(int); // f\n");
    assert_eq!(before.len(), 2);
    let after = read("typedef struct { int a; int b; } qf_x;\n");
    assert_eq!(before.difference(&after).count(), 2);
}
