//! Opens the kernel for handlers, and lists the services that it offers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use super::by_kernel::SignalCalls;
use super::handler::Installer;
use super::holders::{KernelObject, Listing};
use super::options::Options;
use super::services::{self, HookCost, Spec};
use super::shared::SharedHooks;
use super::streams::Ports;
use super::{Install, InstallError, Installed, Service, Unsupported};
use crate::bpf::{self, Btf};
use crate::cpus;

/// The kernel as a place for handlers. Opening it reads the kernel's type information (some ms), so keep the value.
#[derive(Debug)]
pub struct Kernel {
    services: Vec<Service>,
    btf: Btf,
    cpus: u32,
    shared: Arc<SharedHooks>,
    ports: Arc<Ports>,
    /// Loaded at its first use.
    listing: OnceLock<Listing>,
}

impl Kernel {
    /// Fails if BPF cannot be used at all. A service that this kernel lacks is listed with the reason.
    pub fn open() -> Result<Kernel, Unsupported> {
        let btf = Btf::vmlinux().map_err(no_btf)?;
        bpf::probe().map_err(no_bpf)?;
        let list = services::ALL.iter().map(|spec| services::describe(spec, services::check(spec, &btf).err()));
        Ok(Kernel {
            services: list.collect(),
            btf,
            cpus: cpus::possible(),
            shared: Arc::default(),
            ports: Arc::default(),
            listing: OnceLock::new(),
        })
    }

    /// All services with `why` as the reason for which none is available, for a kernel that cannot be opened.
    pub fn services_without(why: &Unsupported) -> Vec<Service> {
        services::ALL.iter().map(|spec| services::describe(spec, Some(why.clone()))).collect()
    }

    /// All services, available or not.
    pub fn services(&self) -> &[Service] {
        &self.services
    }

    pub fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.name == name)
    }

    /// What a chain at this service costs other processes. An unknown service or a wrong option, which the installation
    /// refuses, has no cost.
    pub fn cost(&self, service: &str, options: &BTreeMap<String, String>) -> HookCost {
        let Ok(spec) = self.available(service) else { return HookCost::default() };
        let Ok(options) = Options::new(spec, options) else { return HookCost::default() };
        services::cost(spec, &options)
    }

    /// Installs a chain of steps at a service, completely or not at all. Dropping the returned value removes the chain.
    pub fn install(&self, request: &Install) -> Result<Installed, InstallError> {
        let spec = self.available(request.service)?;
        let (btf, shared, ports) = (&self.btf, &self.shared, &self.ports);
        Installer { btf, cpus: self.cpus, spec, request, shared, ports }.install()
    }

    /// The maps and programs of the whole host that processes hold: maps with a descriptor or a mapping in user space,
    /// and all programs.
    ///
    /// # Errors
    /// This kernel does not list them, or a reading was interrupted.
    pub fn held(&self) -> io::Result<BTreeSet<KernelObject>> {
        self.listing()?.held()
    }

    /// The maps of the whole host, also those that only programs use, or used until a moment ago.
    ///
    /// # Errors
    /// As [`Kernel::held`].
    pub fn maps(&self) -> io::Result<BTreeSet<KernelObject>> {
        self.listing()?.maps()
    }

    /// Tries again after a failure, which may be a lack of memory or of descriptors.
    fn listing(&self) -> io::Result<&Listing> {
        if self.listing.get().is_none() {
            // If another thread was faster, its programs are used.
            let _ = self.listing.set(Listing::new(&self.btf)?);
        }
        Ok(self.listing.get().expect("just set"))
    }

    /// The kernel's ids of the programs that handlers share: one for each hook, or a few.
    pub fn shared_program_ids(&self) -> Vec<u32> {
        self.shared.program_ids()
    }

    /// Events that missed handlers of a process because 15 handlers before them were just being removed.
    pub fn missed_by_removals(&self) -> u64 {
        self.shared.missed()
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> &SharedHooks {
        &self.shared
    }

    /// Fails if this kernel lacks a function by which handlers send signals ([`super::Step::Signal`]).
    pub fn signals(&self) -> Result<(), Unsupported> {
        SignalCalls::of(&self.btf).map(drop)
    }

    /// The kernel measures run times of all programs of the host while this descriptor is open; it costs about 20 ns
    /// for each run ([`Installed::kernels_run_ns`]).
    pub fn measure(&self) -> io::Result<OwnedFd> {
        bpf::enable_stats()
    }

    pub(super) fn btf(&self) -> &Btf {
        &self.btf
    }

    fn available(&self, name: &str) -> Result<&'static Spec, InstallError> {
        let spec = services::ALL.iter().find(|spec| spec.name == name);
        let service = self.service(name);
        match (spec, service) {
            (Some(spec), Some(Service { unavailable: None, .. })) => Ok(spec),
            (_, Some(Service { unavailable: Some(why), .. })) => {
                Err(InstallError::Unavailable { service: name.into(), why: why.clone() })
            }
            _ => Err(InstallError::UnknownService { asked: name.into(), known: self.names() }),
        }
    }

    fn names(&self) -> String {
        self.services.iter().map(|service| service.name).collect::<Vec<_>>().join(", ")
    }
}

fn no_btf(error: io::Error) -> Unsupported {
    Unsupported {
        what: format!("the kernel's type information cannot be read (/sys/kernel/btf/vmlinux: {error})"),
        remedy: "use a kernel built with CONFIG_DEBUG_INFO_BTF, with /sys mounted".into(),
    }
}

fn no_bpf(error: io::Error) -> Unsupported {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM) => "run it as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN",
        _ => "use a kernel built with CONFIG_BPF_SYSCALL and CONFIG_BPF_JIT",
    };
    Unsupported { what: format!("BPF programs cannot be loaded ({error})"), remedy: remedy.into() }
}
