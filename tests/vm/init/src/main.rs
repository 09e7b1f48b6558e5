//! The first process of the test machine. It mounts the file systems that programs expect, loads modules, runs the
//! boot script's commands as children, collects orphans, and sends all results as frames. A test must not be process 1,
//! because process 1 cannot receive some signals and some kernel functions refuse it. After the last frame this
//! process waits, and the host switches the machine off, so that no frame is lost.
#![forbid(unsafe_code)]

mod commands;
mod files;
mod setup;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qfabric_vm_init::{BOOT_SCRIPT, BootScript, Frame, PORT};

/// The port to the host, shared by the threads that read the outputs of a command.
#[derive(Clone)]
pub struct Host(Arc<Mutex<File>>);

impl Host {
    /// Sends a frame. If this fails, only the console is left to report it.
    pub fn send(&self, frame: &Frame) {
        let mut port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(e) = frame.write(&mut *port) {
            eprintln!("init: cannot send to the host: {e}");
        }
    }
}

fn main() {
    if std::process::id() != 1 {
        eprintln!("this program only runs as the first process of a test machine; use `xtask vm`");
        std::process::exit(2);
    }
    match script() {
        Ok((host, script)) => run_commands(&host, &script),
        Err(e) => eprintln!("init: {e}"),
    }
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn script() -> Result<(Host, BootScript), Box<dyn std::error::Error>> {
    let refused = setup::mount_all();
    let script = BootScript::decode(&fs::read(BOOT_SCRIPT)?)?;
    // The driver of the port may be among the modules. Failures are sent as soon as the port is open.
    let failed = setup::load(&script.modules);
    let host = Host(Arc::new(Mutex::new(File::options().write(true).open(port()?)?)));
    let troubles = refused.into_iter().chain(failed).chain(setup::prepare());
    host.send(&Frame::Hello(setup::release()));
    troubles.for_each(|trouble| host.send(&Frame::Trouble(trouble)));
    Ok((host, script))
}

fn run_commands(host: &Host, script: &BootScript) {
    for (number, command) in (0..).zip(&script.commands) {
        host.send(&Frame::Start(number));
        let code = commands::run(host, command);
        host.send(&Frame::Exit(code));
    }
    files::send(host);
    host.send(&Frame::Done);
}

/// Finds the device of the port by its name. Waits up to 5 s, because its driver may still be starting.
fn port() -> Result<PathBuf, String> {
    for _ in 0..500 {
        if let Some(port) = find_port() {
            return Ok(port);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(format!("no virtio port has the name {PORT}; the kernel may lack virtio_console or virtio_pci"))
}

fn find_port() -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    let has_our_name = |port: &Path| fs::read_to_string(port.join("name")).is_ok_and(|name| name.trim() == PORT);
    let port = ports.flatten().find(|port| has_our_name(&port.path()))?;
    Some(Path::new("/dev").join(port.file_name())).filter(|device| device.exists())
}
