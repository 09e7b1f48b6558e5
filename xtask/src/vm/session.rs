//! One boot with its image, its output on the terminal, the files that it returns, and its exit codes.

use std::fs::File;
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use qfabric_vm_init::{BootScript, Frame, Stream};
use xshell::{Shell, cmd};

use super::image::Image;
use super::kernels::{Cache, Kernel};
use super::qemu::{Boot, End, Machine};

/// Result of one command.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Exit code; None if the machine ended before the command did.
    pub code: Option<u8>,
    /// Number of passed tests, if the command is a test program.
    pub passed: Option<u32>,
    /// Run time, by the host's clock.
    pub time: Duration,
}

/// Settings of a boot.
pub(super) struct Session<'a> {
    /// What boots.
    pub kernel: &'a Kernel,
    /// On what.
    pub machine: &'a Machine,
    /// Modules to load.
    pub modules: &'a [String],
    /// Commands to run.
    pub script: BootScript,
    /// Real time without output after which the machine is switched off.
    pub limit: Duration,
    /// Folder for files that the machine returns.
    pub out: &'a Path,
}

impl Session<'_> {
    /// Boots and runs the boot script: returns the result of each command, and how the boot ended.
    pub(super) fn run(self, image: Image, interrupted: &Arc<AtomicBool>) -> Result<(Vec<Outcome>, End)> {
        let folder = tempfile::Builder::new().prefix("qfabric-vm-").tempdir()?;
        let archive = folder.path().join("image");
        let mut record = Record::new(self.script.commands.len(), self.out);
        let sh = image.shell();
        image.write(self.kernel, self.script, self.modules, &archive)?;
        let (kernel, machine, limit) = (self.kernel, self.machine, self.limit);
        let boot = Boot { sh, kernel, image: &archive, folder: folder.path(), machine, limit };
        let end = boot.run(interrupted, &mut |frame| record.take(frame))?;
        Ok((record.outcomes, end))
    }
}

/// Builds the first process once, as a static program, because the machine has no libraries when it starts. In a
/// separate target folder, because different flags would rebuild everything at each change.
pub(super) fn build_init(sh: &Shell, cache: &Cache) -> Result<PathBuf> {
    const TRIPLE: &str = "x86_64-unknown-linux-gnu";
    let folder = cache.folder().join("init");
    let _flags = sh.push_env("RUSTFLAGS", "-C target-feature=+crt-static -C strip=symbols");
    cmd!(sh, "cargo build --quiet --locked --release -p qfabric-vm-init --target {TRIPLE} --target-dir {folder}")
        .quiet()
        .run()
        .context(
            "cannot build the machine's first process; cargo's errors are above (static libraries are in libc6-dev)",
        )?;
    Ok(folder.join(TRIPLE).join("release/qfabric-vm-init"))
}

/// A flag that is set by Ctrl-C and by SIGTERM.
pub(super) fn interruption() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(flag)
}

/// The results that the frames have reported so far.
struct Record<'a> {
    outcomes: Vec<Outcome>,
    running: Option<(usize, Instant)>,
    line: Vec<u8>,
    out: &'a Path,
    file: Option<File>,
}

impl<'a> Record<'a> {
    fn new(commands: usize, out: &'a Path) -> Record<'a> {
        let outcomes = (0..commands).map(|_| Outcome::default()).collect();
        Record { outcomes, running: None, line: Vec::new(), out, file: None }
    }

    fn take(&mut self, frame: Frame) {
        match frame {
            Frame::Hello(release) => println!("vm: Linux {release}"),
            Frame::Trouble(what) => println!("vm: {what}"),
            Frame::Start(number) => self.running = Some((number as usize, Instant::now())),
            Frame::Said(stream, bytes) => self.say(stream, &bytes),
            Frame::Exit(code) => self.exit(code),
            Frame::File(name) => self.file = self.open(&name),
            Frame::Content(bytes) => self.store(&bytes),
            Frame::Done => {}
        }
    }

    fn say(&mut self, stream: Stream, bytes: &[u8]) {
        // A closed terminal does not stop a test.
        let _ = match stream {
            Stream::Out => std::io::stdout().write_all(bytes).and_then(|()| std::io::stdout().flush()),
            Stream::Err => std::io::stderr().write_all(bytes),
        };
        if stream == Stream::Out {
            bytes.iter().for_each(|byte| self.scan(*byte));
        }
    }

    /// Collects the output line by line, and reads the number of passed tests from the last line of a test program.
    fn scan(&mut self, byte: u8) {
        if byte != b'\n' {
            return self.line.push(byte);
        }
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
        if let (Some(passed), Some((number, _))) = (passed(&line), self.running)
            && let Some(outcome) = self.outcomes.get_mut(number)
        {
            outcome.passed = Some(outcome.passed.unwrap_or(0) + passed);
        }
    }

    fn exit(&mut self, code: u8) {
        if let Some((number, start)) = self.running.take()
            && let Some(outcome) = self.outcomes.get_mut(number)
        {
            outcome.code = Some(code);
            outcome.time = start.elapsed();
        }
        self.line.clear();
    }

    /// Opens a file that the machine returns; refuses a name that leads out of the folder.
    fn open(&self, name: &str) -> Option<File> {
        let is_inside = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        let path = self.out.join(name);
        let made = std::fs::create_dir_all(path.parent().filter(|_| is_inside)?).and_then(|()| File::create(&path));
        match made {
            Ok(file) => {
                println!("vm: {}", path.display());
                Some(file)
            }
            Err(e) => {
                println!("vm: {}: {e}", path.display());
                None
            }
        }
    }

    fn store(&mut self, bytes: &[u8]) {
        if let Some(Err(e)) = self.file.as_mut().map(|file| file.write_all(bytes)) {
            println!("vm: a returned file is incomplete: {e}");
            self.file = None;
        }
    }
}

/// `test result: ok. 3 passed; 0 failed; …` → 3
fn passed(line: &str) -> Option<u32> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    counts.split_once(" passed")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_counted() {
        assert_eq!(passed("test result: ok. 3 passed; 0 failed; 0 ignored"), Some(3));
        assert_eq!(passed("test result: FAILED. 12 passed; 1 failed"), Some(12));
        assert_eq!(passed("3 passed"), None);
    }

    #[test]
    fn frames_become_outcomes_and_files() {
        let out = tempfile::tempdir().unwrap();
        let mut record = Record::new(2, out.path());
        let said = |text: &[u8]| Frame::Said(Stream::Out, text.to_vec());
        let files = ["a/b", "../c"].map(|name| Frame::File(name.to_owned()));
        let [inside, outside] = files;
        let frames = [Frame::Start(0), said(b"test result: ok. 2 pas"), said(b"sed; 0 failed\n"), Frame::Exit(3)];
        frames.into_iter().for_each(|frame| record.take(frame));
        [inside, Frame::Content(b"x".to_vec()), outside].into_iter().for_each(|frame| record.take(frame));
        assert_eq!((record.outcomes[0].code, record.outcomes[0].passed), (Some(3), Some(2)));
        assert_eq!(record.outcomes[1].code, None);
        assert_eq!(std::fs::read(out.path().join("a/b")).unwrap(), b"x");
        assert!(!out.path().parent().unwrap().join("c").exists());
    }
}
