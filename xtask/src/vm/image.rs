//! The image: the files of the machine's first file system, and the boot script. Programs of the host are added with their
//! shared libraries, at the same paths as on the host, so that paths compiled into tests are valid.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use qfabric_vm_init::{BOOT_SCRIPT, BootScript};
use xshell::{Shell, cmd};

use super::cpio::Archive;
use super::kernels::Kernel;
use super::modules::Modules;

/// Folders that are links on a merged system: `/bin/sh` and `/usr/bin/sh` are one file.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// The accounts that programs look up.
const ACCOUNTS: [(&str, &str); 3] = [
    ("etc/passwd", "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
];

/// Modules of the port to the host; Debian's cloud kernels have them built in.
const OWN_MODULES: [&str; 2] = ["virtio_pci", "virtio_console"];

/// Size in bytes from which a program is stripped of debug information: it is most of a test program, and the
/// machine's first file system can use half of its memory. A panic's message has its location.
const LARGE: u64 = 4 << 20;

/// Files for the machine.
pub(super) struct Image<'a> {
    sh: &'a Shell,
    files: BTreeMap<String, PathBuf>,
    links: BTreeMap<String, String>,
    texts: BTreeMap<String, Vec<u8>>,
    folders: BTreeSet<String>,
}

impl<'a> Image<'a> {
    /// An image with the first process only.
    pub(super) fn new(sh: &'a Shell, init: &Path) -> Image<'a> {
        let texts = ACCOUNTS.map(|(path, text)| (path.to_owned(), text.into()));
        let links = MERGED.map(|folder| (folder.to_owned(), format!("usr/{folder}")));
        let folders = ["proc", "sys", "dev", "tmp", "run", "out"].map(str::to_owned);
        let files = BTreeMap::from([("init".to_owned(), init.to_owned())]);
        Image { sh, files, links: links.into(), texts: texts.into(), folders: folders.into() }
    }

    /// Runs the programs of this host that the harness needs.
    pub(super) fn shell(&self) -> &'a Shell {
        self.sh
    }

    /// Adds a file of the host, at the same path or at `to`. A program is added with its libraries, a folder with its
    /// content.
    pub(super) fn add(&mut self, from: &Path, to: Option<&str>) -> Result<()> {
        let from = std::path::absolute(from)?;
        ensure!(from.exists(), "{} does not exist", from.display());
        let place = to.map_or_else(|| from.display().to_string(), str::to_owned);
        if from.is_dir() {
            return self.add_folder(&from, &place);
        }
        for library in self.libraries(&from) {
            self.place(&library, &library.display().to_string());
        }
        self.place(&from, &place);
        Ok(())
    }

    fn add_folder(&mut self, from: &Path, place: &str) -> Result<()> {
        self.folders.insert(merged(place));
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            let name = entry.file_name();
            self.add(&entry.path(), Some(&format!("{place}/{}", name.to_string_lossy())))?;
        }
        Ok(())
    }

    /// Adds a program that is found by the search path.
    pub(super) fn add_program(&mut self, name: &str) -> Result<()> {
        let path = cmd!(self.sh, "which {name}").quiet().ignore_stderr().read();
        let path = path.with_context(|| format!("the program {name} is not installed on this machine"))?;
        self.add(Path::new(&path), None)
    }

    /// Where a program is that was added by name.
    pub(super) fn folder(&mut self, path: &str) {
        self.folders.insert(merged(path));
    }

    /// Adds busybox, and a link for each of its commands, unless the host's program is already there.
    pub(super) fn add_shell(&mut self) -> Result<()> {
        let path = cmd!(self.sh, "which busybox").quiet().ignore_stderr().read();
        let path = path.context("a shell needs busybox: apt-get install busybox-static")?;
        self.add(Path::new(&path), Some("/bin/busybox"))?;
        for name in cmd!(self.sh, "{path} --list").quiet().read()?.lines() {
            self.links.insert(format!("usr/bin/{name}"), "busybox".to_owned());
        }
        Ok(())
    }

    fn place(&mut self, from: &Path, to: &str) {
        self.files.insert(merged(to), from.to_owned());
    }

    /// The libraries that the loader lists; none for scripts and static programs.
    fn libraries(&self, program: &Path) -> Vec<PathBuf> {
        let said = cmd!(self.sh, "ldd {program}").quiet().ignore_status().ignore_stderr().read().unwrap_or_default();
        let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
        said.lines().filter_map(path).collect()
    }

    /// Adds the modules and the boot script, and writes the archive.
    pub(super) fn write(mut self, kernel: &Kernel, mut script: BootScript, wanted: &[String], to: &Path) -> Result<()> {
        let modules = Modules::read(kernel)?;
        let wanted = OWN_MODULES.iter().map(|name| (*name).to_owned()).chain(wanted.iter().cloned());
        for file in modules.in_order(wanted)? {
            let place = format!("/vm/modules/{}", file.file_name().unwrap_or_default().to_string_lossy());
            self.place(&file, &place);
            script.modules.push(place);
        }
        self.texts.insert(merged(BOOT_SCRIPT), script.encode());
        let work = tempfile::tempdir()?;
        self.strip(work.path())?;
        self.write_archive(to).context("writing the image")
    }

    fn strip(&mut self, work: &Path) -> Result<()> {
        for (number, from) in self.files.values_mut().enumerate() {
            let (small, large) = (work.join(number.to_string()), std::fs::metadata(&*from)?.len() >= LARGE);
            let strip = cmd!(self.sh, "strip --strip-debug -o {small} {from}").quiet().ignore_stderr();
            if large && strip.run().is_ok() {
                *from = small;
            }
        }
        Ok(())
    }

    fn write_archive(self, to: &Path) -> Result<()> {
        let mut archive = Archive::new(BufWriter::with_capacity(1 << 20, File::create(to)?));
        let places = self.files.keys().chain(self.links.keys()).chain(self.texts.keys());
        let mut folders: BTreeSet<_> = places.flat_map(|place| above(place)).collect();
        folders.extend(self.folders.iter().flat_map(|folder| above(&format!("{folder}/x"))));
        for folder in &folders {
            archive.folder(folder)?;
        }
        archive.console()?;
        for (place, link) in self.links.iter().filter(|(place, _)| !self.files.contains_key(*place)) {
            archive.link(place, link)?;
        }
        for (place, text) in &self.texts {
            archive.file(place, 0o644, text)?;
        }
        for (place, from) in &self.files {
            let mode = std::fs::metadata(from)?.permissions().mode() & 0o777;
            archive.copy(place, mode, from).with_context(|| from.display().to_string())?;
        }
        Ok(archive.finish()?)
    }
}

/// The path in the archive: without the first slash, and with `usr` in front if merged systems keep the file there.
fn merged(place: &str) -> String {
    let place = place.trim_start_matches('/');
    let first = place.split('/').next().unwrap_or_default();
    if MERGED.contains(&first) && place != first { format!("usr/{place}") } else { place.to_owned() }
}

/// All parent folders of a path, outermost first.
fn above(place: &str) -> Vec<String> {
    place.match_indices('/').map(|(end, _)| place[..end].to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_has_one_place() {
        assert_eq!(merged("/bin/sh"), "usr/bin/sh");
        assert_eq!(merged("/usr/bin/sh"), "usr/bin/sh");
        assert_eq!(merged("/lib64/ld.so"), "usr/lib64/ld.so");
        assert_eq!(merged("/work/bin/x"), "work/bin/x");
    }

    #[test]
    fn folders_come_from_the_outside_in() {
        assert_eq!(above("a/b/c"), ["a", "a/b"]);
        assert!(above("init").is_empty());
    }
}
