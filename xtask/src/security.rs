//! Checks that each test named in SECURITY.md exists, and that its list of files with `unsafe` is complete and has no
//! other files.

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    /// The last cell of each table row, without heads.
    fn tests_of_lines(text: &str) -> Vec<&str> {
        let rows = text.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| test |"));
        rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next().map(str::trim)).collect()
    }

    /// Heading of the list of files.
    const UNSAFE: &str = "\n## `unsafe`\n";

    /// All Rust files below a folder.
    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                sources(&path, found);
            } else if name.ends_with(".rs") {
                found.push(path);
            }
        }
    }

    /// The names of all tests of a text: functions with an attribute such as `#[test]` or `#[tokio::test]`, and those
    /// of the conformance suite, which its macro makes tests for each kind of network.
    fn tests(text: &str) -> impl Iterator<Item = &str> {
        let mut is_test = false;
        text.lines().map(str::trim).filter_map(move |line| {
            is_test |= line.starts_with("#[") && line.split("]").next().is_some_and(|start| start.ends_with("test"));
            let is_comment = line.starts_with("//");
            let name = line.split_once("fn ").filter(|_| !is_comment)?.1.split(['(', '<']).next()?;
            let is_of_suite = line.starts_with("pub fn") && line.contains("<W: World>(");
            (std::mem::take(&mut is_test) || is_of_suite).then_some(name)
        })
    }

    /// True if a text has the word `unsafe` outside of comments and strings.
    fn is_unsafe(text: &str) -> bool {
        let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        let outside = code.flat_map(|line| line.split('"').step_by(2));
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        outside.flat_map(|part| part.split(|c| !is_word(c))).any(|word| word == "unsafe")
    }

    /// The texts between backquotes.
    fn quoted(cell: &str) -> Vec<&str> {
        cell.split('`').skip(1).step_by(2).collect()
    }

    /// True if the test `path::name` exists; the path is relative to the crate of `file`.
    fn is_test_of(file: &str, test: &str) -> bool {
        let Some((path, name)) = test.split_once("::") else { return false };
        let folder = file.split('/').take(2).collect::<PathBuf>();
        let text = fs::read_to_string(root().join(folder).join(path)).unwrap_or_default();
        tests(&text).any(|test| test == name)
    }

    #[test]
    fn every_line_of_the_threat_model_names_existing_tests_or_says_that_there_are_none() {
        let text = fs::read_to_string(root().join("SECURITY.md")).unwrap();
        let lines = text.split_once("## A user of the host").unwrap().1.split_once(UNSAFE).unwrap().0;
        let mut files = Vec::new();
        ["crates", "examples", "tests"].iter().for_each(|folder| sources(&root().join(folder), &mut files));
        let texts: Vec<_> = files.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        let known: BTreeSet<&str> = texts.iter().flat_map(|text| tests(text)).collect();
        let mut held = 0;
        for cell in tests_of_lines(lines) {
            let names = quoted(cell);
            if cell.starts_with("no test") {
                continue;
            }
            assert!(!names.is_empty(), "{cell:?} names no test, and has no note that there is none");
            let missing: Vec<_> = names.iter().filter(|name| !known.contains(**name)).collect();
            assert!(missing.is_empty(), "SECURITY.md names tests that do not exist: {missing:?}");
            held += names.len();
        }
        assert!(held > 40, "{held} tests were found in SECURITY.md");
    }

    #[test]
    fn every_file_with_unsafe_is_listed_with_existing_tests() {
        let text = fs::read_to_string(root().join("SECURITY.md")).unwrap();
        let rows = text.split_once(UNSAFE).unwrap().1.lines().filter(|line| line.starts_with("| `"));
        let mut listed = BTreeSet::new();
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [file, what, why, tests] = cells[..] else { panic!("{row:?} does not have four cells") };
            assert!(!what.is_empty() && !why.is_empty(), "{file} has no reason");
            let file = quoted(file)[0];
            let missing: Vec<_> = quoted(tests).into_iter().filter(|test| !is_test_of(file, test)).collect();
            assert!(missing.is_empty(), "{file}: these tests do not exist: {missing:?}");
            assert!(
                tests.starts_with("no test") || !quoted(tests).is_empty(),
                "{file} names no test, and has no note that there is none"
            );
            assert!(listed.insert(file.to_owned()), "{file} is listed twice");
        }
        let mut files = Vec::new();
        sources(root(), &mut files);
        let is_found = |path: &&PathBuf| is_unsafe(&fs::read_to_string(path).unwrap());
        let name = |path: &PathBuf| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let found: BTreeSet<String> = files.iter().filter(is_found).map(name).collect();
        let unlisted: Vec<_> = found.difference(&listed).collect();
        let stale: Vec<_> = listed.difference(&found).collect();
        assert!(unlisted.is_empty(), "not in SECURITY.md's list of files with unsafe: {unlisted:?}");
        assert!(stale.is_empty(), "in SECURITY.md's list, but without unsafe: {stale:?}");
    }

    #[test]
    fn only_functions_with_the_attribute_are_tests() {
        let text = "#[test]\n#[ignore]\n// calls fn helper()\nfn a() {\n}\nfn helper() {}\n    #[tokio::test]\n    async fn b() {}\n\
                    #[cfg(test)]\nmod tests {}\nfn c<T>() {}";
        assert_eq!(tests(text).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn the_word_counts_outside_of_comments_and_strings_only() {
        assert!(is_unsafe("    unsafe { x() }") && is_unsafe("#[unsafe(no_mangle)]"));
        assert!(!is_unsafe("#![forbid(unsafe_code)] // no unsafe here") && !is_unsafe("let word = \"unsafe\";"));
    }
}
