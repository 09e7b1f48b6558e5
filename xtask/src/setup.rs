//! Installs the system packages that a fresh Debian 12 lacks. Each check looks for the program or library, not for
//! the package, because packages of other distributions and versions serve as well.

use std::path::Path;

use anyhow::{Result, bail};
use xshell::{Shell, cmd};

/// A required program or library, and the Debian package that contains it.
struct Need {
    package: &'static str,
    why: &'static str,
    is_met: fn(&Shell) -> bool,
}

/// What the demo needs: to be built and to make its clips.
const DEMO: [Need; 10] = [
    Need { package: "pkg-config", why: "to find libraries", is_met: |sh| works(sh, "pkg-config --version") },
    Need { package: "libclang1-19", why: "to read libav's headers", is_met: has_libclang },
    Need { package: "libclang-common-19-dev", why: "headers of the compiler, for libclang", is_met: has_libclang },
    Need { package: "libavcodec-dev", why: "the player decodes with it", is_met: |sh| library(sh, "libavcodec") },
    Need { package: "libavformat-dev", why: "the player reads with it", is_met: |sh| library(sh, "libavformat") },
    Need { package: "libavutil-dev", why: "the player decodes with it", is_met: |sh| library(sh, "libavutil") },
    Need { package: "clang-19", why: "compiles the kernel's side, bpf/", is_met: has_clang },
    Need { package: "libelf-dev", why: "libbpf reads type information with it", is_met: |sh| library(sh, "libelf") },
    Need { package: "zlib1g-dev", why: "libelf needs it", is_met: |sh| library(sh, "zlib") },
    Need { package: "ffmpeg", why: "makes the demo's clips", is_met: |sh| works(sh, "ffmpeg -version") },
];

/// What tests, checks and benchmarks need beyond [`DEMO`].
const TESTS: [Need; 14] = [
    Need { package: "g++", why: "tests of the C header under C++", is_met: |sh| works(sh, "c++ --version") },
    Need { package: "procps", why: "tests end processes by kill", is_met: |sh| works(sh, "kill -l") },
    Need { package: "httperf", why: "offers a web server too much", is_met: |sh| works(sh, "which httperf") },
    Need { package: "wrk", why: "measures a web server's capacity", is_met: |sh| works(sh, "which wrk") },
    Need {
        package: "qemu-system-x86",
        why: "boots newer kernels",
        is_met: |sh| works(sh, "qemu-system-x86_64 --version"),
    },
    Need { package: "acpica-tools", why: "describes hardware to a kernel", is_met: |sh| works(sh, "which iasl") },
    Need { package: "i2c-tools", why: "sets an emulated battery", is_met: |sh| works(sh, "which i2cset") },
    Need { package: "iw", why: "sets an emulated wireless card", is_met: |sh| works(sh, "which iw") },
    Need { package: "hostapd", why: "is the access point of emulated cards", is_met: |sh| works(sh, "which hostapd") },
    Need { package: "zstd", why: "unpacks a kernel", is_met: |sh| works(sh, "zstd --version") },
    Need { package: "kmod", why: "lists a kernel's modules", is_met: |sh| works(sh, "/usr/sbin/depmod --version") },
    Need { package: "util-linux", why: "ends QEMU with its harness", is_met: |sh| works(sh, "setpriv --version") },
    Need { package: "iproute2", why: "tests make hosts of network namespaces", is_met: |sh| works(sh, "ip -V") },
    Need { package: "python3-venv", why: "tests of the Python bindings", is_met: has_venv },
];

/// What some tests need, and not every distribution has: they are skipped without it.
const OPTIONAL: [Need; 2] = [
    Need { package: "chromium-headless-shell", why: "tests of the web page (300 MB)", is_met: has_browser },
    Need { package: "pipewire-bin", why: "tests of audio (10 MB)", is_met: |sh| works(sh, "pw-link --version") },
];

/// What only `make deb` needs.
const PACKAGING: [Need; 2] = [
    Need { package: "dpkg-dev", why: "builds Debian packages", is_met: |sh| works(sh, "dpkg-buildpackage --version") },
    Need { package: "debhelper", why: "follows Debian's rules for packages", is_met: |sh| works(sh, "which dh") },
];

/// What only `xtask vm packages` needs.
const TRYING_PACKAGES: [Need; 2] = [
    Need { package: "mmdebstrap", why: "makes a fresh Debian", is_met: |sh| works(sh, "mmdebstrap --version") },
    Need { package: "cpio", why: "puts it into the machine", is_met: |sh| works(sh, "cpio --version") },
];

/// Installs the missing packages and prints them.
pub(crate) fn run(sh: &Shell) -> Result<()> {
    meet(sh, &DEMO.iter().chain(&TESTS).collect::<Vec<_>>())?;
    for need in &OPTIONAL {
        if let Err(error) = meet(sh, &[need]) {
            println!("left out: {error:#}");
        }
    }
    Ok(())
}

/// The same, without the packages that the demo can do without: it is somebody's first minutes.
pub(crate) fn for_the_demo(sh: &Shell) -> Result<()> {
    meet(sh, &DEMO.iter().collect::<Vec<_>>())
}

/// The same, with what starts a fresh Debian with packages in it.
pub(crate) fn for_trying_packages(sh: &Shell) -> Result<()> {
    run(sh)?;
    meet(sh, &TRYING_PACKAGES.iter().collect::<Vec<_>>())
}

/// The same, with the packages that build Debian packages.
pub(crate) fn for_packages(sh: &Shell) -> Result<()> {
    run(sh)?;
    meet(sh, &PACKAGING.iter().collect::<Vec<_>>())
}

/// Whether nothing is missing that the demo needs.
pub(crate) fn is_done_for_the_demo(sh: &Shell) -> bool {
    DEMO.iter().all(|need| (need.is_met)(sh))
}

fn meet(sh: &Shell, needs: &[&Need]) -> Result<()> {
    let missing: Vec<_> = needs.iter().filter(|need| !(need.is_met)(sh)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for need in &missing {
        println!("missing: {} ({})", need.package, need.why);
    }
    install(sh, &missing.iter().map(|need| need.package).collect::<Vec<_>>())?;
    match needs.iter().find(|need| !(need.is_met)(sh)) {
        Some(need) => bail!("{} is installed but cannot be used ({})", need.package, need.why),
        None => Ok(()),
    }
}

fn install(sh: &Shell, packages: &[&str]) -> Result<()> {
    if !works(sh, "apt-get --version") {
        bail!("apt-get is not available; install the counterparts of {} by hand", packages.join(", "));
    }
    let root = is_root(sh)?;
    if !root && !works(sh, "sudo --version") {
        bail!("neither root nor sudo is available; run as root: apt-get install {}", packages.join(" "));
    }
    let apt: &[&str] = if root { &["apt-get"] } else { &["sudo", "apt-get"] };
    let (program, rest) = apt.split_first().expect("apt names a program");
    // Ignores errors of the update: it may fail for a source that this project does not need. The install fails if a
    // package is missing.
    cmd!(sh, "{program} {rest...} -qq update").ignore_status().run()?;
    let _quiet = sh.push_env("DEBIAN_FRONTEND", "noninteractive");
    cmd!(sh, "{program} {rest...} -qq install -y --no-install-recommends {packages...}").run()?;
    Ok(())
}

/// True if the user is root.
pub(crate) fn is_root(sh: &Shell) -> Result<bool> {
    Ok(cmd!(sh, "id -u").quiet().read()? == "0")
}

fn works(sh: &Shell, command: &str) -> bool {
    let mut words = command.split(' ');
    let Some(program) = words.next() else { return false };
    cmd!(sh, "{program} {words...}").quiet().ignore_stdout().ignore_stderr().run().is_ok()
}

fn library(sh: &Shell, name: &str) -> bool {
    works(sh, &format!("pkg-config --exists {name}"))
}

/// Whether one of the browsers that the tests look for (crates/daemon/tests/web/browser.rs) is installed.
fn has_browser(sh: &Shell) -> bool {
    let programs = ["chromium-headless-shell", "chromium", "google-chrome", "chromium-browser"];
    programs.iter().any(|program| works(sh, &format!("{program} --version")))
}

fn has_venv(sh: &Shell) -> bool {
    cmd!(sh, "python3 -c 'import venv, ensurepip'").quiet().ignore_stdout().ignore_stderr().run().is_ok()
}

/// Whether the first recent enough clang of those that crates/linux/build.rs tries is installed.
fn has_clang(sh: &Shell) -> bool {
    const OLDEST: u32 = 17;
    const NEWEST: u32 = 22;
    let version = |clang: String| {
        let version = cmd!(sh, "{clang} -dumpversion").quiet().ignore_stderr().read().unwrap_or_default();
        version.split('.').next().and_then(|major| major.parse::<u32>().ok())
    };
    let named = sh.var("CLANG").into_iter().chain(["clang".to_owned()]);
    let all = named.chain((OLDEST..=NEWEST).map(|number| format!("clang-{number}")));
    all.filter_map(version).any(|version| version >= OLDEST)
}

/// Any version, in the folders that its loader searches: `LIBCLANG_PATH`, or LLVM's folders on Debian; with the
/// compiler's headers, which are a package of their own. The packages of [`DEMO`] are those that `clang-19` needs
/// anyhow; `libclang-dev` would add another LLVM, of 400 MB.
fn has_libclang(sh: &Shell) -> bool {
    let folders = sh.read_dir("/usr/lib").unwrap_or_default();
    sh.var("LIBCLANG_PATH").is_ok()
        || folders.iter().any(|llvm| has_library(sh, &llvm.join("lib")) && has_headers(sh, &llvm.join("lib/clang")))
}

fn has_library(sh: &Shell, folder: &Path) -> bool {
    let files = sh.read_dir(folder).unwrap_or_default();
    files.iter().filter_map(|file| file.file_name()?.to_str()).any(is_libclang)
}

/// Whether the loader takes a file of this name: `libclang.so.1`, or `libclang-19.so.1` of a package without the other
/// names; not `libclang-cpp.so.19.1`, which has another interface.
fn is_libclang(file: &str) -> bool {
    let version = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit()) && rest.contains(".so");
    file.starts_with("libclang.so") || file.strip_prefix("libclang-").is_some_and(version)
}

fn has_headers(sh: &Shell, folder: &Path) -> bool {
    let versions = sh.read_dir(folder).unwrap_or_default();
    versions.iter().any(|version| version.join("include/stddef.h").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libclang_is_recognised_by_the_names_that_its_packages_give_it() {
        for name in ["libclang.so", "libclang.so.1", "libclang-14.so", "libclang-19.so.1", "libclang-19.so.19"] {
            assert!(is_libclang(name), "{name}");
        }
        for name in ["libclang-cpp.so.19.1", "libclang-cpp19.so", "libclangAST.a", "libclang-19.a", "libLLVM-19.so"] {
            assert!(!is_libclang(name), "{name}");
        }
    }
}
