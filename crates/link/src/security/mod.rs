//! Who a host is to others (certificates) and what it may do (the access list).

mod access;
#[cfg(feature = "zenoh")]
mod ca;
#[cfg(feature = "zenoh")]
mod check;
mod enlist;
#[cfg(feature = "zenoh")]
mod notary;
#[cfg(not(feature = "zenoh"))]
mod without_certificates;

pub use access::{Access, Right, Rule};
#[cfg(feature = "zenoh")]
pub use ca::{Issued, MAX_DAYS, init_ca, issue};
#[cfg(feature = "zenoh")]
pub(crate) use check::check_certificate;
pub use enlist::{enlist, hand_out};
#[cfg(feature = "zenoh")]
pub(crate) use notary::certified;
#[cfg(not(feature = "zenoh"))]
pub use without_certificates::{Issued, MAX_DAYS, init_ca, issue};
#[cfg(not(feature = "zenoh"))]
pub(crate) use without_certificates::{certified, check_certificate};

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use qfabric_channel::Notary;
use qfabric_types::channel::Name;

use crate::{Error, Tls};

impl Tls {
    /// The files that [`init_ca`] and [`issue`] made: `ca.pem`, `HOST.pem` and `HOST.key` of a folder; and an access
    /// list.
    ///
    /// # Errors
    /// An access list that cannot be read, a certificate that is missing, expired or another host's.
    pub fn from_folder(folder: &Path, host: &Name, access: &Path) -> Result<Tls, Error> {
        let file = |end: &str| folder.join(format!("{host}.{end}"));
        let access = Access::read(access)?;
        let (ca, certificate, key) = (folder.join("ca.pem"), file("pem"), file("key"));
        let print = print(&[&ca, &certificate, &key])?;
        let tls = Tls { ca, certificate, key, print, access };
        check_certificate(&tls, host)?;
        Ok(tls)
    }

    /// Signs creations by this host's key, and believes those that were signed by keys of the same authority's certificates.
    ///
    /// # Errors
    /// A file that cannot be read, or is not what it should be.
    pub fn notary(&self) -> Result<Box<dyn Notary>, Error> {
        certified(self)
    }
}

fn print(files: &[&Path]) -> Result<u64, Error> {
    let mut hasher = DefaultHasher::new();
    for path in files {
        let text = fs::read(path).map_err(|source| Error::File { path: path.to_path_buf(), source })?;
        text.hash(&mut hasher);
    }
    Ok(hasher.finish())
}
