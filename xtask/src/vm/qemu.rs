//! One boot: QEMU, its two ports (frames and the kernel's console), and its end.
//!
//! Without KVM: one thread emulates all processors (with several threads the kernels panic about once in 50 boots).
//! Nothing outlives the harness: QEMU ends with the thread that started it, and its files are in a temporary folder.

use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use qfabric_vm_init::{Frame, FrameError, PORT};
use xshell::{Shell, cmd};

use super::kernels::Kernel;

/// Name of the emulator.
pub(super) const QEMU: &str = "qemu-system-x86_64";

/// Number of console lines shown after a failure.
const TAIL: usize = 40;

/// Time in which a machine must send its first frame; otherwise it hangs and is started again. A boot takes 2 s; the
/// limit is for hosts with ten times more work than they can do.
const HELLO: Duration = Duration::from_secs(60);

/// Largest number of boots until a machine sends its first frame. In the emulator Debian's 6.12 corrupts its own
/// memory in about 3 of 10 boots before its first process runs (6.12.107 on QEMU 7.2, any processor model; 7.3 in
/// none of 10), which says nothing about a test.
const BOOTS: u32 = 8;

/// Serial ports with nothing behind them, for firmware: port and interrupt. Their scratch registers (port + 7) keep what
/// a driver or a test writes.
const SCRATCH: [(u16, u8); 2] = [(0x2f8, 3), (0x3e8, 4)];

/// Settings of the machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Machine {
    /// Number of processors.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory: u32,
    /// Guest time is a function of executed instructions (4 ns each): measurements repeat whatever the load of the
    /// host.
    pub icount: bool,
    /// Words added to the kernel's command line.
    pub append: Vec<String>,
    /// An ACPI table of `tests/vm/acpi`, without `.asl`: hardware that the firmware describes to the kernel's drivers.
    pub firmware: Option<String>,
}

/// How a boot ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The machine reported that it is done.
    Done,
    /// The boot failed; the reason, and the last lines of the console.
    Broken(String),
}

/// One image on one kernel.
pub(super) struct Boot<'a> {
    pub sh: &'a Shell,
    /// What boots.
    pub kernel: &'a Kernel,
    /// Path of the archive.
    pub image: &'a Path,
    /// Folder for the console's text.
    pub folder: &'a Path,
    /// The machine.
    pub machine: &'a Machine,
    /// Real time without a frame after which the machine is switched off.
    pub limit: Duration,
}

impl Boot<'_> {
    /// Runs the machine and passes frames to `sink` as they arrive. A machine that sends no frame is started again,
    /// up to [`BOOTS`] times in total.
    pub(super) fn run(&self, interrupted: &Arc<AtomicBool>, sink: &mut impl FnMut(Frame)) -> Result<End> {
        for attempt in 1.. {
            let mut heard = false;
            let end = self.once(interrupted, &mut |frame| {
                heard = true;
                sink(frame);
            })?;
            if heard || attempt == BOOTS || end == End::Done {
                return Ok(end);
            }
            println!("vm: the machine sent no frame: boot {} of at most {BOOTS}", attempt + 1);
        }
        unreachable!("the last attempt returns")
    }

    fn once(&self, interrupted: &Arc<AtomicBool>, sink: &mut impl FnMut(Frame)) -> Result<End> {
        let mut qemu = Running(self.command()?.spawn().with_context(|| format!("{QEMU} cannot be started"))?);
        let frames = frames(&mut qemu.0)?;
        let mut deadline = Instant::now() + self.limit.min(HELLO);
        loop {
            match frames.recv_timeout(Duration::from_millis(100)) {
                Ok(Ok(Frame::Done)) => return Ok(End::Done),
                Ok(Ok(Frame::Hello(_))) if self.is_cut_off() => return Ok(self.broken("the image needs more memory")),
                Ok(Ok(frame)) => {
                    deadline = Instant::now() + self.limit;
                    sink(frame);
                }
                Ok(Err(FrameError::End)) | Err(RecvTimeoutError::Disconnected) => {
                    return Ok(self.broken("the machine switched off before the end"));
                }
                Ok(Err(error)) => return Ok(self.broken(&error.to_string())),
                Err(RecvTimeoutError::Timeout) if self.panicked() => return Ok(self.broken("the kernel panicked")),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if interrupted.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            if Instant::now() > deadline {
                return Ok(
                    self.broken(&format!("the machine said nothing for {} s; raise the timeout", self.limit.as_secs()))
                );
            }
        }
    }

    fn command(&self) -> Result<Command> {
        // QEMU gets SIGKILL when its parent dies, even if the parent is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", QEMU, "-accel", "tcg,thread=single", "-M", "q35", "-cpu", self.cpu()]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-vga", "none", "-no-reboot"]);
        command.args(["-smp", &self.machine.cpus.to_string(), "-m", &format!("{}M", self.machine.memory)]);
        if self.machine.icount {
            command.args(["-icount", "shift=2,sleep=off"]);
        }
        let console = format!("file,id=console,path={}", self.console().display());
        command.args(["-chardev", &console, "-serial", "chardev:console"]);
        command.args(["-chardev", "stdio,id=host,signal=off", "-device", "virtio-serial-pci"]);
        command.args(["-device", &format!("virtserialport,chardev=host,name={PORT}")]);
        command.arg("-kernel").arg(self.kernel.vmlinux()).arg("-initrd").arg(self.image);
        command.arg("-append").arg(self.kernel_line());
        if let Some(table) = &self.machine.firmware {
            command.arg("-acpitable").arg(format!("file={}", self.compiled(table)?.display()));
            for (number, (port, interrupt)) in SCRATCH.into_iter().enumerate() {
                command.args(["-chardev", &format!("null,id=scratch{number}"), "-device"]);
                command.arg(format!("isa-serial,chardev=scratch{number},iobase={port:#x},irq={interrupt}"));
            }
        }
        // QEMU's messages go to the harness' standard error. In a separate process group, Ctrl-C in a terminal
        // reaches only the harness. The input stays open, because at its end QEMU would report to the machine that no
        // reader is there.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(command)
    }

    /// The kernel's driver of clocks by ACPI refuses the emulator's usual processor, an old one of AMD.
    fn cpu(&self) -> &'static str {
        if self.machine.firmware.is_some() { "max,vendor=GenuineIntel,family=6,model=60" } else { "max" }
    }

    /// Compiles an ACPI table; returns the path of the result.
    fn compiled(&self, table: &str) -> Result<PathBuf> {
        let (sh, source, to) = (self.sh, format!("tests/vm/acpi/{table}.asl"), self.folder.join(table));
        cmd!(sh, "iasl -p {to} {source}")
            .quiet()
            .ignore_stdout()
            .run()
            .with_context(|| format!("cannot compile {source}: apt-get install acpica-tools"))?;
        Ok(to.with_extension("aml"))
    }

    fn kernel_line(&self) -> String {
        let own = "console=ttyS0 quiet panic=-1 psi=1 no_timer_check nokaslr mitigations=off cryptomgr.notests";
        [own.to_owned()].into_iter().chain(self.machine.append.iter().cloned()).collect::<Vec<_>>().join(" ")
    }

    fn console(&self) -> PathBuf {
        self.folder.join("console")
    }

    fn console_text(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.console()).unwrap_or_default()).into_owned()
    }

    /// True if the image was truncated. The kernel continues with an incomplete image and reports that only on the
    /// console.
    fn is_cut_off(&self) -> bool {
        self.console_text().contains("Initramfs unpacking failed")
    }

    fn panicked(&self) -> bool {
        self.console_text().contains("Kernel panic - not syncing")
    }

    fn broken(&self, why: &str) -> End {
        let text = self.console_text();
        let why = if self.panicked() { "the kernel panicked" } else { why };
        End::Broken(format!("{why}; the console's last lines:\n{}", tail(&text)))
    }
}

/// A child process that is killed and waited for when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn frames(qemu: &mut Child) -> Result<Receiver<Result<Frame, FrameError>>> {
    let mut from = BufReader::new(qemu.stdout.take().context("QEMU's output is a pipe")?);
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        loop {
            let frame = Frame::read(&mut from);
            let last = frame.is_err();
            if sender.send(frame).is_err() || last {
                return;
            }
        }
    });
    Ok(receiver)
}

fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let shown = &lines[lines.len().saturating_sub(TAIL)..];
    if shown.is_empty() { "  (nothing)".to_owned() } else { format!("  {}", shown.join("\n  ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_is_shown_from_its_end() {
        let text: String = (0..100).map(|n| format!("line {n}\r\n\n")).collect();
        let shown = tail(&text);
        assert!(shown.contains("line 99") && shown.contains("line 60") && !shown.contains("line 59"));
        assert_eq!(tail(""), "  (nothing)");
    }
}
