//! The machine of a reader: an interface, a film, files that the pages name, and a daemon.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::Line;

/// Longest time of a command, and of the wait for a daemon. It decides only whether a test hangs.
const PATIENCE: Duration = Duration::from_secs(600);
/// A command that fails beside others is repeated for this time, because what it needs from them may not be there yet.
const BESIDE: Duration = Duration::from_secs(120);
/// The code of a shell whose command Ctrl-C has ended.
const INTERRUPTED: i32 = 130;

/// In the namespaces of mounts and networks that the test has made.
const NAMESPACES: &str = "mount --make-rprivate / && mount -t tmpfs none /run && mkdir /run/etc /run/work && \
    mount -t overlay none -o lowerdir=/etc,upperdir=/run/etc,workdir=/run/work /etc && mkdir -p /etc/qfabric && \
    cp daemon.toml /etc/qfabric && ip link set lo up && ip link add eth0 type veth peer name far && \
    ip addr add 10.0.0.1/24 dev eth0 && ip link set eth0 up && ip link set far up";

/// Two seconds of a picture that moves.
const FILM: &str = "ffmpeg -loglevel error -f lavfi -i testsrc2=size=176x144:rate=25:duration=2 -c:v mpeg4 film.mkv";

/// Programs of the reader: players decode the film in real time; no desktop has a browser here; the reader is root.
const PROGRAMS: [(&str, &str); 8] = [
    ("mpv", PLAYER),
    ("player", PLAYER),
    ("pinned", PLAYER),
    ("prog", PLAYER),
    ("anything", PLAYER),
    ("decide", "true"),
    ("xdg-open", "true"),
    ("sudo", "[ \"$1\" != -E ] || shift; exec \"$@\""),
];
const PLAYER: &str = "exec ffmpeg -loglevel error -re -i film.mkv -f null - </dev/null";

/// Files that pages name without showing them.
const FILES: [(&str, &str); 7] = [
    ("frame.h", "struct frame { int number; };"),
    ("f.ec", "return 1;"),
    ("g.ec", "return 1;"),
    ("small.ec", "return input.number < get_attribute(most);"),
    ("calm.ec", "struct output { long rate_milli; };\noutput.rate_milli = 12500;\nreturn 1;"),
    ("stream.toml", "[video]\nframe_rate = 25\nframe_size = \"8kB\"\n[local]\ncomputation = \"1ms\"\n"),
    ("tasks.json", "[{\"id\": \"T1\", \"period\": 3, \"service\": 1, \"window\": [1, 2]}]"),
];

const CONFIGURATION: &str = "[channels]\nenabled = true\nengine = \"none\"\nhost = \"alpha\"\n";

pub(crate) struct Host {
    folder: TempDir,
    /// Below the folder: where the commands of the present page run.
    place: PathBuf,
}

/// A process with its children, ended when dropped.
pub(crate) struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.0.wait();
    }
}

impl Group {
    fn signal(&self, signal: Signal) {
        // Fails if all have ended.
        let _ = kill_process_group(Pid::from_child(&self.0), signal);
    }

    /// The code with which it ended; none: it runs after that time.
    fn ends(&mut self, patience: Duration) -> Option<i32> {
        let until = Instant::now() + patience;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return Some(status.code().unwrap_or(-1));
            }
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Host {
    pub(crate) fn new(root: &Path) -> Host {
        let folder = tempfile::tempdir().unwrap();
        let host = Host { place: folder.path().to_owned(), folder };
        fs::create_dir(host.place.join("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_qfabric"), host.place.join("bin/qfabric")).unwrap();
        symlink(root.join("examples"), host.place.join("examples")).unwrap();
        for (name, text) in PROGRAMS {
            let program = host.place.join("bin").join(name);
            fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(host.place.join("daemon.toml"), CONFIGURATION).unwrap();
        for preparation in [NAMESPACES, FILM] {
            assert_eq!(host.start(preparation).ends(PATIENCE), Some(0), "{preparation}\n{}", host.printed("output"));
        }
        host
    }

    /// Makes a folder for the page, with the programs and files that it names, and those that it shows: the line before
    /// such a block ends with the file's name.
    pub(crate) fn turn_to(&mut self, name: &str, page: &str) {
        let all = self.folder.path();
        self.place = all.join(name);
        fs::create_dir(&self.place).unwrap();
        let programs = PROGRAMS.map(|(name, _)| (format!("bin/{name}"), name));
        let others = ["film.mkv", "examples"].map(|name| (name.to_owned(), name));
        for (from, to) in programs.into_iter().chain(others) {
            symlink(all.join(from), self.place.join(to)).unwrap();
        }
        for (name, text) in FILES {
            fs::write(self.place.join(name), text).unwrap();
        }
        let times: String = (0..200).map(|job| format!("{}\n", 5_000_000 + 1_000_000 * (job % 3))).collect();
        fs::write(self.place.join("film.trace"), times).unwrap();
        let mut blocks = page.split("\n```");
        let mut before = blocks.next().unwrap_or_default();
        while let (Some(block), after) = (blocks.next(), blocks.next().unwrap_or_default()) {
            let name = before.trim_end().strip_suffix("`:").and_then(|text| text.rsplit('`').next());
            if let (Some(name), Some((_, text))) = (name.filter(|name| name.contains('.')), block.split_once('\n')) {
                fs::write(self.place.join(name), text).unwrap();
            }
            before = after;
        }
    }

    /// Starts a daemon and waits until it answers.
    pub(crate) fn daemon(&self) -> Group {
        let daemon = self.start_into("exec qfabric daemon --config /etc/qfabric/daemon.toml", "daemon.log");
        self.wait_for("qfabric status", "daemon.log");
        daemon
    }

    /// Starts a source that sends ten events per second on the channel `video`.
    pub(crate) fn camera(&self) -> Group {
        let events = "while :; do echo '{\"number\": 1}'; sleep 0.1; done";
        let camera = self.start_into(&format!("({events}) | qfabric channel pub video --format frame.h"), "camera.log");
        self.wait_for("qfabric channel show video", "camera.log");
        camera
    }

    /// Waits until a command succeeds. `log` tells why it does not.
    fn wait_for(&self, command: &str, log: &str) {
        let until = Instant::now() + PATIENCE;
        while self.start(command).ends(PATIENCE) != Some(0) {
            assert!(Instant::now() < until, "{command}\n{}", self.printed(log));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts a command that Ctrl-C will end, and waits until its shell has begun.
    fn start_beside(&self, command: &str, log: &str) -> Result<Group, String> {
        let begun = self.place.join("begun");
        // The shell waits for the interrupted command and ends with its code.
        let group = self.start_into(&format!("trap : INT; : >begun; {command}"), log);
        let until = Instant::now() + PATIENCE;
        while !begun.exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        fs::remove_file(begun).map_err(|error| format!("{command} has not begun: {error}"))?;
        Ok(group)
    }

    /// Runs the commands of a block. The error tells which of them fails.
    pub(crate) fn run(&self, commands: &[Line]) -> Result<(), String> {
        let mut beside: Vec<(&Line, Group)> = Vec::new();
        for line in commands {
            if line.until_interrupted {
                let group = self.start_beside(&line.text, &format!("beside-{}", beside.len()))?;
                beside.push((line, group));
                continue;
            }
            let until = Instant::now() + BESIDE;
            while self.start(&line.text).ends(PATIENCE) != Some(0) {
                if beside.is_empty() || Instant::now() >= until {
                    return Err(format!("{}\n{}", line.text, self.printed("output")));
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        // A command that was started last must have begun before it is interrupted.
        std::thread::sleep(Duration::from_millis(if beside.is_empty() { 0 } else { 500 }));
        for (number, (line, mut group)) in beside.into_iter().enumerate() {
            let wrong = |what: &str| format!("{} {what}\n{}", line.text, self.printed(&format!("beside-{number}")));
            if group.ends(Duration::ZERO).is_some() {
                return Err(wrong("has ended"));
            }
            group.signal(Signal::INT);
            match group.ends(PATIENCE) {
                Some(0 | INTERRUPTED) => {}
                Some(code) => return Err(wrong(&format!("ends with {code} at Ctrl-C"))),
                None => return Err(wrong("does not end at Ctrl-C")),
            }
        }
        Ok(())
    }

    /// What a command has printed.
    fn printed(&self, file: &str) -> String {
        fs::read_to_string(self.place.join(file)).unwrap()
    }

    fn start(&self, command: &str) -> Group {
        self.start_into(command, "output")
    }

    /// Starts a command as the reader's shell does, in a process group. Its output goes to the file.
    fn start_into(&self, command: &str, file: &str) -> Group {
        let output = fs::File::create(self.place.join(file)).unwrap();
        // A test that was started in the background ignores Ctrl-C, and so would the shell and its commands.
        let mut shell = Command::new("env");
        shell
            .args(["--default-signal=INT", "sh", "-c", command])
            .current_dir(&self.place)
            .process_group(0)
            .stdin(Stdio::null());
        shell.stdout(output.try_clone().unwrap()).stderr(output);
        let path = std::env::var("PATH").unwrap();
        shell.env("PATH", format!("{}:{path}", self.folder.path().join("bin").display()));
        shell.env("HOME", &self.place);
        shell.env("PID", std::process::id().to_string()).env_remove("XDG_RUNTIME_DIR").env_remove("XDG_DATA_HOME");
        Group(shell.spawn().unwrap())
    }
}
