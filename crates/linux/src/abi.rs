//! Records shared with the BPF programs, generated from `bpf/include/qf_abi.h`, which explains them. Sizes and offsets
//! are checked at compile time in both languages.
#![allow(non_camel_case_types, missing_docs, unsafe_code, reason = "names and text are the header's")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "bindgen writes zeroed records as defaults")]

use crate::bpf::Plain;

include!(concat!(env!("OUT_DIR"), "/abi.rs"));

macro_rules! plain {
    ($($record:ty),*) => { $(
        // SAFETY: integers only, and all padding is named (the header's rule).
        unsafe impl Plain for $record {}
    )* };
}
plain!(qf_config, qf_server, qf_decision, qf_cpu_counts, qf_test_call, qf_test_decide, qf_test_tick, qf_test_run);
plain!(qf_control_config, qf_control, qf_test_control);
plain!(qf_path_options, qf_path_key, qf_path_peer);
plain!(qf_sched_options, qf_create, qf_join, qf_command, qf_slot, qf_sched_cpu, qf_exit, qf_steer);
