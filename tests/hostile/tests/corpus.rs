//! The inputs that the fuzzer kept, through the same functions: what was found once stays found, without a fuzzer.

use std::fs;
use std::path::{Path, PathBuf};

use qfabric_hostile::TARGETS;

/// More is not kept in the repository; `make fuzz ARGS=--keep` chooses.
const MOST_BYTES: u64 = 300_000;

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
fn what_the_fuzzer_kept_holds() {
    for target in TARGETS {
        let files = files(&root().join(target.name));
        assert!(!files.is_empty(), "{} has no inputs", target.name);
        for file in &files {
            // Shown where it fails.
            println!("cargo run -p qfabric-hostile --example replay -- {} {}", target.name, file.display());
            (target.check)(&fs::read(file).expect("an input"));
        }
    }
}

#[test]
fn every_target_has_its_file_and_the_kept_inputs_are_few() {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let named: Vec<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    let stem = |file: &PathBuf| file.file_stem().expect("a name").to_string_lossy().into_owned();
    assert_eq!(files(&targets).iter().map(stem).collect::<Vec<_>>(), named);
    let manifest = fs::read_to_string(targets.join("../Cargo.toml")).expect("the manifest");
    assert!(named.iter().all(|name| manifest.contains(&format!("name = \"{name}\""))));
    let bytes: u64 = named.iter().flat_map(|name| files(&root().join(name))).map(|file| size(&file)).sum();
    assert!(bytes <= MOST_BYTES, "{bytes} bytes of inputs, {MOST_BYTES} are the most");
}

fn size(file: &Path) -> u64 {
    fs::metadata(file).expect("an input").len()
}

/// Every input that is cut short, or has a byte turned, is an input, too.
#[test]
fn what_is_near_the_kept_inputs_holds_too() {
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
