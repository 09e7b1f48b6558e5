//! Errors of the kernel path. After an error nothing is attached, and no key has changed.

use std::io;

use qfabric_types::api::Problem;

use crate::bpf::ObjectError;
use crate::net::NetError;

#[derive(Debug, thiserror::Error)]
#[error("{}", self.problem())]
pub enum KernelPathError {
    Interface(#[from] NetError),
    /// The process lacks a capability.
    NotPermitted,
    /// This kernel runs no programs on packets of interfaces (tcx).
    NoHook {
        interface: String,
        source: io::Error,
    },
    /// The kernel refused the program.
    Object(#[from] ObjectError),
    /// A value is outside its range, or contradicts the present peers.
    Value {
        what: &'static str,
        value: String,
        /// The next step.
        expected: String,
    },
    Kernel {
        /// The attempted operation.
        what: &'static str,
        source: io::Error,
    },
}

impl KernelPathError {
    pub fn problem(&self) -> Problem {
        match self {
            KernelPathError::Interface(error) => error.problem(),
            KernelPathError::NotPermitted => Problem::new(
                "path_not_permitted",
                "not permitted: the kernel path needs CAP_BPF and CAP_NET_ADMIN",
                "run the program as root",
            ),
            KernelPathError::NoHook { interface, source } => Problem::new(
                "path_unavailable",
                format!("{interface}: this kernel runs no programs on packets that arrive ({source})"),
                "use Linux 6.6 or newer with CONFIG_NET_XGRESS, or set the parameter over its channel",
            ),
            KernelPathError::Object(error) => Problem::new(
                "path_unavailable",
                error.to_string(),
                "run `qfabric doctor`, or set the parameter over its channel",
            ),
            KernelPathError::Value { what, value, expected } => {
                Problem::new("path_invalid", format!("{what} is {value}"), expected)
            }
            KernelPathError::Kernel { what, source } => {
                Problem::new("path_refused", format!("{what}: {source}"), "run `qfabric doctor`")
            }
        }
    }

    /// The reason why an object was not loaded.
    pub(super) fn of_object(error: ObjectError) -> KernelPathError {
        match &error {
            ObjectError::Refused { error: cause, .. } if cause.kind() == io::ErrorKind::PermissionDenied => {
                KernelPathError::NotPermitted
            }
            _ => KernelPathError::Object(error),
        }
    }

    /// The reason why the program was not attached.
    pub(super) fn of_link(interface: &str, source: io::Error) -> KernelPathError {
        match source.kind() {
            io::ErrorKind::PermissionDenied => KernelPathError::NotPermitted,
            io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => {
                KernelPathError::NoHook { interface: interface.to_owned(), source }
            }
            _ => KernelPathError::Kernel { what: "attaching the program to the interface", source },
        }
    }
}

pub(super) fn failed(what: &'static str) -> impl Fn(io::Error) -> KernelPathError {
    move |source| KernelPathError::Kernel { what, source }
}

pub(super) fn value(what: &'static str, value: impl ToString, expected: String) -> KernelPathError {
    KernelPathError::Value { what, value: value.to_string(), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_of_the_kernel_names_the_next_step() {
        let of_link = |number| KernelPathError::of_link("eth0", io::Error::from_raw_os_error(number)).to_string();
        assert!(of_link(libc::EPERM).contains("CAP_NET_ADMIN") && of_link(libc::EPERM).contains("as root"));
        for number in [libc::EINVAL, libc::EOPNOTSUPP] {
            let text = of_link(number);
            assert!(text.contains("eth0") && text.contains("Linux 6.6") && text.contains("over its channel"), "{text}");
        }
        let refused = |number| ObjectError::Refused {
            object: "the kernel path".into(),
            error: io::Error::from_raw_os_error(number),
            log: String::new(),
        };
        assert!(matches!(KernelPathError::of_object(refused(libc::EPERM)), KernelPathError::NotPermitted));
        assert!(KernelPathError::of_object(refused(libc::EINVAL)).to_string().contains("qfabric doctor"));
    }
}
