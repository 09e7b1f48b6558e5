//! `make deb`: Debian packages and the Python wheel. Debian's own tools (debhelper) make the
//! packages from a finished installation, so that maintainer scripts and dependencies follow Debian's rules.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use xshell::{Shell, cmd};

use crate::tools::{python_tool, target};
use crate::{install, setup};

/// The promise for the installed programs: those of the package `qfabric`.
const MOST_MEGABYTES: f64 = 35.0;

#[derive(Args)]
pub(crate) struct Options {
    /// Added to the version, such as `+1`: apt upgrades only to a larger version
    #[arg(long, default_value = "")]
    suffix: String,
    /// Folder of the results; earlier packages in it are replaced
    #[arg(long, default_value = "out/packages")]
    out: PathBuf,
    /// Leave out the Python wheel
    #[arg(long)]
    no_wheel: bool,
    /// Also examine the packages with lintian
    #[arg(long)]
    lint: bool,
}

/// Builds everything and prints the paths of the packages.
pub(crate) fn run(sh: &Shell, options: &Options) -> Result<()> {
    let packages = make(sh, &options.suffix, &options.out)?;
    if options.lint {
        let packages = &packages;
        cmd!(sh, "lintian --allow-root --fail-on error --tag-display-limit 0 {packages...}").run()?;
    }
    for package in packages {
        let kibibytes = cmd!(sh, "dpkg-deb --field {package} Installed-Size").read()?;
        let kibibytes = kibibytes.trim().parse::<u64>().context("the size of a package")?;
        println!("{}: {}", package.display(), size(&package, kibibytes));
    }
    if options.no_wheel { Ok(()) } else { wheel(sh, &options.out) }
}

/// Builds everything and makes the packages in `out`, with `suffix` behind the version; returns their paths.
pub(crate) fn make(sh: &Shell, suffix: &str, out: &Path) -> Result<Vec<PathBuf>> {
    setup::for_packages(sh)?;
    install::build(sh)?;
    let version = format!("{}{suffix}", env!("CARGO_PKG_VERSION"));
    let source = target(sh)?.join("deb").join(format!("qfabric-{version}"));
    stage(sh, &source, &version)?;
    packages(sh, &source, out)
}

/// What a package needs on the disk, beside the promise of `SPECIFICATION.md` for the programs.
fn size(package: &Path, kibibytes: u64) -> String {
    let megabytes = kibibytes as f64 * 1024.0 / 1e6;
    let is_promised = package.file_name().is_some_and(|name| name.to_string_lossy().starts_with("qfabric_"));
    let verdict = match (is_promised, megabytes <= MOST_MEGABYTES) {
        (false, _) => String::new(),
        (true, true) => format!(", of at most {MOST_MEGABYTES} MB"),
        (true, false) => format!(", above the promise of {MOST_MEGABYTES} MB"),
    };
    format!("{megabytes:.1} MB installed{verdict}")
}

/// Makes a source folder for dpkg-buildpackage: Debian's files, and what `make install` would install.
fn stage(sh: &Shell, source: &Path, version: &str) -> Result<()> {
    sh.remove_path(source)?;
    sh.create_dir(source)?;
    cmd!(sh, "cp -r packaging/debian {source}").run()?;
    let debian = source.join("debian");
    sh.copy_file("packaging/qfabric.service", debian.join("qfabric.service"))?;
    sh.copy_file("packaging/qfabric.sysusers", debian.join("qfabric.sysusers"))?;
    // The date of the last commit, so that the same sources give the same packages.
    let date = cmd!(sh, "git log -1 --format=%cD").read()?;
    let control = sh.read_file("packaging/debian/control")?;
    sh.write_file(debian.join("changelog"), changelog(&control, version, &date)?)?;
    install::place_all(sh, "/usr", &source.join("installed").display().to_string())
}

fn changelog(control: &str, version: &str, date: &str) -> Result<String> {
    let maintainer = control.lines().find_map(|line| line.strip_prefix("Maintainer: ")).context("a maintainer")?;
    let text = "  * The file CHANGELOG.md of the source lists the changes.";
    Ok(format!("qfabric ({version}) unstable; urgency=medium\n\n{text}\n\n -- {maintainer}  {date}\n"))
}

/// Makes the packages; returns their paths in `out`.
fn packages(sh: &Shell, source: &Path, out: &Path) -> Result<Vec<PathBuf>> {
    let folder = source.parent().context("the source lies in a folder")?;
    sh.create_dir(out)?;
    for old in debs(sh, folder)?.into_iter().chain(debs(sh, out)?) {
        sh.remove_path(old)?;
    }
    let _source = sh.push_dir(source);
    cmd!(sh, "dpkg-buildpackage --build=binary --no-sign").run()?;
    drop(_source);
    let made = debs(sh, folder)?;
    ensure!(!made.is_empty(), "dpkg-buildpackage left no package in {}", folder.display());
    let place = |from: PathBuf| {
        let to = out.join(from.file_name().context("a package has a name")?);
        sh.copy_file(&from, &to)?;
        Ok(to)
    };
    made.into_iter().map(place).collect()
}

fn debs(sh: &Shell, folder: &Path) -> Result<Vec<PathBuf>> {
    let ours = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("qfabric") && name.ends_with(".deb")
    };
    Ok(sh.read_dir(folder)?.into_iter().filter(ours).collect())
}

fn wheel(sh: &Shell, out: &Path) -> Result<()> {
    let maturin = python_tool(sh, "maturin")?;
    cmd!(sh, "{maturin} build --release --locked --strip -m bindings/python/Cargo.toml --out {out}").run()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use qfabric_linux::capability;

    use super::*;

    fn text(path: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The names of capabilities in a text, in lower case and without repetition.
    fn capabilities(text: &str) -> Vec<String> {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).map(str::to_ascii_lowercase);
        let mut names: Vec<_> = words.filter(|word| word.starts_with("cap_")).collect();
        names.sort();
        names.dedup();
        names
    }

    fn all() -> Vec<String> {
        capabilities(&capability::setcap_argument())
    }

    #[test]
    fn unit_and_guide_name_the_capabilities_of_the_service() {
        let unit = text("packaging/qfabric.service");
        for key in ["CapabilityBoundingSet=", "AmbientCapabilities="] {
            let line = unit.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
            assert_eq!(capabilities(line), all(), "{key} of packaging/qfabric.service");
        }
        let page = text("docs/guide/src/install.md");
        let setcap = format!("setcap {} ", capability::setcap_argument());
        assert!(page.contains(&setcap), "install.md lacks: {setcap}");
        let table: String = page.lines().filter(|line| line.starts_with("| ") && !line.contains("setcap")).collect();
        assert_eq!(capabilities(&table), all(), "the table of rights in install.md");
    }

    #[test]
    fn a_container_gets_the_capabilities_of_the_service() {
        let page = text("docs/guide/src/packages.md");
        let added = page.split("--cap-add ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
        let added: String = added.split(',').map(|name| format!("cap_{name},")).collect();
        assert_eq!(capabilities(&added), all(), "--cap-add in packages.md");
    }

    #[test]
    fn the_guide_shows_the_manifests_for_kubernetes_which_give_the_rights_of_the_service() {
        let page = text("docs/guide/src/kubernetes.md");
        for name in ["qfabric", "pod"] {
            let manifest = text(&format!("packaging/kubernetes/{name}.yaml"));
            assert!(page.contains(&format!("```yaml\n{manifest}```\n")), "kubernetes.md shows another {name}.yaml");
            let (containers, volumes) = manifest.split_once(" volumes:\n").expect("volumes");
            let mounts = containers.lines().filter_map(|line| line.trim().strip_prefix("- { name: "));
            let mounts: Vec<_> = mounts.filter_map(|rest| rest.split(',').next()).collect();
            let has_volume = |mount: &&str| volumes.contains(&format!("- name: {mount}\n"));
            assert!(!mounts.is_empty() && mounts.iter().all(has_volume), "{name}.yaml mounts {mounts:?}");
        }
        let manifest = text("packaging/kubernetes/qfabric.yaml");
        let added = manifest.lines().find_map(|line| line.trim().strip_prefix("add: [")).unwrap_or_default();
        let added: String = added.trim_end_matches(']').split(", ").map(|name| format!("cap_{name},")).collect();
        assert_eq!(capabilities(&added), all(), "the capabilities in qfabric.yaml");
    }

    #[test]
    fn the_size_of_the_programs_is_compared_with_the_promise() {
        let of = |package: &str, kibibytes| size(Path::new(package), kibibytes);
        assert_eq!(of("out/packages/qfabric_0.1.0_amd64.deb", 34_179), "35.0 MB installed, of at most 35 MB");
        assert_eq!(of("qfabric_0.1.0_amd64.deb", 40_000), "41.0 MB installed, above the promise of 35 MB");
        assert_eq!(of("qfabric-dev_0.1.0_amd64.deb", 40_000), "41.0 MB installed");
        let promise = format!("| The installed programs have at most {MOST_MEGABYTES} MB |");
        assert!(text("SPECIFICATION.md").contains(&promise), "{promise}");
    }

    #[test]
    fn every_installed_file_is_in_one_package() {
        let of = |package: &str| text(&format!("packaging/debian/{package}.install"));
        let both = of("qfabric") + &of("qfabric-dev");
        for folder in ["etc", "usr/bin", "usr/share", "usr/include", "usr/lib/libqfabric.so", "usr/lib/pkgconfig"] {
            assert_eq!(both.lines().filter(|line| *line == folder).count(), 1, "{folder}");
        }
        let rules = text("packaging/debian/rules");
        assert!(rules.contains("dh_installsystemd --no-enable --no-start"), "packages start nothing by surprise");
    }

    #[test]
    fn the_entry_of_the_changelog_has_the_form_that_dpkg_reads() {
        let entry = changelog(&text("packaging/debian/control"), "1.2+3", "Thu, 01 Jan 2026 00:00:00 +0000").unwrap();
        let lines: Vec<_> = entry.lines().collect();
        assert_eq!(lines[0], "qfabric (1.2+3) unstable; urgency=medium");
        assert!(lines[4].starts_with(" -- ") && lines[4].ends_with(">  Thu, 01 Jan 2026 00:00:00 +0000"), "{entry}");
    }
}
