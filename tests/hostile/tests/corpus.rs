//! Checks the inputs that the fuzzer stored, with the same functions, so that a repaired error cannot return
//! unnoticed.

use std::fs;
use std::path::{Path, PathBuf};

use qfabric_channel::PROTOCOL;
use qfabric_hostile::TARGETS;

/// Largest total size of the inputs in the repository; `make fuzz ARGS=--keep` chooses them.
const MAX_BYTES: u64 = 300_000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

#[test]
fn the_properties_hold_for_all_stored_inputs() {
    for target in TARGETS {
        let files = files(&root().join(target.name));
        assert!(!files.is_empty(), "{} has no inputs", target.name);
        for file in &files {
            // Printed if the check fails.
            println!("cargo run -p qfabric-hostile --example replay -- {} {}", target.name, file.display());
            (target.check)(&fs::read(file).expect("an input"));
        }
    }
}

/// A frame of another version is refused at its first byte, so such inputs check nothing. See `examples/seeds.rs`.
#[test]
fn stored_frames_are_of_the_present_version() {
    // After version and kind comes the incarnation of the tests' hosts.
    let is_frame = |bytes: &[u8]| bytes[0] == PROTOCOL && bytes[2..] == [7, 0, 0, 0, 1, 0, 0, 0];
    let has_frame = |file: &PathBuf| fs::read(file).expect("an input").windows(10).any(is_frame);
    let count = files(&root().join("channel_frame")).iter().filter(|file| has_frame(file)).count();
    assert!(count >= 50, "{count} inputs have a frame of version {PROTOCOL}; store seeds of it");
}

#[test]
fn every_target_has_a_file_and_the_stored_inputs_are_small() {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let named: Vec<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    let stem = |file: &PathBuf| file.file_stem().expect("a name").to_string_lossy().into_owned();
    assert_eq!(files(&targets).iter().map(stem).collect::<Vec<_>>(), named);
    let manifest = fs::read_to_string(targets.join("../Cargo.toml")).expect("the manifest");
    assert!(named.iter().all(|name| manifest.contains(&format!("name = \"{name}\""))));
    let bytes: u64 = named.iter().flat_map(|name| files(&root().join(name))).map(|file| size(&file)).sum();
    assert!(bytes <= MAX_BYTES, "the inputs have {bytes} bytes; at most {MAX_BYTES} are allowed");
}

fn size(file: &Path) -> u64 {
    fs::metadata(file).expect("an input").len()
}

/// Each input must also hold if it is truncated or if one byte is changed.
#[test]
fn the_properties_hold_for_inputs_close_to_the_stored_ones() {
    for target in TARGETS {
        for file in files(&root().join(target.name)).iter().step_by(7) {
            let mut input = fs::read(file).expect("an input");
            (target.check)(&input[..input.len() / 2]);
            let middle = input.len() / 3;
            if let Some(byte) = input.get_mut(middle) {
                *byte = byte.wrapping_add(1);
                (target.check)(&input);
            }
        }
    }
}
