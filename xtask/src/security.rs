//! SECURITY.md says of each line which test holds it: the tests have to be there.

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    /// The last cells of all tables' rows, without heads.
    fn tests_of_lines(text: &str) -> Vec<&str> {
        let rows = text.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| test |"));
        rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next().map(str::trim)).collect()
    }

    /// The names of all functions in Rust files below a folder.
    fn functions(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                functions(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let names = text.lines().filter_map(|line| line.split_once("fn ")?.1.split(['(', '<']).next());
                found.extend(names.map(str::to_owned));
            }
        }
    }

    #[test]
    fn every_line_of_the_threat_model_names_tests_that_are_there_or_says_that_it_has_none() {
        let text = fs::read_to_string(root().join("SECURITY.md")).unwrap();
        let lines = text.split_once("## A user of the host").unwrap().1;
        let mut known = BTreeSet::new();
        ["crates", "tests"].iter().for_each(|folder| functions(&root().join(folder), &mut known));
        let mut held = 0;
        for cell in tests_of_lines(lines) {
            let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
            if cell.starts_with("no test") {
                continue;
            }
            assert!(!names.is_empty(), "{cell:?} names no test, and does not say so");
            let missing: Vec<_> = names.iter().filter(|name| !known.contains(**name)).collect();
            assert!(missing.is_empty(), "there is no test {missing:?}");
            held += names.len();
        }
        assert!(held > 40, "{held} tests were found in SECURITY.md");
    }
}
