//! Signed creations: a creator's proof lets other hosts believe a creation after the creator is gone.
//!
//! ```text
//! creator ── sign(statement) ──> proof ──with every holder's record──> verifies(creator, statement, proof)
//! ```
//! The statement contains the channel's name, its specification, the time of its creation and its creator. Only the
//! notary knows the contents of a proof: this crate has neither keys nor certificates.

use std::fmt;
use std::sync::Arc;

use qfabric_types::channel::{ChannelId, Name};

use crate::wire::Writer;
use crate::{Limits, Origin, Spec};

/// The first bytes of every statement, so that a signature made for another purpose is not valid for a creation.
const STATEMENT: &[u8] = b"Q-Fabric channel creation 1\0";

/// Signs creations of this host and verifies those of other hosts.
pub trait Notary: Send {
    /// The proof that this host has made the statement, of at most [`Limits::PROOF`] bytes. `None`: this host cannot
    /// sign.
    fn sign(&self, statement: &[u8]) -> Option<Vec<u8>>;

    /// Whether the proof shows that `creator` made the statement at that time.
    fn verifies(&self, creator: &Name, created_unix_ns: u64, statement: &[u8], proof: &[u8]) -> bool;
}

/// Shows that a channel was created by its creator. An empty proof shows nothing.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proof(Arc<[u8]>);

impl Proof {
    /// `None` if there are more than [`Limits::PROOF`] bytes.
    pub(crate) fn of(bytes: &[u8]) -> Option<Proof> {
        (bytes.len() <= Limits::PROOF).then(|| Proof(bytes.into()))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proof({} bytes)", self.0.len())
    }
}

/// The bytes that the creator of a channel signs.
pub(crate) fn statement(channel: &ChannelId, origin: &Origin, spec: &Spec) -> Vec<u8> {
    let mut bytes = STATEMENT.to_vec();
    let mut writer = Writer(&mut bytes);
    writer.channel(channel);
    writer.u64(origin.created_unix_ns);
    writer.short(origin.creator.as_str());
    writer.spec(spec);
    bytes
}

/// The proof of a creation of this host; empty without a notary, or if the notary cannot sign.
pub(crate) fn prove(notary: Option<&dyn Notary>, channel: &ChannelId, origin: &Origin, spec: &Spec) -> Proof {
    let proof = notary.and_then(|notary| notary.sign(&statement(channel, origin, spec)));
    proof.and_then(|bytes| Proof::of(&bytes)).unwrap_or_default()
}
