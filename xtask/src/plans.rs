//! Lengths of functions, counted from the line with `fn` to the closing brace, with blank lines and comments.
//! Tests read as plans: conditions, steps, expectations. A test that is longer than [`MOST_OF_TEST`] lines hides its
//! plan. Any other function has at most [`MOST`] lines.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use xshell::{Shell, cmd};

    const MOST: usize = 60;
    /// Also the limit of a function that only tests call.
    const MOST_OF_TEST: usize = 40;

    #[derive(Debug, PartialEq)]
    struct Function {
        name: String,
        lines: usize,
        is_test: bool,
    }

    /// The functions of a file that rustfmt has formatted: the end of a function has the indentation of its begin.
    fn functions(text: &str) -> Vec<Function> {
        let lines: Vec<&str> = text.lines().collect();
        let function = |at: usize| {
            let name = name(lines[at])?;
            let end = format!("{}}}", indentation(lines[at]));
            let length = lines[at..].iter().position(|line| *line == end)? + 1;
            let is_test = attributes(&lines[..at]).any(|line| line.starts_with("#[") && line.contains("test]"));
            Some(Function { name, lines: length, is_test })
        };
        (0..lines.len()).filter_map(function).collect()
    }

    fn indentation(line: &str) -> &str {
        &line[..line.len() - line.trim_start().len()]
    }

    /// The name of the function whose first line this is. A function on one line has no end to look for.
    fn name<'a>(line: &'a str) -> Option<String> {
        let words = ["pub ", "const ", "async ", "unsafe ", "extern \"C\" "];
        let scope = |rest: &'a str| rest.strip_prefix("pub(").and_then(|scope| Some(scope.split_once(") ")?.1));
        let mut rest = line.trim_start();
        while let Some(after) = words.iter().find_map(|word| rest.strip_prefix(word)).or_else(|| scope(rest)) {
            rest = after;
        }
        let is_whole = line.ends_with(['}', ';']);
        let name = rest.strip_prefix("fn ")?.split(['(', '<']).next()?;
        (!is_whole).then(|| name.to_owned())
    }

    /// Attributes and comments right before a function.
    fn attributes<'a>(before: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
        let lines = before.iter().rev().map(|line| line.trim_start());
        lines.take_while(|line| line.starts_with('#') || line.starts_with("//"))
    }

    /// Whether only tests use this file.
    fn is_of_tests(file: &str) -> bool {
        file.starts_with("tests/") || file.contains("/tests/") || file.ends_with("/tests.rs")
    }

    /// All functions of the repository, each with its file.
    fn all() -> Vec<(String, Function)> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let sh = Shell::new().unwrap();
        sh.change_dir(root);
        let list = cmd!(sh, "git ls-files -- *.rs").quiet().read().expect("the tests run in a git checkout");
        // A tracked file may have been deleted.
        let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
        let of = |file: &str| functions(&read(file)).into_iter().map(|one| (file.to_owned(), one)).collect::<Vec<_>>();
        list.lines().flat_map(of).collect()
    }

    /// One line for each function that has more lines than `most`, for the message.
    fn long<'a>(functions: impl Iterator<Item = &'a (String, Function)>, most: usize) -> String {
        let long = functions.filter(|(_, function)| function.lines > most);
        long.map(|(file, function)| format!("{} lines: {} in {file}\n", function.lines, function.name)).collect()
    }

    #[test]
    fn tests_and_their_steps_are_short() {
        let all = all();
        let tests = all.iter().filter(|(_, function)| function.is_test).count();
        assert!(tests > 500, "{tests} tests were found");
        let long = long(all.iter().filter(|(file, one)| one.is_test || is_of_tests(file)), MOST_OF_TEST);
        assert!(long.is_empty(), "give conditions, steps and expectations their own names:\n{long}");
    }

    #[test]
    fn functions_are_short() {
        let all = all();
        // One-line functions are not counted.
        assert!(all.len() > 5_000, "{} functions were found", all.len());
        let long = long(all.iter(), MOST);
        assert!(long.is_empty(), "name the steps or the groups of cases, and give each a function:\n{long}");
    }

    #[test]
    fn functions_end_at_the_brace_below_their_begin() {
        let text = "/// Why.\n#[test]\n#[ignore = \"slow\"]\nfn one() {\n    {\n    }\n}\nfn two() {}\n\nimpl X {\n    pub fn \
                    three(\n        a: u8,\n    ) {\n        a\n    }\n}\n";
        let function = |name: &str, lines, is_test| Function { name: name.to_owned(), lines, is_test };
        assert_eq!(functions(text), [function("one", 4, true), function("three", 5, false)]);
    }
}
