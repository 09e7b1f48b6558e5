//! Compresses the WebAssembly of the policy laboratory, if it was built: `make laboratory`. A plain build does without.

use std::path::PathBuf;
use std::{env, fs};

/// Effort of the compression, of 10.
const EFFORT: u8 = 9;

fn main() {
    println!("cargo:rustc-check-cfg=cfg(laboratory)");
    // The folder always exists, so that the script runs again only when the module comes, changes or goes.
    println!("cargo:rerun-if-changed=../laboratory/built");
    let Ok(module) = fs::read("../laboratory/built/laboratory.wasm") else { return };
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let compressed = miniz_oxide::deflate::compress_to_vec(&module, EFFORT);
    fs::write(folder.join("laboratory.wasm.z"), compressed).expect("OUT_DIR can be written");
    println!("cargo:rustc-cfg=laboratory");
}
