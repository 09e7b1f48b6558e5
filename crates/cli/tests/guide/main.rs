//! Runs the blocks of shell of the guide and the README as a reader would: in order, beside a daemon, in namespaces of
//! their own.
//! `sh,no-run: REASON` marks a block that cannot run here, and `sh,no-daemon` one without a daemon.

mod host;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use host::Host;
use qfabric_linux::testing::{live_lock, skip};

/// A block of shell: the line of its first command, how it is run, and its commands.
struct Block {
    line: usize,
    mark: Mark,
    commands: Vec<Line>,
}

/// Pages whose readers have a camera that sends on the channel `video`.
const CAMERA: [&str; 1] = ["policies"];

/// How a block is run.
#[derive(Debug, PartialEq)]
enum Mark {
    BesideDaemon,
    WithoutDaemon,
    NotRun { reason: String },
}

impl Mark {
    /// Of the first line of a block, without its backquotes; none: it is no block of shell.
    fn of(info: &str) -> Option<Mark> {
        match info.strip_prefix("sh")? {
            "" => Some(Mark::BesideDaemon),
            ",no-daemon" => Some(Mark::WithoutDaemon),
            other => other.strip_prefix(",no-run: ").map(|reason| Mark::NotRun { reason: reason.to_owned() }),
        }
    }
}

/// A command with its continued lines.
struct Line {
    text: String,
    /// The comment says that it runs until Ctrl-C: it runs beside the commands after it.
    until_interrupted: bool,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The names and texts of the guide's pages, and of the README.
fn pages() -> Vec<(String, String)> {
    let files = fs::read_dir(root().join("docs/guide/src")).unwrap().map(|entry| entry.unwrap().path());
    let pages = files.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let pages = pages.chain([root().join("README.md")]);
    let name = |path: &PathBuf| path.file_stem().unwrap().to_string_lossy().into_owned();
    let mut pages: Vec<_> = pages.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect();
    pages.sort();
    pages
}

fn blocks(page: &str) -> Vec<Block> {
    let mut lines = page.lines().enumerate();
    let mut blocks = Vec::new();
    while let Some((number, first)) = lines.next() {
        let Some(info) = first.trim_start().strip_prefix("```") else { continue };
        let body = lines.by_ref().map(|(_, line)| line).take_while(|line| !line.trim_start().starts_with("```"));
        let commands = commands(body);
        if let Some(mark) = Mark::of(info) {
            blocks.push(Block { line: number + 2, mark, commands });
        }
        assert!(Mark::of(info).is_some() || !info.starts_with("sh"), "line {}: {info}", number + 1);
    }
    blocks
}

fn commands<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<Line> {
    let mut commands = Vec::new();
    let mut text = String::new();
    for line in lines {
        text += line;
        if text.ends_with('\\') {
            text.push('\n');
            continue;
        }
        let until_interrupted = text.rsplit_once('#').is_some_and(|(_, comment)| comment.contains("until Ctrl-C"));
        commands.push(Line { text: std::mem::take(&mut text), until_interrupted });
    }
    commands.retain(|line| !line.text.trim().is_empty());
    commands
}

/// Whether this page is chosen: all are, or those that `GUIDE_PAGES` names.
fn is_chosen(name: &str) -> bool {
    std::env::var("GUIDE_PAGES").map_or(true, |chosen| chosen.split(',').any(|page| page == name))
}

/// Run by the next test in other namespaces.
#[test]
#[ignore = "a role"]
fn runs_the_pages() {
    let mut host = Host::new(&root());
    let mut wrong = Vec::new();
    for (name, page) in pages().into_iter().filter(|(name, _)| is_chosen(name)) {
        host.turn_to(&name, &page);
        for Block { line, mark, commands } in blocks(&page) {
            if matches!(mark, Mark::NotRun { .. }) {
                continue;
            }
            let begun = Instant::now();
            let daemon = (mark == Mark::BesideDaemon).then(|| host.daemon());
            let _camera = CAMERA.contains(&&*name).then(|| host.camera());
            wrong.extend(host.run(&commands).err().map(|why| format!("{name}.md:{line}: {why}")));
            println!("{:6} ms  {name}.md:{line}", begun.elapsed().as_millis());
            drop(daemon);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("all blocks were run");
}

#[test]
fn every_block_of_shell_in_the_guide_and_the_readme_runs() {
    let unshare = ["--mount", "--net", "--"];
    if Command::new("unshare").args(unshare).arg("true").status().map_or(true, |status| !status.success()) {
        return skip("root and unshare are needed");
    }
    let _lock = live_lock();
    let mut command = Command::new("unshare");
    command.args(unshare).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "runs_the_pages", "--ignored", "--nocapture"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(
        output.status.success() && text.contains("all blocks were run"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_block_that_is_not_run_says_why() {
    let all: Vec<_> = pages().iter().flat_map(|(_, page)| blocks(page)).collect();
    let reasons = all.iter().filter_map(|block| match &block.mark {
        Mark::NotRun { reason } => Some(reason),
        _ => None,
    });
    let reasons: Vec<_> = reasons.collect();
    println!("{} of {} blocks are not run: {reasons:#?}", reasons.len(), all.len());
    assert!(reasons.iter().all(|reason| reason.len() > 5));
    assert!(reasons.len() * 2 < all.len(), "{} of {} blocks are not run", reasons.len(), all.len());
}

#[test]
fn the_readme_has_blocks_that_are_run() {
    let (_, readme) = pages().into_iter().find(|(name, _)| name == "README").unwrap();
    let blocks = blocks(&readme);
    let run = blocks.iter().filter(|block| !matches!(block.mark, Mark::NotRun { .. })).count();
    assert!(run >= 4, "{run} of {} blocks of the README are run", blocks.len());
}

#[test]
fn blocks_are_found_with_their_marks_and_their_lines() {
    let page = "a\n```sh\nb \\\n  c   # until Ctrl-C: d\n\ne\n```\n```toml\nsh\n```\n```sh,no-run: two hosts\nf\n```\n";
    let [first, second] = &blocks(page)[..] else { panic!("two blocks") };
    assert_eq!((first.line, &first.mark), (3, &Mark::BesideDaemon));
    assert_eq!(first.commands.iter().map(|line| line.until_interrupted).collect::<Vec<_>>(), [true, false]);
    assert_eq!(first.commands[0].text, "b \\\n  c   # until Ctrl-C: d");
    assert_eq!((second.line, &second.mark), (12, &Mark::NotRun { reason: "two hosts".to_owned() }));
    assert_eq!([Mark::of("sh,no-daemon"), Mark::of("shell")], [Some(Mark::WithoutDaemon), None]);
}
