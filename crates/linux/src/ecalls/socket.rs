//! The I/O event delivery module (003 §5.2): reports in shared memory which of an application's sockets are ready.
//!
//! A socket is bound to a bit by a word that the kernel stores with the socket. Hooks run when data arrives and when a
//! peer closes. They read the word, and set the bit in the application's page if the application is interested. No list
//! is scanned, and the binding disappears together with the socket.
//!
//! **Edges are remembered.** A set bit means that data arrived since the bit was last cleared. The kernel first puts
//! the data into the socket's queue and then sets the bit. The reader first clears the bit and then reads until
//! `EAGAIN`. In every order of the two, the data is read at once or its bit is still set, so no event is lost. A bit
//! without data (the data was already read) is possible and harmless.
//!
//! **Sleeping.** The hook sets the bit by an exchange, which is a full fence, and then reads `waiting`. The reader sets
//! `waiting`, executes a full fence, and then reads the bits ([`SocketPage::may_sleep`]). At least one of the two sees
//! the other's write, so a reader never sleeps with a set bit. The hook clears `waiting` by an exchange, so there is
//! one wake-up per sleep, for any number of active sockets.

use std::io;
use std::os::fd::BorrowedFd;

use qfabric_ecode::bpf::{Alu, Asm, Code, Jmp, Label, Reg, Size};
use qfabric_types::memory::{SOCKETS, SocketPage};

use super::delivery;
use super::handler::{refused, system};
use super::holders::KernelObject;
use super::source::helper;
use super::wake::Wake;
use super::{InstallError, Kernel, Unsupported};
use crate::bpf::{self, Kind, Link, Loaded, Map, Mapping, set_socket_word};

const CLOSE: i32 = 7;
const CLOSE_WAIT: i32 = 8;
/// Tracepoints, and whether their third argument (the new state) decides if the event matters.
const HOOKS: [(&str, bool); 2] = [("sk_data_ready", false), ("inet_sock_set_state", true)];

/// The module of one application. Dropping it removes its hooks.
#[derive(Debug)]
pub struct SocketModule {
    _links: Vec<Link>,
    programs: Vec<Loaded>,
    page: Map,
    mapping: Mapping,
    wake: Wake,
    words: Map,
}

/// Map numbers in the programs.
const WORDS: u32 = 0;
const PAGE: u32 = 1;
const WAKE: u32 = 2;

impl SocketModule {
    /// Creates a page and attaches its hooks.
    pub fn open(kernel: &Kernel) -> Result<SocketModule, InstallError> {
        let words = system("binding of sockets", Map::socket_words())?;
        let page = system("socket page", Map::array(size_of::<SocketPage>() as u32, 1))?;
        let mapping = system("socket page", page.map(size_of::<SocketPage>()))?;
        let wake = system("wake ring", Wake::new())?;
        let maps = [words.fd(), page.fd(), wake.fd()];
        let load = |&(name, by_state): &(&str, bool)| {
            let id = kernel.btf().tracepoint(name).ok_or_else(|| unavailable(name))?;
            bpf::Program { kind: Kind::Tracepoint(id), code: assemble(by_state), maps: &maps }.load().map_err(refused)
        };
        let programs: Vec<Loaded> = HOOKS.iter().map(load).collect::<Result<_, _>>()?;
        let attach = |program: &Loaded| system("attaching to the tracepoint", program.attach_tracepoint());
        let links = programs.iter().map(attach).collect::<Result<_, _>>()?;
        Ok(SocketModule { _links: links, programs, page, mapping, wake, words })
    }

    /// The page. Map it shared for reading and writing, `size_of::<SocketPage>()` from offset 0.
    pub fn page_fd(&self) -> BorrowedFd<'_> {
        self.page.fd()
    }

    /// The wake descriptor (a BPF ring buffer of one page).
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.fd()
    }

    /// A process that has this descriptor can bind its sockets with [`bind_socket`].
    pub fn bind_fd(&self) -> BorrowedFd<'_> {
        self.words.fd()
    }

    /// The maps whose descriptors the application receives.
    pub fn objects(&self) -> io::Result<[KernelObject; 3]> {
        Ok([self.wake.object()?, KernelObject::Map(self.page.id()?), KernelObject::Map(self.words.id()?)])
    }

    pub fn page(&self) -> &SocketPage {
        self.mapping.head()
    }

    /// Makes the wake descriptor unreadable again. A reader in another process does this with its own mapping
    /// ([`qfabric_types::memory::acknowledge`]).
    pub fn acknowledge(&self) -> io::Result<()> {
        self.wake.acknowledge()
    }

    /// The kernel's ids of its BPF programs.
    pub fn program_ids(&self) -> Vec<u32> {
        self.programs.iter().filter_map(|program| program.info().ok()).map(|info| info.id).collect()
    }
}

fn unavailable(tracepoint: &str) -> InstallError {
    let why = Unsupported {
        what: format!("this kernel does not have the tracepoint {tracepoint}"),
        remedy: "use Linux 6.2 or later, or use epoll".into(),
    };
    InstallError::Unavailable { service: "the I/O module".into(), why }
}

/// Binds `socket` to its descriptor number in the module that owns `bind_fd`, by one system call. Data that arrived
/// before sets no bit, so read once after binding ([`SocketPage::keep`]).
pub fn bind_socket(bind_fd: BorrowedFd<'_>, socket: BorrowedFd<'_>) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    bind_socket_as(bind_fd, socket, socket.as_raw_fd() as u32)
}

/// Like [`bind_socket`], for a socket that has the number `slot` in another process. The daemon binds this way for an
/// application without the permission.
pub fn bind_socket_as(bind_fd: BorrowedFd<'_>, socket: BorrowedFd<'_>, slot: u32) -> io::Result<()> {
    if slot as usize >= SOCKETS {
        let why = format!("descriptor {slot}: the I/O module serves descriptors below {SOCKETS}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    set_socket_word(bind_fd, socket, slot)
}

/// r6: the socket's number; r7: the page plus the offset of its word; r8: its bit.
fn assemble(by_state: bool) -> Code {
    let mut asm = Asm::new();
    let end = asm.label();
    if by_state {
        only_closed(&mut asm, end);
    }
    asm.load(Size::D, Reg::R2, Reg::R1, 0);
    asm.lddw_map(Reg::R1, WORDS);
    asm.mov(Reg::R3, 0);
    asm.mov(Reg::R4, 0);
    asm.call(helper::SK_STORAGE_GET);
    asm.jump_if(Jmp::Eq, Reg::R0, 0, end);
    asm.load(Size::W, Reg::R6, Reg::R0, 0);
    asm.jump_if(Jmp::Ge, Reg::R6, SOCKETS as i32, end);
    find_bit(&mut asm);
    set_ready(&mut asm, end);
    asm.bind(end);
    asm.mov(Reg::R0, 0);
    asm.exit();
    asm.finish().expect("some forty instructions")
}

fn only_closed(asm: &mut Asm, end: Label) {
    let closed = asm.label();
    asm.load(Size::D, Reg::R2, Reg::R1, 16);
    asm.jump_if(Jmp::Eq, Reg::R2, CLOSE_WAIT, closed);
    asm.jump_if(Jmp::Ne, Reg::R2, CLOSE, end);
    asm.bind(closed);
}

fn find_bit(asm: &mut Asm) {
    asm.mov(Reg::R1, Reg::R6);
    asm.alu64(Alu::Rsh, Reg::R1, 6);
    asm.alu64(Alu::Lsh, Reg::R1, 3);
    asm.lddw_map_value(Reg::R7, PAGE, 0);
    asm.alu64(Alu::Add, Reg::R7, Reg::R1);
    asm.alu64(Alu::And, Reg::R6, 63);
    asm.mov(Reg::R8, 1);
    asm.alu64(Alu::Lsh, Reg::R8, Reg::R6);
}

fn set_ready(asm: &mut Asm, end: Label) {
    asm.load(Size::D, Reg::R1, Reg::R7, SocketPage::FD_LIST as i16);
    asm.alu64(Alu::And, Reg::R1, Reg::R8);
    asm.jump_if(Jmp::Eq, Reg::R1, 0, end);
    asm.atomic_fetch_or(Size::D, Reg::R7, SocketPage::FD_ACTIVE as i16, Reg::R8);
    asm.lddw_map_value(Reg::R7, PAGE, 0);
    asm.mov(Reg::R1, 1);
    asm.atomic_add(Size::W, Reg::R7, SocketPage::READY as i16, Reg::R1);
    asm.load(Size::W, Reg::R1, Reg::R7, SocketPage::WAITING as i16);
    asm.jump_if(Jmp::Eq, Reg::R1, 0, end);
    asm.mov(Reg::R1, 0);
    asm.atomic_xchg(Size::W, Reg::R7, SocketPage::WAITING as i16, Reg::R1);
    asm.jump_if(Jmp::Eq, Reg::R1, 0, end);
    delivery::wake(asm, WAKE);
}
