//! Checks if the kernel can run handlers, which ECalls need, and the kernel path.

use super::{Facts, Finding, State};
use crate::ecalls::{Kernel, Service, Unsupported};
use crate::kernel_path::{KernelPath, KernelPathError};

pub(super) fn examine(facts: &mut Facts) -> [Finding; 2] {
    let opened = Kernel::open();
    facts.bpf = opened.is_ok();
    let signals = opened.as_ref().map_err(Unsupported::clone).and_then(Kernel::signals);
    [finding(opened.as_ref().map(Kernel::services)), signal_finding(signals)]
}

/// Nothing needs the functions: the daemon sends the signals otherwise.
fn signal_finding(signals: Result<(), Unsupported>) -> Finding {
    let name = "kernel_signals";
    match signals {
        Ok(()) => Finding::ok(name, "handlers in the kernel can send signals themselves (signal_by_kernel)"),
        Err(why) => Finding::new(name, State::Absent, format!("{}; the daemon sends all signals", why.what)),
    }
}

/// Attaches the program of the kernel path to the loopback interface for a moment, for an address that no packet has.
pub(super) fn kernel_path() -> Finding {
    path_finding(KernelPath::attach("lo", ([192, 0, 2, 1], 9).into()).map(drop))
}

fn path_finding(attached: Result<(), KernelPathError>) -> Finding {
    let name = "kernel_path";
    // The next step of these errors is this command.
    let is_kernels = matches!(attached, Err(KernelPathError::Object(_) | KernelPathError::Kernel { .. }));
    match attached.map_err(|error| error.problem()) {
        Ok(()) => Finding::ok(name, "parameters of filters can be changed by other hosts without waking the daemon")
            .fix("to use it, set [channels.kernel_path] in the daemon's configuration"),
        Err(problem) => {
            let reason = format!("{}; changes of other hosts go through the daemon", problem.message);
            let newer = "use Linux 6.6 or newer with CONFIG_NET_XGRESS and CONFIG_DEBUG_INFO_BTF".to_owned();
            Finding::new(name, State::Missing, reason).fix(if is_kernels { newer } else { problem.next_step })
        }
    }
}

fn finding(services: Result<&[Service], &Unsupported>) -> Finding {
    let services = match services {
        Ok(services) => services,
        Err(why) => return Finding::new("bpf", State::Missing, why.what.clone()).fix(why.remedy.clone()),
    };
    let missing: Vec<_> = services.iter().filter_map(|s| Some((s.name, s.unavailable.as_ref()?))).collect();
    let (all, there) = (services.len(), services.len() - missing.len());
    let Some((_, first)) = missing.first() else {
        return Finding::ok(
            "bpf",
            format!("handlers can be installed in the kernel; all {all} services are available"),
        );
    };
    let names: Vec<_> = missing.iter().map(|(name, _)| *name).collect();
    let reason = format!("{there} of {all} services are available, without {}: {}", names.join(", "), first.what);
    Finding::new("bpf", State::Warn, reason).fix(first.remedy.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_path_that_cannot_be_used_names_the_next_step() {
        let none = path_finding(Err(KernelPathError::NotPermitted));
        assert!(none.state == State::Missing && none.reason.contains("CAP_BPF"), "{none:?}");
        assert_eq!(none.fix.as_deref(), Some("run the program as root"));
        let failed = |source| KernelPathError::Kernel { what: "mapping the words", source };
        let none = path_finding(Err(failed(std::io::Error::from_raw_os_error(libc::ENOMEM))));
        assert!(none.fix.as_deref().is_some_and(|fix| fix.starts_with("use Linux 6.6")), "{none:?}");
        assert_eq!(path_finding(Ok(())).state, State::Ok);
    }

    #[test]
    fn without_the_kernels_functions_the_daemon_sends_the_signals() {
        let why = Unsupported { what: "this kernel does not have the function f".into(), remedy: "use another".into() };
        let absent = signal_finding(Err(why));
        assert_eq!((absent.state, absent.fix), (State::Absent, None));
        assert!(absent.reason.contains("function f; the daemon sends all signals"), "{}", absent.reason);
        assert_eq!(signal_finding(Ok(())).state, State::Ok);
    }

    #[test]
    fn missing_services_are_named_with_the_next_step() {
        let why = Unsupported { what: "BPF programs cannot be loaded".into(), remedy: "run it as root".into() };
        let none = finding(Err(&why));
        assert_eq!((none.state, none.fix.as_deref()), (State::Missing, Some("run it as root")));
        let services = Kernel::services_without(&why);
        let some = finding(Ok(&services));
        assert!(some.reason.contains("0 of 15") && some.reason.contains("sched.wakeup, sched.switch"), "{some:?}");
    }
}
