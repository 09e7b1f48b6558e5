//! Replaces certificates in a build without the feature `certificates`: making and reading certificates needs a quarter
//! of the remaining crates.

use std::path::{Path, PathBuf};

use qfabric_types::channel::Name;

use crate::{Error, Tls};

/// The same as in a build with certificates.
pub const MAX_DAYS: u32 = 3650;

/// Never made in this build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Seconds since 1970.
    pub until: i64,
}

/// Always refuses.
pub fn init_ca(_: &Path, _: &Name) -> Result<Issued, Error> {
    Err(Error::WithoutCertificates)
}

/// Always refuses.
pub fn issue(_: &Path, _: &Name, _: &[String], _: &Path, _: u32) -> Result<Issued, Error> {
    Err(Error::WithoutCertificates)
}

/// Always refuses.
pub fn check_certificate(_: &Tls, _: &Name) -> Result<(), Error> {
    Err(Error::WithoutCertificates)
}
