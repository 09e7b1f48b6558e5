//! Compares the number of instructions that the kernel's verifier walks, program by program, with `bpf/verified.txt`.
//! The test fails if a number is more than 10 % above its line. The verifier's limit is a million instructions per
//! program, and a small change of the text may double the number. This test shows the increase before a kernel refuses
//! the program.
//!
//! To renew the table after a change that is worth its cost: run this test on each kernel, and replace that kernel's
//! lines by the printed ones (`-- --nocapture`). The lines also depend on clang; the present ones are from clang 19.

use std::collections::BTreeMap;

use qfabric_ecode::testing::{THESIS_FORMATS, THESIS_HANDLER};
use qfabric_ecode::{Environment, Limits, compile};
use qfabric_linux::abi::{qf_net_link, qf_sched_options};
use qfabric_linux::bpf::{ObjectError, OpenObject, objects};
use qfabric_linux::ecalls::{Kernel, KernelEngine};
use qfabric_linux::ext::Ext;
use qfabric_linux::testing::{kernel_version, skip};

const TABLE: &str = include_str!("../../../bpf/verified.txt");

/// Largest number that is allowed, in percent of the line.
const MOST: u64 = 110;

type Verified = BTreeMap<String, u32>;

/// The kernel's version as used in the table: `6.18`.
fn kernel() -> String {
    let (major, minor) = kernel_version();
    format!("{major}.{minor}")
}

/// The lines of one kernel: its version, a program, the number of instructions.
fn lines_of(table: &str, kernel: &str) -> Verified {
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (of, program, insns) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
        Some((of.to_owned(), program.to_owned(), insns))
    };
    let lines = lines.map(|text| line(text).unwrap_or_else(|| panic!("bpf/verified.txt: `{text}`")));
    lines.filter(|(of, ..)| of == kernel).map(|(_, program, insns)| (program, insns)).collect()
}

/// Programs with too many instructions or without a line.
fn above(verified: &Verified, table: &Verified) -> Vec<String> {
    let complaint = |(program, insns): (&String, &u32)| match table.get(program) {
        None => Some(format!("{program}: {insns} instructions, but no line")),
        Some(line) if u64::from(*insns) * 100 > u64::from(*line) * MOST => {
            let percent = u64::from(*insns) * 100 / u64::from(*line);
            Some(format!("{program}: {insns} instructions, {percent} % of the table's {line}"))
        }
        Some(_) => None,
    };
    verified.iter().filter_map(complaint).collect()
}

/// Loads an object as the product does. An object that this kernel does not support is skipped with a message.
fn load(name: &str, object: &[u8], configure: impl FnOnce(OpenObject) -> Result<OpenObject, ObjectError>) -> Verified {
    let object = OpenObject::open(name, object).and_then(configure).and_then(OpenObject::load);
    let object = match object {
        Err(ObjectError::Refused { error, log, .. }) if log.contains("not found in kernel") || log.contains("BTF") => {
            skip(format!("{name}: {error}"));
            return Verified::new();
        }
        object => object.unwrap_or_else(|error| panic!("{name}: {error}")),
    };
    object.verified_insns().unwrap().into_iter().map(|(program, insns)| (format!("{name}/{program}"), insns)).collect()
}

fn verified() -> Verified {
    let mut all = Verified::new();
    let link = qf_net_link { catch_up: 1, share: 1, best_limit: 1, tick_ns: 1, ..Default::default() };
    all.extend(load("packet/htb", objects::PACKET_HTB, |open| open.constant(".rodata.classes", &0x10u32)));
    all.extend(load("packet/dscp", objects::PACKET_DSCP, Ok));
    all.extend(load("packet/apply", objects::PACKET_APPLY, Ok));
    all.extend(load("packet/trial", objects::PACKET_TRIAL, |open| open.constant(".rodata.link", &link)));
    all.extend(load("packet/dwcs", objects::PACKET_DWCS, |open| open.constant(".rodata.link", &link)));
    for (name, object) in [("test/control", objects::TEST_CONTROL), ("test/machine", objects::TEST_MACHINE)] {
        all.extend(load(name, object, Ok));
    }
    if Ext::supported().map_err(skip).is_ok() {
        let options = qf_sched_options { cpus: 2, ..Default::default() };
        let configure = |open: OpenObject| open.constant(".rodata.options", &options)?.entries("cpus", 2);
        all.extend(load("sched/ops", objects::SCHED_OPS, configure));
    }
    let handler = compile(&format!("{THESIS_FORMATS}{THESIS_HANDLER}"), &Environment::default()).unwrap();
    let engine = KernelEngine::new(&handler, Limits::default()).unwrap();
    all.insert("ecode/thesis-handler".to_owned(), engine.verified_instructions());
    all
}

#[test]
fn no_program_exceeds_its_verifier_budget_by_more_than_10_percent() {
    if Kernel::open().map_err(skip).is_err() {
        return;
    }
    let (kernel, verified) = (kernel(), verified());
    let lines: String = verified.iter().map(|(program, insns)| format!("{kernel} {program} {insns}\n")).collect();
    println!("{lines}");
    let table = lines_of(TABLE, &kernel);
    if table.is_empty() {
        return skip(format!("bpf/verified.txt has no lines for Linux {kernel}; the lines are\n{lines}"));
    }
    let above = above(&verified, &table);
    assert!(
        above.is_empty(),
        "the verifier walks more instructions than bpf/verified.txt allows (10 % above each line):\n{}\nIf this is worth the \
         cost, replace the lines of Linux {kernel} by these, and give the reason in the commit:\n{lines}",
        above.join("\n")
    );
}

#[test]
fn ten_percent_more_is_allowed_and_no_instruction_beyond() {
    let table = lines_of("# a comment\n\n6.18 a/b 100\n6.19 a/b 1\n", "6.18");
    let needs = |insns| above(&Verified::from([("a/b".to_owned(), insns)]), &table);
    assert_eq!((needs(1), needs(110)), (vec![], vec![]));
    assert_eq!(needs(111), ["a/b: 111 instructions, 111 % of the table's 100"]);
    let unknown = above(&Verified::from([("a/c".to_owned(), 7)]), &table);
    assert_eq!(unknown, ["a/c: 7 instructions, but no line"]);
}
