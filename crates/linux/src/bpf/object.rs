//! Opens, configures, loads, runs and attaches objects that clang compiled.
//!
//! ```text
//! OpenObject::open ─ constant(), without(), entries() ─> load() ─> Object ─ table(), run(), attach()
//! ```
//!
//! One object works on several kernels: parts that a kernel lacks are left out with [`OpenObject::without`] before
//! loading, and the kernel need not even have the names that those parts use. Nothing is pinned: programs and maps
//! live as long as their [`Object`], attachments as long as their [`Attached`].

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Once;

use libbpf_rs::{MapCore, ObjectBuilder, PrintLevel};
use qfabric_sync::assert_may_block;
use qfabric_types::Nanos;

use super::sys;
use super::table::{Plain, Table, bytes_of, bytes_of_mut};

#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The data is not an object, or has another byte order than this kernel.
    #[error("{object} cannot be read: {error}")]
    Unreadable {
        object: String,
        /// Message of libbpf.
        error: String,
    },
    #[error("{object} has no {what} named {name}")]
    Absent {
        object: String,
        /// Kind of the missing part.
        what: &'static str,
        name: String,
    },
    /// The given value and the variable or map have different sizes.
    #[error("{object}: {name} has {has} bytes, not {given}")]
    Size {
        object: String,
        /// Name of the variable or map.
        name: String,
        /// Bytes of the variable or map.
        has: usize,
        /// Bytes of the given value.
        given: usize,
    },
    /// The kernel refused the object.
    #[error("the kernel refuses {object}: {error}\n{log}")]
    Refused {
        object: String,
        error: io::Error,
        /// The end of the messages of libbpf and the verifier.
        log: String,
    },
    #[error("{object}, {name}: {error}")]
    Kernel {
        object: String,
        /// Name of the map or program.
        name: String,
        error: io::Error,
    },
}

#[derive(Debug)]
pub struct OpenObject {
    name: String,
    inner: libbpf_rs::OpenObject,
}

#[derive(Debug)]
pub struct Object {
    name: String,
    inner: libbpf_rs::Object,
}

/// A table of operations that the kernel uses until this is dropped.
#[derive(Debug)]
pub struct Attached {
    _link: libbpf_rs::Link,
}

#[derive(Debug)]
pub struct Entry {
    fd: OwnedFd,
}

impl OpenObject {
    /// Reads an object, one of [`objects`](super::objects). Errors contain `name`.
    pub fn open(name: &str, object: &[u8]) -> Result<OpenObject, ObjectError> {
        capture_messages();
        let _ = take_messages();
        let inner = ObjectBuilder::default().open_memory(object).map_err(|error| {
            let error = format!("{error}; {}", take_messages());
            ObjectError::Unreadable { object: name.to_owned(), error }
        })?;
        Ok(OpenObject { name: name.to_owned(), inner })
    }

    /// Sets the variable in a section before the programs are verified with it. The variable needs a separate section:
    /// `const volatile struct options options SEC(".rodata.options")`.
    pub fn constant<T: Plain>(mut self, section: &str, value: &T) -> Result<OpenObject, ObjectError> {
        let (name, given) = (section.to_owned(), size_of::<T>());
        let Some(mut map) = self.inner.maps_mut().find(|map| map.name() == section) else {
            return Err(ObjectError::Absent { object: self.name, what: "section", name });
        };
        let memory = map.initial_value_mut().unwrap_or_default();
        if memory.len() != given {
            return Err(ObjectError::Size { object: self.name.clone(), name, has: memory.len(), given });
        }
        memory.copy_from_slice(bytes_of(value));
        Ok(self)
    }

    pub fn without(mut self, name: &str) -> Result<OpenObject, ObjectError> {
        let program = self.inner.progs_mut().find(|program| program.name() == name);
        if program.map(|mut program| program.set_autoload(false)).is_some() {
            return Ok(self);
        }
        let left_out = match self.inner.maps_mut().find(|map| map.name() == name) {
            Some(mut map) => map.set_autocreate(false).map_err(|error| error.to_string()),
            None => {
                return Err(ObjectError::Absent { object: self.name, what: "program or map", name: name.to_owned() });
            }
        };
        left_out.map_err(|error| ObjectError::Unreadable { object: self.name.clone(), error })?;
        Ok(self)
    }

    /// Sets the number of entries of a map.
    pub fn entries(mut self, map: &str, entries: u32) -> Result<OpenObject, ObjectError> {
        let set = match self.inner.maps_mut().find(|candidate| candidate.name() == map) {
            Some(mut map) => map.set_max_entries(entries).map_err(|error| error.to_string()),
            None => return Err(ObjectError::Absent { object: self.name, what: "map", name: map.to_owned() }),
        };
        set.map_err(|error| ObjectError::Unreadable { object: self.name.clone(), error })?;
        Ok(self)
    }

    /// Sets the name under which a table of operations registers: its first member, of 16 bytes (`Qdisc_ops.id`).
    pub fn operations_named(mut self, map: &str, name: &str) -> Result<OpenObject, ObjectError> {
        const BYTES: usize = 16;
        let Some(mut found) = self.inner.maps_mut().find(|candidate| candidate.name() == map) else {
            return Err(ObjectError::Absent { object: self.name, what: "table of operations", name: map.to_owned() });
        };
        let id = found.initial_value_mut().unwrap_or_default().get_mut(..BYTES);
        let Some(id) = id.filter(|_| name.len() < BYTES) else {
            return Err(ObjectError::Size {
                object: self.name.clone(),
                name: map.to_owned(),
                has: BYTES,
                given: name.len(),
            });
        };
        id.fill(0);
        id[..name.len()].copy_from_slice(name.as_bytes());
        Ok(self)
    }

    /// Creates the maps, and has the kernel verify and translate the programs.
    pub fn load(self) -> Result<Object, ObjectError> {
        assert_may_block("loading an object");
        let _ = take_messages();
        let name = self.name;
        match self.inner.load() {
            Ok(inner) => Ok(Object { name, inner }),
            Err(error) => Err(ObjectError::Refused { object: name, error: os_error(&error), log: take_messages() }),
        }
    }
}

impl Object {
    /// The map with this name. Global variables are in maps named after their section (`.bss.servers`).
    pub fn table(&self, name: &str) -> Result<Table, ObjectError> {
        let map = self.inner.maps().find(|map| map.name() == name).ok_or_else(|| self.absent("map", name))?;
        let fd = map.as_fd().try_clone_to_owned();
        fd.and_then(Table::new).map_err(|error| self.failed(name, error))
    }

    /// The program with this name, for running on demand (`SEC("syscall")`).
    pub fn entry(&self, name: &str) -> Result<Entry, ObjectError> {
        let program = self.inner.progs_mut().find(|program| program.name() == name);
        let program = program.ok_or_else(|| self.absent("program", name))?;
        let fd = program.as_fd().try_clone_to_owned().map_err(|error| self.failed(name, error))?;
        Ok(Entry { fd })
    }

    /// Registers a table of operations (`struct_ops`) with the kernel.
    pub fn attach(&mut self, name: &str) -> Result<Attached, ObjectError> {
        assert_may_block("attaching operations");
        let _ = take_messages();
        let found = self.inner.maps_mut().find(|map| map.name() == name).map(|mut map| map.attach_struct_ops());
        let attached = found.ok_or_else(|| self.absent("table of operations", name))?;
        attached.map(|link| Attached { _link: link }).map_err(|error| ObjectError::Refused {
            object: format!("{} ({name})", self.name),
            error: os_error(&error),
            log: take_messages(),
        })
    }

    /// Attaches a program to the hook that its section names.
    pub fn attach_program(&self, name: &str) -> Result<Attached, ObjectError> {
        assert_may_block("attaching a program");
        let _ = take_messages();
        let program = self.inner.progs_mut().find(|program| program.name() == name);
        let program = program.ok_or_else(|| self.absent("program", name))?;
        program.attach().map(|link| Attached { _link: link }).map_err(|error| ObjectError::Refused {
            object: format!("{} ({name})", self.name),
            error: os_error(&error),
            log: take_messages(),
        })
    }

    /// Number of instructions that the verifier walked through, by program.
    pub fn verified_insns(&self) -> io::Result<Vec<(String, u32)>> {
        let loaded = self.inner.progs().filter(|program| program.autoload());
        let of = |program: libbpf_rs::Program| {
            let info = sys::prog_info(program.as_fd())?;
            Ok((program.name().to_string_lossy().into_owned(), info.verified_insns))
        };
        loaded.map(of).collect()
    }

    fn absent(&self, what: &'static str, name: &str) -> ObjectError {
        ObjectError::Absent { object: self.name.clone(), what, name: name.to_owned() }
    }

    fn failed(&self, name: &str, error: io::Error) -> ObjectError {
        ObjectError::Kernel { object: self.name.clone(), name: name.to_owned(), error }
    }
}

impl Entry {
    pub fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Attaches the program to the packets of an interface.
    pub(crate) fn attach_packets(&self, ifindex: u32, side: sys::SkbSide) -> io::Result<sys::Link> {
        sys::attach_tcx(self.fd.as_fd(), ifindex, side)
    }

    /// Runs the program with `context`, which it reads and writes. Returns the program's return value.
    pub fn run<T: Plain>(&self, context: &mut T) -> io::Result<i32> {
        sys::run_syscall(self.fd.as_fd(), bytes_of_mut(context))
    }

    /// Like [`Entry::run`], but a negative return value becomes an error with that error number.
    pub fn call<T: Plain>(&self, context: &mut T) -> io::Result<i32> {
        match self.run(context)? {
            answer if answer < 0 => Err(io::Error::from_raw_os_error(-answer)),
            answer => Ok(answer),
        }
    }

    /// Runs of the program and their total time, counted while the kernel measures programs.
    pub(crate) fn run_time(&self) -> io::Result<(u64, Nanos)> {
        sys::prog_info(self.fd.as_fd()).map(|info| (info.runs, Nanos::new(info.run_ns)))
    }

    /// Number of instructions that the verifier walked through.
    pub fn verified_insns(&self) -> io::Result<u32> {
        sys::prog_info(self.fd.as_fd()).map(|info| info.verified_insns)
    }
}

const LOG_BYTES: usize = 16 << 10;

thread_local! {
    /// Messages of libbpf in this thread; libbpf prints in the thread that calls it.
    static MESSAGES: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Collects the messages of libbpf for errors, instead of printing them on the terminal.
fn capture_messages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, collect_message)));
    });
}

fn collect_message(_: PrintLevel, text: String) {
    MESSAGES.with_borrow_mut(|messages| {
        messages.push_str(&text);
        let beyond = messages.len().saturating_sub(LOG_BYTES);
        let beyond = (beyond..messages.len()).find(|&at| messages.is_char_boundary(at)).unwrap_or(messages.len());
        messages.drain(..beyond);
    });
}

/// Returns and clears the collected messages.
fn take_messages() -> String {
    MESSAGES.with_borrow_mut(std::mem::take).trim().to_owned()
}

/// The kernel's error number that caused the error of libbpf.
fn os_error(error: &libbpf_rs::Error) -> io::Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(code) = inner.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(code);
        }
        cause = inner.source();
    }
    io::Error::other(error.to_string())
}
