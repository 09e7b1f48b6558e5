//! Refusals on kernels without the features: loading fails with a message that names the kernel, what it lacks and what
//! to use instead, and leaves nothing attached. A kernel with the features refuses nothing.

use qfabric_linux::ext::{Ext, ExtConfig};
use qfabric_linux::net;

/// Whether this is the kernel of the test matrix that has neither feature.
fn is_old() -> bool {
    std::env::var("QFABRIC_VM_KERNEL").is_ok_and(|name| name == "6.12")
}

fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

fn check(refusal: &str, lacks: &str, instead: &str) {
    println!("{refusal}");
    assert!(refusal.contains(&release()) && refusal.contains(lacks) && refusal.contains(instead), "{refusal}");
}

#[test]
fn a_kernel_without_sched_ext_is_refused_with_an_alternative() {
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
fn a_kernel_without_bpf_queues_is_refused_with_an_alternative() {
    match net::supported() {
        Ok(()) => assert!(!is_old()),
        Err(refusal) => check(&refusal.to_string(), "6.16", "htb"),
    }
}
