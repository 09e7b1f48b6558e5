//! A connection: it reads requests and answers them until the client or the server ends it.
//!
//! ```text
//!   ┌──── all sent, keep-alive ─────────┐
//!   v                                   │
//! Serving ── head complete ── answer ── send ── all sent, close ──> closed
//!   │ refused                            │
//!   └── answer ── send ── Lingering ── the client ended, or the time limit passed ──> closed
//! ```
//! After a refusal, unread bytes may be left. Closing the socket then would send a reset that can overtake the
//! answer. Therefore the connection lingers: it sends no more data, and reads until the client has ended its side
//! too.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::http::{self, Parsed};
use crate::site::Site;

/// Number of requests of one connection that are answered before other connections are served.
const REQUESTS_PER_TURN: usize = 4;

/// What a connection waits for after it was advanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To receive bytes from the client.
    Read,
    /// For space in the send buffer.
    Write,
    /// For nothing: it answered as many requests as it may in a row and goes on after the other connections.
    Again,
    Closed,
}

#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    phase: Phase,
    /// Number of complete answers sent.
    pub replies: u64,
    /// Number of bytes sent. Only sent bytes count as progress: a request that arrives byte by byte makes none.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Requests are accepted.
    Serving,
    /// `output` holds the last answer.
    Ending,
    /// `output` holds the last answer, and bytes of the client may be unread.
    Refusing,
    /// No more data is sent.
    Lingering,
}

impl Connection {
    /// Creates a connection from an accepted non-blocking socket.
    pub fn new(socket: OwnedFd) -> Connection {
        Connection {
            socket,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            phase: Phase::Serving,
            replies: 0,
            bytes: 0,
        }
    }

    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Whether the connection waits between two requests, without a part of a request or an answer in its buffers.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Serving && self.input.is_empty() && self.output.is_empty()
    }

    /// Reads, answers and sends as much as is possible without waiting.
    pub fn advance(&mut self, site: &Site) -> Next {
        self.step(site).unwrap_or_else(|error| match error.kind() {
            io::ErrorKind::WouldBlock if self.output.is_empty() => Next::Read,
            io::ErrorKind::WouldBlock => Next::Write,
            _ => Next::Closed,
        })
    }

    fn step(&mut self, site: &Site) -> io::Result<Next> {
        let mut left = REQUESTS_PER_TURN;
        loop {
            self.flush()?;
            match self.phase {
                Phase::Ending => return Ok(Next::Closed),
                Phase::Refusing => self.linger()?,
                Phase::Serving if left == 0 => return Ok(Next::Again),
                Phase::Serving | Phase::Lingering => {}
            }
            if self.phase == Phase::Serving && self.take_request(site) {
                left -= 1;
            } else if self.fill()? == 0 {
                return Ok(Next::Closed);
            }
        }
    }

    fn linger(&mut self) -> io::Result<()> {
        self.phase = Phase::Lingering;
        Ok(shutdown(self.socket.as_fd(), Shutdown::Write)?)
    }

    /// Parses the request in the buffer and appends its answer to `output`. Returns false if no request is
    /// complete.
    fn take_request(&mut self, site: &Site) -> bool {
        match http::parse(&self.input) {
            Parsed::Partial => return false,
            Parsed::Request(request, length) => {
                site.answer(&request, &mut self.output);
                self.phase = if request.keep_alive { Phase::Serving } else { Phase::Ending };
                self.input.drain(..length);
            }
            Parsed::Refused(status) => {
                let body = format!("{}\n", status.line());
                http::answer(&mut self.output, status, body.as_bytes(), false, false);
                self.phase = Phase::Refusing;
            }
        }
        true
    }

    /// Sends the rest of `output`.
    fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.output.len() {
            let sent = send(self.socket.as_fd(), &self.output[self.sent..], SendFlags::NOSIGNAL)?;
            self.sent += sent;
            self.bytes += sent as u64;
        }
        if !self.output.is_empty() {
            self.replies += 1;
            self.output.clear();
            self.sent = 0;
        }
        Ok(())
    }

    /// Reads the bytes that have arrived. 0: the client ended its side.
    fn fill(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 4 << 10];
        let (count, _) = recv(self.socket.as_fd(), &mut bytes, RecvFlags::empty())?;
        if self.phase == Phase::Serving {
            self.input.extend_from_slice(&bytes[..count]);
        }
        Ok(count)
    }

    /// Accepts no further request. If an answer is being sent, it is the last one.
    pub fn finish(&mut self) {
        if self.phase == Phase::Serving {
            self.phase = Phase::Ending;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::work::Work;

    fn pair() -> (UnixStream, Connection) {
        let (client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        client.set_nonblocking(true).unwrap();
        (client, Connection::new(server.into()))
    }

    fn site() -> Site {
        Site::new(Work { rounds: 1 })
    }

    fn received(client: &mut UnixStream) -> String {
        let mut bytes = vec![0; 1 << 16];
        let count = client.read(&mut bytes).unwrap_or_default();
        String::from_utf8(bytes[..count].to_vec()).unwrap()
    }

    #[test]
    fn a_request_in_pieces_is_answered_when_it_is_whole() {
        let (mut client, mut connection) = pair();
        for byte in b"GET / HTTP/1.1\r\n\r" {
            client.write_all(&[*byte]).unwrap();
            assert_eq!(connection.advance(&site()), Next::Read);
        }
        client.write_all(b"\n").unwrap();
        assert_eq!(connection.advance(&site()), Next::Read);
        assert!(connection.is_idle() && received(&mut client).starts_with("HTTP/1.1 200 OK"));
    }

    #[test]
    fn many_requests_in_a_row_leave_turns_to_others() {
        let (mut client, mut connection) = pair();
        client.write_all("GET /work HTTP/1.1\r\n\r\n".repeat(REQUESTS_PER_TURN + 1).as_bytes()).unwrap();
        assert_eq!(connection.advance(&site()), Next::Again);
        assert_eq!(connection.replies, REQUESTS_PER_TURN as u64);
        assert_eq!(connection.advance(&site()), Next::Read);
        assert_eq!(received(&mut client).matches("200 OK").count(), REQUESTS_PER_TURN + 1);
    }

    #[test]
    fn garbage_after_a_request_is_answered_and_ends_the_connection() {
        let (mut client, mut connection) = pair();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n\0\x01garbage\r\n\r\nmore").unwrap();
        assert_eq!(connection.advance(&site()), Next::Read);
        let text = received(&mut client);
        assert!(text.starts_with("HTTP/1.1 200 ") && text.contains("HTTP/1.1 400 "), "{text}");
        drop(client);
        assert_eq!(connection.advance(&site()), Next::Closed);
    }

    #[test]
    fn a_client_that_reads_slowly_gets_all_of_it() {
        let (mut client, mut connection) = pair();
        let mut site = site();
        site.page = vec![b'#'; 2 << 20];
        client.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        assert_eq!(connection.advance(&site), Next::Write);
        let mut total = 0;
        loop {
            total += received(&mut client).matches('#').count();
            match connection.advance(&site) {
                Next::Write => {}
                next => break assert_eq!(next, Next::Closed),
            }
        }
        drop(connection);
        let mut rest = Vec::new();
        client.set_nonblocking(false).unwrap();
        client.read_to_end(&mut rest).unwrap();
        assert_eq!(total + rest.iter().filter(|b| **b == b'#').count(), 2 << 20);
    }
}
