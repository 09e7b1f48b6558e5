//! Errors of packet scheduling. After an error nothing is changed and nothing is partly attached.

use std::io;

use qfabric_types::api::Problem;
use qfabric_types::api::net::{InvalidSelector, Selector, StreamId, StreamSpec};
use qfabric_types::{Nanos, Share};

use crate::bpf::ObjectError;
use crate::release;

#[derive(Debug, thiserror::Error)]
#[error("{}", self.problem())]
pub enum NetError {
    NoInterface {
        name: String,
        /// Names of the existing interfaces.
        there: String,
    },
    /// This kernel does not support queueing disciplines in BPF.
    NoDwcs {
        why: String,
    },
    /// This kernel has no HTB or no BPF classifier.
    NoHtb {
        what: &'static str,
        /// The kernel module that provides it.
        module: &'static str,
    },
    /// This kernel cannot rewrite the code points of packets.
    NoMarker {
        source: io::Error,
    },
    /// The interface is already under Q-Fabric's packet scheduling.
    Attached {
        interface: String,
        /// The discipline at its root.
        kind: String,
    },
    /// The present discipline could not be put back later.
    Classful {
        interface: String,
        /// The discipline at its root.
        kind: String,
    },
    /// The process lacks a capability.
    NotPermitted {
        /// The attempted operation.
        what: &'static str,
    },
    /// The rate of the link is not known.
    NoRate {
        interface: String,
    },
    /// A value is outside its range.
    Value {
        what: &'static str,
        value: String,
        /// The valid values.
        expected: String,
    },
    Selector(#[from] InvalidSelector),
    /// Another stream already has the packets of the selector.
    Taken {
        interface: String,
        selector: Selector,
        /// The stream that has the packets.
        id: StreamId,
    },
    NoCgroup {
        path: String,
        source: io::Error,
    },
    /// The interface has the largest number of streams.
    Full {
        interface: String,
        most: u32,
    },
    NoStream {
        interface: String,
        id: StreamId,
    },
    /// The BPF object cannot be loaded or attached.
    Object(#[from] ObjectError),
    /// The former discipline could not be recorded, so nothing was changed.
    Journal {
        path: std::path::PathBuf,
        source: io::Error,
    },
    /// The record of former disciplines cannot be read.
    Unreadable {
        path: std::path::PathBuf,
        source: io::Error,
    },
    /// The recorded interfaces belong to a service that runs, and restores them when it ends.
    Running {
        path: std::path::PathBuf,
        /// The process of the service.
        pid: i32,
    },
    Kernel {
        interface: String,
        /// The attempted operation.
        what: &'static str,
        source: io::Error,
    },
}

impl NetError {
    pub(super) fn no_marker(ifindex: u32, source: io::Error) -> NetError {
        let what = "setting the code points of packets";
        match source.kind() {
            io::ErrorKind::PermissionDenied => NetError::NotPermitted { what },
            io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => NetError::NoMarker { source },
            _ => NetError::Kernel { interface: format!("interface {ifindex}"), what, source },
        }
    }

    pub fn problem(&self) -> Problem {
        match self {
            NetError::NoInterface { name, there } => {
                not_found(format!("no interface is named {name:?}"), format!("choose one of: {there}"))
            }
            NetError::NoDwcs { why } => Problem::new(
                "unavailable",
                why,
                "use HTB classes instead (--htb), which guarantee rates but no deadlines and no windows",
            ),
            NetError::NoHtb { what, module } => Problem::new(
                "unavailable",
                format!("this kernel does not have {what}"),
                format!("load the module {module}, or use a kernel that has it"),
            ),
            NetError::NoMarker { source } => unmarked(source),
            NetError::Attached { interface, kind } => refused(
                format!("{interface} is already under Q-Fabric's packet scheduling ({kind})"),
                format!("detach it first: qfabric net detach {interface}"),
            ),
            NetError::Classful { interface, kind } => classful(interface, kind),
            NetError::NotPermitted { what } => Problem::new(
                "net_not_permitted",
                format!("not permitted: {what} needs CAP_NET_ADMIN and CAP_BPF"),
                "run the daemon as root or from its systemd unit",
            ),
            NetError::NoRate { interface } => refused(
                format!("{interface} does not report its speed, so no stream can be admitted"),
                "state the rate of the link (--rate 100M)",
            ),
            NetError::Value { what, value, expected } => invalid(format!("{what} is {value}"), expected),
            NetError::Selector(error) => error.problem(),
            NetError::Taken { interface, selector, id } => refused(
                format!("stream {id} of {interface} already has the packets of {selector}"),
                "change or remove that stream, or choose another selector",
            ),
            NetError::NoCgroup { path, source } => invalid(
                format!("the cgroup {path} does not exist ({source})"),
                "state its path below the mount point of cgroup v2, such as /user.slice",
            ),
            NetError::Full { interface, most } => {
                refused(format!("{interface} already has {most} streams, which is the limit"), "remove a stream first")
            }
            NetError::NoStream { interface, id } => not_found(
                format!("{interface} has no stream {id}"),
                format!("list the streams with `qfabric net stream ls {interface}`"),
            ),
            NetError::Object(error) => refused(error.to_string(), "run `qfabric doctor`"),
            NetError::Journal { path, source } => refused(
                format!("{}: {source}; nothing was changed", path.display()),
                "free some space in the run folder",
            ),
            NetError::Unreadable { path, source } => unreadable(path, source),
            NetError::Running { path, pid } => running(path, *pid),
            NetError::Kernel { interface, what, source } => {
                refused(format!("{interface}: {what}: {source}"), "look at the interface with `qfabric net show`")
            }
        }
    }
}

fn unmarked(source: &io::Error) -> Problem {
    Problem::new(
        "unavailable",
        format!("kernel {} cannot set the code points of a stream's packets ({source})", release::text()),
        "use Linux 6.6 or newer, or set the code point in the program that sends (IP_TOS, IPV6_TCLASS)",
    )
}

fn classful(interface: &str, kind: &str) -> Problem {
    refused(
        format!("{interface} has a {kind} with classes or children, which could not be put back later"),
        format!("remove it first: tc qdisc del dev {interface} root"),
    )
}

fn unreadable(path: &std::path::Path, source: &io::Error) -> Problem {
    refused(
        format!("{}: {source}; nothing was changed", path.display()),
        "inspect the file and remove it; a queue that is left is removed by: tc qdisc del dev INTERFACE root",
    )
}

fn running(path: &std::path::Path, pid: i32) -> Problem {
    refused(
        format!("{} belongs to a running service, process {pid}; nothing was changed", path.display()),
        format!("stop process {pid}: it restores its interfaces when it ends"),
    )
}

/// The request contradicts the present state of the host or of the interface.
fn refused(message: impl Into<String>, next_step: impl Into<String>) -> Problem {
    Problem::new("net_refused", message, next_step)
}

/// A value of the request is not valid on any host, or names something that this host does not have.
fn invalid(message: impl Into<String>, next_step: impl Into<String>) -> Problem {
    Problem::new("net_invalid", message, next_step)
}

fn not_found(message: impl Into<String>, next_step: impl Into<String>) -> Problem {
    Problem::new("net_not_found", message, next_step)
}

/// Longest period and longest phase.
pub const PERIOD_MAX: Nanos = Nanos::from_millis(60_000);
/// Shortest period: the kernel's timers cannot separate shorter ones.
pub const PERIOD_MIN: Nanos = Nanos::from_micros(100);
/// Largest share of a link that can be guaranteed to best effort.
pub const BEST_EFFORT_MAX: Share = Share::from_ppm(900_000);

fn value(what: &'static str, value: impl ToString, expected: impl Into<String>) -> NetError {
    NetError::Value { what, value: value.to_string(), expected: expected.into() }
}

/// Fails if a value of the stream is outside its range.
pub fn check(spec: &StreamSpec) -> Result<(), NetError> {
    spec.selector.check()?;
    if spec.period < PERIOD_MIN || spec.period > PERIOD_MAX {
        return Err(value("period", spec.period, format!("from {PERIOD_MIN} to {PERIOD_MAX}")));
    }
    if spec.phase > PERIOD_MAX {
        return Err(value("phase", spec.phase, format!("at most {PERIOD_MAX}")));
    }
    if spec.size == 0 {
        return Err(value("size", 0, "state the bytes of one period, at least the size of its largest packet"));
    }
    if spec.terms.least == Some(0) {
        return Err(value("least", 0, "state the smallest useful size in bytes, from 1 to the size"));
    }
    if let Some(dscp) = spec.dscp.filter(|dscp| *dscp > StreamSpec::MOST_DSCP) {
        let expected = format!("from 0 to {}, such as 46 for expedited forwarding", StreamSpec::MOST_DSCP);
        return Err(value("dscp", dscp, expected));
    }
    if spec.limit == 0 || spec.limit > StreamSpec::LIMIT {
        return Err(value("limit", spec.limit, format!("from 1 to {} packets", StreamSpec::LIMIT)));
    }
    Ok(())
}

/// Fails if a setting of the interface is outside its range.
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
    fn values_outside_their_range_are_refused_with_the_range() {
        assert!(check(&spec()).is_ok());
        let period = StreamSpec { period: Nanos::new(5), ..spec() };
        assert_eq!(check(&period).unwrap_err().to_string(), "period is 5 ns; from 100 µs to 60 s");
        for bad in [
            StreamSpec { phase: Nanos::from_millis(61_000), ..spec() },
            StreamSpec { size: 0, ..spec() },
            StreamSpec { limit: 129, ..spec() },
            StreamSpec { dscp: Some(64), ..spec() },
            StreamSpec { selector: Selector::Mark(0), ..spec() },
        ] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
        assert!(check_settings(999, Share::ZERO, None).is_err());
        let refused = check_settings(1_000, Share::ONE, None).unwrap_err().to_string();
        assert_eq!(refused, "best_effort is 100 %; at most 90 % of the link");
    }
}
