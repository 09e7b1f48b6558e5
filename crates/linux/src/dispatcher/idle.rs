//! Short sleeps of idle CPUs while a dispatch table has groups.
//!
//! The kernel chooses among the idle states of a CPU those that it leaves within the smallest value that a process has
//! written to `/dev/cpu_dma_latency`, on all CPUs. The open file is the request, so it ends with the service, also by
//! SIGKILL.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use qfabric_types::Nanos;

/// The kernel's device for this request. Its value is a number of microseconds, 32 bits in the byte order of the host.
pub(super) const DEVICE: &str = "/dev/cpu_dma_latency";

/// Until this value is dropped, idle CPUs wake up within the requested time.
#[derive(Debug)]
pub(super) struct ShortSleeps {
    _request: File,
}

impl ShortSleeps {
    /// Requests sleeps that end within `most`, rounded down to microseconds; zero: idle CPUs poll.
    ///
    /// # Errors
    /// The device does not exist, as in many containers, or this process may not write to it.
    pub(super) fn request(device: &Path, most: Nanos) -> io::Result<ShortSleeps> {
        let mut file = OpenOptions::new().write(true).open(device)?;
        let microseconds = i32::try_from(most.get() / 1_000).unwrap_or(i32::MAX);
        file.write_all(&microseconds.to_ne_bytes())?;
        Ok(ShortSleeps { _request: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_a_number_of_microseconds_of_32_bits() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("latency");
        let ask = |most| ShortSleeps::request(&device, most);
        assert_eq!(ask(Nanos::ZERO).unwrap_err().kind(), io::ErrorKind::NotFound, "the device is never created");
        std::fs::write(&device, "").unwrap();
        for (most, written) in [(Nanos::from_micros(20), 20), (Nanos::new(999), 0), (Nanos::new(u64::MAX), i32::MAX)] {
            let _sleeps = ask(most).unwrap();
            assert_eq!(std::fs::read(&device).unwrap(), i32::to_ne_bytes(written));
        }
    }
}
