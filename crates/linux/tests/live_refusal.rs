//! On a kernel that cannot, loading fails with a sentence that says which kernel this is, what it lacks and what to
//! use instead; nothing is half attached. On one that can, nothing is refused.

use qfabric_linux::ext::{Ext, ExtConfig};
use qfabric_linux::net;

/// The kernel of the matrix that has neither.
fn is_old() -> bool {
    std::env::var("QFABRIC_VM_KERNEL").is_ok_and(|name| name == "6.12")
}

fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn check(refusal: &str, what: &str, instead: &str) {
    println!("{refusal}");
    assert!(refusal.contains(&release()) && refusal.contains(what) && refusal.contains(instead), "{refusal}");
}

#[test]
fn a_kernel_without_sched_ext_is_told_with_what_to_use_instead() {
    match Ext::supported() {
        Ok(()) => assert!(!is_old()),
        Err(refusal) => {
            check(&refusal.to_string(), "sched_ext", "deadline");
            assert_eq!(Ext::load(&ExtConfig::default()).err(), Some(refusal));
        }
    }
    assert!(!is_old() || Ext::supported().is_err());
}

#[test]
fn a_kernel_without_queues_in_bpf_is_told_with_what_to_use_instead() {
    match net::supported() {
        Ok(()) => assert!(!is_old()),
        Err(refusal) => check(&refusal.to_string(), "6.16", "htb"),
    }
}
