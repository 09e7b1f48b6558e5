//! Finding the daemon, or being it: `run` works on a host where nobody set up a service.

use std::path::{Path, PathBuf};

use qfabric_client::{Client, ClientError};
use qfabric_daemon::{Config, Embedded};
use qfabric_types::MechanismName;

use crate::exit::Failure;

/// A daemon to talk to. An embedded one puts everything back when dropped.
pub struct Service {
    /// The way to it.
    pub client: Client,
    embedded: Option<Embedded>,
}

impl Service {
    /// The daemon at `socket`; without one, the daemon of this host, else one inside this process, with `mechanism`
    /// where its configuration leaves that open.
    pub fn find(socket: Option<&Path>, mechanism: MechanismName) -> Result<Service, Failure> {
        match (daemon(socket), socket) {
            (Ok(client), _) => Ok(Service { client, embedded: None }),
            (Err(failure), Some(_)) => Err(failure),
            (Err(_), None) => Service::embed(mechanism),
        }
    }

    fn embed(mechanism: MechanismName) -> Result<Service, Failure> {
        let mut config = Config::load(None).map_err(Failure::usage)?;
        if mechanism != MechanismName::Auto {
            config.mechanism.name = mechanism;
        }
        let embedded = Embedded::start(config).map_err(|error| {
            Failure::unavailable(format!("{error}\nno daemon answers either; see what qfabric doctor finds"))
        })?;
        let client = Client::connect_to(embedded.socket()).map_err(failure)?;
        Ok(Service { client, embedded: Some(embedded) })
    }

    /// Where it is, for people.
    pub fn place(&self) -> String {
        match &self.embedded {
            Some(_) => "this process (no daemon found)".to_owned(),
            None => format!("the daemon at {}", self.client.socket().display()),
        }
    }
}

/// Where the daemon is, for commands that need a running one: what is opened or attached inside this process would end
/// with it.
#[derive(clap::Args, Debug, Default)]
pub struct Daemon {
    /// The daemon's socket [default: searched for]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Daemon {
    /// The way to it.
    pub fn client(&self) -> Result<Client, Failure> {
        daemon(self.socket.as_deref())
    }
}

/// A running daemon; there must be one.
pub fn daemon(socket: Option<&Path>) -> Result<Client, Failure> {
    match socket {
        Some(path) => Client::connect_to(path),
        None => Client::connect(),
    }
    .map_err(failure)
}

/// The failure that a client's error is to this program's user.
pub fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::NoDaemon { .. } => Failure::unavailable(error),
        ClientError::Refused(problem) if problem.code == "mechanism" => {
            Failure::unavailable(format!("{}; see what qfabric doctor finds", problem.message))
        }
        ClientError::Refused(problem) if problem.code == "unavailable" || problem.code == "channels_off" => {
            Failure::unavailable(problem)
        }
        ClientError::Refused(problem) => Failure::problem(&problem),
        ClientError::Contract(error) => Failure::usage(error),
        ClientError::Value(why) => Failure::usage(why),
        ClientError::NotSubmitted { why, .. } => Failure::refused(why),
        other => Failure::fault(other),
    }
}
