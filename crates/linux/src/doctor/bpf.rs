//! Checks if the kernel can run handlers, which ECalls need.

use super::{Facts, Finding, State};
use crate::ecalls::{Kernel, Service, Unsupported};

pub(super) fn examine(facts: &mut Facts) -> Finding {
    let opened = Kernel::open();
    facts.bpf = opened.is_ok();
    finding(opened.as_ref().map(Kernel::services))
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
    fn missing_services_are_named_with_the_next_step() {
        let why = Unsupported { what: "BPF programs cannot be loaded".into(), remedy: "run it as root".into() };
        let none = finding(Err(&why));
        assert_eq!((none.state, none.fix.as_deref()), (State::Missing, Some("run it as root")));
        let services = Kernel::services_without(&why);
        let some = finding(Ok(&services));
        assert!(some.reason.contains("0 of 13") && some.reason.contains("sched.wakeup, sched.switch"), "{some:?}");
    }
}
