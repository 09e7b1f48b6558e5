//! `qfabric daemon`: the per-host service, in the foreground.

use std::path::PathBuf;

use qfabric_daemon::{Config, DaemonError, EngineName, InvalidConfig};
use qfabric_types::MechanismName;

use crate::exit::{Done, Failure, Outcome};

/// The per-host service, in the foreground; Ctrl-C or SIGTERM ends it and puts everything back.
///
/// SIGHUP reads the configuration again: the access list and the capacity change at once.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric daemon --config /etc/qfabric/daemon.toml")]
pub struct Args {
    /// Its configuration [default: /etc/qfabric/daemon.toml where it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of sockets and journal, instead of the configured one
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
    /// Which mechanism, instead of the configured one
    #[arg(long, value_parser = crate::contract::mechanisms())]
    mechanism: Option<MechanismName>,
    /// Only read and check the configuration
    #[arg(long)]
    check: bool,
}

/// Carries it out.
pub fn run(args: Args) -> Outcome {
    let config = args.configuration().map_err(Failure::usage)?;
    if args.check {
        return Ok(Done(0));
    }
    if config.channels.enabled && config.channels.engine == EngineName::Zenoh {
        qfabric_link::one_receive_thread();
    }
    qfabric_daemon::run_and_reload(config, move || args.configuration()).map_err(failure)?;
    Ok(Done(0))
}

impl Args {
    /// The file's configuration with what the command line says instead.
    fn configuration(&self) -> Result<Config, InvalidConfig> {
        let mut config = Config::load(self.config.as_deref())?;
        if let Some(directory) = &self.directory {
            config = config.in_directory(directory);
        }
        config.mechanism.name = self.mechanism.unwrap_or(config.mechanism.name);
        config.check()?;
        config.check_here()?;
        Ok(config)
    }
}

/// A mechanism that this kernel has not is no fault of the program's.
fn failure(error: DaemonError) -> Failure {
    match error {
        DaemonError::Mechanism(_) => Failure::unavailable(error),
        other => Failure::fault(other),
    }
}
