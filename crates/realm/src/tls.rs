//! The files with which a host proves its identity.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use qfabric_types::channel::Name;

use crate::{Access, Error, check_certificate};

/// This host's certificate, the authority, and the access list. Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate of the authority that all hosts share.
    pub ca: PathBuf,
    /// This host's certificate; it has the host's name.
    pub certificate: PathBuf,
    /// The key of this host's certificate.
    pub key: PathBuf,
    /// A hash of the contents of these three files, by which a change of certificates is detected.
    pub print: u64,
    /// The rights of each host; a right that is not listed is denied.
    pub access: Access,
}

impl Tls {
    /// The files of [`crate::init_ca`] and [`crate::issue`] in a folder (`ca.pem`, `HOST.pem` and `HOST.key`), and an
    /// access list.
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
}

fn print(files: &[&Path]) -> Result<u64, Error> {
    let mut hasher = DefaultHasher::new();
    for path in files {
        let text = fs::read(path).map_err(|source| Error::File { path: path.to_path_buf(), source })?;
        text.hash(&mut hasher);
    }
    Ok(hasher.finish())
}
