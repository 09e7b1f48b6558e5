//! QualMan's sample program (§6.4): the client of a video server reserves memory, network and CPU.
//!
//! `qfabric-qualman-sample INTERFACE SERVER TLS HOST FRAMES` receives frames over METP from the server at SERVER, which
//! comes through INTERFACE. TLS is the folder of certificates of this host, HOST its name in them.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::Context;
use qfabric_carrier::{ClientConnection, Connection, Mode, Options, Target, Tls};
use qfabric_client::{Client, Cpu, JointBuilder, Mem, Nanos, Resource, Share};

const FRAME_BYTES: usize = 19_200; // 320 x 240 pixels, four in a byte
const PIXELS: usize = 76_800;
const FRAMES_PER_SECOND: u64 = 10;
const MEMORY: u64 = 64 << 20; // bytes: the text with its libraries, and the buffers

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, address, tls, host, frames] = &arguments[..] else {
        anyhow::bail!("usage: qfabric-qualman-sample INTERFACE SERVER TLS HOST FRAMES");
    };
    let frames: u64 = frames.parse().context("FRAMES is not a number")?;
    let server = open(address, Path::new(tls), host)?;
    let client = Client::connect()?;

    let mut cpu = Cpu::new();
    let period = Nanos::from_millis(1_000 / FRAMES_PER_SECOND);
    let plain = |length| (0..length).map(|_| AtomicU8::new(0)).collect::<Vec<_>>();
    let (packed, pixels) = (plain(FRAME_BYTES), plain(PIXELS));
    cpu.probe_on(period); // begin of the probe
    for _ in 0..5 {
        play(&server, &packed, &pixels)?;
        cpu.yield_now(); // marks the end of one iteration
    }
    let probe = cpu.probe_off(); // end of the probe
    let utilisation = probe.utilisation + Share::from_ppm(20_000); // longer iterations may follow

    // All three resources, or none.
    let network: Resource = format!("network {interface} in").parse()?;
    let rate = 8.0 * 1.2 * (FRAME_BYTES as u64 * FRAMES_PER_SECOND) as f64; // a fifth more for headers
    let share = utilisation.as_f64();
    let request = JointBuilder::new().want("", Resource::Cpu, share, share)?.want("", network, rate, rate)?;
    let contract = request.want("", Resource::Memory, MEMORY as f64, MEMORY as f64)?.apply(&client)?;

    let mem = Mem::connect(&client)?;
    let reserve = mem.reserve_from(contract.id(), MEMORY)?;
    mem.lock_text(reserve)?;
    let display_buffer = mem.alloc(reserve, PIXELS as u64)?;
    let decoder_buffer = mem.alloc(reserve, FRAME_BYTES as u64)?;

    cpu.reserve_from(&client, contract.id(), std::process::id() as i32, utilisation, period)?;
    cpu.start();
    let mut brightness = 0;
    for _ in 0..frames {
        brightness = play(&server, decoder_buffer.bytes(), display_buffer.bytes())?;
        cpu.yield_now();
    }
    println!("{frames} frames, brightness {brightness}, {utilisation}, contract {}", contract.id());

    cpu.free_reserve()?;
    display_buffer.free()?;
    decoder_buffer.free()?;
    mem.free_reserve(reserve)?;
    contract.end()?;
    Ok(())
}

fn open(address: &str, tls: &Path, host: &str) -> anyhow::Result<ClientConnection> {
    let tls = Tls::from_folder(tls, &host.parse()?, &tls.join("access.toml"))?;
    let options = Options { mode: Mode::PartiallyReliable, ..Options::default() };
    Ok(ClientConnection::open(Target::new(address, "film".parse()?)?, tls, options)?)
}

/// Receives, decodes and shows a frame; returns its brightness.
fn play(server: &Connection, packed: &[AtomicU8], pixels: &[AtomicU8]) -> anyhow::Result<u64> {
    let frame = receive(server)?;
    packed.iter().zip(frame).for_each(|(byte, new)| byte.store(new, Relaxed));
    decode(packed, pixels);
    Ok(display(pixels))
}

/// The next frame that arrived completely.
fn receive(server: &Connection) -> anyhow::Result<Vec<u8>> {
    loop {
        let frame = server.receive(Duration::from_secs(10)).context("no frame arrived")?;
        let length = frame.data.len();
        anyhow::ensure!(length == FRAME_BYTES, "a frame has {length} bytes instead of {FRAME_BYTES}");
        if frame.holes.is_empty() {
            return Ok(frame.data);
        }
    }
}

/// Unpacks four pixels of each byte.
fn decode(packed: &[AtomicU8], pixels: &[AtomicU8]) {
    for (byte, four) in packed.iter().zip(pixels.chunks_exact(4)) {
        let byte = byte.load(Relaxed);
        four.iter().zip([6, 4, 2, 0]).for_each(|(pixel, shift)| pixel.store(byte >> shift & 3, Relaxed));
    }
}

/// Stands for a screen: the sum of all pixels.
fn display(pixels: &[AtomicU8]) -> u64 {
    pixels.iter().map(|pixel| u64::from(pixel.load(Relaxed))).sum()
}
