//! Compiles the BPF programs: clang compiles every `bpf/**/*.bpf.c` into an object that `bpf::objects` embeds, and
//! bindgen turns `bpf/include/qf_abi.h` into the types of [`abi`](src/abi.rs).

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Oldest clang whose BPF code the supported kernels verify.
const CLANG_MIN: u32 = 17;
/// Newest clang that is tried by its versioned name.
const CLANG_MAX: u32 = 22;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let bpf = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../bpf");
    println!("cargo:rerun-if-changed={}", bpf.display());
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = find_clang().unwrap_or_else(|why| fail(&why));
    let sources = sources(&bpf);
    for source in &sources {
        compile(&clang, &bpf, source, &out.join(format!("{}.o", name(&bpf, source))));
    }
    fs::write(out.join("objects.rs"), embed(&bpf, &sources, &out)).expect("OUT_DIR can be written");
    bind(&bpf.join("include/qf_abi.h"), &out.join("abi.rs"));
}

fn fail(why: &str) -> ! {
    eprintln!("\n{why}\n");
    std::process::exit(1)
}

/// The first clang that is new enough: `$CLANG`, then `clang`, then the newest versioned name.
fn find_clang() -> Result<OsString, String> {
    let named = env::var_os("CLANG").into_iter().chain(["clang".into()]);
    let numbered = (CLANG_MIN..=CLANG_MAX).rev().map(|version| format!("clang-{version}").into());
    named.chain(numbered).find(|clang| version(clang).is_some_and(|version| version >= CLANG_MIN)).ok_or_else(|| {
        format!(
            "No clang of version {CLANG_MIN} or newer was found; it compiles the BPF programs (bpf/*.bpf.c).\n\
             Install one (Debian, Ubuntu: apt-get install clang-19), or name one: CLANG=/path/to/clang cargo build"
        )
    })
}

/// Major version of the compiler; `None` if it cannot be run.
fn version(clang: &OsString) -> Option<u32> {
    let output = Command::new(clang).arg("-dumpversion").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split('.').next()?.trim().parse().ok()
}

/// All `*.bpf.c` below `folder`, sorted.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| fail(&format!("{}: {error}", folder.display())));
    let mut found: Vec<PathBuf> = Vec::new();
    for path in entries.map(|entry| entry.expect("a folder can be listed").path()) {
        println!("cargo:rerun-if-changed={}", path.display());
        match path.is_dir() {
            true => found.extend(sources(&path)),
            false if path.to_string_lossy().ends_with(".bpf.c") => found.push(path),
            false => {}
        }
    }
    found.sort();
    found
}

/// Name of the object: `bpf/test/machine.bpf.c` becomes `test_machine`.
fn name(bpf: &Path, source: &Path) -> String {
    let inside = source.strip_prefix(bpf).expect("sources are below bpf/").to_string_lossy().into_owned();
    inside.trim_end_matches(".bpf.c").replace(['/', '-', '.'], "_")
}

fn compile(clang: &OsString, bpf: &Path, source: &Path, object: &Path) {
    let libbpf =
        env::var_os("DEP_BPF_INCLUDE").expect("libbpf-sys is a direct dependency and sets the path of its headers");
    let status = Command::new(clang)
        .args(["-O2", "-g", "-std=gnu11", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"])
        .args(["-Wno-unused-parameter", "-Wno-missing-declarations", "-fno-stack-protector", "-nostdinc"])
        .arg("-I")
        .arg(bpf.join("include"))
        .arg("-isystem")
        .arg(libbpf)
        .arg("-c")
        .arg(source)
        .arg("-o")
        .arg(object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(_) => fail(&format!("{} was not compiled; read clang's errors above.", source.display())),
        Err(error) => fail(&format!("{}: {error}", clang.to_string_lossy())),
    }
}

/// Generates one constant for each object.
fn embed(bpf: &Path, sources: &[PathBuf], out: &Path) -> String {
    let mut text = String::new();
    for source in sources {
        let name = name(bpf, source);
        let object = out.join(format!("{name}.o"));
        writeln!(text, "/// `bpf/{}`.", source.strip_prefix(bpf).expect("found inside").display()).expect("a string");
        let constant = name.to_uppercase();
        writeln!(text, "pub const {constant}: &[u8] = include_bytes!({:?});", object.display()).expect("a string");
    }
    text
}

/// Generates Rust types for the records shared with the BPF programs.
fn bind(header: &Path, out: &Path) {
    println!("cargo:rerun-if-changed={}", header.display());
    bindgen::Builder::default()
        .header(header.to_string_lossy())
        .allowlist_item("(qf|QF)_.*")
        .parse_callbacks(Box::new(Numbers))
        .clang_arg("-fparse-all-comments")
        .derive_default(true)
        .derive_eq(true)
        .explicit_padding(true)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .use_core()
        .disable_header_comment()
        .generate()
        .unwrap_or_else(|error| fail(&format!("{}: {error}", header.display())))
        .write_to_file(out)
        .expect("OUT_DIR can be written");
}

/// bindgen reads the number of a macro as signed, so that all ones in 64 bits would become -1. This makes such numbers
/// u64.
#[derive(Debug)]
struct Numbers;

impl bindgen::callbacks::ParseCallbacks for Numbers {
    fn int_macro(&self, _: &str, value: i64) -> Option<bindgen::callbacks::IntKind> {
        (value < 0).then_some(bindgen::callbacks::IntKind::U64)
    }
}
