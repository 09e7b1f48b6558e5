//! `make install`: installs files where a packager expects them, under PREFIX, with DESTDIR in front.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use crate::tools::target;
use crate::{build, laboratory};

/// Builds with optimisation and installs everything.
pub(crate) fn run(sh: &Shell, prefix: &str, destdir: &str) -> Result<()> {
    build(sh)?;
    place_all(sh, prefix, destdir)
}

/// Builds the programs and the library with optimisation, with the laboratory in the daemon.
pub(crate) fn build(sh: &Shell) -> Result<()> {
    laboratory::build(sh)?;
    cmd!(sh, "cargo build --release --locked -p qfabric-cli -p qfabric-player -p qfabric-conference -p qfabric-ffi")
        .run()?;
    Ok(())
}

/// Installs what [`build`] has built.
pub(crate) fn place_all(sh: &Shell, prefix: &str, destdir: &str) -> Result<()> {
    let release = target(sh)?.join("release");
    let man = build::pages(sh, &release.join("qfabric"))?;
    let under = |path: &str| PathBuf::from(format!("{destdir}{prefix}/{path}"));

    for program in ["qfabric", "qfabric-player", "qfabric-conference"] {
        place(sh, "755", &release.join(program), &under(&format!("bin/{program}")))?;
    }
    for library in ["libqfabric.so", "libqfabric.a"] {
        place(sh, "644", &release.join(library), &under(&format!("lib/{library}")))?;
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
