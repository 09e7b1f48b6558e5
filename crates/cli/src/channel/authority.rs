//! `qfabric channel init-ca` and `issue`: create the certificates by which the hosts of a realm trust each other.

use std::path::{Path, PathBuf};

use qfabric_client::channel::Name;
use qfabric_realm::{self as realm, MAX_DAYS};

use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Creates the certificate authority of a realm: a certificate and a key in a folder.
///
/// Keep the key in this folder; no host needs it. Ends with 1 if the folder cannot be written. Next step: `qfabric
/// channel issue` creates the certificates of the hosts.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric channel init-ca ./authority --realm studio")]
pub(super) struct InitArgs {
    /// Folder for the certificate and the key; it is created if it is missing
    folder: PathBuf,
    /// Name of the realm, 1 to 64 characters; only for people
    #[arg(long, default_value = "default")]
    realm: Name,
}

/// Creates certificates and keys for hosts of a realm.
///
/// Copy each folder to its host, and name it as channels.tls in daemon.toml. Also adds the hosts to the access list,
/// access.toml, in the folder of the authority, and writes a copy for each host. With one host, the files are in the
/// folder of --out; with several hosts, each has a subfolder with its name. Hosts with an older access.toml need the
/// new one: copy it and run `qfabric channel reload` there.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric channel issue cam-1 cam-2 wall --ca ./authority --out ./hosts
          qfabric channel issue cam-3 --ca ./authority --address 192.0.2.9 --out ./cam-3")]
pub(super) struct IssueArgs {
    /// Names of the hosts: channels.host in their daemon.toml
    #[arg(required = true, value_name = "HOST")]
    hosts: Vec<Name>,
    /// Folder of the authority that `qfabric channel init-ca` created
    #[arg(long, value_name = "FOLDER")]
    ca: PathBuf,
    /// Address to put into the certificate for other programs; may be repeated; with one host only
    #[arg(long = "address", value_name = "ADDRESS")]
    addresses: Vec<String>,
    /// Folder for ca.pem, HOST.pem, HOST.key and access.toml
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Number of days for which the certificates are valid, 1 to 3650
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DAYS)))]
    days: u32,
}

pub(super) fn init(args: InitArgs) -> Outcome {
    let made = realm::init_ca(&args.folder, &args.realm).map_err(Failure::fault)?;
    output::print(&format!(
        "{}: certificate, for every host\n{}: key, keep it secret\nnext: qfabric channel issue HOST … --ca {} --out FOLDER\n",
        made.certificate.display(),
        made.key.display(),
        args.folder.display()
    ))?;
    Ok(Done(0))
}

pub(super) fn issue(args: IssueArgs) -> Outcome {
    let several = args.hosts.len() > 1;
    if several && !args.addresses.is_empty() {
        return Err(Failure::usage("--address is for one host; issue the certificates one by one, or leave it out"));
    }
    let folders: Vec<_> = args.hosts.iter().map(|host| folder(&args.out, host, several)).collect();
    for (host, folder) in args.hosts.iter().zip(&folders) {
        let made = realm::issue(&args.ca, host, &args.addresses, folder, args.days).map_err(Failure::fault)?;
        output::print(&format!(
            "{}: certificate of {host}, for {} days\n{}: key, mode 0600\n",
            made.certificate.display(),
            args.days,
            made.key.display()
        ))?;
    }
    // After the certificates: a host without a certificate must not be in the access list.
    let list = realm::enlist(&args.ca, &args.hosts).map_err(Failure::fault)?;
    for folder in &folders {
        realm::hand_out(&list, folder).map_err(Failure::fault)?;
    }
    let (list, each) = (list.display(), folder(&args.out, &args.hosts[0], several));
    output::print(&format!(
        "{list}: access list; copy it to the hosts that have an older access.toml\nnext: copy {} to {}; in its \
         daemon.toml, section [channels]: enabled = true, host = \"{}\", tls = \"THAT FOLDER\", listen, connect\n",
        each.display(),
        args.hosts[0],
        args.hosts[0]
    ))?;
    Ok(Done(0))
}

fn folder(out: &Path, host: &Name, several: bool) -> PathBuf {
    if several { out.join(host.as_str()) } else { out.to_owned() }
}
