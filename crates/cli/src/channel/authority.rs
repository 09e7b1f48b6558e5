//! `qfabric channel init-ca` and `issue`: hosts that believe each other, in two commands.

use std::path::{Path, PathBuf};

use qfabric_client::channel::Name;
use qfabric_link::security::{self, MAX_DAYS};

use crate::exit::{Done, Failure, Outcome};
use crate::output;

/// Makes the authority that all hosts of a realm share: certificate and key, in a folder.
///
/// Its key stays where it is; every host needs what `qfabric channel issue` makes with it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric channel init-ca ./authority --realm studio")]
pub struct InitArgs {
    /// The folder; made where it is missing
    folder: PathBuf,
    /// The realm, for people
    #[arg(long, default_value = "default")]
    realm: Name,
}

/// Makes hosts' certificates and keys, each in a folder to be copied to that host: its channels.tls.
///
/// The authority's folder keeps a list of all hosts, access.toml; each gets a copy. With one host, the files are in
/// --out itself; with several, each has a folder of its name there.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric channel issue cam-1 cam-2 wall --ca ./authority --out ./hosts
          qfabric channel issue cam-3 --ca ./authority --address 192.0.2.9 --out ./cam-3")]
pub struct IssueArgs {
    /// The hosts' names: channels.host in their configurations
    #[arg(required = true, value_name = "HOST")]
    hosts: Vec<Name>,
    /// The authority's folder
    #[arg(long, value_name = "FOLDER")]
    ca: PathBuf,
    /// Where the host is reached, once for each address, for other programs; with one host only
    #[arg(long = "address", value_name = "ADDRESS")]
    addresses: Vec<String>,
    /// Where to write ca.pem, HOST.pem, HOST.key and access.toml
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Days for which they are good
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DAYS)))]
    days: u32,
}

/// Carries `init-ca` out.
pub fn init(args: InitArgs) -> Outcome {
    let made = security::init_ca(&args.folder, &args.realm).map_err(Failure::fault)?;
    output::print(&format!(
        "{}: certificate, for every host\n{}: key, for nobody else\nnext: qfabric channel issue HOST … --ca {} --out FOLDER\n",
        made.certificate.display(),
        made.key.display(),
        args.folder.display()
    ))?;
    Ok(Done(0))
}

/// Carries `issue` out.
pub fn issue(args: IssueArgs) -> Outcome {
    let several = args.hosts.len() > 1;
    if several && !args.addresses.is_empty() {
        return Err(Failure::usage("--address is of one host; give them certificates one by one, or leave it out"));
    }
    let folders: Vec<_> = args.hosts.iter().map(|host| folder(&args.out, host, several)).collect();
    for (host, folder) in args.hosts.iter().zip(&folders) {
        let made = security::issue(&args.ca, host, &args.addresses, folder, args.days).map_err(Failure::fault)?;
        output::print(&format!(
            "{}: certificate of {host}, for {} days\n{}: key, mode 0600\n",
            made.certificate.display(),
            args.days,
            made.key.display()
        ))?;
    }
    // After the certificates: who got none does not take part.
    let list = security::enlist(&args.ca, &args.hosts).map_err(Failure::fault)?;
    for folder in &folders {
        security::hand_out(&list, folder).map_err(Failure::fault)?;
    }
    let (list, each) = (list.display(), folder(&args.out, &args.hosts[0], several));
    output::print(&format!(
        "{list}: who may do what; hosts that had theirs before need it anew, as access.toml\nnext: copy {} to {}; in its \
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
