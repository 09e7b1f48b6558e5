//! Starting a program that waits, before its first instruction, until it is covered by a reservation.

use std::io;
use std::process::{Child, Command};

/// A child that exists, with its number, but has not become the program yet.
#[derive(Debug)]
pub struct Held {
    pid: i32,
}

impl Held {
    /// Starts `command` and holds it before its exec.
    pub fn spawn(command: Command) -> io::Result<Held> {
        let _ = command;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Its number; the program will keep it.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets it become the program. The error is that of the exec: no such program, no permission.
    /// Dropping a held child instead ends it.
    pub fn go(self) -> io::Result<Child> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
