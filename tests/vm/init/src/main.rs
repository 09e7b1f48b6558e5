//! The first process of the test machine. It mounts what programs expect, loads modules, runs the errand's commands
//! as children (a test must not be process 1: signals and some kernel functions refuse it), collects orphans, and
//! sends everything back in frames. When it has said that it is done it waits: the host switches the machine off,
//! so that nothing can be lost on the way.
#![forbid(unsafe_code)]

mod commands;
mod files;
mod setup;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use qfabric_vm_init::{ERRAND, Errand, Frame, PORT};

/// The way to the host, shared by the threads that read a command's outputs.
#[derive(Clone)]
pub struct Host(Arc<Mutex<File>>);

impl Host {
    /// Sends a frame; a machine that cannot has no other way to say so than the console.
    pub fn send(&self, frame: &Frame) {
        let mut port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(e) = frame.write(&mut *port) {
            eprintln!("init: the host does not hear: {e}");
        }
    }
}

fn main() {
    if std::process::id() != 1 {
        eprintln!("this is the first process of a test machine: see `xtask vm`");
        std::process::exit(2);
    }
    match errand() {
        Ok((host, errand)) => carry_out(&host, &errand),
        Err(e) => eprintln!("init: {e}"),
    }
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn errand() -> Result<(Host, Errand), Box<dyn std::error::Error>> {
    let refused = setup::mount_all();
    let errand = Errand::decode(&fs::read(ERRAND)?)?;
    // The port's own driver may be among the modules: what fails is told once there is a port.
    let failed = setup::load(&errand.modules);
    let host = Host(Arc::new(Mutex::new(File::options().write(true).open(port()?)?)));
    let troubles = refused.into_iter().chain(failed).chain(setup::prepare());
    host.send(&Frame::Hello(setup::release()));
    troubles.for_each(|trouble| host.send(&Frame::Trouble(trouble)));
    Ok((host, errand))
}

fn carry_out(host: &Host, errand: &Errand) {
    for (number, command) in (0..).zip(&errand.commands) {
        host.send(&Frame::Start(number));
        let code = commands::run(host, command);
        host.send(&Frame::Exit(code));
    }
    files::send(host);
    host.send(&Frame::Done);
}

/// The device of the port with our name; its driver may still be looking for it.
fn port() -> Result<PathBuf, String> {
    for _ in 0..500 {
        if let Some(port) = find_port() {
            return Ok(port);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(format!("no virtio port is called {PORT}: the kernel lacks virtio_console or virtio_pci"))
}

fn find_port() -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?;
    let is_ours = |port: &Path| fs::read_to_string(port.join("name")).is_ok_and(|name| name.trim() == PORT);
    let port = ports.flatten().find(|port| is_ours(&port.path()))?;
    Some(Path::new("/dev").join(port.file_name())).filter(|device| device.exists())
}
