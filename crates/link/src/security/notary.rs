//! Signs creations with the certificates that hosts have for TLS (see [`qfabric_channel::Notary`]).
//!
//! ```text
//! proof:  n u8 | n × (length u16 | certificate, DER) | scheme u16 | signature      little endian; the host's certificate first
//! ```
//! A proof is valid if its certificate leads to this host's authority and was valid when the channel was created, if the
//! certificate's name is the creator's, and if its key has signed the statement. A proof stays valid after the certificate
//! has expired: the access list decides which hosts' creations count today.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use qfabric_channel::Notary;
use qfabric_realm::{self as realm, certificates, host_of};
use qfabric_types::channel::Name;
use rustls::SignatureScheme;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, TrustAnchor, UnixTime};
use rustls::sign::SigningKey;
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use crate::{Error, Tls};

/// Largest number of certificates of a proof.
const MOST_CERTIFICATES: usize = 4;
/// Bytes of proofs that have been verified, with their statements. Above this limit all are discarded and verified
/// again.
const REMEMBERED: usize = 2 << 20;
/// The signature schemes of the certificates' keys.
const SCHEMES: [SignatureScheme; 6] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
];

/// A notary with the files of a host.
pub(crate) fn certified(tls: &Tls) -> Result<Box<dyn Notary>, Error> {
    Ok(Box::new(Certified::new(tls)?))
}

/// Signs with this host's key, and verifies with its authority's certificate.
struct Certified {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<dyn SigningKey>,
    anchors: Vec<TrustAnchor<'static>>,
    provider: CryptoProvider,
    good: RefCell<Good>,
}

/// Proofs that have been verified.
#[derive(Default)]
struct Good {
    known: BTreeSet<(Name, Vec<u8>, Vec<u8>)>,
    bytes: usize,
}

impl Good {
    fn remember(&mut self, proved: (Name, Vec<u8>, Vec<u8>)) {
        let bytes = proved.1.len() + proved.2.len();
        if self.bytes + bytes > REMEMBERED {
            *self = Good::default();
        }
        self.bytes += bytes;
        self.known.insert(proved);
    }
}

impl Certified {
    fn new(tls: &Tls) -> Result<Certified, Error> {
        let provider = default_provider();
        let bad = |reason: String| realm::Error::Certificate { path: tls.key.clone(), reason };
        let key =
            PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| bad(format!("cannot use this key: {error}")))?;
        let key = provider
            .key_provider
            .load_private_key(key)
            .map_err(|error| bad(format!("cannot use this key: {error}")))?;
        let authorities = certificates(&tls.ca)?;
        let anchor = |der| anchor_from_trusted_cert(der).map(|anchor| anchor.to_owned());
        let anchors = authorities.iter().map(anchor).collect::<Result<_, _>>();
        let no_authority = |error| realm::Error::Certificate {
            path: tls.ca.clone(),
            reason: format!("cannot use this authority: {error}"),
        };
        let anchors = anchors.map_err(no_authority)?;
        Ok(Certified { chain: certificates(&tls.certificate)?, key, anchors, provider, good: RefCell::default() })
    }

    fn check(&self, creator: &Name, at: UnixTime, statement: &[u8], proof: &[u8]) -> Option<()> {
        let proof = Proof::read(proof)?;
        let (own, between) = proof.chain.split_first()?;
        (host_of(own)? == *creator).then_some(())?;
        let end = EndEntityCert::try_from(own).ok()?;
        let all = self.provider.signature_verification_algorithms;
        let usage = KeyUsage::client_auth();
        end.verify_for_usage(all.all, &self.anchors, between, at, usage, None, None).ok()?;
        let (_, some) = all.mapping.iter().find(|(scheme, _)| *scheme == proof.scheme)?;
        some.iter().find_map(|algorithm| end.verify_signature(*algorithm, statement, proof.signature).ok())
    }
}

impl Notary for Certified {
    fn sign(&self, statement: &[u8]) -> Option<Vec<u8>> {
        let signer = self.key.choose_scheme(&SCHEMES)?;
        let signature = signer.sign(statement).ok()?;
        let chain = &self.chain[..self.chain.len().min(MOST_CERTIFICATES)];
        Some(Proof { chain: chain.to_vec(), scheme: signer.scheme(), signature: &signature }.write())
    }

    fn verifies(&self, creator: &Name, created_unix_ns: u64, statement: &[u8], proof: &[u8]) -> bool {
        let known = (creator.clone(), statement.to_vec(), proof.to_vec());
        if self.good.borrow().known.contains(&known) {
            return true;
        }
        let at = UnixTime::since_unix_epoch(Duration::from_nanos(created_unix_ns));
        let is_good = self.check(creator, at, statement, proof).is_some();
        if is_good {
            self.good.borrow_mut().remember(known);
        }
        is_good
    }
}

struct Proof<'a> {
    chain: Vec<CertificateDer<'a>>,
    scheme: SignatureScheme,
    signature: &'a [u8],
}

impl<'a> Proof<'a> {
    fn write(&self) -> Vec<u8> {
        let mut bytes = vec![self.chain.len() as u8];
        for certificate in &self.chain {
            bytes.extend((certificate.len() as u16).to_le_bytes());
            bytes.extend_from_slice(certificate);
        }
        bytes.extend(u16::from(self.scheme).to_le_bytes());
        bytes.extend_from_slice(self.signature);
        bytes
    }

    fn read(bytes: &'a [u8]) -> Option<Proof<'a>> {
        let (count, mut rest) = bytes.split_first()?;
        let mut chain = Vec::new();
        for _ in 0..usize::from(*count).min(MOST_CERTIFICATES) {
            let length = number(&mut rest)?;
            let (certificate, behind) = rest.split_at_checked(usize::from(length))?;
            chain.push(CertificateDer::from(certificate));
            rest = behind;
        }
        let scheme = SignatureScheme::from(number(&mut rest)?);
        Some(Proof { chain, scheme, signature: rest })
    }
}

fn number(bytes: &mut &[u8]) -> Option<u16> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u16::from_le_bytes(*first))
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use tempfile::TempDir;

    use super::*;
    use realm::{Access, init_ca, issue};

    /// An authority, and the hosts `cam` and `wall` with certificates of it.
    fn realm() -> (TempDir, Certified, Certified) {
        let folder = tempfile::tempdir().unwrap();
        init_ca(folder.path(), &"home".parse().unwrap()).unwrap();
        let certified = |host: &str| {
            issue(folder.path(), &host.parse().unwrap(), &[], folder.path(), 2).unwrap();
            let file = |name: String| folder.path().join(name);
            let (certificate, key) = (file(format!("{host}.pem")), file(format!("{host}.key")));
            let tls = Tls { ca: file("ca.pem".into()), certificate, key, print: 0, access: Access::default() };
            Certified::new(&tls).unwrap()
        };
        let hosts = (certified("cam"), certified("wall"));
        (folder, hosts.0, hosts.1)
    }

    fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
    }

    const DAY: u64 = 86_400_000_000_000;

    #[test]
    fn what_a_host_has_signed_all_hosts_of_the_realm_believe_and_it_fits() {
        let (_folder, cam, wall) = realm();
        let (host, proof) = ("cam".parse().unwrap(), cam.sign(b"video").unwrap());
        assert!(proof.len() <= qfabric_channel::Limits::PROOF / 4, "{} bytes", proof.len());
        for _ in 0..2 {
            assert!(wall.verifies(&host, now(), b"video", &proof));
            assert!(!wall.verifies(&host, now(), b"audio", &proof));
        }
    }

    #[test]
    fn nobody_signs_for_another_host() {
        let (_folder, cam, wall) = realm();
        let proof = cam.sign(b"video").unwrap();
        assert!(!wall.verifies(&"wall".parse().unwrap(), now(), b"video", &proof));
        assert!(!wall.verifies(&"cam".parse().unwrap(), now(), b"video", &wall.sign(b"video").unwrap()));
        // The certificate of one host with the signature of another.
        let [of_cam, of_wall] = [&cam, &wall].map(|notary| notary.sign(b"video").unwrap());
        let (cam_proof, wall_proof) = (Proof::read(&of_cam).unwrap(), Proof::read(&of_wall).unwrap());
        let mixed = Proof { chain: cam_proof.chain, ..wall_proof }.write();
        assert!(!wall.verifies(&"cam".parse().unwrap(), now(), b"video", &mixed));
    }

    #[test]
    fn another_authority_proves_nothing_nor_does_a_certificate_before_or_after_its_time() {
        let ((_folder, cam, wall), (_other, stranger, _)) = (realm(), realm());
        let host: Name = "cam".parse().unwrap();
        assert!(!wall.verifies(&host, now(), b"video", &stranger.sign(b"video").unwrap()));
        let proof = cam.sign(b"video").unwrap();
        for time in [0, now() - DAY, now() + 3 * DAY, u64::MAX] {
            assert!(!wall.verifies(&host, time, b"video", &proof), "{time}");
        }
        // The validity at the time of the creation counts, not today's.
        assert!(wall.verifies(&host, now() + DAY, b"video", &proof));
    }

    #[test]
    fn any_bytes_are_no_proof() {
        let (_folder, cam, wall) = realm();
        let (host, proof) = ("cam".parse().unwrap(), cam.sign(b"video").unwrap());
        for end in 0..proof.len() {
            assert!(!wall.verifies(&host, now(), b"video", &proof[..end]), "{end} bytes of it");
        }
        for at in 0..proof.len() {
            let mut other = proof.clone();
            other[at] ^= 1;
            assert!(!wall.verifies(&host, now(), b"video", &other), "byte {at} is another one");
        }
        assert!(!wall.verifies(&host, now(), b"video", &[255; 4096]));
    }
}
