//! QualMan's sample program (§6.4): the client of a video server reserves memory, network and CPU.
//!
//! `qfabric-qualman-sample INTERFACE ADDRESS FRAMES` receives frames at ADDRESS over UDP.
#![forbid(unsafe_code)]

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::Context;
use qfabric_client::{Allocation, Client, Cpu, JointBuilder, Mem, Nanos, Resource, Share};

const FRAME_BYTES: usize = 19_200; // 320 x 240 pixels, four in a byte
const PIXELS: usize = 76_800;
const FRAMES_PER_SECOND: u64 = 10;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, address, frames] = &arguments[..] else {
        anyhow::bail!("usage: qfabric-qualman-sample INTERFACE ADDRESS FRAMES");
    };
    let frames: u64 = frames.parse().context("FRAMES is not a number")?;
    let server = UdpSocket::bind(address).with_context(|| format!("cannot receive at {address}"))?;
    server.set_read_timeout(Some(Duration::from_secs(10)))?;
    let client = Client::connect()?;

    let mem = Mem::connect(&client)?;
    let reserve = mem.reserve(64 << 20)?; // bytes: the text with its libraries, and the buffers
    mem.lock_text(reserve)?;
    let display_buffer = mem.alloc(reserve, PIXELS as u64)?;
    let decoder_buffer = mem.alloc(reserve, FRAME_BYTES as u64)?;

    let network: Resource = format!("network {interface} in").parse()?;
    let rate = 8.0 * 1.2 * (FRAME_BYTES as u64 * FRAMES_PER_SECOND) as f64; // a fifth more for headers
    let connection = JointBuilder::new().want("", network, rate, rate)?.apply(&client)?;

    let play = || play(&server, &decoder_buffer, &display_buffer);
    let mut cpu = Cpu::new();
    let period = Nanos::from_millis(1_000 / FRAMES_PER_SECOND);
    cpu.probe_on(period); // begin of the probe
    for _ in 0..5 {
        play()?;
        cpu.yield_now(); // marks the end of one iteration
    }
    let probe = cpu.probe_off(); // end of the probe

    let utilisation = probe.utilisation + Share::from_ppm(20_000); // longer iterations may follow
    cpu.reserve(&client, std::process::id() as i32, utilisation, period)?;
    cpu.start();
    let mut brightness = 0;
    for _ in 0..frames {
        brightness = play()?;
        cpu.yield_now();
    }
    println!("{frames} frames, brightness {brightness}, {utilisation}, contract {}", connection.id());

    cpu.free_reserve()?;
    display_buffer.free()?;
    decoder_buffer.free()?;
    mem.free_reserve(reserve)?;
    connection.end()?;
    Ok(())
}

/// Receives, decodes and shows a frame; returns its brightness.
fn play(server: &UdpSocket, decoder_buffer: &Allocation, display_buffer: &Allocation) -> anyhow::Result<u64> {
    let mut frame = [0; FRAME_BYTES];
    let length = server.recv(&mut frame).context("no frame arrived within 10 s")?;
    anyhow::ensure!(length == FRAME_BYTES, "a frame has {length} bytes instead of {FRAME_BYTES}");
    decoder_buffer.write(0, &frame);
    decode(decoder_buffer, display_buffer);
    Ok(display(display_buffer))
}

/// Unpacks four pixels of each byte.
fn decode(decoder_buffer: &Allocation, display_buffer: &Allocation) {
    let (mut packed, mut pixels) = (vec![0; FRAME_BYTES], Vec::with_capacity(PIXELS));
    decoder_buffer.read(0, &mut packed);
    pixels.extend(packed.iter().flat_map(|byte| [byte >> 6, byte >> 4 & 3, byte >> 2 & 3, byte & 3]));
    display_buffer.write(0, &pixels);
}

/// Stands for a screen: the sum of all pixels.
fn display(display_buffer: &Allocation) -> u64 {
    let mut pixels = vec![0; PIXELS];
    display_buffer.read(0, &mut pixels);
    pixels.iter().map(|pixel| u64::from(*pixel)).sum()
}
