//! nginx with one static page, as fast as its documentation says how to make it.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::load::{Generator, on_cpu};
use crate::{HERE, Outcome, PORT};

/// Attempts to connect, 10 ms apart.
const ATTEMPTS: u32 = 6_000;

/// A running server. Dropping it ends the server, and removes its files.
#[derive(Debug)]
pub(crate) struct Nginx {
    child: Child,
    _folder: TempDir,
}

impl Nginx {
    /// Starts one worker on the CPU of the servers, with a page of `bytes` at `/hi`, in the network namespace of the
    /// calling thread. Waits until it accepts connections.
    pub(crate) fn start(bytes: usize, generator: &Generator) -> Outcome<Nginx> {
        let folder = tempfile::tempdir()?;
        let at = folder.path();
        fs::write(at.join("hi"), "a static page\n".repeat(bytes.div_ceil(14)).split_at(bytes).0)?;
        fs::write(at.join("nginx.conf"), configuration(at))?;
        let mut command = on_cpu("nginx", generator.server);
        let child = command.arg("-p").arg(at).arg("-c").arg(at.join("nginx.conf")).spawn()?;
        let mut nginx = Nginx { child, _folder: folder };
        for _ in 0..ATTEMPTS {
            if generator.connect().is_ok() {
                return Ok(nginx);
            }
            if let Some(status) = nginx.child.try_wait()? {
                return Err(format!("nginx ended before it accepted connections ({status})").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("nginx does not accept connections".into())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        if let Err(error) = kill_process(Pid::from_child(&self.child), Signal::TERM) {
            eprintln!("nginx: {error}");
        }
        let _ = self.child.wait();
    }
}

/// Files are sent without a copy and kept open; nothing is logged; connections are not closed.
fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "daemon off; worker_processes 1; user root; pid {folder}/pid; error_log {folder}/error.log crit;
events {{ worker_connections 1024; }}
http {{
  access_log off; server_tokens off; default_type text/plain; keepalive_timeout 75s; keepalive_requests 1000000000;
  sendfile on; tcp_nopush on; tcp_nodelay on; open_file_cache max=16; open_file_cache_valid 75s;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{ listen {HERE}:{PORT} backlog=511; root {folder}; }}
}}
"
    )
}

/// Fails if a program is not installed, and names the Debian package that contains it.
pub(crate) fn require(program: &str, package: &str) -> Outcome<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
        return Ok(());
    }
    Err(format!("{program} is not installed (Debian: apt-get install {package})").into())
}
