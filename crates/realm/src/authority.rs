//! Makes an authority, and a certificate for each host.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use qfabric_types::channel::Name;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

use crate::Error;

/// Longest validity of a host's certificate in days; also the validity of the authority's.
pub const MAX_DAYS: u32 = 3650;

/// Certificates are valid from this long ago, because other hosts' clocks may be behind the authority's.
const SLACK: Duration = Duration::hours(1);

/// The files of a new certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The certificate; it may be public.
    pub certificate: PathBuf,
    /// The key, mode 0600. Keep no copy on other machines.
    pub key: PathBuf,
    /// The last second of validity, in seconds since 1970.
    pub until: i64,
}

/// Makes an authority in a folder: `ca.pem`, which every host needs, and `ca.key`, which only [`issue`] needs.
///
/// # Errors
/// The folder has an authority already, or the files cannot be written.
pub fn init_ca(folder: &Path, realm: &Name) -> Result<Issued, Error> {
    fs::create_dir_all(folder).map_err(|source| Error::File { path: folder.to_owned(), source })?;
    let mut parameters = parameters(&format!("Q-Fabric realm {realm}"), MAX_DAYS);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let files = files(folder, "ca", &parameters);
    let key = KeyPair::generate().map_err(|error| broken(&files.key, error))?;
    let certificate = parameters.self_signed(&key).map_err(|error| broken(&files.certificate, error))?;
    write_both(files, &certificate.pem(), &key)
}

/// Makes `HOST.pem` and `HOST.key` in `out`, and puts `ca.pem` beside them. `addresses` (names or IP addresses) are written
/// into the certificate for other programs; Q-Fabric uses the host's name.
///
/// # Errors
/// `folder` has no authority, the host has a key there already, more than [`MAX_DAYS`], or the files cannot be written.
pub fn issue(folder: &Path, host: &Name, addresses: &[String], out: &Path, days: u32) -> Result<Issued, Error> {
    let (authority, key_path) = (folder.join("ca.pem"), folder.join("ca.key"));
    let mut parameters = parameters(host.as_str(), days.clamp(1, MAX_DAYS));
    let names = std::iter::once(host.to_string()).chain(addresses.iter().cloned()).collect::<Vec<_>>();
    parameters.subject_alt_names =
        CertificateParams::new(names).map_err(|error| broken(&authority, error))?.subject_alt_names;
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    parameters.use_authority_key_identifier_extension = true;
    let ca_key = KeyPair::from_pem(&read(&key_path)?).map_err(|error| broken(&key_path, error))?;
    let issuer = Issuer::from_ca_cert_pem(&read(&authority)?, ca_key).map_err(|error| broken(&authority, error))?;
    fs::create_dir_all(out).map_err(|source| Error::File { path: out.to_owned(), source })?;
    let files = files(out, host.as_str(), &parameters);
    let key = KeyPair::generate().map_err(|error| broken(&files.key, error))?;
    let certificate = parameters.signed_by(&key, &issuer).map_err(|error| broken(&files.certificate, error))?;
    copy_authority(&authority, &out.join("ca.pem"))?;
    write_both(files, &certificate.pem(), &key)
}

fn parameters(name: &str, days: u32) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, name);
    let now = OffsetDateTime::now_utc();
    parameters.not_before = now - SLACK;
    parameters.not_after = now + Duration::days(days.into());
    parameters
}

fn files(folder: &Path, name: &str, parameters: &CertificateParams) -> Issued {
    let file = |end| folder.join(format!("{name}.{end}"));
    Issued { certificate: file("pem"), key: file("key"), until: parameters.not_after.unix_timestamp() }
}

/// Writes the key first and only to a new file, so that an issued certificate is never overwritten.
fn write_both(files: Issued, certificate: &str, key: &KeyPair) -> Result<Issued, Error> {
    write(&files.key, &key.serialize_pem(), 0o600)?;
    if let Err(error) = write(&files.certificate, certificate, 0o644) {
        // It fits no certificate. An authority would go on with it, and its certificates would be refused.
        let _ = fs::remove_file(&files.key);
        return Err(error);
    }
    Ok(files)
}

/// Writes a new file, or none.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(|source| {
        let _ = fs::remove_file(path);
        failed(source)
    })
}

fn copy_authority(from: &Path, to: &Path) -> Result<(), Error> {
    if from != to && !to.exists() {
        write(to, &read(from)?, 0o644)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })
}

fn broken(path: &Path, error: rcgen::Error) -> Error {
    Error::Certificate { path: path.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::{Access, Tls, check_certificate};

    fn tls(folder: &Path, host: &str) -> Tls {
        let file = |end: &str| folder.join(format!("{host}.{end}"));
        Tls {
            ca: folder.join("ca.pem"),
            certificate: file("pem"),
            key: file("key"),
            print: 0,
            access: Access::default(),
        }
    }

    #[test]
    fn two_commands_make_what_a_host_needs_and_keys_are_for_their_owner_only() {
        let (ca, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        init_ca(ca.path(), &"home".parse().unwrap()).unwrap();
        let host: Name = "wall".parse().unwrap();
        let issued = issue(ca.path(), &host, &["192.0.2.7".into()], out.path(), 30).unwrap();
        assert_eq!(fs::metadata(&issued.key).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(ca.path().join("ca.key")).unwrap().permissions().mode() & 0o777, 0o600);
        check_certificate(&tls(out.path(), "wall"), &host).unwrap();
    }

    #[test]
    fn nothing_that_was_handed_out_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let (realm, host): (Name, Name) = ("home".parse().unwrap(), "wall".parse().unwrap());
        init_ca(folder.path(), &realm).unwrap();
        assert!(matches!(init_ca(folder.path(), &realm), Err(Error::File { .. })));
        issue(folder.path(), &host, &[], folder.path(), 30).unwrap();
        assert!(matches!(issue(folder.path(), &host, &[], folder.path(), 30), Err(Error::File { .. })));
    }

    #[test]
    fn a_certificate_that_is_not_written_leaves_no_key() {
        let folder = tempfile::tempdir().unwrap();
        let (realm, host): (Name, Name) = ("home".parse().unwrap(), "wall".parse().unwrap());
        let keys = [
            init_ca(folder.path(), &realm).unwrap().key,
            issue(folder.path(), &host, &[], folder.path(), 30).unwrap().key,
        ];
        // Moved to where they are used.
        fs::remove_file(&keys[1]).unwrap();
        assert!(issue(folder.path(), &host, &[], folder.path(), 30).is_err() && !keys[1].exists());
        fs::remove_file(&keys[0]).unwrap();
        assert!(init_ca(folder.path(), &realm).is_err() && !keys[0].exists());
    }

    #[test]
    fn a_certificate_of_another_host_or_another_authority_is_told_apart() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let host: Name = "wall".parse().unwrap();
        for folder in [&one, &two] {
            init_ca(folder.path(), &"home".parse().unwrap()).unwrap();
            issue(folder.path(), &host, &[], folder.path(), 30).unwrap();
        }
        let other = check_certificate(&tls(one.path(), "wall"), &"cam".parse().unwrap()).unwrap_err().to_string();
        assert!(other.contains("wall") && other.contains("cam"), "{other}");
        let mixed = Tls { ca: two.path().join("ca.pem"), ..tls(one.path(), "wall") };
        let said = check_certificate(&mixed, &host).unwrap_err().to_string();
        assert!(said.contains("not made by"), "{said}");
    }

    #[test]
    fn an_expired_certificate_says_so_and_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        init_ca(folder.path(), &"home".parse().unwrap()).unwrap();
        let host: Name = "wall".parse().unwrap();
        let issued = issue(folder.path(), &host, &[], folder.path(), 1).unwrap();
        let later = issued.until + 60;
        let said = crate::check::at(&tls(folder.path(), "wall"), &host, later).unwrap_err().to_string();
        assert!(said.contains("expired") && said.contains("qfabric channel issue"), "{said}");
        let earlier = issued.until - 10 * 86_400;
        let said = crate::check::at(&tls(folder.path(), "wall"), &host, earlier).unwrap_err().to_string();
        assert!(said.contains("clock"), "{said}");
    }
}
