//! The back end `select()`: each call passes three bit sets of 1024 descriptors to the kernel, which scans them up
//! to the highest descriptor.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::select::{FdSet, select};
use nix::sys::time::TimeVal;

use super::Backend;
use crate::table::{Interest, Table};

/// Keeps no state between two calls.
#[derive(Debug)]
pub(super) struct Select;

impl Backend for Select {
    fn limit(&self) -> usize {
        nix::sys::select::FD_SETSIZE
    }

    fn wait(&mut self, table: &Table, longest: Duration, ready: &mut Vec<RawFd>) -> io::Result<()> {
        let (mut reading, mut writing) = (FdSet::new(), FdSet::new());
        for (_, entry) in table.iter() {
            match entry.interest {
                Interest::Nothing => {}
                Interest::Read => reading.insert(entry.as_fd()),
                Interest::Write => writing.insert(entry.as_fd()),
            }
        }
        let mut longest = TimeVal::new(longest.as_secs() as i64, longest.subsec_micros().into());
        match select(None, &mut reading, &mut writing, None, &mut longest) {
            Ok(0) | Err(Errno::EINTR) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let fds = [reading.fds(None), writing.fds(None)];
        ready.extend(fds.into_iter().flatten().map(|fd| fd.as_fd().as_raw_fd()));
        Ok(())
    }
}
