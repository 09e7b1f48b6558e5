//! Authentication of hosts and their rights: the files of the realm, used for channels.

#[cfg(feature = "zenoh")]
mod notary;
mod rights;

#[cfg(feature = "zenoh")]
pub(crate) use notary::certified;
pub use rights::ChannelRights;

use qfabric_channel::Notary;

use crate::{Error, Tls};

/// Signs creations with this host's key, and accepts those that were signed with keys of the same authority's certificates.
///
/// # Errors
/// A file cannot be read or used.
pub fn notary(tls: &Tls) -> Result<Box<dyn Notary>, Error> {
    certified(tls)
}

/// Always refuses: a build without certificates has nothing to sign with.
#[cfg(not(feature = "zenoh"))]
fn certified(_: &Tls) -> Result<Box<dyn Notary>, Error> {
    Err(Error::WithoutZenoh)
}
