//! Runs one of the four examples from a terminal, over the loopback interface.
#![forbid(unsafe_code)]

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use qfabric_client::Client;
use qfabric_client::ecalls::Ecalls;
use qfabric_ecalls_examples::accelerator::Accelerator;
use qfabric_ecalls_examples::filter::Measurements;
use qfabric_ecalls_examples::{averages, requests};

const USAGE: &str =
    "usage: qfabric-ecalls-examples averages COUNT | requests PORT COUNT | filter PORT THRESHOLD | accelerator PORT";

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ecalls = Ecalls::connect(&Client::connect()?)?;
    match words[..] {
        ["averages", count] => show_averages(&ecalls, count.parse()?),
        ["requests", port, count] => serve_requests(&ecalls, port.parse()?, count.parse()?),
        ["filter", port, threshold] => show_measurements(&ecalls, port.parse()?, threshold.parse()?),
        ["accelerator", port] => accelerate(&ecalls, port.parse()?),
        _ => bail!(USAGE),
    }
}

fn show_averages(ecalls: &Ecalls, count: usize) -> Result<()> {
    for busy in averages::averages(ecalls, "1ms", count)? {
        println!("CPU 0 was busy {:.1} % of the time", busy as f64 / 10.0);
    }
    Ok(())
}

fn serve_requests(ecalls: &Ecalls, port: u16, count: usize) -> Result<()> {
    let socket = UdpSocket::bind(("127.0.0.1", port))?;
    for request in requests::serve(ecalls, "lo", &socket, count)? {
        println!("served {request:?}");
    }
    Ok(())
}

fn show_measurements(ecalls: &Ecalls, port: u16, threshold: i64) -> Result<()> {
    let mut measurements = Measurements::watch(ecalls, "lo", port, threshold)?;
    loop {
        let (sensor, value) = measurements.take()?;
        println!("sensor {sensor}: {value} ({} examined)", measurements.seen());
    }
}

fn accelerate(ecalls: &Ecalls, port: u16) -> Result<()> {
    let server = UdpSocket::bind(("127.0.0.1", port))?;
    let pages = vec![b"the first page".to_vec(), b"the second page".to_vec()];
    let mut accelerator = Accelerator::before(ecalls, "lo", &server, pages)?;
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, stop.clone())?;
    std::thread::spawn(move || serve_dynamic(&server));
    let answered = accelerator.answer(&stop)?;
    println!("{answered} answered before the server; {:?}", accelerator.counts()?);
    Ok(())
}

fn serve_dynamic(server: &UdpSocket) -> std::io::Result<()> {
    let mut request = [0; 512];
    loop {
        let (length, from) = server.recv_from(&mut request)?;
        println!("the server has {:?}", String::from_utf8_lossy(&request[..length]));
        server.send_to(b"made for you", from)?;
    }
}
