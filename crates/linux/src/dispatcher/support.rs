//! Checks if this process may use the mechanism.

use qfabric_types::ThreadId;
use qfabric_types::api::Problem;

use super::DISPATCHING;
use crate::sched_attr::{RESET_ON_FORK, SchedAttr};

/// Tries SCHED_FIFO in a thread that ends at once.
///
/// # Errors
/// The kernel's refusal, and the next step.
pub fn supported() -> Result<(), Problem> {
    let attempt = || {
        let attr = SchedAttr { flags: RESET_ON_FORK, ..SchedAttr::fifo(DISPATCHING) };
        attr.give(ThreadId(0)).map_err(|error| error.to_string())
    };
    let joined = std::thread::Builder::new()
        .name("qf-probe".into())
        .spawn(attempt)
        .map_err(|error| error.to_string())
        .and_then(|thread| thread.join().unwrap_or_else(|_| Err("the thread ended early".into())));
    joined.map_err(|why| {
        Problem::new(
            "unavailable",
            format!("SCHED_FIFO {DISPATCHING} cannot be used: {why}"),
            "run as root or give CAP_SYS_NICE, and set kernel.sched_rt_runtime_us to more than 0 (see `qfabric doctor`)",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_the_capability_may_use_the_mechanism() {
        if crate::testing::may_reserve() {
            assert_eq!(supported(), Ok(()));
        }
    }
}
