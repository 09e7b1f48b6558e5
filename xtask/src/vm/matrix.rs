//! `tests/vm/kernels.toml`: the kernels of the matrix, by version pattern.

use std::cmp::Ordering;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// One kernel that tests can name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    /// Name that tests use.
    pub name: String,
    /// Sources of the kernel, best first.
    pub candidates: Vec<Candidate>,
    /// Required features.
    #[serde(default)]
    pub has: Vec<Feature>,
    /// Features that the kernel must not have.
    #[serde(default)]
    pub lacks: Vec<Feature>,
    /// Used only if it is named.
    #[serde(default)]
    pub extra: bool,
}

/// Releases of one suite of Debian.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Candidate {
    /// Suite, such as `trixie-backports`.
    pub suite: String,
    /// Pattern, such as `7.3.*+deb13-cloud-amd64`; `*` stands for digits.
    pub release: String,
}

/// A feature of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Feature {
    /// Schedulers in BPF.
    SchedExt,
    /// Queueing disciplines in BPF.
    BpfQdisc,
    /// Loadable modules in the packages.
    Modules,
}

#[derive(Deserialize)]
struct File {
    kernel: Vec<Entry>,
}

/// All entries, in the order of the file.
pub(super) fn read(root: &Path) -> Result<Vec<Entry>> {
    let path = root.join("tests/vm/kernels.toml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(toml::from_str::<File>(&text).with_context(|| path.display().to_string())?.kernel)
}

/// The entries with these names; if there are no names, all that are not extra.
pub(super) fn choose(all: Vec<Entry>, names: &[String]) -> Result<Vec<Entry>> {
    if names.is_empty() {
        return Ok(all.into_iter().filter(|entry| !entry.extra).collect());
    }
    names.iter().map(|name| find(&all, name).cloned()).collect()
}

/// The entry of this name.
pub(super) fn find<'a>(all: &'a [Entry], name: &str) -> Result<&'a Entry> {
    let Some(entry) = all.iter().find(|entry| entry.name == name) else {
        let names: Vec<_> = all.iter().map(|entry| entry.name.as_str()).collect();
        bail!("there is no kernel {name:?}; tests/vm/kernels.toml has {}", names.join(", "));
    };
    Ok(entry)
}

/// True if `release` matches `pattern`.
pub(super) fn matches(pattern: &str, release: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == release };
    let Some(rest) = release.strip_prefix(head) else { return false };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    digits > 0 && matches(tail, &rest[digits..])
}

/// Compares two releases by the numbers in them.
pub(super) fn by_version(a: &str, b: &str) -> Ordering {
    let numbers = |text: &str| -> Vec<u64> {
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
    };
    numbers(a).cmp(&numbers(b)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_has_a_readable_matrix() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let all = read(root).unwrap();
        assert!(all.iter().any(|entry| entry.lacks.contains(&Feature::SchedExt)), "an old kernel");
        assert!(choose(all.clone(), &[]).unwrap().len() >= 3);
        let error = choose(all, &["5.0".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("5.0") && error.contains("7.3"), "{error}");
    }

    #[test]
    fn a_star_stands_for_digits_only() {
        assert!(matches("7.3.*+deb13-cloud-amd64", "7.3.14+deb13-cloud-amd64"));
        assert!(!matches("7.3.*+deb13-amd64", "7.3.4+deb13-cloud-amd64"));
        assert!(!matches("7.3.*+deb13-amd64", "7.3.+deb13-amd64"));
        assert!(!matches("7.3.*+deb13-amd64", "7.3.4+deb13-amd64-dbg"));
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(by_version("6.19.14+deb13", "6.19.6+deb13"), Ordering::Greater);
        assert_eq!(by_version("6.19.6+deb13", "6.19.6+deb14"), Ordering::Less);
    }
}
