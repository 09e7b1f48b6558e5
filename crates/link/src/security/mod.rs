//! Who a host is to others (certificates) and what it may do (the access list).

mod access;
mod ca;
mod check;
mod enlist;

pub use access::{Access, Right, Rule};
pub use ca::{Issued, MAX_DAYS, init_ca, issue};
pub(crate) use check::check_certificate;
pub use enlist::{enlist, hand_out};

use std::path::Path;

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
        let tls = Tls { ca: folder.join("ca.pem"), certificate: file("pem"), key: file("key"), access };
        check_certificate(&tls, host)?;
        Ok(tls)
    }
}
