//! HTTP over a Unix socket: a [`ureq`] transport that connects to a path.
//!
//! Each call opens a connection: calls are rare, a restarted daemon is found at once, and the daemon reads the
//! caller's credentials from the new connection. Size and time are bounded: an answer has at most [`MAX_BODY`] bytes,
//! and one deadline covers the whole call, so a peer that sends slowly cannot extend it.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use qfabric_types::api::LIBRARY_AGENT;
use rustix::net::sockopt::{Timeout as Direction, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use ureq::config::Config;
use ureq::http::{Request, Uri};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport};
use ureq::{Agent, Error};

/// Largest answer in bytes; longer answers are an error. The status of a full host with 1000 applications is shorter.
pub(crate) const MAX_BODY: u64 = 1 << 20;

/// HTTP status code and body of an answer.
pub(crate) type Answer = (u16, Vec<u8>);

/// An agent that connects to the socket at `path`; each call takes at most `patience`.
pub(crate) fn agent(path: &Path, patience: Duration) -> Agent {
    let config = Config::builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .max_idle_connections(0)
        .max_response_header_size(16 << 10)
        .timeout_global(Some(patience))
        .user_agent(format!("{LIBRARY_AGENT}{}", env!("CARGO_PKG_VERSION")))
        .build();
    Agent::with_parts(config, UnixConnector { path: path.to_owned(), patience }, NoResolver)
}

/// Makes one call. `path` starts with a slash; `body` is JSON.
pub(crate) fn call(agent: &Agent, method: &str, path: &str, body: Option<Vec<u8>>) -> Result<Answer, Error> {
    let request = Request::builder().method(method).uri(format!("http://qfabric{path}"));
    let mut response = match body {
        Some(json) => agent.run(request.header("content-type", "application/json").body(json)?)?,
        // Bytes of known length go out with the head. The end of a body of unknown length could meet a closed socket.
        None if matches!(method, "POST" | "PUT" | "PATCH") => agent.run(request.body(Vec::<u8>::new())?)?,
        None => agent.run(request.body(())?)?,
    };
    let body = response.body_mut().with_config().limit(MAX_BODY).read_to_vec()?;
    Ok((response.status().as_u16(), body))
}

/// Resolves no names, because the address is a path.
#[derive(Debug)]
struct NoResolver;

impl Resolver for NoResolver {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        addresses.push(SocketAddr::from(([0, 0, 0, 0], 0)));
        Ok(addresses)
    }
}

#[derive(Debug)]
struct UnixConnector {
    path: PathBuf,
    patience: Duration,
}

impl<In: Transport> Connector<In> for UnixConnector {
    type Out = UnixTransport;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<In>) -> Result<Option<UnixTransport>, Error> {
        let patience = details.timeout.not_zero().map_or(self.patience, |left| *left);
        let stream = dial(&self.path, patience)?;
        let buffers = LazyBuffers::new(details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(UnixTransport { stream, buffers }))
    }
}

/// Connects within `patience`, because a daemon that does not accept connections must not block its callers.
fn dial(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Direction::Send, Some(patience))?;
    rustix::io::retry_on_intr(|| connect(&socket, &SocketAddrUnix::new(path)?))?;
    Ok(socket.into())
}

#[derive(Debug)]
struct UnixTransport {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl Transport for UnixTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let UnixTransport { stream, buffers } = self;
        let mut left = &buffers.output()[..amount];
        within(timeout, |patience| {
            stream.set_write_timeout(Some(patience))?;
            while !left.is_empty() {
                let sent = stream.write(left)?;
                left = &left[sent..];
            }
            Ok(())
        })
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let UnixTransport { stream, buffers } = self;
        let space = buffers.input_append_buf();
        let amount = within(timeout, |patience| {
            stream.set_read_timeout(Some(patience))?;
            stream.read(space)
        })?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        false // never reused
    }
}

/// Repeats `step` after signals until it succeeds or the timeout is over.
fn within<T>(timeout: NextTimeout, mut step: impl FnMut(Duration) -> io::Result<T>) -> Result<T, Error> {
    let spent = || Error::Timeout(timeout.reason);
    let patience = timeout.not_zero().map_or(Duration::from_secs(60), |left| *left);
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(spent());
        }
        match step(left) {
            Ok(value) => return Ok(value),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => return Err(spent()),
            Err(e) => return Err(e.into()),
        }
    }
}
