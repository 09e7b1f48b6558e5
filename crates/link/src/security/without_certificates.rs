//! Stands in for certificates in a build without the feature `zenoh`: making and reading them takes a quarter of the crates that
//! are left, and only Zenoh shows them to anybody.

use std::path::{Path, PathBuf};

use qfabric_channel::Notary;
use qfabric_types::channel::Name;

use crate::{Error, Tls};

/// As where certificates can be made.
pub const MAX_DAYS: u32 = 3650;

/// Never made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Seconds of Unix time.
    pub until: i64,
}

/// Refuses.
pub fn init_ca(_: &Path, _: &Name) -> Result<Issued, Error> {
    Err(Error::WithoutZenoh)
}

/// Refuses.
pub fn issue(_: &Path, _: &Name, _: &[String], _: &Path, _: u32) -> Result<Issued, Error> {
    Err(Error::WithoutZenoh)
}

/// Refuses.
pub(crate) fn check_certificate(_: &Tls, _: &Name) -> Result<(), Error> {
    Err(Error::WithoutZenoh)
}

/// Refuses.
pub(crate) fn certified(_: &Tls) -> Result<Box<dyn Notary>, Error> {
    Err(Error::WithoutZenoh)
}
