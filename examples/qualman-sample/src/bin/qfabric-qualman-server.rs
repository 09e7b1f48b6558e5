//! The video server of QualMan's sample program: sends ten frames in a second to one client, over METP.
//!
//! `qfabric-qualman-server INTERFACE ADDRESS TLS HOST` waits at ADDRESS for the client, which is reached through INTERFACE.
#![forbid(unsafe_code)]

use std::path::Path;
use std::time::Duration;

use qfabric_carrier::{FrameKind, Mode, Options, ServerConnection, Tls, resolve};
use qfabric_client::{BitRate, Client, Nanos};

static FRAME: [u8; 19_200] = [0b0101_0101; 19_200]; // 320 x 240 pixels of the brightness 1, four in a byte
const PERIOD: Duration = Duration::from_millis(100);
const DELAY: Duration = Duration::from_millis(300); // the longest time from end to end
const RATE: BitRate = BitRate::new(1_843_200); // bits per second: a fifth more than the frames, for headers

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [interface, address, tls, host] = &arguments[..] else {
        anyhow::bail!("usage: qfabric-qualman-server INTERFACE ADDRESS TLS HOST");
    };
    let tls = Path::new(tls);
    let identity = Tls::from_folder(tls, &host.parse()?, &tls.join("access.toml"))?;
    let options = Options { mode: Mode::PartiallyReliable, ..Options::default() };
    let server = ServerConnection::register("film".parse()?, resolve(address)?, identity, options)?;
    println!("listens on {}", server.address());
    let client = server.accept(Duration::from_secs(60))?;
    let period = Nanos::new(PERIOD.as_nanos() as u64);
    let rate = client.reserve(&Client::connect()?, interface, RATE, period, None)?;
    println!("{} is served, {rate} are reserved", client.peer());
    while client.ended().is_none() {
        // While the queue is full, frames are left out.
        let _ = client.send(FrameKind::I, FRAME.to_vec(), Some(DELAY), Duration::ZERO);
        std::thread::sleep(PERIOD);
    }
    Ok(())
}
