//! Compares the dependency table of docs/design/0002-rooms.md with Cargo.toml files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, MetadataCommand};

/// Dependencies: room → rooms that it uses. A room is a package name without `qfabric-`.
pub(crate) type Rooms = BTreeMap<String, BTreeSet<String>>;

/// Prints the real dependencies as rows of the table.
pub(crate) fn print(root: &Path) -> Result<()> {
    for (room, uses) in real(root)? {
        println!("| {room} | {} |", join(&uses));
    }
    Ok(())
}

fn join(rooms: &BTreeSet<String>) -> String {
    if rooms.is_empty() { "–".to_owned() } else { rooms.iter().map(String::as_str).collect::<Vec<_>>().join(", ") }
}

/// The dependencies in Cargo.toml files, without dev-dependencies.
pub(crate) fn real(root: &Path) -> Result<Rooms> {
    let metadata = MetadataCommand::new().current_dir(root).no_deps().exec().context("cargo metadata")?;
    let names: BTreeSet<_> = metadata.workspace_packages().iter().map(|p| p.name.to_string()).collect();
    let room = |name: &str| name.strip_prefix("qfabric-").unwrap_or(name).to_owned();
    let uses = |package: &cargo_metadata::Package| {
        let real = package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development);
        real.filter(|d| names.contains(&d.name)).map(|d| room(&d.name)).collect()
    };
    Ok(metadata.workspace_packages().into_iter().map(|p| (room(&p.name), uses(p))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    /// The rows `| room | … | uses |` of the first table whose head begins with `| room |`.
    fn table(text: &str) -> Rooms {
        let rows = text.lines().skip_while(|line| !line.starts_with("| room |")).skip(2);
        rows.take_while(|line| line.starts_with('|')).filter_map(row).collect()
    }

    fn row(line: &str) -> Option<(String, BTreeSet<String>)> {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let (room, uses) = (cells.first()?, cells.last()?);
        let uses = uses.split(',').map(|name| name.trim().trim_matches('`').to_owned());
        Some((room.trim_matches('`').to_owned(), uses.filter(|name| name != "–").collect()))
    }

    #[test]
    fn rooms_depend_on_each_other_as_the_design_says() {
        let file = root().join("docs/design/0002-rooms.md");
        let table = table(&std::fs::read_to_string(&file).unwrap());
        let real = real(root()).unwrap();
        for (room, uses) in &real {
            let listed = table.get(room).unwrap_or_else(|| panic!("{room} is not in {}", file.display()));
            assert_eq!(listed, uses, "{room}: {} (left) and Cargo.toml (right) differ", file.display());
        }
        let gone: Vec<_> = table.keys().filter(|room| !real.contains_key(*room)).collect();
        assert!(gone.is_empty(), "{} names rooms that do not exist: {gone:?}", file.display());
    }

    #[test]
    fn pure_rooms_use_pure_rooms_only() {
        let pure = ["types", "sched", "control", "broker", "ecode", "channel", "energy", "host"];
        let real = real(root()).unwrap();
        for room in pure {
            assert!(real[room].iter().all(|used| pure.contains(&used.as_str())), "{room} uses {:?}", real[room]);
        }
    }

    #[test]
    fn rows_are_read_as_written() {
        let text = "x\n| room | what | uses |\n|---|---|---|\n| `a` | x | – |\n| `b` | y | `a`, `c` |\n\n| z | z | z |";
        let rooms = table(text);
        assert_eq!(rooms.len(), 2);
        assert!(rooms["a"].is_empty());
        assert_eq!(join(&rooms["b"]), "a, c");
    }
}
