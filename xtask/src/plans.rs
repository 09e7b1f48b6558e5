//! Tests read as plans: conditions, steps, expectations. A test that is longer than [`MOST`] lines hides its plan.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use xshell::{Shell, cmd};

    /// Lines of a test, and of a function that only tests call, from its name to its last brace.
    const MOST: usize = 40;

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
    fn name(line: &str) -> Option<String> {
        let words = ["pub ", "pub(crate) ", "pub(super) ", "const ", "async ", "unsafe ", "extern \"C\" "];
        let mut rest = line.trim_start();
        while let Some(after) = words.iter().find_map(|word| rest.strip_prefix(word)) {
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

    #[test]
    fn tests_and_their_steps_are_short() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let sh = Shell::new().unwrap();
        sh.change_dir(root);
        let list = cmd!(sh, "git ls-files -- *.rs").quiet().read().expect("the tests run in a git checkout");
        let (mut tests, mut long) = (0, Vec::new());
        for file in list.lines() {
            // A tracked file may have been deleted.
            for function in functions(&fs::read_to_string(root.join(file)).unwrap_or_default()) {
                tests += usize::from(function.is_test);
                if function.lines > MOST && (function.is_test || is_of_tests(file)) {
                    long.push(format!("{} lines: {} in {file}", function.lines, function.name));
                }
            }
        }
        assert!(tests > 500, "{tests} tests were found");
        assert!(long.is_empty(), "give conditions, steps and expectations their own names:\n{}", long.join("\n"));
    }

    #[test]
    fn functions_end_at_the_brace_below_their_begin() {
        let text = "/// Why.\n#[test]\n#[ignore = \"slow\"]\nfn one() {\n    {\n    }\n}\nfn two() {}\n\nimpl X {\n    pub fn \
                    three(\n        a: u8,\n    ) {\n        a\n    }\n}\n";
        let function = |name: &str, lines, is_test| Function { name: name.to_owned(), lines, is_test };
        assert_eq!(functions(text), [function("one", 4, true), function("three", 5, false)]);
    }
}
