//! Why packets are not scheduled as asked. Nothing was changed, and nothing is half attached.

use std::io;

use qfabric_types::api::Problem;
use qfabric_types::api::net::{InvalidSelector, Selector, StreamId, StreamSpec};
use qfabric_types::{Nanos, Share};

use crate::bpf::ObjectError;

/// A refusal, or a fault of the kernel's.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.problem())]
pub enum NetError {
    /// There is none of this name.
    NoInterface {
        /// What was asked for.
        name: String,
        /// What there is.
        there: String,
    },
    /// The kernel cannot schedule packets by programs.
    NoDwcs {
        /// What is missing.
        why: String,
    },
    /// The kernel has no HTB either.
    NoHtb {
        /// What is missing.
        what: &'static str,
        /// Its module.
        module: &'static str,
    },
    /// Ours is there.
    Attached {
        /// The interface.
        interface: String,
        /// The kind at its root.
        kind: String,
    },
    /// What is there could not be put back afterwards.
    Classful {
        /// The interface.
        interface: String,
        /// The kind at its root.
        kind: String,
    },
    /// Changing an interface's queueing needs a capability.
    NotPermitted {
        /// What was tried.
        what: &'static str,
    },
    /// Nobody knows how much the link carries.
    NoRate {
        /// The interface.
        interface: String,
    },
    /// A value that cannot be meant.
    Value {
        /// Which.
        what: &'static str,
        /// What was given.
        value: String,
        /// What can be meant.
        expected: String,
    },
    /// The selector names no packets.
    Selector(#[from] InvalidSelector),
    /// Another stream has them.
    Taken {
        /// The interface.
        interface: String,
        /// Whose packets.
        selector: Selector,
        /// The stream that has them.
        id: StreamId,
    },
    /// The cgroup is not there.
    NoCgroup {
        /// What was asked for.
        path: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Every place is taken.
    Full {
        /// The interface.
        interface: String,
        /// So many.
        most: u32,
    },
    /// There is none of this number.
    NoStream {
        /// The interface.
        interface: String,
        /// What was asked for.
        id: StreamId,
    },
    /// The kernel's side does not load or attach.
    Object(#[from] ObjectError),
    /// What was there before could not be recorded, so it was not touched.
    Journal {
        /// The record's file.
        path: std::path::PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel refused a change.
    Kernel {
        /// The interface.
        interface: String,
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl NetError {
    /// What happened, and what to do about it.
    pub fn problem(&self) -> Problem {
        match self {
            NetError::NoInterface { name, there } => {
                Problem::new("net_not_found", format!("there is no interface {name:?}"), format!("there are: {there}"))
            }
            NetError::NoDwcs { why } => Problem::new(
                "unavailable",
                why,
                "use HTB classes instead (--htb), which keep rates but know neither deadlines nor windows",
            ),
            NetError::NoHtb { what, module } => Problem::new(
                "unavailable",
                format!("this kernel has no {what}"),
                format!("load the module ({module}), or use a kernel that has it"),
            ),
            NetError::Attached { interface, kind } => Problem::new(
                "net_refused",
                format!("{interface} is under Q-Fabric's packet scheduling ({kind}) already"),
                format!("detach it first: qfabric net detach {interface}"),
            ),
            NetError::Classful { interface, kind } => Problem::new(
                "net_refused",
                format!("{interface} has a {kind} with classes or children, which could not be put back as it is"),
                format!("remove it first: tc qdisc del dev {interface} root"),
            ),
            NetError::NotPermitted { what } => Problem::new(
                "net_not_permitted",
                format!("not permitted: {what} needs CAP_NET_ADMIN and CAP_BPF"),
                "run the daemon as root, or by its systemd unit",
            ),
            NetError::NoRate { interface } => Problem::new(
                "net_refused",
                format!("{interface} does not say how fast it is, so no stream can be admitted"),
                "name its rate (--rate 100M)",
            ),
            NetError::Value { what, value, expected } => {
                Problem::new("net_invalid", format!("{what} is {value}"), expected)
            }
            NetError::Selector(error) => error.problem(),
            NetError::Taken { interface, selector, id } => Problem::new(
                "net_refused",
                format!("{selector} is taken by stream {id} of {interface}"),
                "change that one, remove it, or choose another",
            ),
            NetError::NoCgroup { path, source } => Problem::new(
                "net_invalid",
                format!("there is no cgroup {path} ({source})"),
                "name its path below the mount of cgroup v2, such as /user.slice",
            ),
            NetError::Full { interface, most } => Problem::new(
                "net_refused",
                format!("{interface} has {most} streams, which is all that it can have"),
                "remove one first",
            ),
            NetError::NoStream { interface, id } => Problem::new(
                "net_not_found",
                format!("{interface} has no stream {id}"),
                format!("see qfabric net stream ls {interface}"),
            ),
            NetError::Object(error) => Problem::new("net_refused", error.to_string(), "see qfabric doctor"),
            NetError::Journal { path, source } => Problem::new(
                "net_refused",
                format!("{}: {source}; nothing was changed", path.display()),
                "make room in the run folder",
            ),
            NetError::Kernel { interface, what, source } => {
                Problem::new("net_refused", format!("{interface}: {what}: {source}"), "see qfabric net show")
            }
        }
    }
}

/// The longest period and phase.
pub const PERIOD_MAX: Nanos = Nanos::from_millis(60_000);
/// The shortest period: what a kernel's timer can still keep apart.
pub const PERIOD_MIN: Nanos = Nanos::from_micros(100);
/// The largest part of a link that best effort may be promised.
pub const BEST_EFFORT_MAX: Share = Share::from_ppm(900_000);

fn value(what: &'static str, value: impl ToString, expected: impl Into<String>) -> NetError {
    NetError::Value { what, value: value.to_string(), expected: expected.into() }
}

/// Whether a stream can be meant.
pub fn check(spec: &StreamSpec) -> Result<(), NetError> {
    spec.selector.check()?;
    if spec.period < PERIOD_MIN || spec.period > PERIOD_MAX {
        return Err(value("period", spec.period, format!("from {PERIOD_MIN} to {PERIOD_MAX}")));
    }
    if spec.phase > PERIOD_MAX {
        return Err(value("phase", spec.phase, format!("at most {PERIOD_MAX}")));
    }
    if spec.size == 0 {
        return Err(value("size", 0, "name the bytes of one period, at least those of its largest packet"));
    }
    if spec.limit == 0 || spec.limit > StreamSpec::LIMIT {
        return Err(value("limit", spec.limit, format!("from 1 to {} packets", StreamSpec::LIMIT)));
    }
    Ok(())
}

/// Whether settings of an interface can be meant.
pub(super) fn check_settings(rate_bps: u64, best_effort: Share, hold: Option<Nanos>) -> Result<(), NetError> {
    if !(1_000..=400_000_000_000).contains(&rate_bps) {
        return Err(value("rate", rate_bps, "from 1000 (1k) to 400000000000 (400G) bits per second"));
    }
    if best_effort > BEST_EFFORT_MAX {
        let most = format!("at most {} of the link", BEST_EFFORT_MAX.percent());
        return Err(value("best_effort", best_effort.percent(), most));
    }
    match hold {
        Some(hold) if hold > PERIOD_MAX => Err(value("hold", hold, format!("at most {PERIOD_MAX}"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> StreamSpec {
        StreamSpec::new(Selector::Mark(7), Nanos::from_millis(40))
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_bounds() {
        assert!(check(&spec()).is_ok());
        let period = StreamSpec { period: Nanos::new(5), ..spec() };
        assert_eq!(check(&period).unwrap_err().to_string(), "period is 5 ns; from 100 µs to 60 s");
        for bad in [
            StreamSpec { phase: Nanos::from_millis(61_000), ..spec() },
            StreamSpec { size: 0, ..spec() },
            StreamSpec { limit: 129, ..spec() },
            StreamSpec { selector: Selector::Mark(0), ..spec() },
        ] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
        assert!(check_settings(999, Share::ZERO, None).is_err());
        let refused = check_settings(1_000, Share::ONE, None).unwrap_err().to_string();
        assert_eq!(refused, "best_effort is 100 %; at most 90 % of the link");
    }
}
