//! TCP beside an engine: a flow that sends as much as it can, or series of files with pauses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use qfabric_netlab::SHORT_TCP;
use qfabric_types::RandomNumbers;

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

/// Sends the files of RFC 8867 §5.7 from `go` on, each over a connection of its own; `shorten` divides files and pauses.
pub(crate) fn send_files(address: SocketAddr, seed: u64, shorten: f64) -> Result<()> {
    say("ready");
    let cpu_at_go = wait_for_go();
    for flow in 0..SHORT_TCP.flows {
        let mut numbers = RandomNumbers::new(seed.wrapping_mul(1_000).wrapping_add(flow as u64));
        thread::spawn(move || -> Result<()> {
            let mut is_file = flow < SHORT_TCP.begin_at_once;
            loop {
                if is_file {
                    let (least, most) = (*SHORT_TCP.bytes.start(), *SHORT_TCP.bytes.end());
                    let bytes = (least + numbers.draw() % (most - least + 1)) as f64 / shorten;
                    tcp::connect(address, "cubic")?.write_all(&vec![0x55; bytes as usize])?;
                } else {
                    let seconds = -SHORT_TCP.mean_pause * (1.0 - numbers.uniform()).ln() / shorten;
                    thread::sleep(Duration::from_secs_f64(seconds));
                }
                is_file = !is_file;
            }
        });
    }
    answer(cpu_at_go, String::new)
}

/// Counts the bytes of all connections that come after `go`.
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
    loop {
        let (mut stream, bytes) = (listener.accept()?.0, bytes.clone());
        thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            // An error is an end, too.
            while let Some(more) = stream.read(&mut buffer).ok().filter(|more| *more > 0) {
                bytes.fetch_add(more as u64, Ordering::Relaxed);
            }
        });
    }
}
