//! `make install`: installs files where a packager expects them, under PREFIX, with DESTDIR in front.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use crate::tools::target;
use crate::{build, laboratory};

/// The profile of `Cargo.toml` for what is installed, and its folder in the target folder.
const PROFILE: &str = "installed";

/// Builds with optimisation and installs everything.
pub(crate) fn run(sh: &Shell, prefix: &str, destdir: &str) -> Result<()> {
    build(sh)?;
    place_all(sh, prefix, destdir)
}

/// Builds the programs and the library with optimisation, with the laboratory in the daemon.
pub(crate) fn build(sh: &Shell) -> Result<()> {
    laboratory::build(sh)?;
    let packages = ["qfabric-cli", "qfabric-player", "qfabric-conference", "qfabric-ffi"].map(|name| ["-p", name]);
    let packages = packages.as_flattened();
    let libc = cmd!(sh, "getconf GNU_LIBC_VERSION").quiet().ignore_stderr().read().unwrap_or_default();
    let settings: Vec<&str> = linking(&libc).into_iter().flat_map(|setting| ["--config", setting]).collect();
    cmd!(sh, "cargo build --profile {PROFILE} --locked {settings...} {packages...}").run()?;
    Ok(())
}

/// The setting of cargo that packs relocations, if the C library `libc` (as `getconf` names it) reads them. Each
/// address in a table of methods is a relocation of 24 bytes, or of a few bits if they are packed. Linkers that cannot
/// pack ignore the word with a warning. `build.rustflags` is the weakest of cargo's settings: flags of the user are
/// added to it, or replace it.
fn linking(libc: &str) -> Option<&'static str> {
    let (major, minor) = libc.trim().strip_prefix("glibc ")?.split_once('.')?;
    let version = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
    (version >= (2, 36)).then_some(r#"build.rustflags=["-Clink-arg=-Wl,-z,pack-relative-relocs"]"#)
}

/// Installs what [`build`] has built.
pub(crate) fn place_all(sh: &Shell, prefix: &str, destdir: &str) -> Result<()> {
    let built = target(sh)?.join(PROFILE);
    let man = build::pages(sh, &built.join("qfabric"))?;
    let under = |path: &str| PathBuf::from(format!("{destdir}{prefix}/{path}"));

    for program in ["qfabric", "qfabric-player", "qfabric-conference"] {
        place(sh, "755", &built.join(program), &under(&format!("bin/{program}")))?;
    }
    for library in ["libqfabric.so", "libqfabric.a"] {
        place(sh, "644", &built.join(library), &under(&format!("lib/{library}")))?;
    }
    place(sh, "644", Path::new("crates/ffi/include/qfabric.h"), &under("include/qfabric.h"))?;
    pkg_config(sh, prefix, &under("lib/pkgconfig/qfabric.pc"))?;
    for page in sh.read_dir(&man)?.into_iter().filter(|file| file.extension().is_some_and(|e| e == "1")) {
        let name = page.file_name().context("a page has a name")?.to_string_lossy().into_owned();
        place(sh, "644", &page, &under(&format!("share/man/man1/{name}")))?;
    }
    completions(sh, &man, under)?;
    service(sh, prefix, destdir)
}

fn completions(sh: &Shell, from: &Path, under: impl Fn(&str) -> PathBuf) -> Result<()> {
    place(sh, "644", &from.join("qfabric.bash"), &under("share/bash-completion/completions/qfabric"))?;
    place(sh, "644", &from.join("_qfabric"), &under("share/zsh/site-functions/_qfabric"))?;
    place(sh, "644", &from.join("qfabric.fish"), &under("share/fish/vendor_completions.d/qfabric.fish"))
}

/// Installs the unit, with the path of the installed program. An existing configuration is never overwritten.
fn service(sh: &Shell, prefix: &str, destdir: &str) -> Result<()> {
    let unit = sh.read_file("packaging/qfabric.service")?.replace("/usr/bin/qfabric", &format!("{prefix}/bin/qfabric"));
    let folder = format!("{destdir}{prefix}/lib/systemd/system");
    sh.create_dir(&folder)?;
    sh.write_file(format!("{folder}/qfabric.service"), unit)?;
    let users = PathBuf::from(format!("{destdir}{prefix}/lib/sysusers.d/qfabric.conf"));
    place(sh, "644", Path::new("packaging/qfabric.sysusers"), &users)?;
    let config = PathBuf::from(format!("{destdir}/etc/qfabric/daemon.toml"));
    if sh.path_exists(&config) {
        println!("kept {}", config.display());
        return Ok(());
    }
    place(sh, "644", Path::new("packaging/daemon.toml"), &config)
}

fn pkg_config(sh: &Shell, prefix: &str, to: &Path) -> Result<()> {
    let text = sh.read_file("crates/ffi/qfabric.pc.in")?;
    let text = text.replace("@PREFIX@", prefix).replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    sh.create_dir(to.parent().context("a file has a folder")?)?;
    sh.write_file(to, text).context("qfabric.pc")
}

fn place(sh: &Shell, mode: &str, from: &Path, to: &Path) -> Result<()> {
    cmd!(sh, "install -D -m {mode} {from} {to}").run()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn text(file: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        fs::read_to_string(root.join(file)).unwrap()
    }

    #[test]
    fn relocations_are_packed_only_for_a_c_library_that_reads_them() {
        for libc in ["glibc 2.36\n", "glibc 2.41", "glibc 3.0"] {
            assert!(linking(libc).is_some(), "{libc}");
        }
        for libc in ["glibc 2.35", "glibc 2.4", "glibc", "musl 1.2.5", ""] {
            assert_eq!(linking(libc), None, "{libc}");
        }
    }

    #[test]
    fn the_profile_is_small_unwinds_and_names_packages_that_exist() {
        let manifest: toml::Table = toml::from_str(&text("Cargo.toml")).unwrap();
        let profile = &manifest["profile"][PROFILE];
        assert_eq!((profile["lto"].as_str(), profile["strip"].as_str()), (Some("fat"), Some("symbols")));
        for name in [PROFILE, "release"] {
            let panic = manifest["profile"][name].get("panic").and_then(toml::Value::as_str);
            assert!(panic.is_none_or(|panic| panic == "unwind"), "{name}: the daemon contains panics");
        }
        let lock = text("Cargo.lock");
        let mut packages = profile["package"].as_table().unwrap().keys().filter(|name| *name != "*");
        let missing = packages.find(|name| !lock.contains(&format!("name = \"{name}\"\n")));
        assert_eq!(missing, None, "cargo ignores the settings of this package");
    }
}
