//! A client process: does one kind of work until its input ends, and prints a line for each operation and each error.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use qfabric_client::{Client, ClientError};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::kinds::{self, STRANGER};
use crate::progress::Progress;

/// Pause between two operations: a dozen clients share the machine with the daemons.
const PACE: Duration = Duration::from_millis(20);

/// Connections and state of a client.
pub(crate) struct Work {
    pub folder: PathBuf,
    pub peer: PathBuf,
    pub program: PathBuf,
    pub rng: ChaCha8Rng,
    stop: Arc<AtomicBool>,
}

/// Class of an error, for counting.
pub(crate) struct Failed(pub String);

pub(crate) type Done = Result<(), Failed>;

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Failed {
        let class = match error {
            ClientError::Refused(problem) => {
                let why: String = problem.message.chars().filter(|letter| !letter.is_ascii_digit()).take(60).collect();
                format!("{} ({why})", problem.code)
            }
            ClientError::NoDaemon { .. } => "no daemon".to_owned(),
            ClientError::Timeout { call, .. } => {
                format!("timeout of {}", call.split('/').take(3).collect::<Vec<_>>().join("/"))
            }
            ClientError::Broken { .. } => "broken".to_owned(),
            other => format!("{other:?}").chars().take_while(char::is_ascii_alphabetic).collect(),
        };
        Failed(class)
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Failed {
        use std::io::ErrorKind::{ConnectionRefused, NotFound};
        match error.kind() {
            ConnectionRefused | NotFound => Failed("no daemon".to_owned()),
            other => Failed(format!("{other:?}")),
        }
    }
}

impl From<rustix::io::Errno> for Failed {
    fn from(error: rustix::io::Errno) -> Failed {
        std::io::Error::from(error).into()
    }
}

impl Work {
    /// Reports a completed operation.
    pub(crate) fn done(&self) {
        self.say("+");
        std::thread::sleep(PACE);
    }

    /// Reports a failed operation; the client continues.
    pub(crate) fn failed(&self, class: &str) {
        self.say(&format!("-{class}"));
        std::thread::sleep(PACE);
    }

    fn say(&self, line: &str) {
        // The reader is gone: end the process.
        if writeln!(std::io::stdout().lock(), "{line}").is_err() {
            std::process::exit(0);
        }
    }

    pub(crate) fn goes_on(&self) -> bool {
        !self.stop.load(Relaxed)
    }

    pub(crate) fn client(&self) -> Result<Client, ClientError> {
        Client::connect_to(self.folder.join("qfabric.sock"))
    }

    pub(crate) fn peers_client(&self) -> Result<Client, ClientError> {
        Client::connect_to(self.peer.join("qfabric.sock"))
    }

    /// Sends a GET request; returns the whole answer if its status is a success.
    pub(crate) fn get(&self, path: &str) -> Result<String, Failed> {
        let mut socket = UnixStream::connect(self.folder.join("qfabric.sock"))?;
        socket.set_read_timeout(Some(Client::PATIENCE))?;
        socket.write_all(format!("GET {path} HTTP/1.1\r\nHost: q\r\nConnection: close\r\n\r\n").as_bytes())?;
        let mut text = String::new();
        socket.read_to_string(&mut text)?;
        match text.split(' ').nth(1) {
            Some("200") => Ok(text),
            Some(code) => Err(Failed(format!("HTTP {code}"))),
            None => Err(Failed("empty answer".to_owned())),
        }
    }
}

/// Entry of a client process: kind, folder, peer's folder, seed.
pub(crate) fn run(words: &[String], program: &Path) -> ExitCode {
    let [kind, folder, peer, seed] = words else { return ExitCode::FAILURE };
    let act = kinds::find(kind).expect("a kind").act;
    let stop = Arc::<AtomicBool>::default();
    let rng = ChaCha8Rng::seed_from_u64(seed.parse().expect("a number"));
    let mut work = Work { folder: folder.into(), peer: peer.into(), program: program.into(), rng, stop: stop.clone() };
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop.store(true, Relaxed);
    });
    while work.goes_on() {
        if let Err(Failed(class)) = act(&mut work) {
            work.failed(&class);
        }
    }
    ExitCode::SUCCESS
}

/// A running client, as seen by the soak.
pub(crate) struct Running {
    pub child: Child,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(
        kind: &'static kinds::Kind,
        folders: [&Path; 2],
        program: &Path,
        seed: u64,
        progress: &Arc<Progress>,
    ) -> Running {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("--program").arg(program).arg("--client").arg(kind.name).args(folders).arg(seed.to_string());
        if kind.anybody && seed % 2 == 1 {
            command.uid(STRANGER).gid(STRANGER);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (lines, progress) = (BufReader::new(child.stdout.take().unwrap()), progress.clone());
        let reader = std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                match line.strip_prefix('-') {
                    None => progress.done(kind.name),
                    Some(class) => progress.error(kind.name, class),
                }
            }
        });
        Running { child, reader: Some(reader) }
    }

    pub(crate) fn kill(&mut self) {
        // The process may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Closes the input and waits for the end.
    pub(crate) fn end(&mut self) {
        drop(self.child.stdin.take());
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        // A child of the client may hold the pipe for a moment.
        drop(self.reader.take());
    }
}
