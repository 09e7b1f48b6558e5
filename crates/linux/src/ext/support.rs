//! Checks if this kernel can load the scheduler.

use super::ExtError;
use crate::bpf::ObjectError;
use crate::files;
use crate::release;

const STATE: &str = "/sys/kernel/sched_ext/state";
const NAME: &str = "/sys/kernel/sched_ext/root/ops";
const INSTEAD: &str = "use Linux 6.19 or newer with CONFIG_SCHED_CLASS_EXT (Debian 13: a kernel from backports), or \
                       --mechanism deadline, which needs neither";

/// Fails with the reason if the scheduler cannot be loaded.
pub(super) fn check() -> Result<(), ExtError> {
    let release = release::text();
    let unsupported =
        |why: &str| ExtError::Unsupported { release: release.clone(), why: why.into(), instead: INSTEAD.into() };
    let Ok(state) = files::text(STATE) else {
        return Err(unsupported("this kernel was built without sched_ext (CONFIG_SCHED_CLASS_EXT)"));
    };
    if release::version() < (6, 19) {
        return Err(unsupported("its sched_ext is too old for this scheduler"));
    }
    match state.trim() {
        "disabled" | "disabling" => Ok(()),
        _ => Err(ExtError::Occupied { name: in_charge().unwrap_or_default() }),
    }
}

/// Translates a failure to load the scheduler.
pub(super) fn not_loaded(error: &ObjectError) -> ExtError {
    let (errno, log) = match error {
        ObjectError::Refused { error, log, .. } => (error.raw_os_error().unwrap_or(0), log.as_str()),
        _ => (0, ""),
    };
    if log.contains("scx_bpf") && log.contains("not found") || log.contains("incompatible with vmlinux") {
        let why = format!("its type information is broken for sched_ext ({})", last_line(log));
        return ExtError::Unsupported { release: release::text(), why, instead: INSTEAD.into() };
    }
    let (why, fix) = match errno {
        libc::EPERM => ("this process may not use BPF".into(), "run it as root"),
        libc::EBUSY => ("another scheduler was loaded first".into(), "stop that scheduler"),
        _ => (error.to_string(), "report this, or use --mechanism deadline"),
    };
    ExtError::Refused { what: "load the scheduler".into(), errno, why, fix: fix.into() }
}

fn last_line(log: &str) -> &str {
    log.lines().rev().find(|line| line.contains("scx") || line.contains("vmlinux")).unwrap_or_default().trim()
}

/// Name of the scheduler in charge.
pub(super) fn in_charge() -> Option<String> {
    files::trimmed(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_names_the_kernel_and_an_alternative() {
        if let Err(refusal @ ExtError::Unsupported { .. }) = check() {
            let text = refusal.to_string();
            assert!(text.contains(&release::text()) && text.contains("--mechanism deadline"), "{text}");
        }
    }
}
