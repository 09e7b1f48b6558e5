//! The project's language: words that it no longer uses, and public type names that end in a term of the glossary.

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use xshell::{Shell, cmd};

    /// Names and phrases that made earlier texts hard to read. `docs/glossary.md` and plain nouns replace them.
    const RETIRED: [&str; 27] = [
        "Abilities",
        "another_mechanism",
        "bequeath",
        "by now",
        "Deaf",
        "Dice",
        "Ear",
        "Errand",
        "for so long",
        "Hands",
        "hears of",
        "heed",
        "is none of",
        "Lent",
        "none of his",
        "one more is",
        "so many of",
        "Spot",
        "Told",
        "what is kept",
        "what was told",
        "whence",
        "who vanished",
        "whoever",
        "Whom",
        "whosoever",
        "Wish",
    ];

    /// Files that quote these words.
    const QUOTING: [&str; 2] = ["xtask/src/words.rs", "docs/design/0032-plain-english.md"];

    /// Last words of type names that need no entry in the glossary, because every engineer knows them.
    const PLAIN: [&str; 88] = [
        "answer",
        "attempt",
        "budget",
        "builder",
        "bytes",
        "cause",
        "change",
        "choice",
        "client",
        "cpu",
        "connection",
        "consumer",
        "count",
        "counter",
        "data",
        "decision",
        "descriptor",
        "destination",
        "difference",
        "direction",
        "duration",
        "ecall",
        "error",
        "feature",
        "field",
        "file",
        "flow",
        "full",
        "geometry",
        "header",
        "holder",
        "holding",
        "id",
        "info",
        "instant",
        "invariance",
        "kind",
        "layout",
        "limit",
        "meter",
        "metric",
        "name",
        "nano",
        "notice",
        "offer",
        "option",
        "order",
        "origin",
        "outcome",
        "owner",
        "page",
        "part",
        "patch",
        "ping",
        "place",
        "plane",
        "probe",
        "problem",
        "producer",
        "protocol",
        "quantity",
        "range",
        "rate",
        "reader",
        "reassembler",
        "record",
        "removal",
        "request",
        "resource",
        "scalar",
        "scope",
        "selector",
        "session",
        "set",
        "socket",
        "spec",
        "stamp",
        "state",
        "statistics",
        "status",
        "storage",
        "submission",
        "summary",
        "target",
        "term",
        "text",
        "unit",
        "writer",
    ];

    /// Messages, and outcomes of calls, that are named by a verb or a participle, and older names. New names are nouns.
    const VERBAL: [&str; 7] = ["Installed", "Joined", "Received", "Refused", "Registered", "Sent", "Shape"];

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    /// Files that git tracks, and that match one of these patterns.
    fn tracked(patterns: &[&str]) -> Vec<String> {
        let sh = Shell::new().unwrap();
        sh.change_dir(root());
        let list = cmd!(sh, "git ls-files -- {patterns...}").quiet().read().expect("the tests run in a git checkout");
        list.lines().map(str::to_owned).collect()
    }

    fn read(file: &str) -> String {
        fs::read_to_string(root().join(file)).unwrap_or_default()
    }

    fn is_word(c: char) -> bool {
        c.is_alphanumeric() || c == '_'
    }

    /// Whether `line` has `phrase` as whole words. A phrase that begins with a capital letter is a name: only its exact
    /// spelling counts, and only in code, so that a sentence may begin with the word.
    fn has(line: &str, phrase: &str) -> bool {
        let is_name = phrase.starts_with(char::is_uppercase);
        let line = if is_name { line.split("//").next().unwrap_or_default().to_owned() } else { line.to_lowercase() };
        let whole = |at: usize| {
            let (before, after) = (line[..at].chars().next_back(), line[at + phrase.len()..].chars().next());
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        };
        line.match_indices(phrase).any(|(at, _)| whole(at))
    }

    #[test]
    fn retired_words_are_in_no_file() {
        let code = tracked(&["*.rs", "*.c", "*.h", "*.py", "*.md", "*.toml"]);
        assert!(code.len() > 500, "{} files were found", code.len());
        let mut found = Vec::new();
        for file in code.iter().filter(|file| !QUOTING.contains(&file.as_str())) {
            for (number, line) in read(file).lines().enumerate() {
                let is_prose = file.ends_with(".md");
                let words = RETIRED.iter().filter(|word| !(is_prose && word.starts_with(char::is_uppercase)));
                found.extend(words.filter(|word| has(line, word)).map(|word| format!("{file}:{}: {word}", number + 1)));
            }
        }
        assert!(found.is_empty(), "say it in other words (docs/glossary.md):\n{}", found.join("\n"));
    }

    /// Single words of the first column of the glossary, in lower case.
    fn terms(glossary: &str) -> BTreeSet<String> {
        let rows = glossary.lines().filter(|line| line.starts_with("| ")).filter_map(|row| row.split('|').nth(1));
        let words = rows.flat_map(|cell| cell.split(|c: char| !c.is_alphanumeric())).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    }

    /// `UpStorage` ends in `storage`.
    fn last_word(name: &str) -> String {
        let begin = name.rfind(char::is_uppercase).unwrap_or(0);
        name[begin..].to_lowercase()
    }

    fn singular(word: &str) -> String {
        let stem = |end: &str, with: &str| word.strip_suffix(end).map(|stem| format!("{stem}{with}"));
        stem("ies", "y").or_else(|| stem("s", "")).unwrap_or_else(|| word.to_owned())
    }

    fn public_types(file: &str) -> Vec<String> {
        let kinds = ["pub struct ", "pub enum ", "pub trait ", "pub type "];
        let names = |text: String| {
            let lines = text.lines().filter_map(|line| kinds.iter().find_map(|kind| line.strip_prefix(kind)));
            lines.map(|rest| rest.chars().take_while(|c| is_word(*c)).collect()).collect()
        };
        names(read(file))
    }

    /// Checks the rooms whose types users see; the other rooms are internal (docs/design/0002-rooms.md).
    #[test]
    fn public_type_names_end_in_a_term_of_the_glossary_or_a_plain_noun() {
        let mut known = terms(&read("docs/glossary.md"));
        known.extend(PLAIN.iter().map(|word| (*word).to_owned()));
        let files = tracked(&["crates/client/src/*.rs", "crates/types/src/*.rs"]);
        let names: BTreeSet<String> = files.iter().flat_map(|file| public_types(file)).collect();
        assert!(names.len() > 200, "{} public types were found", names.len());
        let is_known = |name: &str| {
            let last = last_word(name);
            known.contains(&last) || known.contains(&singular(&last))
        };
        let unknown: Vec<_> = names.iter().filter(|name| !is_known(name) && !VERBAL.contains(&name.as_str())).collect();
        assert!(unknown.is_empty(), "neither in docs/glossary.md nor plain nouns: {unknown:?}");
    }

    #[test]
    fn whole_words_count_and_names_only_in_code() {
        assert!(has("// Whoever comes", "whoever") && !has("// whoeverx", "whoever"));
        assert!(has("let x: Whom = y;", "Whom") && !has("// Whom it serves", "Whom") && !has("Whomever", "Whom"));
        assert_eq!(last_word("UpStorage"), "storage");
        assert_eq!((singular("policies"), singular("counts")), ("policy".to_owned(), "count".to_owned()));
    }
}
