//! Finds out whether the WebAssembly of the policy laboratory was built: `make laboratory`. A plain build does without.

use std::path::Path;

fn main() {
    println!("cargo:rustc-check-cfg=cfg(laboratory)");
    // The folder always exists, so that the script runs again only when the module comes, changes or goes.
    println!("cargo:rerun-if-changed=../laboratory/built");
    if Path::new("../laboratory/built/laboratory.wasm").exists() {
        println!("cargo:rustc-cfg=laboratory");
    }
}
