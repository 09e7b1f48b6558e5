//! The cache of kernels. Each kernel is fetched once, checked, and moved into place in one step, so that a kernel in
//! the cache is always complete.
//!
//! `kernels/RELEASE/` has `vmlinux`, `lib/modules/RELEASE/` and `packages`; `names/NAME` has the release of a name of
//! the matrix. No files outside the cache are changed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use xshell::{Shell, cmd};

use super::apt::{Apt, packages_of};
use super::matrix::{Candidate, Entry, Feature, by_version, matches};
use super::vmlinux::{Names, unpack};
use crate::tools::target;

/// A kernel in the cache.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// Name in the matrix.
    pub name: String,
    /// `7.3.4+deb13-cloud-amd64`
    pub release: String,
    folder: PathBuf,
}

impl Kernel {
    /// Path of the program that boots.
    pub(super) fn vmlinux(&self) -> PathBuf {
        self.folder.join("vmlinux")
    }

    /// Folder of the modules and their list.
    pub(super) fn modules(&self) -> PathBuf {
        self.folder.join("lib/modules").join(&self.release)
    }
}

/// All kernels fetched so far.
pub(super) struct Cache<'a> {
    sh: &'a Shell,
    folder: PathBuf,
}

impl<'a> Cache<'a> {
    /// `$QFABRIC_VM_CACHE`, else `vm` in cargo's target folder.
    pub(super) fn open(sh: &'a Shell) -> Result<Cache<'a>> {
        let folder = match sh.var("QFABRIC_VM_CACHE") {
            Ok(folder) => sh.current_dir().join(folder),
            Err(_) => target(sh)?.join("vm"),
        };
        for below in ["kernels", "names"] {
            fs::create_dir_all(folder.join(below)).with_context(|| folder.display().to_string())?;
        }
        Ok(Cache { sh, folder })
    }

    /// Folder of the cache.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The kernel of this entry, if it is in the cache.
    pub(super) fn find(&self, entry: &Entry) -> Option<Kernel> {
        let release = fs::read_to_string(self.folder.join("names").join(&entry.name)).ok()?;
        let known = |candidate: &Candidate| matches(&candidate.release, &release);
        let kernel = self.kernel(entry, &release);
        (entry.candidates.iter().any(known) && kernel.vmlinux().exists()).then_some(kernel)
    }

    fn kernel(&self, entry: &Entry, release: &str) -> Kernel {
        let folder = self.folder.join("kernels").join(release);
        Kernel { name: entry.name.clone(), release: release.to_owned(), folder }
    }

    /// The kernel of this entry; fetched if it is not in the cache. A lock lets two harnesses fetch one after the
    /// other.
    pub(super) fn get(&self, entry: &Entry) -> Result<Kernel> {
        if let Some(kernel) = self.find(entry) {
            return Ok(kernel);
        }
        let lock = File::create(self.folder.join("lock"))?;
        lock.lock()?;
        match self.find(entry) {
            Some(kernel) => Ok(kernel),
            None => self.fetch(entry),
        }
    }

    /// Tries the candidates in order, and the newest release of each first.
    fn fetch(&self, entry: &Entry) -> Result<Kernel> {
        let mut refused = Vec::new();
        for candidate in &entry.candidates {
            match self.fetch_candidate(entry, candidate, &mut refused) {
                Ok(Some(kernel)) => return Ok(kernel),
                Ok(None) => {}
                Err(error) => refused.push(format!("{}: {error:#}", candidate.suite)),
            }
        }
        bail!("cannot fetch a kernel for {}:\n  {}", entry.name, refused.join("\n  "))
    }

    fn fetch_candidate(&self, entry: &Entry, of: &Candidate, refused: &mut Vec<String>) -> Result<Option<Kernel>> {
        let apt = Apt::open(self.sh, &self.folder, &of.suite)?;
        let all = apt.kernel_packages()?;
        for release in releases(&of.release, &all) {
            match self.fetch_release(&apt, entry, &release, &packages_of(&release, &all)) {
                Ok(kernel) => return Ok(Some(kernel)),
                Err(error) => {
                    println!("vm: {release} is skipped: {error:#}");
                    refused.push(format!("{release}: {error:#}"));
                }
            }
        }
        refused.push(format!("{}: no further release matches {}", of.suite, of.release));
        Ok(None)
    }

    fn fetch_release(&self, apt: &Apt, entry: &Entry, release: &str, packages: &[String]) -> Result<Kernel> {
        println!("vm: fetching {}", packages.join(", "));
        let kernel = self.kernel(entry, release);
        let work = tempfile::Builder::new().prefix("fetch-").tempdir_in(&self.folder)?;
        let made = Kernel { folder: work.path().join("kernel"), ..kernel.clone() };
        fs::create_dir(&made.folder)?;
        self.unpack(apt, packages, work.path(), &made)?;
        check(entry, &made)?;
        if kernel.folder.exists() {
            fs::remove_dir_all(&kernel.folder)?;
        }
        fs::rename(&made.folder, &kernel.folder)?;
        self.write_name(&entry.name, release)?;
        println!("vm: {} is {release}", entry.name);
        Ok(kernel)
    }

    fn write_name(&self, name: &str, release: &str) -> Result<()> {
        let new = self.folder.join("names").join(format!(".{name}"));
        fs::write(&new, release)?;
        Ok(fs::rename(&new, self.folder.join("names").join(name))?)
    }

    fn unpack(&self, apt: &Apt, packages: &[String], work: &Path, to: &Kernel) -> Result<()> {
        let (sh, root) = (self.sh, work.join("root"));
        let files = apt.download(packages, work)?;
        for file in &files {
            cmd!(sh, "dpkg-deb -x {file} {root}").quiet().run()?;
        }
        let names = files.iter().filter_map(|file| file.file_name()).map(|name| name.to_string_lossy() + "\n");
        fs::write(to.folder.join("packages"), names.collect::<String>())?;
        unpack(sh, &find_vmlinuz(&root, &to.release)?, &to.vmlinux())?;
        self.take_modules(&root, to)
    }

    fn take_modules(&self, root: &Path, to: &Kernel) -> Result<()> {
        let (sh, base, release) = (self.sh, &to.folder, &to.release);
        fs::create_dir_all(base.join("lib/modules"))?;
        let from = ["usr/lib/modules", "lib/modules"].map(|below| root.join(below).join(release));
        let Some(from) = from.iter().find(|folder| folder.join("kernel").exists()) else {
            return Ok(());
        };
        fs::rename(from, to.modules())?;
        cmd!(sh, "/usr/sbin/depmod -b {base} {release}").quiet().run()?;
        Ok(())
    }

    /// Removes all fetched kernels.
    pub(super) fn clean(&self) -> Result<()> {
        for below in ["apt", "kernels", "names"] {
            if self.folder.join(below).exists() {
                fs::remove_dir_all(self.folder.join(below))?;
            }
        }
        Ok(())
    }
}

/// The releases among package names that match the pattern, newest first.
fn releases(pattern: &str, packages: &[String]) -> Vec<String> {
    let parts = ["linux-image-", "linux-binary-", "linux-binary-unsigned-"];
    let release = |name: &String| {
        let mut rests = parts.iter().filter_map(|part| name.strip_prefix(part));
        rests.find(|rest| matches(pattern, rest)).map(str::to_owned)
    };
    let mut all: Vec<_> = packages.iter().filter_map(release).collect();
    all.sort_by(|a, b| by_version(b, a));
    all.dedup();
    all
}

/// Finds the kernel's program: unsigned ones are called `vmlinuz.unsigned`, older ones have the release in their name
/// and are in /boot.
fn find_vmlinuz(root: &Path, release: &str) -> Result<PathBuf> {
    let folders = ["usr/lib/modules", "lib/modules"].map(|below| root.join(below).join(release));
    let files = folders.into_iter().chain([root.join("boot")]).filter_map(|folder| fs::read_dir(folder).ok());
    let is_kernel = |file: &fs::DirEntry| file.file_name().to_string_lossy().starts_with("vmlinuz");
    let kernel = files.flat_map(Iterator::flatten).find(is_kernel);
    kernel.map(|file| file.path()).with_context(|| format!("no vmlinuz in the packages of {release}"))
}

/// Checks the kernel against the requirements of the matrix.
fn check(entry: &Entry, kernel: &Kernel) -> Result<()> {
    let names = Names::read(&kernel.vmlinux())?;
    names.check()?;
    let has = |feature: Feature| match feature {
        Feature::SchedExt => names.contain("sched_ext_ops"),
        Feature::BpfQdisc => names.contain("bpf_qdisc_skb_drop"),
        Feature::Modules => kernel.modules().join("modules.dep").exists(),
    };
    for feature in &entry.has {
        ensure!(has(*feature), "the kernel lacks {feature:?}");
    }
    for feature in &entry.lacks {
        ensure!(!has(*feature), "the kernel has {feature:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_release_of_a_pattern_comes_first() {
        let names = ["linux-image-7.3.4+d", "linux-binary-7.3.4+d", "linux-image-7.3.10+d", "linux-image-7.3.4+d-dbg"];
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(releases("7.3.*+d", &names), ["7.3.10+d", "7.3.4+d"]);
    }
}
