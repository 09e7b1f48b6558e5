//! Objects that clang has compiled: opened, configured, loaded, run, attached.
//!
//! ```text
//! OpenObject::open ─ constant(), without(), entries() ─> load() ─> Object ─ table(), run(), attach()
//! ```
//!
//! One object serves several kernels: what a kernel lacks is left out with [`OpenObject::without`] before loading, and
//! what is left out need not even be known to it. Nothing is pinned: what was loaded goes with its [`Object`], what was
//! attached with its [`Attached`].

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Once;

use libbpf_rs::{MapCore, ObjectBuilder, PrintLevel};
use qfabric_sync::assert_may_block;

use super::sys;
use super::table::{Plain, Table, bytes_of, bytes_of_mut};

/// What went wrong with an object.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// It is none, or not of this kernel's byte order.
    #[error("{object} cannot be read: {error}")]
    Unreadable {
        /// The object's name.
        object: String,
        /// libbpf's answer.
        error: String,
    },
    /// It has no such part.
    #[error("{object} has no {what} named {name}")]
    Absent {
        /// The object's name.
        object: String,
        /// Kind of the part.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A value of another size than the variable or map.
    #[error("{object}: {name} has {has} bytes, not {given}")]
    Size {
        /// The object's name.
        object: String,
        /// The variable or map.
        name: String,
        /// Its bytes.
        has: usize,
        /// The value's.
        given: usize,
    },
    /// The kernel did not take it.
    #[error("the kernel refuses {object}: {error}\n{log}")]
    Refused {
        /// The object's name.
        object: String,
        /// The kernel's answer.
        error: io::Error,
        /// The end of what libbpf and the verifier say.
        log: String,
    },
    /// A call to the kernel failed after loading.
    #[error("{object}, {name}: {error}")]
    Kernel {
        /// The object's name.
        object: String,
        /// The map or program.
        name: String,
        /// The kernel's answer.
        error: io::Error,
    },
}

/// An object that is not loaded yet.
#[derive(Debug)]
pub struct OpenObject {
    name: String,
    inner: libbpf_rs::OpenObject,
}

/// A loaded object.
#[derive(Debug)]
pub struct Object {
    name: String,
    inner: libbpf_rs::Object,
}

/// A table of operations in use by the kernel; no longer when dropped.
#[derive(Debug)]
pub struct Attached {
    _link: libbpf_rs::Link,
}

/// A program that is run on demand.
#[derive(Debug)]
pub struct Entry {
    fd: OwnedFd,
}

impl OpenObject {
    /// Reads an object, one of [`objects`](super::objects), under a name that errors mention.
    pub fn open(name: &str, object: &[u8]) -> Result<OpenObject, ObjectError> {
        listen();
        let _ = heard();
        let inner = ObjectBuilder::default().open_memory(object).map_err(|error| {
            let error = format!("{error}; {}", heard());
            ObjectError::Unreadable { object: name.to_owned(), error }
        })?;
        Ok(OpenObject { name: name.to_owned(), inner })
    }

    /// Sets what is in a section of variables, before programs are verified with it. Give the variable a section of
    /// its own: `const volatile struct options options SEC(".rodata.options")`.
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

    /// Leaves out a program, a map or a table of operations.
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

    /// Sets how many entries a map has.
    pub fn entries(mut self, map: &str, entries: u32) -> Result<OpenObject, ObjectError> {
        let set = match self.inner.maps_mut().find(|candidate| candidate.name() == map) {
            Some(mut map) => map.set_max_entries(entries).map_err(|error| error.to_string()),
            None => return Err(ObjectError::Absent { object: self.name, what: "map", name: map.to_owned() }),
        };
        set.map_err(|error| ObjectError::Unreadable { object: self.name.clone(), error })?;
        Ok(self)
    }

    /// Gives a table of operations the name it registers under: its first member, of 16 bytes (`Qdisc_ops.id`).
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

    /// Loads it: maps are made, programs verified and translated.
    pub fn load(self) -> Result<Object, ObjectError> {
        assert_may_block("loading an object");
        let _ = heard();
        let name = self.name;
        match self.inner.load() {
            Ok(inner) => Ok(Object { name, inner }),
            Err(error) => Err(ObjectError::Refused { object: name, error: os_error(&error), log: heard() }),
        }
    }
}

impl Object {
    /// The map of that name; global variables are in maps named by their section (`.bss.servers`).
    pub fn table(&self, name: &str) -> Result<Table, ObjectError> {
        let map = self.inner.maps().find(|map| map.name() == name).ok_or_else(|| self.absent("map", name))?;
        let fd = map.as_fd().try_clone_to_owned();
        fd.and_then(Table::new).map_err(|error| self.failed(name, error))
    }

    /// The program of that name, to be run on demand (`SEC("syscall")`).
    pub fn entry(&self, name: &str) -> Result<Entry, ObjectError> {
        let program = self.inner.progs_mut().find(|program| program.name() == name);
        let program = program.ok_or_else(|| self.absent("program", name))?;
        let fd = program.as_fd().try_clone_to_owned().map_err(|error| self.failed(name, error))?;
        Ok(Entry { fd })
    }

    /// Hands a table of operations (`struct_ops`) to the kernel.
    pub fn attach(&mut self, name: &str) -> Result<Attached, ObjectError> {
        assert_may_block("attaching operations");
        let _ = heard();
        let found = self.inner.maps_mut().find(|map| map.name() == name).map(|mut map| map.attach_struct_ops());
        let attached = found.ok_or_else(|| self.absent("table of operations", name))?;
        attached.map(|link| Attached { _link: link }).map_err(|error| ObjectError::Refused {
            object: format!("{} ({name})", self.name),
            error: os_error(&error),
            log: heard(),
        })
    }

    /// Attaches a program where its section says.
    pub fn attach_program(&self, name: &str) -> Result<Attached, ObjectError> {
        assert_may_block("attaching a program");
        let _ = heard();
        let program = self.inner.progs_mut().find(|program| program.name() == name);
        let program = program.ok_or_else(|| self.absent("program", name))?;
        program.attach().map(|link| Attached { _link: link }).map_err(|error| ObjectError::Refused {
            object: format!("{} ({name})", self.name),
            error: os_error(&error),
            log: heard(),
        })
    }

    /// How many instructions the verifier walked through, by program.
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
    /// Its descriptor.
    pub fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Attaches it to an interface's packets.
    pub(crate) fn attach_packets(&self, ifindex: u32, side: sys::SkbSide) -> io::Result<sys::Link> {
        sys::attach_tcx(self.fd.as_fd(), ifindex, side)
    }

    /// Runs it with `context`, which it reads and writes. Its answer: what the program returns.
    pub fn run<T: Plain>(&self, context: &mut T) -> io::Result<i32> {
        sys::run_syscall(self.fd.as_fd(), bytes_of_mut(context))
    }

    /// As [`Entry::run`], where a negative answer is an error's number.
    pub fn call<T: Plain>(&self, context: &mut T) -> io::Result<i32> {
        match self.run(context)? {
            answer if answer < 0 => Err(io::Error::from_raw_os_error(-answer)),
            answer => Ok(answer),
        }
    }

    /// What the kernel counts for it: instructions verified, runs, nanoseconds.
    pub fn verified_insns(&self) -> io::Result<u32> {
        sys::prog_info(self.fd.as_fd()).map(|info| info.verified_insns)
    }
}

const LOG_BYTES: usize = 16 << 10;

thread_local! {
    /// What libbpf has said in this thread; it speaks in the thread that calls it.
    static HEARD: RefCell<String> = const { RefCell::new(String::new()) };
}

/// libbpf's words are for errors, not for the terminal.
fn listen() {
    static LISTEN: Once = Once::new();
    LISTEN.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, hear)));
    });
}

fn hear(_: PrintLevel, text: String) {
    HEARD.with_borrow_mut(|heard| {
        heard.push_str(&text);
        let beyond = heard.len().saturating_sub(LOG_BYTES);
        let beyond = (beyond..heard.len()).find(|&at| heard.is_char_boundary(at)).unwrap_or(heard.len());
        heard.drain(..beyond);
    });
}

/// Takes what was said.
fn heard() -> String {
    HEARD.with_borrow_mut(std::mem::take).trim().to_owned()
}

/// The kernel's error number behind libbpf's sentence.
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
