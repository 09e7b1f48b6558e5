//! Reasons for which a lab cannot be made or used.

use std::io;

use qfabric_types::api::Problem;

use crate::settings::SettingsError;

#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("network namespaces need CAP_SYS_ADMIN and CAP_NET_ADMIN, which this process does not have")]
    Rights,
    #[error("user namespaces, in which a lab needs no root, are refused here: {source}")]
    UserNamespace { source: io::Error },
    #[error("/dev/net/tun may not be opened by this user")]
    DeviceRights,
    #[error("/dev/net/tun cannot be opened: {source}")]
    NoDevice { source: io::Error },
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
    #[error("the emulator did not answer within {seconds} s")]
    Silent { seconds: u64 },
    #[error("the emulator has ended: a device of the lab failed")]
    Ended,
}

impl LabError {
    pub fn problem(&self) -> Problem {
        let (code, next_step) = match self {
            LabError::Settings(error) => return error.problem(),
            LabError::Rights => ("not_permitted", "run it as root, or as a user who may make user namespaces"),
            LabError::UserNamespace { .. } => (
                "not_permitted",
                "run it as root, or let the administrator allow user namespaces: sysctl user.max_user_namespaces, \
                 kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns",
            ),
            LabError::DeviceRights => ("not_permitted", "run it as root, or: sudo chmod 666 /dev/net/tun"),
            LabError::NoDevice { .. } => ("unavailable", "load the module tun: sudo modprobe tun"),
            LabError::System { .. } | LabError::Silent { .. } | LabError::Ended => {
                ("fault", "run it again; if it fails again, report the message")
            }
        };
        Problem { code: code.into(), message: self.to_string(), next_step: next_step.into(), ..Problem::default() }
    }
}
