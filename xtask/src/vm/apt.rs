//! Debian's packages without changes to this machine: an apt with its state in the cache folder.
//!
//! The variable APT_CONFIG sets the configuration: with options on the command line this machine's hooks would still
//! run. Signatures are always checked with Debian's keyring. The age of lists is not checked (a suite's release file
//! is valid for a week, and mirrors lag behind), because versions are chosen by pattern.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use xshell::{Shell, cmd};

/// Keyring that signs Debian's archive.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Variable that names a mirror, instead of this machine's setting.
const MIRROR: &str = "QFABRIC_VM_MIRROR";

/// An apt for one suite.
pub(super) struct Apt<'a> {
    sh: &'a Shell,
    folder: PathBuf,
}

impl<'a> Apt<'a> {
    /// Sets apt up below `cache` and fetches the suite's lists.
    pub(super) fn open(sh: &'a Shell, cache: &Path, suite: &str) -> Result<Apt<'a>> {
        let folder = cache.join("apt").join(suite);
        let apt = Apt { sh, folder };
        apt.write_configuration(suite)?;
        println!("vm: packages of {suite}");
        apt.with_config(|| Ok(cmd!(sh, "apt-get -qq update").quiet().run()?)).with_context(|| {
            format!("cannot fetch the lists of Debian's suite {suite}; check this machine's mirror, or set {MIRROR} to another one")
        })?;
        Ok(apt)
    }

    fn write_configuration(&self, suite: &str) -> Result<()> {
        if !Path::new(KEYRING).exists() {
            bail!("{KEYRING} is missing, so signatures cannot be checked: install debian-archive-keyring");
        }
        for below in ["state/lists/partial", "cache/archives/partial", "etc/parts", "etc/preferences.d"] {
            fs::create_dir_all(self.folder.join(below))?;
        }
        fs::write(self.folder.join("state/status"), "")?;
        let source = format!("deb [signed-by={KEYRING}] {} {suite} main\n", mirror(self.sh)?);
        fs::write(self.folder.join("etc/sources.list"), source)?;
        Ok(fs::write(self.config(), self.configuration()?)?)
    }

    fn configuration(&self) -> Result<String> {
        let own = self.folder.display();
        let folders = [
            ("Dir", format!("{own}/")),
            ("Dir::State", format!("{own}/state")),
            ("Dir::State::status", format!("{own}/state/status")),
            ("Dir::Cache", format!("{own}/cache")),
            ("Dir::Etc", format!("{own}/etc")),
            ("Dir::Etc::sourcelist", format!("{own}/etc/sources.list")),
            ("Dir::Etc::sourceparts", "/dev/null".to_owned()),
            ("Dir::Etc::parts", format!("{own}/etc/parts")),
            ("Dir::Etc::main", format!("{own}/etc/none")),
            // Without this option a list that cannot be fetched is only a warning, and a suite looks empty.
            ("APT::Update::Error-Mode", "any".to_owned()),
            ("APT::Sandbox::User", String::new()),
            ("APT::Architecture", "amd64".to_owned()),
            ("Acquire::Check-Valid-Until", "false".to_owned()),
            ("Acquire::Languages", "none".to_owned()),
            ("Acquire::Retries", "3".to_owned()),
        ];
        let lines: String = folders.iter().map(|(name, value)| format!("{name} \"{value}\";\n")).collect();
        Ok(lines + &proxy(self.sh)?)
    }

    fn config(&self) -> PathBuf {
        self.folder.join("apt.conf")
    }

    fn with_config<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let _config = self.sh.push_env("APT_CONFIG", self.config());
        run()
    }

    /// The names of all packages that begin with `linux-`.
    pub(super) fn kernel_packages(&self) -> Result<Vec<String>> {
        let sh = self.sh;
        let names = self.with_config(|| Ok(cmd!(sh, "apt-cache pkgnames linux-").quiet().read()?))?;
        Ok(names.lines().map(str::to_owned).collect())
    }

    /// Fetches packages into `folder`, with signatures checked; returns the files.
    pub(super) fn download(&self, packages: &[String], folder: &Path) -> Result<Vec<PathBuf>> {
        let sh = self.sh;
        let _folder = sh.push_dir(folder);
        self.with_config(|| Ok(cmd!(sh, "apt-get -q download {packages...}").quiet().run()?))?;
        let files = sh.read_dir(folder)?;
        Ok(files.into_iter().filter(|file| file.extension().is_some_and(|e| e == "deb")).collect())
    }
}

/// This machine's mirror: the first of its sources that is Debian's archive.
fn mirror(sh: &Shell) -> Result<String> {
    if let Ok(mirror) = sh.var(MIRROR) {
        return Ok(mirror);
    }
    let format = "$(REPO_URI)";
    let sources = cmd!(sh, "apt-get indextargets --format {format}").quiet().read()?;
    let debian = sources.lines().find(|uri| uri.trim_end_matches('/').ends_with("/debian"));
    debian
        .map(str::to_owned)
        .with_context(|| format!("no source of this machine is Debian's archive; set {MIRROR} to a mirror"))
}

fn proxy(sh: &Shell) -> Result<String> {
    let all = cmd!(sh, "apt-config dump").quiet().read()?;
    Ok(all.lines().filter(|line| is_proxy(line)).map(|line| format!("{line}\n")).collect())
}

fn is_proxy(line: &str) -> bool {
    line.starts_with("Acquire::") && line.to_ascii_lowercase().contains("proxy")
}

/// The available packages of the kernel `release`: its program, and its modules if they still exist (Debian removes
/// the modules of superseded kernels first). Debian has split them in different ways over time.
pub(super) fn packages_of(release: &str, all: &[String]) -> Vec<String> {
    let is_there = |name: &String| all.contains(name);
    let programs = ["binary-unsigned-R", "binary-R", "image-R-unsigned", "image-R"];
    let named = |pattern: &&str| format!("linux-{}", pattern.replace('R', release));
    let program = programs.iter().map(named).find(is_there);
    let Some(program) = program else { return Vec::new() };
    let parts = ["base-R", "modules-R"].iter().map(named).filter(is_there);
    [program].into_iter().chain(parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_packages_of_a_kernel_are_chosen_from_those_available() {
        let new =
            names(&["linux-image-7", "linux-binary-7", "linux-binary-unsigned-7", "linux-base-7", "linux-modules-7"]);
        assert_eq!(packages_of("7", &new), names(&["linux-binary-unsigned-7", "linux-base-7", "linux-modules-7"]));
        let superseded = names(&["linux-image-7", "linux-binary-7"]);
        assert_eq!(packages_of("7", &superseded), names(&["linux-binary-7"]));
        let old = names(&["linux-image-6", "linux-image-6-unsigned"]);
        assert_eq!(packages_of("6", &old), names(&["linux-image-6-unsigned"]));
        assert!(packages_of("8", &old).is_empty());
    }

    #[test]
    fn only_proxy_settings_of_this_machine_are_used() {
        assert!(is_proxy(r#"Acquire::http::Proxy "http://p:1";"#));
        assert!(!is_proxy(r#"APT::Update::Post-Invoke:: "rm";"#));
    }
}
