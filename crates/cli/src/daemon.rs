//! `qfabric daemon`: runs the service of this host in the foreground.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use qfabric_daemon::{Config, DaemonError, EngineName, InvalidConfig, LogLevel};
use qfabric_types::MechanismName;

use crate::exit::{Advice, Done, Failure, Outcome};

/// Runs the daemon of this host in the foreground.
///
/// Runs until Ctrl-C or SIGTERM. At its end the daemon restores all threads and host settings that it has changed.
/// SIGHUP makes it read its configuration again, and apply it except for the keys that the log names. Tables [[contract]]
/// of the configuration give units and control groups their contracts whenever they run. Ends with 2 if the
/// configuration is invalid, and with 4 if the required mechanism does not work on this kernel: run `qfabric doctor`
/// then.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric daemon --config /etc/qfabric/daemon.toml")]
pub(crate) struct Args {
    /// Configuration file [default: /etc/qfabric/daemon.toml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder for the sockets and the journal, instead of the configured folder
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
    /// Mechanism to use, instead of the configured mechanism
    #[arg(long, value_parser = crate::contract::mechanisms())]
    mechanism: Option<MechanismName>,
    /// Least important lines to log, instead of the configured filter and of $QFABRIC_LOG
    #[arg(long, value_name = "LEVEL", value_parser = levels())]
    log_level: Option<LogLevel>,
    /// Check the configuration and end; 0 if it is valid, 2 if not
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let config = args.configuration().map_err(|error| Failure::usage(Advice(&error.problem())))?;
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
    /// Reads the configuration file and replaces its values by those of the command line.
    fn configuration(&self) -> Result<Config, InvalidConfig> {
        let mut config = Config::load(self.config.as_deref())?;
        if let Some(directory) = &self.directory {
            config = config.in_directory(directory);
        }
        config.mechanism.name = self.mechanism.unwrap_or(config.mechanism.name);
        config.log.level = self.log_level;
        config.check()?;
        config.check_here()?;
        Ok(config)
    }
}

fn levels() -> impl TypedValueParser<Value = LogLevel> {
    let named = |name: String| LogLevel::ALL.into_iter().find(|level| level.name() == name).unwrap_or(LogLevel::Info);
    PossibleValuesParser::new(LogLevel::ALL.map(LogLevel::name)).map(named)
}

/// A mechanism that this kernel does not offer is no fault of the program: exit code 4 instead of 1.
fn failure(error: DaemonError) -> Failure {
    let problem = error.problem();
    match error {
        DaemonError::Mechanism(_) => Failure::unavailable(Advice(&problem)),
        _ => Failure::fault(Advice(&problem)),
    }
}
