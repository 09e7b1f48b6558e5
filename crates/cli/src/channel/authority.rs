//! `qfabric channel init-ca` and `issue`: hosts that believe each other, in two commands.

use std::path::PathBuf;

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

/// Makes a host's certificate and key, to be copied into its folder channels.tls.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric channel issue cam-1 --ca ./authority --address 192.0.2.7 --out ./cam-1")]
pub struct IssueArgs {
    /// The host's name: channels.host in its configuration
    host: Name,
    /// The authority's folder
    #[arg(long, value_name = "FOLDER")]
    ca: PathBuf,
    /// Where the host is reached, once for each address
    #[arg(long = "address", value_name = "ADDRESS")]
    addresses: Vec<String>,
    /// Where to write ca.pem, HOST.pem and HOST.key
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Days for which it is good
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DAYS)))]
    days: u32,
}

/// Carries `init-ca` out.
pub fn init(args: InitArgs) -> Outcome {
    let made = security::init_ca(&args.folder, &args.realm).map_err(Failure::fault)?;
    output::print(&format!(
        "{}: certificate, for every host\n{}: key, for nobody else\nnext: qfabric channel issue HOST --ca {} --out FOLDER\n",
        made.certificate.display(),
        made.key.display(),
        args.folder.display()
    ))?;
    Ok(Done(0))
}

/// Carries `issue` out.
pub fn issue(args: IssueArgs) -> Outcome {
    let IssueArgs { host, ca, addresses, out, days } = args;
    let made = security::issue(&ca, &host, &addresses, &out, days).map_err(Failure::fault)?;
    output::print(&format!(
        "{}: certificate of {host}, for {days} days\n{}: key, mode 0600\nnext: copy {} to the host; in its \
         daemon.toml, section [channels]: enabled = true, host = \"{host}\", tls = \"THAT FOLDER\", and write its \
         access.toml\n",
        made.certificate.display(),
        made.key.display(),
        out.display()
    ))?;
    Ok(Done(0))
}
