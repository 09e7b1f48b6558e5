//! Repeats inputs that the fuzzer found, without a fuzzer: `cargo run -p qfabric-hostile --example replay --
//! TARGET FILE…`

use qfabric_hostile::TARGETS;

fn main() -> std::io::Result<()> {
    let mut words = std::env::args().skip(1);
    let name = words.next().expect("usage: replay TARGET FILE…");
    let target = TARGETS.iter().find(|target| target.name == name);
    let target =
        target.unwrap_or_else(|| panic!("no target {name}; there are {:?}", TARGETS.map(|target| target.name)));
    for file in words {
        println!("{file}");
        (target.check)(&std::fs::read(&file)?);
    }
    Ok(())
}
