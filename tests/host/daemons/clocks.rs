//! Clocks of a host that differ from the machine's: CLOCK_MONOTONIC by a time namespace, CLOCK_REALTIME, which has no
//! namespace, by a library that is loaded before the C library.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A time namespace, for as long as this value lives.
pub(crate) struct Monotonic(Child);

impl Monotonic {
    /// Its clocks are ahead by this number of seconds. `None`: not here, which is said.
    pub(crate) fn ahead(seconds: u32) -> Option<Monotonic> {
        let mut command = Command::new("unshare");
        command.arg("--time").args(["--monotonic", "--boottime"].map(|clock| format!("{clock}={seconds}")));
        command.args(["--kill-child", "--fork", "sh", "-c", "echo ready; exec sleep infinity"]);
        let mut made = Monotonic(command.stdout(Stdio::piped()).spawn().ok()?);
        let mut said = String::new();
        let _ = BufReader::new(made.0.stdout.take()?).read_line(&mut said);
        if said != "ready\n" {
            qfabric_linux::testing::skip("needs time namespaces and `unshare --time`");
            return None;
        }
        Some(made)
    }

    /// The options of `nsenter` for a process in it.
    pub(crate) fn options(&self) -> Vec<String> {
        vec!["--no-fork".to_owned(), format!("--time=/proc/{}/ns/time_for_children", self.0.id())]
    }
}

impl Drop for Monotonic {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A wall clock that steps while processes run.
pub(crate) struct WallClock {
    library: PathBuf,
    file: PathBuf,
}

impl WallClock {
    /// Like the machine's at first.
    pub(crate) fn new(folder: &Path) -> WallClock {
        let (library, file) = (folder.join("step.so"), folder.join("step"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/host/daemons/step.c");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).status().unwrap();
        assert!(built.success(), "step.c does not compile");
        let clock = WallClock { library, file };
        File::create(&clock.file).unwrap();
        clock.step(0);
        clock
    }

    /// From now on it is ahead of the machine's by this number of seconds.
    pub(crate) fn step(&self, seconds: i64) {
        let file = File::options().write(true).open(&self.file).unwrap();
        file.write_all_at(&seconds.to_le_bytes(), 0).unwrap();
    }

    /// The environment of its processes.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![("LD_PRELOAD", self.library.clone().into()), ("QFABRIC_TEST_STEP", self.file.clone().into())]
    }
}
