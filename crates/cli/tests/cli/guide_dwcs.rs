//! The outputs and the picture on the guide's page about DWCS are those of the program.

use std::path::Path;

use crate::harness::{Answer, qfabric};

const PAGE: &str = include_str!("../../../../docs/guide/src/dwcs.md");
const PICTURE: &str = include_str!("../../../../docs/guide/src/img/dwcs-events.svg");

/// The code blocks of one kind, each with the text before it.
fn blocks(kind: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let opening = format!("```{kind}\n");
    let starts: Vec<usize> = PAGE.match_indices(&opening).map(|(at, _)| at).collect();
    starts.into_iter().map(move |at| {
        let text = &PAGE[at + opening.len()..];
        (PAGE[..at].trim_end(), &text[..text.find("```").unwrap()])
    })
}

/// Writes the JSON blocks into files. The line before a block names its file.
fn write_files(folder: &Path) {
    for (before, text) in blocks("json") {
        let name = before.lines().last().unwrap().trim_matches(['`', ':']);
        std::fs::write(folder.join(name), text).unwrap();
    }
}

fn trimmed(text: &str) -> Vec<&str> {
    text.trim_end().lines().map(str::trim_end).collect()
}

#[test]
fn every_example_prints_the_output_of_the_page() {
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path());
    let mut examples = 0;
    for (_, console) in blocks("console") {
        for example in console.split("$ qfabric ").skip(1) {
            let (line, expected) = example.split_once('\n').unwrap();
            let answer = Answer::of(qfabric(folder.path()).current_dir(folder.path()).args(line.split(' ')));
            assert_eq!(trimmed(&(answer.out + &answer.err)), trimmed(expected), "{line}");
            examples += 1;
        }
    }
    assert_eq!(examples, 5);
    assert_eq!(std::fs::read_to_string(folder.path().join("dwcs-events.svg")).unwrap(), PICTURE);
}
