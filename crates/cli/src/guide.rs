//! Tests that every command line of the guide and the README is one that this program accepts.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};

use crate::args::Cli;

/// Its commands exist only after the changes that it describes.
const CHANGES: &str = "your-first-change.md";

/// Stands for `<` and `>` outside of quotes.
const REDIRECTION: char = '\0';

/// Pages with blocks of shell.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let guide = fs::read_dir(root.join("docs/guide/src")).unwrap().map(|entry| entry.unwrap().path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|end| end == "md") && !path.ends_with(CHANGES);
    let mut pages: Vec<PathBuf> = guide.filter(is_page).chain([root.join("README.md")]).collect();
    pages.sort();
    pages
}

/// The blocks of a page in this language; a comma may stand before further marks.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let blocks = page.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    blocks.filter(|(first, _)| first.split(',').next() == Some(language)).map(|(_, text)| text).collect()
}

/// The simple commands of a text in shell, as words. Quotes, comments and continued lines are understood; here documents
/// and loops are not, so their parts count as commands.
fn commands(text: &str) -> Vec<Vec<String>> {
    let (mut all, mut words) = (Vec::new(), Vec::new());
    let (mut word, mut quote) = (None::<String>, None::<char>);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None | Some('"'), '\\') => {
                if let Some(next) = chars.next().filter(|next| *next != '\n') {
                    word.get_or_insert_default().push(next);
                }
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => while chars.next_if(|next| *next != '\n').is_some() {},
            (None, ' ' | '\t') => words.extend(word.take()),
            (None, '\n' | ';' | '|' | '&' | '(' | ')') => {
                words.extend(word.take());
                all.push(std::mem::take(&mut words));
            }
            (None, '<' | '>') => word.get_or_insert_default().push(REDIRECTION),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    all.push(words);
    all.retain(|words| !words.is_empty());
    all
}

/// The command line of this program in a simple command, without redirections and what stands before it.
fn own(words: &[String]) -> Option<Vec<String>> {
    // `wall$ ` is the prompt of a host.
    let is_before =
        |word: &String| ["sudo", "nohup", "exec"].contains(&&**word) || word.contains('=') || word.ends_with('$');
    let first = words.iter().position(|word| !is_before(word))?;
    (Path::new(&words[first]).file_name()? == "qfabric").then_some(())?;
    let own = words[first..].iter().take_while(|word| !word.contains(REDIRECTION));
    // A variable of the shell stands for a process.
    Some(own.map(|word| if word.starts_with('$') { "4711".to_owned() } else { word.clone() }).collect())
}

#[test]
fn every_command_line_of_the_guide_is_accepted() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let lines = blocks(&text, "sh").into_iter().flat_map(commands).filter_map(|words| own(&words));
        for line in lines {
            checked += 1;
            if let Err(error) = Cli::try_parse_from(&line)
                && error.use_stderr()
            {
                let name = page.file_name().unwrap().to_string_lossy().into_owned();
                wrong.push(format!("{name}: {}: {}", line.join(" "), error.to_string().lines().next().unwrap_or("")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 120, "{checked} command lines were found");
}

#[test]
fn every_command_is_in_the_guide() {
    let texts: String = pages().iter().map(|page| fs::read_to_string(page).unwrap()).collect();
    let visible = Cli::command();
    let names = visible.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
    let missing: Vec<&str> = names.filter(|name| !texts.contains(&format!("qfabric {name}"))).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn simple_commands_are_taken_from_shell() {
    let text = "# a comment\nA=1 sudo qfabric run --fps 25 \\\n  -- mpv '> b' > out & qfabric ls; echo \"x # y\" | qfabric top # c\n";
    let own: Vec<String> = commands(text).iter().filter_map(|words| own(words)).map(|line| line.join("|")).collect();
    assert_eq!(own, ["qfabric|run|--fps|25|--|mpv|> b", "qfabric|ls", "qfabric|top"]);
    assert_eq!(blocks("a\n```sh\nb\n```\n```toml\nc\n```\n```sh,no-daemon\nd\n```\n", "sh"), ["b", "d"]);
}
