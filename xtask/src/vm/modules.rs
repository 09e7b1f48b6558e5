//! Module files that must be loaded, and their order.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::kernels::Kernel;

/// Modules of a kernel, by name (`_` for `-`).
pub(super) struct Modules {
    release: String,
    folder: PathBuf,
    needs: BTreeMap<String, Vec<String>>,
    built_in: Vec<String>,
}

impl Modules {
    /// Reads `modules.dep` and `modules.builtin`; empty if the packages have none.
    pub(super) fn read(kernel: &Kernel) -> Result<Modules> {
        let folder = kernel.modules();
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let built_in = text("modules.builtin").lines().map(name_of).collect();
        Ok(Modules { release: kernel.release.clone(), needs: needs(&text("modules.dep")), built_in, folder })
    }

    /// Files to load for these modules; each file comes after the files that it needs. A built-in module needs no
    /// file.
    pub(super) fn in_order(&self, wanted: impl IntoIterator<Item = String>) -> Result<Vec<PathBuf>> {
        let mut files: Vec<&String> = Vec::new();
        for name in wanted.into_iter().map(|name| name.replace('-', "_")) {
            let Some(own) = self.needs.get(&name) else {
                self.check_built_in(&name)?;
                continue;
            };
            // The line has the file itself, then the files that it needs, the innermost last.
            let missing: Vec<_> = own.iter().rev().filter(|file| !files.contains(file)).collect();
            files.extend(missing);
        }
        Ok(files.into_iter().map(|file| self.folder.join(file)).collect())
    }

    fn check_built_in(&self, name: &str) -> Result<()> {
        // Without a list the check is impossible; the harness' own modules are built into every such kernel.
        let is_own = name.starts_with("virtio_");
        if self.built_in.iter().any(|module| module == name) || (self.needs.is_empty() && is_own) {
            return Ok(());
        }
        if self.needs.is_empty() {
            bail!("the packages of {} have no modules, so {name} is not available; use another kernel", self.release);
        }
        bail!("{} has no module {name}", self.release)
    }
}

fn needs(text: &str) -> BTreeMap<String, Vec<String>> {
    let row = |line: &str| {
        let (file, needs) = line.split_once(':')?;
        let files = std::iter::once(file).chain(needs.split_whitespace()).map(str::to_owned);
        Some((name_of(file), files.collect()))
    };
    text.lines().filter_map(row).collect()
}

/// `kernel/net/sched/sch_fq.ko.xz` → `sch_fq`
fn name_of(file: &str) -> String {
    let name = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
    name.split(".ko").next().unwrap_or_default().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules() -> Modules {
        let text = "k/a-b.ko.xz: k/c.ko.xz k/d.ko.xz\nk/c.ko.xz: k/d.ko.xz\nk/d.ko.xz:\n";
        let (release, built_in) = ("7".to_owned(), vec!["veth".to_owned()]);
        Modules { release, folder: PathBuf::from("/m"), needs: needs(text), built_in }
    }

    fn order(wanted: &[&str]) -> Result<Vec<PathBuf>> {
        modules().in_order(wanted.iter().map(|name| (*name).to_owned()))
    }

    #[test]
    fn dependencies_come_first_and_once() {
        let files = ["/m/k/d.ko.xz", "/m/k/c.ko.xz", "/m/k/a-b.ko.xz"].map(PathBuf::from);
        assert_eq!(order(&["c", "a_b"]).unwrap(), files);
        assert_eq!(order(&["a-b"]).unwrap(), files);
    }

    #[test]
    fn a_built_in_module_needs_no_file_and_a_missing_one_is_an_error() {
        assert!(order(&["veth"]).unwrap().is_empty());
        assert!(order(&["sch_fq"]).unwrap_err().to_string().contains("sch_fq"));
    }
}
