//! Round trips of UDP packets between the two hosts.

use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::host::Site;

/// Answers every packet, until it is killed.
pub(crate) fn echo(address: &str) {
    let socket = UdpSocket::bind(address).expect("the address of this host");
    println!("ready");
    let mut buffer = [0; 64];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        socket.send_to(&buffer[..length], from).expect("sent");
    }
}

/// Prints the nanoseconds of each round trip.
pub(crate) fn ask(address: &str, count: usize) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect(address).expect("a route");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    let mut buffer = [0; 64];
    for _ in 0..count {
        let since = Instant::now();
        socket.send(&[7; 32]).expect("sent");
        socket.recv(&mut buffer).expect("an echo");
        println!("{}", since.elapsed().as_nanos());
    }
}

/// Measures round trips from host 0 to host 1.
pub(crate) fn measure(site: &Site, count: usize) -> Vec<Duration> {
    let address = format!("{}:7800", site.lan.address(1));
    let mut echo = start(site, 1, &["echo", &address]);
    let mut ready = String::new();
    BufReader::new(echo.stdout.take().expect("piped")).read_line(&mut ready).expect("the echo starts");
    let mut asking = start(site, 0, &["ask", &address, &count.to_string()]);
    let lines = BufReader::new(asking.stdout.take().expect("piped")).lines();
    let times = lines.map(|line| Duration::from_nanos(line.expect("a line").parse().expect("nanoseconds"))).collect();
    assert!(asking.wait().expect("it ends").success());
    echo.kill().expect("it runs");
    echo.wait().expect("it ends");
    times
}

fn start(site: &Site, host: usize, words: &[&str]) -> Child {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{}", site.lan.namespace(host)));
    command.arg(std::env::current_exe().expect("this program")).args(words);
    command.stdout(Stdio::piped()).spawn().expect("nsenter of util-linux")
}
