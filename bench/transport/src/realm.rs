//! Certificates for the engines over QUIC: a realm with both hosts, in the folder of the bench.

use std::path::{Path, PathBuf};

use anyhow::Result;
use qfabric_realm::{Tls, enlist, init_ca, issue};
use qfabric_types::channel::Name;

pub(crate) const SENDER: &str = "sender";
pub(crate) const RECEIVER: &str = "receiver";
/// A bench takes less.
const DAYS: u32 = 2;

/// The folder of the realm beside the file of the plan.
pub(crate) fn folder(plan: &Path) -> PathBuf {
    plan.with_file_name("realm")
}

/// Makes the realm.
pub(crate) fn make(folder: &Path) -> Result<()> {
    init_ca(folder, &"bench".parse()?)?;
    let hosts: [Name; 2] = [SENDER.parse()?, RECEIVER.parse()?];
    hosts.iter().try_for_each(|host| issue(folder, host, &[], folder, DAYS).map(drop))?;
    enlist(folder, &hosts)?;
    Ok(())
}

/// The identity of a host.
pub(crate) fn tls(folder: &Path, host: &str) -> Result<Tls> {
    Ok(Tls::from_folder(folder, &host.parse()?, &folder.join("access.toml"))?)
}
