//! The web page: files, guard and tokens around the API's own answers.
//!
//! The page reads the same paths as `qfabric status --json` and the other commands, through the same router, as the user
//! of its token. It changes nothing; only the policy laboratory starts and stops policies. The reasons are in
//! `docs/design/0053-web-page.md` and `docs/design/0057-policy-laboratory.md`.

mod assets;
mod config;
mod counts;
mod guard;
pub(crate) mod routes;
mod serve;
#[cfg(feature = "zenoh")]
mod tls;
#[cfg(not(feature = "zenoh"))]
#[path = "without_tls.rs"]
mod tls;
mod tokens;

use std::hash::{DefaultHasher, Hasher};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::HeaderValue;
use qfabric_linux::clock;
use qfabric_sync::{Lock, rank};
use qfabric_types::Instant;
use qfabric_types::api::Problem;
use qfabric_types::api::web::WebPage;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::auth::Peer;
use crate::problem;
use guard::Site;
use tls::{Acceptor, Handshakes};
use tokens::Tokens;

pub use config::WebConfig;
pub(crate) use counts::{WebReport, report};
pub(crate) use guard::is_local_name;
pub(crate) use serve::serve_web;

/// Opens the page to users and knows their tokens.
pub(crate) struct Web {
    config: WebConfig,
    /// `web.enabled` in force.
    enabled: AtomicBool,
    door: Lock<Door, { rank::WEB }>,
}

struct Door {
    /// Where the page is served; `None` before a user asked for it.
    address: Option<SocketAddr>,
    /// To the task that serves it.
    opened: Sender<TcpListener>,
    /// Accepts TLS, if the page has a certificate. Set before the page is enabled.
    tls: Option<Acceptor>,
    handshakes: Handshakes,
    tokens: Tokens,
}

impl Web {
    /// Listens at the configured address, if there is one. The receiver gets the listening socket when there is one.
    ///
    /// # Errors
    /// The page is enabled, and its certificate or the key cannot be used. A page that is off needs neither file.
    pub(crate) fn start(config: &WebConfig) -> Result<(Arc<Web>, Receiver<TcpListener>), Problem> {
        let (opened, receiver) = channel(1);
        let tls = if config.enabled { config.acceptor()? } else { None };
        let door = Door { address: None, opened, tls, handshakes: Default::default(), tokens: Tokens::default() };
        let web = Web { config: config.clone(), enabled: config.enabled.into(), door: Lock::new(door) };
        if let Err(why) = web.open_configured() {
            tracing::error!("{why}; until then there is no web page");
        }
        Ok((Arc::new(web), receiver))
    }

    /// Opens the configured address, if there is one and it is closed: another program may have had the port before.
    fn open_configured(&self) -> Result<(), String> {
        if !self.is_enabled() || self.config.listen.is_none() {
            return Ok(());
        }
        self.door.with(|door| door.open(&self.config)).map(drop)
    }

    /// The address of the page with the token of `peer`. Opens the page if it is closed.
    pub(crate) fn page(&self, peer: Peer) -> Result<WebPage, Problem> {
        if !self.is_enabled() {
            return Err(problem::web_off());
        }
        self.door.with(|door| {
            let address = door.open(&self.config).map_err(problem::web_closed)?;
            let token = door.tokens.issue(peer, tokens::random, clock::now())?;
            Ok(WebPage { url: format!("{}#token={token}", self.config.url(address)) })
        })
    }

    /// How browsers reach the page.
    fn site(&self) -> Site<'_> {
        Site { is_secured: self.config.certificate.is_some(), name: self.config.name.as_deref() }
    }

    /// What accepts TLS, if the page has a certificate.
    fn tls(&self) -> Option<Acceptor> {
        self.door.with(|door| door.tls.clone())
    }

    /// Whether a connection of this network may begin a TLS handshake now.
    fn may_begin_handshake(&self, network: IpAddr, now: std::time::Instant) -> bool {
        self.door.with(|door| door.handshakes.take(network, now))
    }

    /// Whether users can open the page and read it; at once, also with a token that they have. If they can, reads the
    /// certificate and its key again, for new connections. Open pages and tokens stay.
    ///
    /// # Errors
    /// The certificate or its key cannot be used. Then the former ones stay; without them the page stays closed,
    /// because it must not be served without TLS.
    pub(crate) fn configure(&self, enabled: bool) -> Result<(), Problem> {
        if !enabled {
            self.enabled.store(false, Ordering::Relaxed);
            return Ok(());
        }
        let (tls, failed) = match self.config.acceptor() {
            Ok(tls) => (tls, None),
            Err(problem) => (None, Some(problem)),
        };
        let has_former = self.door.with(|door| {
            door.tls = tls.or(door.tls.take());
            door.tls.is_some()
        });
        match failed {
            Some(problem) if !has_former => return Err(problem),
            _ => self.enabled.store(true, Ordering::Relaxed),
        }
        if let Err(why) = self.open_configured() {
            tracing::error!("{why}; until then there is no web page");
        }
        failed.map_or(Ok(()), Err)
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// The user of a token, if the user may send a further request.
    fn admit(&self, token: &str, now: Instant) -> Result<Peer, Problem> {
        if !self.is_enabled() {
            return Err(problem::web_off());
        }
        self.door.with(|door| door.tokens.admit(token, now))
    }
}

impl Door {
    fn open(&mut self, config: &WebConfig) -> Result<SocketAddr, String> {
        if let Some(address) = self.address {
            return Ok(address);
        }
        let listener = config.bind()?;
        let address = listener.local_addr().map_err(|error| format!("web.listen: {error}; start the service again"))?;
        let stopping = |_| "the service is stopping; start it again".to_owned();
        self.opened.try_send(listener).map_err(stopping)?;
        self.address = Some(address);
        tracing::info!(%address, "the web page is served");
        Ok(address)
    }
}

/// An entity tag of these bytes.
fn tag(bytes: &[u8]) -> HeaderValue {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    HeaderValue::from_str(&format!("\"{:016x}\"", hasher.finish())).expect("is plain text")
}

#[cfg(all(test, feature = "zenoh"))]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_renewed_certificate_is_used_and_one_that_cannot_be_used_is_not() {
        let folder = tempfile::tempdir().unwrap();
        qfabric_realm::init_ca(folder.path(), &"home".parse().unwrap()).unwrap();
        let issue = |out: &str| {
            let out = folder.path().join(out);
            qfabric_realm::issue(folder.path(), &"media".parse().unwrap(), &[], &out, 30).unwrap()
        };
        let (first, second) = (issue("first"), issue("second"));
        let (certificate, key) = (Some(first.certificate.clone()), Some(first.key.clone()));
        let config = WebConfig { certificate, key, ..WebConfig::default() };
        let (web, _opened) = Web::start(&config).unwrap();
        let in_use = || Arc::as_ptr(web.tls().unwrap().config());
        let before = in_use();
        fs::write(&first.certificate, "no PEM").unwrap();
        assert!(web.configure(true).unwrap_err().message.contains("web.certificate "));
        assert_eq!(in_use(), before, "the former certificate stays");
        fs::copy(&second.certificate, &first.certificate).unwrap();
        assert!(web.configure(true).is_err() && web.is_enabled(), "the key of another certificate");
        fs::copy(&second.key, &first.key).unwrap();
        web.configure(true).unwrap();
        assert_ne!(in_use(), before);
    }

    #[test]
    fn a_page_that_is_off_needs_no_certificate_and_does_not_open_without_it() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("web.pem"), folder.path().join("web.key"));
        let files = (Some(certificate.clone()), Some(key.clone()));
        let config = WebConfig { enabled: false, certificate: files.0, key: files.1, ..WebConfig::default() };
        let (web, _opened) = Web::start(&config).unwrap();
        web.configure(false).unwrap();
        let user = Peer { pid: 1, owner: qfabric_types::Owner { uid: 1_000, gid: 1_000 } };
        assert!(web.configure(true).unwrap_err().message.contains("web.certificate "));
        assert_eq!(web.page(user).unwrap_err().code, "web_off");
        qfabric_realm::init_ca(folder.path(), &"home".parse().unwrap()).unwrap();
        let issued = folder.path().join("media");
        let issued = qfabric_realm::issue(folder.path(), &"media".parse().unwrap(), &[], &issued, 30).unwrap();
        fs::copy(&issued.certificate, &certificate).unwrap();
        fs::copy(&issued.key, &key).unwrap();
        web.configure(true).unwrap();
        assert!(web.is_enabled() && web.tls().is_some());
        fs::remove_file(&key).unwrap();
        web.configure(false).unwrap();
        assert!(!web.is_enabled());
    }

    #[test]
    fn a_network_begins_a_bounded_number_of_handshakes_and_others_are_not_affected() {
        let (web, _opened) = Web::start(&WebConfig::default()).unwrap();
        let (one, other) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let begin = std::time::Instant::now();
        let begun = |network, seconds| {
            let now = begin + std::time::Duration::from_secs(seconds);
            (0..1_000).filter(|_| web.may_begin_handshake(network, now)).count()
        };
        assert_eq!((begun(one, 0), begun(one, 0), begun(other, 0)), (64, 0, 64));
        assert_eq!((begun(one, 1), begun(one, 60)), (16, 64));
    }
}
