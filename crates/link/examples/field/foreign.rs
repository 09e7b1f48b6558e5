//! Rivals in C: compiled at their first use, if the machine has the libraries (Debian: `libzmq3-dev`; `cyclonedds-dev`,
//! `cyclonedds-tools`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{env, fs};

const PLAYER: &str = include_str!("foreign/player.h");
const ZMQ: &str = include_str!("foreign/zmq.c");
const DDS: &str = include_str!("foreign/dds.c");
const IDL: &str = include_str!("foreign/event.idl");

/// Cyclone on one interface, by unicast, with as many participants as there are sinks.
pub(crate) fn dds_settings(interface: &str, peers: &[&str]) -> String {
    let peers: String = peers.iter().map(|peer| format!("<Peer address=\"{peer}\"/>")).collect();
    format!(
        "<CycloneDDS><Domain><General><Interfaces><NetworkInterface name=\"{interface}\"/></Interfaces>\
         <AllowMulticast>false</AllowMulticast></General><Discovery><ParticipantIndex>auto</ParticipantIndex>\
         <MaxAutoParticipantIndex>120</MaxAutoParticipantIndex><Peers>{peers}</Peers></Discovery></Domain></CycloneDDS>"
    )
}

/// The rival's program; `None`: the rival is not in C. The error names the missing part.
pub(crate) fn program(rival: &str) -> Option<Result<PathBuf, String>> {
    static ZMQ_PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    static DDS_PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match rival {
        "zmq" => Some(ZMQ_PROGRAM.get_or_init(zmq).clone()),
        "dds" => Some(DDS_PROGRAM.get_or_init(dds).clone()),
        _ => None,
    }
}

fn folder() -> Result<PathBuf, String> {
    let folder = env::temp_dir().join(format!("qfabric-rivals-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    put(&folder, "player.h", PLAYER)?;
    Ok(folder)
}

/// Removes the compiled programs and their files.
pub(crate) fn clean() {
    let _ = fs::remove_dir_all(env::temp_dir().join(format!("qfabric-rivals-{}", std::process::id())));
}

fn put(folder: &Path, name: &str, text: &str) -> Result<(), String> {
    fs::write(folder.join(name), text).map_err(|error| error.to_string())
}

fn zmq() -> Result<PathBuf, String> {
    let folder = folder()?;
    put(&folder, "zmq.c", ZMQ)?;
    run(&folder, "cc", &["-O2", "-o", "zmq", "zmq.c", "-lzmq", "-lpthread"])?;
    Ok(folder.join("zmq"))
}

fn dds() -> Result<PathBuf, String> {
    let folder = folder()?;
    put(&folder, "dds.c", DDS)?;
    put(&folder, "event.idl", IDL)?;
    run(&folder, "idlc", &["event.idl"])?;
    run(&folder, "cc", &["-O2", "-o", "dds", "dds.c", "event.c", "-lddsc", "-lpthread"])?;
    Ok(folder.join("dds"))
}

fn run(folder: &Path, program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {}", said())) }
}
