//! Sets up what programs expect of a running Linux: file systems, the loopback interface, cgroup controllers,
//! modules.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::mount::{MountFlags, mount};
use rustix::net::{AddressFamily, SendFlags, SocketType, send, socket};

/// File system, mount point, options. The order matters, because some lie inside others. /tmp is in memory without
/// its own mount, which would hide the programs of a harness that builds below /tmp.
const MOUNTS: [(&str, &str, &str); 12] = [
    ("proc", "/proc", ""),
    ("sysfs", "/sys", ""),
    ("devtmpfs", "/dev", ""),
    ("devpts", "/dev/pts", "ptmxmode=0666"),
    ("tmpfs", "/dev/shm", "mode=1777"),
    ("tmpfs", "/run", "mode=755"),
    ("tmpfs", "/out", "mode=1777"),
    ("bpf", "/sys/fs/bpf", ""),
    ("cgroup2", "/sys/fs/cgroup", ""),
    ("debugfs", "/sys/kernel/debug", ""),
    ("tracefs", "/sys/kernel/tracing", ""),
    ("securityfs", "/sys/kernel/security", ""),
];

/// Tells the kernel to decompress the module itself (`MODULE_INIT_COMPRESSED_FILE`).
const COMPRESSED: i32 = 4;

/// Mounts all file systems that this kernel has. Returns an error message for each of the others.
pub(crate) fn mount_all() -> Vec<String> {
    MOUNTS.iter().filter_map(|(kind, place, options)| mount_one(kind, place, options).err()).collect()
}

fn mount_one(kind: &str, place: &str, options: &str) -> Result<(), String> {
    // Below /sys, the kernel itself creates the folders of the file systems that it has.
    let made = if place.starts_with("/sys/") { Ok(()) } else { fs::create_dir_all(place) };
    made.map_err(|e| format!("{place}: {e}"))?;
    let options = std::ffi::CString::new(options).map_err(|e| e.to_string())?;
    mount(kind, place, kind, MountFlags::empty(), options.as_c_str()).map_err(|e| format!("{kind} on {place}: {e}"))
}

/// Loads modules in the given order. Returns an error message for each failure.
pub(crate) fn load(modules: &[String]) -> Vec<String> {
    modules.iter().filter_map(|module| load_one(module).err()).collect()
}

fn load_one(path: &str) -> Result<(), String> {
    let file = File::open(path).map_err(|e| format!("module {path}: {e}"))?;
    let flags = if path.ends_with(".ko") { 0 } else { COMPRESSED };
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let parameters = std::ffi::CString::new(parameters(path, &line)).map_err(|e| e.to_string())?;
    match rustix::system::finit_module(file, &parameters, flags) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(e) => Err(format!("module {path}: {e}")),
    }
}

/// The parameters of a module on the kernel's command line, as `MODULE.NAME=VALUE`; the kernel itself applies only those of
/// built-in modules.
fn parameters(path: &str, line: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or_default();
    let module = file.split(".ko").next().unwrap_or_default().replace('-', "_");
    let own = line.split_whitespace().filter_map(|word| word.strip_prefix(&module)?.strip_prefix('.'));
    own.collect::<Vec<_>>().join(" ")
}

/// Does the rest of the setup: makes /tmp writable for all users, starts the loopback interface, and enables
/// cgroup controllers.
pub(crate) fn prepare() -> Vec<String> {
    let open = fs::set_permissions("/tmp", fs::Permissions::from_mode(0o1777)).map_err(|e| format!("/tmp: {e}"));
    let loopback = loopback_up().map_err(|e| format!("lo: {e}"));
    [open, loopback, controllers()].into_iter().filter_map(Result::err).collect()
}

/// Sends one RTM_NEWLINK message: interface 1, flag IFF_UP set.
fn loopback_up() -> rustix::io::Result<()> {
    const NEWLINK: u16 = 16;
    const REQUEST: u16 = 1;
    const UP: u32 = 1;
    let mut message = Vec::new();
    message.extend(32u32.to_ne_bytes());
    message.extend(NEWLINK.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]); // sequence number, sender
    message.extend([0; 4]); // any family, any type
    message.extend(1u32.to_ne_bytes()); // interface 1 of a network namespace is lo
    message.extend(UP.to_ne_bytes()); // flags
    message.extend(UP.to_ne_bytes()); // mask of the flags to change
    let route = socket(AddressFamily::NETLINK, SocketType::RAW, None)?; // protocol 0: NETLINK_ROUTE
    send(&route, &message, SendFlags::empty()).map(drop)
}

/// Enables all available controllers for groups below the root.
fn controllers() -> Result<(), String> {
    let root = Path::new("/sys/fs/cgroup");
    let all = fs::read_to_string(root.join("cgroup.controllers")).map_err(|e| format!("cgroup controllers: {e}"))?;
    let enable: Vec<_> = all.split_whitespace().map(|name| format!("+{name}")).collect();
    fs::write(root.join("cgroup.subtree_control"), enable.join(" ")).map_err(|e| format!("cgroup {all}: {e}"))
}

/// The kernel's release, `7.3.4+deb13-cloud-amd64`.
pub(crate) fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn parameters_of_a_module_are_words_of_the_command_line() {
        let line = "quiet i2c_stub.chip_addr=0x0b other.x=1 i2c_stub.force=1\n";
        assert_eq!(super::parameters("/vm/modules/i2c-stub.ko.xz", line), "chip_addr=0x0b force=1");
        assert_eq!(super::parameters("/vm/modules/i2c.ko", line), "");
    }
}
