//! Files of a realm that cannot be used.

use std::path::PathBuf;

use qfabric_types::api::Problem;

/// Why a certificate, a key or an access list cannot be used, with the next step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// A certificate or key that cannot be used.
    #[error("{}: {reason}", path.display())]
    Certificate {
        path: PathBuf,
        /// The defect and the next step.
        reason: String,
    },
    /// An access list that cannot be used.
    #[error("access list {}: {reason}", path.display())]
    Access {
        path: PathBuf,
        /// The defect and the next step.
        reason: String,
    },
    /// The program was built without the feature `certificates`.
    #[error(
        "this program was built without certificates: build it with `cargo build --release -p qfabric-cli`, or use \
         addresses of this machine only"
    )]
    WithoutCertificates,
}

impl Error {
    /// The refusal for a user.
    pub fn problem(&self) -> Problem {
        let (code, next_step) = match self {
            Error::File { .. } => ("file", "check the path and who may read it"),
            Error::Certificate { .. } => ("bad_certificate", "`qfabric channel issue` makes certificates"),
            Error::Access { .. } => ("bad_access_list", "`qfabric channel issue` writes an access list"),
            Error::WithoutCertificates => ("without_certificates", "build the program with its default features"),
        };
        Problem::new(code, self.to_string(), next_step)
    }
}
