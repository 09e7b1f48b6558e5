//! A daemon of the soak: starts it, makes it read its configuration again, ends it, kills it.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use qfabric_client::Client;
use rustix::process::{Pid, Signal, kill_process};

use crate::kinds::STRANGER;

/// Timeout that ends a hanging soak.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// One of the two daemons.
pub(crate) struct Daemon {
    pub folder: PathBuf,
    program: PathBuf,
    config: String,
    child: Option<Child>,
}

/// The end of a daemon by SIGTERM.
pub(crate) struct End {
    pub took: Duration,
    /// A thread hung or got no CPU, so the daemon ended the process without it, with all threads restored.
    pub is_forced: bool,
}

impl Daemon {
    /// `number` is 0 or 1. The daemon is not started yet.
    pub(crate) fn new(below: &Path, program: &Path, number: usize, mechanism: &str) -> Daemon {
        let folder = below.join(format!("h{number}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        // The two daemons share the machine, so their capacities do not overlap.
        let capacity = ["0.9", "0.4"][number];
        let port = |host: usize| format!("127.0.0.1:{}", 7710 + 10 * host);
        let config = format!(
            "[limits]\ncapacity = {capacity}\n[mechanism]\nname = '{mechanism}'\n[control]\nbudget = '0ms'\n\
             lock_memory = false\n[ecalls.users]\n{STRANGER} = ['*']\n[channels]\nenabled = true\nhost = 'h{number}'\n\
             insecure = true\nlisten = ['{}']\nconnect = ['{}']\nlend = 'first'\n[log]\nfilter = 'error'\n",
            port(number),
            port(1 - number),
        );
        Daemon { folder, program: program.to_owned(), config, child: None }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.join("qfabric.sock")
    }

    fn log(&self) -> PathBuf {
        self.folder.with_extension("log")
    }

    /// Writes the configuration with this limit of threads, which shows later that the file was read.
    fn write_config(&self, threads: usize) {
        let text = self.config.replacen("[limits]\n", &format!("[limits]\nmax_threads = {threads}\n"), 1);
        std::fs::write(self.folder.with_extension("toml"), text).unwrap();
    }

    /// Starts the daemon and waits until it answers.
    pub(crate) fn start(&mut self) -> Result<(), String> {
        self.write_config(256);
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let mut command = Command::new(&self.program);
        command
            .arg("daemon")
            .arg("--config")
            .arg(self.folder.with_extension("toml"))
            .arg("--directory")
            .arg(&self.folder);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap());
        let until = Instant::now() + PATIENCE;
        while Client::connect_to(self.socket()).is_err() {
            if let Some(ended) = self.child.as_mut().unwrap().try_wait().unwrap() {
                self.child = None;
                return Err(format!("a daemon does not start ({ended}): {}", self.end_of_log()));
            }
            if Instant::now() > until {
                return Err(format!("a daemon does not answer within {PATIENCE:?}: {}", self.end_of_log()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The last lines of the log.
    fn end_of_log(&self) -> String {
        let log = self.log_lines();
        log[log.len().saturating_sub(5)..].join(" | ")
    }

    /// All lines of the log.
    pub(crate) fn log_lines(&self) -> Vec<String> {
        std::fs::read_to_string(self.log()).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Fails if the daemon ended by itself.
    pub(crate) fn check_running(&mut self) -> Result<(), String> {
        let Some(ended) = self.child.as_mut().and_then(|child| child.try_wait().unwrap()) else { return Ok(()) };
        self.child = None;
        Err(format!("a daemon ended by itself with {ended}: {}", self.end_of_log()))
    }

    /// Makes the daemon read a configuration with this limit of threads.
    pub(crate) fn reload(&self, threads: usize) {
        self.write_config(threads);
        self.signal(Signal::HUP);
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            kill_process(Pid::from_child(child), signal).unwrap();
        }
    }

    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        if let Some(mut child) = self.child.take() {
            child.wait().unwrap();
        }
    }

    /// True if a thread of the daemon got no CPU or hung: after 4.5 s the daemon ended the process and restored all
    /// threads from the journal.
    fn ended_without_a_thread(&self) -> bool {
        let end = self.end_of_log();
        end.contains("ending the process without it") && end.contains("every thread is restored")
    }

    /// Sends SIGTERM; returns the time until the end, and how it ended.
    pub(crate) fn terminate(&mut self) -> Result<End, String> {
        self.check_running()?;
        let since = Instant::now();
        self.signal(Signal::TERM);
        let Some(child) = &mut self.child else { return Ok(End { took: Duration::ZERO, is_forced: false }) };
        while child.try_wait().unwrap().is_none() {
            if since.elapsed() > PATIENCE {
                let stuck = format!("a daemon does not end within {PATIENCE:?} of SIGTERM: {}", self.end_of_log());
                self.kill();
                return Err(stuck);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let ended = self.child.take().unwrap().wait().unwrap();
        let (took, is_forced) = (since.elapsed(), !ended.success());
        match !is_forced || self.ended_without_a_thread() {
            true => Ok(End { took, is_forced }),
            false => Err(format!("a daemon ends by SIGTERM with {ended}: {}", self.end_of_log())),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}
