//! TCP: one connection, frames one behind the other, with the kernel's congestion control of the given name. TCP has
//! no deadline and no granted rate; its sender blocks when the connection's buffer is full.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use anyhow::{Context, Result};
use rustix::net::sockopt::set_tcp_congestion;

use crate::conversation::Arrivals;
use crate::plan::{Frame, Kind};
use crate::play::Sender;
use crate::stamp::{STAMP, Stamp};

/// A connection to the receiver.
pub(crate) fn connect(address: SocketAddr, congestion: &str) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    set_tcp_congestion(&stream, congestion).with_context(|| {
        format!("the kernel has no congestion control {congestion}; try: modprobe tcp_{congestion}")
    })?;
    Ok(stream)
}

impl Sender for TcpStream {
    fn send(&mut self, frame: Vec<u8>, _: Kind, _: Stamp) -> Result<()> {
        Ok(self.write_all(&frame)?)
    }
}

/// Takes the frames of one connection.
pub(crate) fn receive(address: SocketAddr, frames: &[Frame], ready: impl FnOnce(), arrivals: &Arrivals) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
    ready();
    let mut stream = listener.accept()?.0;
    let (mut head, mut frame) = ([0; STAMP], Vec::new());
    while read_whole(&mut stream, &mut head)? {
        let stamp = Stamp::decode(&head, frames).context("a frame that is not in the plan")?;
        frame.resize(stamp.size as usize, 0);
        frame[..STAMP].copy_from_slice(&head);
        stream.read_exact(&mut frame[STAMP..])?;
        if stamp.fits(&frame) {
            arrivals.on_frame(stamp);
        }
    }
    loop {
        std::thread::park();
    }
}

/// False at the end of the connection.
fn read_whole(stream: &mut TcpStream, bytes: &mut [u8]) -> Result<bool> {
    match stream.read_exact(bytes) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        other => Ok(other.map(|()| true)?),
    }
}
