//! Authentication of hosts (certificates) and their rights (the access list).

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
    /// The files of [`init_ca`] and [`issue`] in a folder (`ca.pem`, `HOST.pem` and `HOST.key`), and an access list.
    ///
    /// # Errors
    /// The access list cannot be read, or a certificate is missing, has expired, or belongs to another host.
    pub fn from_folder(folder: &Path, host: &Name, access: &Path) -> Result<Tls, Error> {
        let file = |end: &str| folder.join(format!("{host}.{end}"));
        let access = Access::read(access)?;
        let (ca, certificate, key) = (folder.join("ca.pem"), file("pem"), file("key"));
        let print = print(&[&ca, &certificate, &key])?;
        let tls = Tls { ca, certificate, key, print, access };
        check_certificate(&tls, host)?;
        Ok(tls)
    }

    /// Signs creations with this host's key, and accepts those that were signed with keys of the same authority's certificates.
    ///
    /// # Errors
    /// A file cannot be read or used.
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
