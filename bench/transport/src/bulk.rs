//! A TCP flow that sends as much as it can, beside an engine.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result};

use crate::conversation::{answer, say, wait_for_go};
use crate::tcp;

/// Sends with Cubic, the kernel's default, from `go` on.
pub(crate) fn send(address: SocketAddr) -> Result<()> {
    let mut stream = tcp::connect(address, "cubic")?;
    say("ready");
    let cpu_at_go = wait_for_go();
    thread::spawn(move || answer(cpu_at_go, String::new));
    let bytes = vec![0x55; 64 << 10];
    loop {
        stream.write_all(&bytes)?;
    }
}

/// Counts the bytes that come after `go`.
pub(crate) fn receive(address: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
    let bytes = Arc::new(AtomicU64::new(0));
    let counted = bytes.clone();
    say("ready");
    thread::spawn(move || {
        let cpu_at_go = wait_for_go();
        let before = counted.load(Ordering::Relaxed);
        answer(cpu_at_go, || format!("bytes {}\n", counted.load(Ordering::Relaxed) - before))
    });
    let (mut stream, mut buffer) = (listener.accept()?.0, vec![0; 64 << 10]);
    loop {
        match stream.read(&mut buffer)? {
            // The sender ends before the receiver.
            0 => thread::park(),
            more => _ = bytes.fetch_add(more as u64, Ordering::Relaxed),
        }
    }
}
