//! The calls to a daemon over its Unix socket.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use qfabric_types::api::energy::{EnergySaving, EnergyStatus};
use qfabric_types::api::memory::MemoryStatus;
use qfabric_types::api::timeline::Timeline;
use qfabric_types::api::web::WebPage;
use qfabric_types::api::{
    Application, ApplicationRequest, Claim, HostLimits, HostStatus, LimitsPatch, Problem, is_compatible,
};
use qfabric_types::{AppId, BitRate, Contract, Instant};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::ClientError;
use crate::http;

/// Sockets at which a daemon of this host may listen: only `$QFABRIC_SOCKET` if it is set, otherwise
/// `$XDG_RUNTIME_DIR/qfabric/qfabric.sock`, then `/run/qfabric/qfabric.sock`.
pub fn sockets() -> Vec<PathBuf> {
    candidates(env::var_os("QFABRIC_SOCKET").map(PathBuf::from), env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from))
}

fn candidates(chosen: Option<PathBuf>, runtime_dir: Option<PathBuf>) -> Vec<PathBuf> {
    if let Some(path) = chosen.filter(|path| !path.as_os_str().is_empty()) {
        return vec![path];
    }
    let own = runtime_dir.filter(|dir| dir.is_absolute()).map(|dir| dir.join("qfabric/qfabric.sock"));
    own.into_iter().chain([PathBuf::from("/run/qfabric/qfabric.sock")]).collect()
}

/// Client of a daemon. Cheap to clone. Every call opens a new connection, so the client survives a restart of the
/// daemon.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    patience: Duration,
    agent: ureq::Agent,
}

impl Client {
    /// Longest time that a call may take before it fails with [`ClientError::Timeout`]: 5 s.
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// Finds the daemon of this host (see [`sockets`]) and checks its version. Fails with [`ClientError::NoDaemon`]
    /// if no daemon answers, and with [`ClientError::Version`] if its minor version differs.
    pub fn connect() -> Result<Client, ClientError> {
        Client::connect_any(sockets())
    }

    /// Like [`Client::connect`], for the daemon that listens at `socket`.
    pub fn connect_to(socket: impl AsRef<Path>) -> Result<Client, ClientError> {
        Client::connect_any(vec![socket.as_ref().to_owned()])
    }

    fn connect_any(sockets: Vec<PathBuf>) -> Result<Client, ClientError> {
        let mut tried = Vec::new();
        for socket in sockets {
            match Client::new(socket, Client::PATIENCE).checked() {
                Err(ClientError::NoDaemon { tried: mut here }) => tried.append(&mut here),
                found => return found,
            }
        }
        Err(ClientError::NoDaemon { tried })
    }

    fn new(socket: PathBuf, patience: Duration) -> Client {
        let agent = http::agent(&socket, patience);
        Client { socket, patience, agent }
    }

    fn checked(self) -> Result<Client, ClientError> {
        #[derive(Deserialize)]
        struct Answering {
            version: String,
        }
        let daemon = self.get::<Answering>("/v1/status")?.version;
        let client = env!("CARGO_PKG_VERSION");
        if is_compatible(&daemon, client) { Ok(self) } else { Err(ClientError::Version { daemon, client }) }
    }

    /// The same client with a timeout of `patience` per call.
    pub fn with_patience(self, patience: Duration) -> Client {
        Client::new(self.socket, patience)
    }

    /// Path of the daemon's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Path of the socket beside it, from which the daemon hands out job rings.
    pub fn ring_socket(&self) -> PathBuf {
        self.socket.with_file_name("ring.sock")
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// Requests a contract. On [`ClientError::Refused`] nothing changed; the problem names the free capacity, its
    /// holders, and, if another host lends, an offer.
    pub fn admit(&self, request: &ApplicationRequest) -> Result<Application, ClientError> {
        request.contract.check()?;
        self.call("POST", "/v1/applications", Some(request))
    }

    /// Requests a contract, as [`Client::admit`] does. If this host refuses and another one lends, the loan also has
    /// `rate` out of a link of the lender; [`Offer::rate`](qfabric_types::api::Offer::rate) names the link. On this host,
    /// a stream reserves the rate.
    ///
    /// # Errors
    /// As for [`Client::admit`]; a rate of zero is refused.
    pub fn admit_with_rate(&self, request: &ApplicationRequest, rate: BitRate) -> Result<Application, ClientError> {
        request.contract.check()?;
        self.call("POST", &format!("/v1/applications?loan_rate={}", rate.get()), Some(request))
    }

    /// Requests a contract with a loan that this host keeps: [`Problem::offer`] in the other host's refusal has the
    /// claim.
    pub fn claim(&self, claim: &Claim, request: &ApplicationRequest) -> Result<Application, ClientError> {
        request.contract.check()?;
        self.call("POST", &format!("/v1/claims/{claim}"), Some(request))
    }

    /// Gives back a loan that another host keeps for an application of this host. Without this call the loan expires.
    pub fn give_back(&self, claim: &Claim) -> Result<(), ClientError> {
        self.exchange("DELETE", &format!("/v1/claims/{claim}"), None).map(drop)
    }

    /// Changes the contract of an application. Atomic: on a refusal the old contract stays in force. The contract in an
    /// [`Application`] has no profile, so a change made from it removes the profile unless you put it in again.
    pub fn change(&self, id: AppId, contract: &Contract) -> Result<Application, ClientError> {
        contract.check()?;
        self.call("PATCH", &format!("/v1/applications/{id}"), Some(contract))
    }

    /// Ends the contract of an application and returns its threads to their previous schedulers.
    pub fn release(&self, id: AppId) -> Result<(), ClientError> {
        self.exchange("DELETE", &format!("/v1/applications/{id}"), None).map(drop)
    }

    /// Status of the host: its capacity, the promised part, and the holders.
    pub fn status(&self) -> Result<HostStatus, ClientError> {
        self.get("/v1/status")
    }

    /// The account of energy since the daemon's start: joules of devices and applications, each with its source.
    pub fn energy(&self) -> Result<EnergyStatus, ClientError> {
        self.get("/v1/energy")
    }

    /// The address of the daemon's web page for this user. It has the user's token, so show it to this user alone.
    pub fn web_page(&self) -> Result<WebPage, ClientError> {
        self.call::<(), _>("POST", "/v1/web", None)
    }

    /// From now on the deadlines of an application are held at the lowest clock that suffices. The answer says what this
    /// host lacks; the application runs on in any case.
    pub fn save_energy(&self, id: AppId) -> Result<EnergySaving, ClientError> {
        self.call::<(), _>("PUT", &format!("/v1/applications/{id}/energy"), None)
    }

    /// The memory that is promised to the calling process, by `qfabric run --memory` or another contract for the whole
    /// program, with the notices of pressure and the larger promise that fits. `None`: no promise. A program asks for
    /// more with [`Client::change`].
    pub fn own_memory(&self) -> Result<Option<MemoryStatus>, ClientError> {
        let own = std::process::id() as i32;
        let of_process = self.applications()?.into_iter().filter(|app| app.pid == own);
        Ok(of_process.filter_map(|app| app.memory).next())
    }

    /// Limits set by the administrator.
    pub fn limits(&self) -> Result<HostLimits, ClientError> {
        self.get("/v1/limits")
    }

    /// Replaces all limits until the daemon's next start or reload; a refusal changes none. [`Client::change_limits`]
    /// keeps concurrent changes of other clients. Only root and the daemon's user may do this. Applications keep
    /// their guaranteed shares; the rest is divided again.
    pub fn set_limits(&self, limits: &HostLimits) -> Result<HostLimits, ClientError> {
        limits.check().map_err(|why| ClientError::value(why.problem()))?;
        self.call("PUT", "/v1/limits", Some(limits))
    }

    /// Changes some limits and keeps the others, in one step: two clients that change different limits at the same
    /// time do not undo each other's change. Returns all limits in force. Otherwise like [`Client::set_limits`].
    pub fn change_limits(&self, change: &LimitsPatch) -> Result<HostLimits, ClientError> {
        // The limits are independent: a value that is invalid beside the defaults is invalid beside any other limits.
        change.apply(&HostLimits::default()).map_err(|why| ClientError::value(why.problem()))?;
        self.call("PATCH", "/v1/limits", Some(change))
    }

    /// All applications under contract.
    pub fn applications(&self) -> Result<Vec<Application>, ClientError> {
        self.get("/v1/applications")
    }

    /// One application; fails with [`ClientError::Refused`] if the number is unknown.
    pub fn application(&self, id: AppId) -> Result<Application, ClientError> {
        self.get(&format!("/v1/applications/{id}"))
    }

    /// A page of what happened on this host in the last minute: the records from number `from` (0: the oldest one) and
    /// time `since` on, as far as this user may see them. The next page begins at [`Timeline::next`].
    pub fn timeline(&self, from: u64, since: Instant) -> Result<Timeline, ClientError> {
        self.get(&format!("/v1/timeline?from={from}&since_ns={}", since.get()))
    }

    pub(crate) fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, ClientError> {
        self.call::<(), A>("GET", path, None)
    }

    pub(crate) fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&Q>,
    ) -> Result<A, ClientError> {
        let body = body.map(|body| serde_json::to_vec(body).expect("the API's bodies are plain values"));
        Client::parsed(method, path, &self.exchange(method, path, body)?)
    }

    /// Reads the body of a successful answer.
    pub(crate) fn parsed<A: DeserializeOwned>(method: &str, path: &str, answer: &[u8]) -> Result<A, ClientError> {
        serde_json::from_slice(answer).map_err(|e| {
            let why = format!("the answer is not the expected JSON ({e}): {}", excerpt(answer));
            ClientError::Answer { call: format!("{method} {path}"), why }
        })
    }

    /// Returns the body of a successful answer; any other status is an error.
    pub(crate) fn exchange(&self, method: &str, path: &str, body: Option<Vec<u8>>) -> Result<Vec<u8>, ClientError> {
        let (status, body) = self.answer(method, path, body)?;
        Client::successful(method, path, status, body)
    }

    /// Returns the status and the body of an answer.
    pub(crate) fn answer(&self, method: &str, path: &str, body: Option<Vec<u8>>) -> Result<http::Answer, ClientError> {
        http::call(&self.agent, method, path, body).map_err(|error| self.classify(format!("{method} {path}"), error))
    }

    /// The body of an answer; an error unless its status means success.
    pub(crate) fn successful(method: &str, path: &str, status: u16, body: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        if (200..300).contains(&status) {
            return Ok(body);
        }
        Err(match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => ClientError::Refused(problem),
            Err(_) => {
                let why = format!("HTTP status {status}: {}", excerpt(&body));
                ClientError::Answer { call: format!("{method} {path}"), why }
            }
        })
    }

    fn classify(&self, call: String, error: ureq::Error) -> ClientError {
        match error {
            ureq::Error::Timeout(_) => ClientError::Timeout { call, seconds: self.patience.as_secs_f64() },
            // The listen queue stayed full until the timeout.
            ureq::Error::Io(why) if why.kind() == io::ErrorKind::WouldBlock => {
                ClientError::Timeout { call, seconds: self.patience.as_secs_f64() }
            }
            ureq::Error::Io(why) if has_no_listener(&why) => {
                ClientError::NoDaemon { tried: vec![(self.socket.clone(), why)] }
            }
            ureq::Error::Io(source) => ClientError::Broken { call, source },
            ureq::Error::BodyExceedsLimit(limit) => {
                ClientError::Answer { call, why: format!("the answer is longer than {limit} bytes") }
            }
            other => ClientError::Answer { call, why: other.to_string() },
        }
    }
}

/// True for the system errors that mean: the socket does not exist, has no listener, or may not be used by this user.
fn has_no_listener(why: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, InvalidFilename, NotADirectory, NotFound, PermissionDenied};
    matches!(why.kind(), NotFound | ConnectionRefused | PermissionDenied | NotADirectory | InvalidFilename)
}

fn excerpt(body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(&body[..body.len().min(160)]).chars().collect();
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_named_by_the_user_is_the_only_one_tried() {
        assert_eq!(candidates(Some("/tmp/x".into()), Some("/run/user/1".into())), [PathBuf::from("/tmp/x")]);
    }

    #[test]
    fn without_one_the_users_own_daemon_comes_before_the_hosts() {
        let found = candidates(None, Some("/run/user/1".into()));
        assert_eq!(found, ["/run/user/1/qfabric/qfabric.sock", "/run/qfabric/qfabric.sock"].map(PathBuf::from));
        assert_eq!(candidates(Some("".into()), Some("not/absolute".into())).len(), 1);
    }
}
