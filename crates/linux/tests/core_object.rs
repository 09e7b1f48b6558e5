//! Loads, configures and runs objects that clang compiled, on this kernel.

use qfabric_linux::abi::qf_server;
use qfabric_linux::bpf::{ObjectError, OpenObject, objects};

#[test]
fn a_program_runs_with_its_configured_constant() {
    let open = OpenObject::open("smoke", objects::TEST_SMOKE).unwrap();
    let object = open.constant(".rodata.offset", &41u64).unwrap().load().unwrap();
    let mut context = [1u64, 0];
    assert_eq!(object.entry("add").unwrap().call(&mut context).unwrap(), 0);
    assert_eq!(context[1], 42);
    let servers = object.table(".bss.servers").unwrap();
    let second: qf_server = servers.variable(size_of::<qf_server>()).unwrap();
    assert_eq!(second.used_ns, 42);
    let mapped = servers.map(4 * size_of::<qf_server>()).unwrap();
    let used = size_of::<qf_server>() + std::mem::offset_of!(qf_server, used_ns);
    assert_eq!(mapped.words(used)[0].load(std::sync::atomic::Ordering::Relaxed), 42);
}

#[test]
fn a_missing_part_is_named() {
    let open = OpenObject::open("smoke", objects::TEST_SMOKE).unwrap();
    let error = open.without("nothing").unwrap_err();
    assert_eq!(error.to_string(), "smoke has no program or map named nothing");
    let error = OpenObject::open("no object", b"nothing").unwrap_err();
    assert!(matches!(error, ObjectError::Unreadable { .. }), "{error}");
}

#[test]
fn a_refused_program_shows_the_verifiers_reason() {
    let open = OpenObject::open("endless", objects::TEST_ENDLESS).unwrap();
    match open.load() {
        Err(ObjectError::Refused { log, .. }) => assert!(log.contains("infinite loop"), "{log}"),
        other => panic!("the verifier accepts an endless loop: {other:?}"),
    }
}
