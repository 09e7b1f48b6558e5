//! What this kernel offers, and the door to it.

use std::io;
use std::os::fd::OwnedFd;

use super::{Install, InstallError, Installed, Service, Unsupported, services};

/// The kernel as a place for handlers. Opening reads the kernel's type information once (some ms); keep it.
#[derive(Debug)]
pub struct Kernel {
    services: Vec<Service>,
}

impl Kernel {
    /// Refused where BPF cannot be used at all. Services that cannot be had are listed with the reason.
    pub fn open() -> Result<Kernel, Unsupported> {
        Ok(Kernel { services: services::all() })
    }

    /// All services, available or not.
    pub fn services(&self) -> &[Service] {
        &self.services
    }

    /// The service of a name.
    pub fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.name == name)
    }

    /// Puts a chain of steps at a service. All or nothing; dropping the answer takes it out again.
    pub fn install(&self, request: &Install) -> Result<Installed, InstallError> {
        let why = Unsupported { what: "not built yet".into(), remedy: "wait".into() };
        Err(InstallError::Unavailable { service: request.service.into(), why })
    }

    /// Run times are measured while this descriptor is open (about 20 ns more per event, system-wide).
    pub fn measure(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
