//! The guide (mdBook) with the policy laboratory, and the API documentation (rustdoc, warnings as errors).

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::laboratory;
use crate::tools::{cargo_tool, target};

/// Builds both and prints their locations.
pub(crate) fn run(sh: &Shell) -> Result<()> {
    let target = target(sh)?;
    let book = target.join("guide");
    let mdbook = cargo_tool(sh, "mdbook", &["--no-default-features", "--features", "search"])?;
    cmd!(sh, "{mdbook} build docs/guide --dest-dir {book}").run()?;
    laboratory::place(sh, &book.join("laboratory"))?;
    let _flags = sh.push_env("RUSTDOCFLAGS", "-D warnings");
    // The models compile sources of other rooms, whose doc links do not resolve there.
    let without = ["qfabric-python", "xtask", "qfabric-models"].map(|room| format!("--exclude={room}"));
    cmd!(sh, "cargo doc --workspace {without...} --no-deps --locked --lib").run()?;
    println!("guide: {}\nAPI:   {}", book.join("index.html").display(), target.join("doc").display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    /// The code blocks of a page that begin with `first`.
    fn blocks<'p>(page: &'p str, first: &str) -> Vec<&'p str> {
        let blocks = page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
        blocks.map(|(_, text)| text).filter(|text| text.starts_with(first)).collect()
    }

    #[test]
    fn the_files_of_the_three_journeys_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let page = fs::read_to_string(root.join("docs/guide/src/architecture.md")).unwrap();
        let is_path = |quoted: &&str| ["crates/", "bpf/", "docs/"].iter().any(|folder| quoted.starts_with(folder));
        let files: Vec<_> = page.split('`').skip(1).step_by(2).filter(is_path).collect();
        assert!(files.len() > 30, "{} files are named", files.len());
        let missing: Vec<_> = files.iter().filter(|file| !root.join(file).exists()).collect();
        assert!(missing.is_empty(), "the page names files that do not exist: {missing:?}");
    }

    /// The targets of the links of a page, outside code.
    fn links(page: &str) -> Vec<String> {
        let prose = page.split("```").step_by(2).collect::<String>();
        let prose = prose.split('`').step_by(2).collect::<String>();
        let target = |rest: &str| rest.split([')', ' ']).next().map(str::to_owned);
        prose.split("](").skip(1).filter_map(target).collect()
    }

    /// The anchors of a page: its headings in lower case, with `-` for spaces and without other signs.
    fn anchors(page: &str) -> Vec<String> {
        let prose = page.split("```").step_by(2).collect::<String>();
        let headings = prose.lines().filter(|line| line.starts_with('#'));
        let sign = |c: char| match c {
            ' ' => Some('-'),
            c => (c.is_alphanumeric() || "-_".contains(c)).then_some(c),
        };
        let anchor = |line: &str| line.trim_start_matches('#').trim().to_lowercase().chars().filter_map(sign).collect();
        headings.map(anchor).collect()
    }

    /// Whether a link of the page at `path` leads to a file, or to a heading of it. Other sites are not asked.
    fn leads_somewhere(path: &Path, link: &str) -> bool {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() { path.to_owned() } else { path.with_file_name(file) };
        let has = || fs::read_to_string(&target).is_ok_and(|page| anchors(&page).iter().any(|known| known == anchor));
        link.contains("://") || link.starts_with("mailto:") || target.exists() && (anchor.is_empty() || has())
    }

    #[test]
    fn every_link_of_the_documents_leads_somewhere() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let folders = [".", "docs/guide/src", "docs/design"].map(|folder| root.join(folder));
        let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap()).map(|file| file.unwrap().path());
        let pages: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
        assert!(pages.len() > 80, "{} pages were found", pages.len());
        let wrong = pages.iter().flat_map(|path| {
            let page = fs::read_to_string(path).unwrap();
            let wrong = links(&page).into_iter().filter(|link| !leads_somewhere(path, link)).collect::<Vec<_>>();
            wrong.into_iter().map(move |link| format!("{}: {link}", path.display()))
        });
        assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn a_link_without_its_file_or_its_heading_is_found() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/src/why.md");
        assert_eq!(links("[a](b.md#c) `[d](e)`\n```\n[f](g)\n```\n[h](#i)"), ["b.md#c", "#i"]);
        assert!(leads_somewhere(&path, "demo.md") && leads_somewhere(&path, "#cpu-time"));
        assert!(!leads_somewhere(&path, "no-such-page.md") && !leads_somewhere(&path, "demo.md#no-such-heading"));
    }

    #[test]
    fn every_page_of_the_guide_is_in_its_table_of_contents() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/src");
        let listed = links(&fs::read_to_string(folder.join("SUMMARY.md")).unwrap());
        let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let pages = files.filter(|name| name.ends_with(".md") && name != "SUMMARY.md");
        assert_eq!(pages.filter(|page| !listed.contains(page)).collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn the_list_of_design_pages_has_every_page_with_its_title() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/design");
        let list = fs::read_to_string(folder.join("README.md")).unwrap();
        let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let pages: Vec<_> = files.filter(|name| name.starts_with(|first: char| first.is_ascii_digit())).collect();
        let entry = |name: &String| {
            let page = fs::read_to_string(folder.join(name)).unwrap();
            let title = page.lines().next().and_then(|first| first.strip_prefix("# ")).expect("a title");
            format!("* [{title}]({name})")
        };
        let missing: Vec<_> = pages.iter().map(entry).filter(|entry| !list.lines().any(|line| line == entry)).collect();
        assert!(missing.is_empty(), "docs/design/README.md lacks these lines: {missing:#?}");
        assert_eq!(list.matches("\n* [").count(), pages.len(), "docs/design/README.md lists pages that do not exist");
    }

    /// A page shows a change that a reader applies. The test also passes if one of the changes is already applied.
    #[test]
    fn the_first_changes_of_the_guide_apply_to_this_code() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let page = fs::read_to_string(root.join("docs/guide/src/your-first-change.md")).unwrap();
        let changes = blocks(&page, "--- ");
        assert_eq!(changes.len(), 5, "the guide's changes have a different form; update this test");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("change.patch");
        for change in changes {
            fs::write(&file, change).unwrap();
            let apply = |options: &[&str]| {
                Command::new("git").current_dir(&root).args(["apply", "--check"]).args(options).arg(&file).output()
            };
            let forward = apply(&[]).unwrap();
            let applies = forward.status.success() || apply(&["-R"]).unwrap().status.success();
            assert!(applies, "{change}\n{}", String::from_utf8_lossy(&forward.stderr));
        }
    }

    /// Runs in a separate network namespace, so that the rules affect nothing else. Needs root, because the kernel
    /// checks the rules.
    #[test]
    fn nft_accepts_the_firewall_rules_of_the_guide() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/src/channels.md");
        let page = fs::read_to_string(page).unwrap();
        let blocks = blocks(&page, "table ");
        assert_eq!(blocks.len(), 1, "the guide's rules have a different form; update this test");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules");
        fs::write(&file, blocks[0]).unwrap();
        let in_a_network_of_its_own =
            |arguments: &[&str]| Command::new("unshare").arg("--net").arg("nft").args(arguments).output().ok();
        match in_a_network_of_its_own(&["list", "ruleset"]) {
            Some(answer) if answer.status.success() => {}
            _ => return qfabric_linux::testing::skip("nft (nftables) and root are needed"),
        }
        let loaded = in_a_network_of_its_own(&["-f", file.to_str().unwrap()]).unwrap();
        assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
    }
}
