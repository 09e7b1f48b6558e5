//! Reads the speed of an interface, by a system call: `/sys` may show another network namespace.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GSET: u32 = 1;
/// The value of an interface that does not know its speed.
const UNKNOWN: u32 = u32::MAX;

/// `struct ethtool_cmd`; unused fields are combined.
#[repr(C)]
#[derive(Default)]
struct Settings {
    command: u32,
    modes: [u32; 2],
    speed_low: u16,
    ports: [u8; 6],
    packets: [u32; 2],
    speed_high: u16,
    rest: [u8; 14],
}

/// `struct ifreq` with a pointer.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    settings: *mut Settings,
    rest: [u8; 16],
}

/// Speed in bits per second; `None` if the interface does not report it.
pub(super) fn of(interface: &str) -> Option<u64> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None).ok()?;
    let settings = settings(&socket, interface)?;
    let megabits = u32::from(settings.speed_high) << 16 | u32::from(settings.speed_low);
    (megabits != 0 && megabits != UNKNOWN).then_some(u64::from(megabits) * 1_000_000)
}

#[allow(unsafe_code, reason = "a call that no safe library offers")]
fn settings(socket: &OwnedFd, interface: &str) -> Option<Settings> {
    let mut settings = Settings { command: ETHTOOL_GSET, ..Settings::default() };
    let mut request = Request { name: [0; libc::IFNAMSIZ], settings: &raw mut settings, rest: [0; 16] };
    request
        .name
        .get_mut(..interface.len())
        .filter(|name| name.len() < libc::IFNAMSIZ)?
        .copy_from_slice(interface.as_bytes());
    // SAFETY: request and settings are live and have the kernel's layout; this command writes only their 44 bytes.
    let rc = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    (rc == 0).then_some(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_have_the_kernels_size() {
        assert_eq!((size_of::<Settings>(), std::mem::offset_of!(Settings, speed_high)), (44, 28));
    }

    #[test]
    fn an_interface_without_a_speed_returns_none() {
        assert_eq!(of("lo"), None);
        assert_eq!(of("an-interface-with-too-long-a-name"), None);
    }
}
