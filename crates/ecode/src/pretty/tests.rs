//! Properties of the pretty printer for any white space and comments: tokens and comments stay in order,
//! formatting twice changes nothing more, and the program stays the same.

use proptest::prelude::*;

use super::pretty;
use crate::diagnostics::Sink;
use crate::lexer::{Token, TokenKind, tokens};
use crate::{Environment, compile};

const CORPUS: [&str; 4] = [
    include_str!("../../tests/corpus/resources.ec"),
    include_str!("../../tests/corpus/average.ec"),
    include_str!("../../tests/corpus/functions.ec"),
    include_str!("../../tests/corpus/comments.ec"),
];

fn words(text: &str) -> Vec<String> {
    let kept = |token: &Token| !matches!(token.kind, TokenKind::LineEnd | TokenKind::End);
    let all = tokens(text, &mut Sink::default());
    all.iter().filter(|token| kept(token)).map(|token| token.span.of(text).to_owned()).collect()
}

/// The program without line numbers, which formatting changes.
fn program(text: &str) -> String {
    let program = compile(text, &Environment::default()).unwrap_or_else(|errors| {
        panic!("{}", errors.render("corpus", text, false));
    });
    let shown = format!("{program:?}");
    let parts = shown.split("line: ").map(|part| part.trim_start_matches(|letter: char| letter.is_ascii_digit()));
    parts.collect::<Vec<_>>().join("line")
}

fn check_formatting(text: &str) {
    let once = pretty(text).unwrap_or_else(|errors| panic!("{}", errors.render("corpus", text, false)));
    assert_eq!(words(&once), words(text), "the tokens and comments of\n{text}\nin\n{once}");
    let twice = pretty(&once).expect("formatted text can be parsed");
    assert_eq!(once, twice, "formatting twice changes nothing more");
    assert_eq!(program(&once), program(text), "the meaning of\n{text}\nin\n{once}");
    assert!(once.lines().all(|line| line.trim_end() == line), "no space at the ends of lines in\n{once}");
}

#[test]
fn the_corpus_is_formatted_correctly() {
    CORPUS.into_iter().for_each(check_formatting);
}

/// The same tokens with other white space and comments between them.
fn respaced(text: &str, choices: &[u8]) -> String {
    let mut choices = choices.iter().cycle();
    let mut out = String::new();
    let mut in_define = false;
    for token in tokens(text, &mut Sink::default()) {
        match token.kind {
            TokenKind::LineEnd => {
                in_define = false;
                out.push_str(["\n", " // define\n", "/* d */\n\n"][usize::from(choices.next().unwrap() % 3)]);
                continue;
            }
            TokenKind::Define => in_define = true,
            _ => {}
        }
        out.push_str(token.span.of(text));
        let on_line = [" ", "  ", " /* l */ ", "\t"];
        let any = [
            " ",
            "\n",
            "\n\n\n",
            " /* c */ ",
            " // e\n",
            "\n// o\n",
            "\n/* b */\n",
            "\n  /* a */ ",
            " /* x\n y */ ",
            " ",
        ];
        let choice = usize::from(*choices.next().unwrap());
        out.push_str(match token.kind {
            TokenKind::LineComment => "\n",
            _ if in_define => on_line[choice % on_line.len()],
            _ => any[choice % any.len()],
        });
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn formatting_depends_on_tokens_and_not_on_white_space(which in 0..CORPUS.len(), choices in prop::collection::vec(any::<u8>(), 1..400)) {
        check_formatting(&respaced(CORPUS[which], &choices));
    }
}
