//! Finds out which maps, programs and memfds are still held: a process keeps the descriptors that it was given for as
//! long as it likes, and can pass them on.
//!
//! Three programs list them (`BPF_TRACE_ITER`). To open an object by its id would need CAP_SYS_ADMIN, which the service
//! does not have; a listing needs no more than other programs do. A map counts as held if user space has a descriptor
//! or a mapping of it: programs that are being removed do not count. A program counts as held as long as it has an id,
//! which ends with its last descriptor if it is attached nowhere.
//!
//! A process that has a program can add maps to it (`BPF_PROG_BIND_MAP`, which needs no right), and then close them. So
//! there is a list of all maps, too.
//!
//! A memfd has no name, so the kernel deletes it with its last descriptor or mapping, and reports that.

use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use qfabric_ecode::bpf::{Alu, Asm, Jmp, Reg, Size};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use super::source::{helper, member_steps, missing};
use crate::bpf::{Btf, Code, Kind, Loaded, Program};

/// A map or a program, by the kernel's id, or a memfd, by its number in a [`FileWatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelObject {
    Map(u32),
    Program(u32),
    File(i32),
}

/// The memfds whose end the kernel reports. Watches nothing yet by default.
#[derive(Debug, Default)]
pub struct FileWatch(OnceLock<OwnedFd>);

impl FileWatch {
    /// Watches a memfd. The same one has the same number again. A memfd is never moved, so the kernel reports only the
    /// end of the watch: its queue (`fs.inotify.max_queued_events`, 16,384) has room for one report of each memfd.
    ///
    /// # Errors
    /// The user has too many watches, or descriptors for them (`fs.inotify`).
    pub fn watch(&self, file: BorrowedFd<'_>) -> io::Result<KernelObject> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let add = |fd: &OwnedFd| inotify::add_watch(fd, path, WatchFlags::MOVE_SELF).map_err(io::Error::from);
        let next = "raise fs.inotify.max_user_watches and fs.inotify.max_user_instances";
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("inotify: {error}; {next}"));
        self.fd().and_then(add).map(KernelObject::File).map_err(failed)
    }

    /// The memfds that nobody holds any more, since the last call.
    pub fn freed(&self) -> BTreeSet<KernelObject> {
        let mut freed = BTreeSet::new();
        let Some(fd) = self.0.get() else { return freed };
        let mut buffer = [MaybeUninit::uninit(); 4_096];
        let mut reader = Reader::new(fd, &mut buffer);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::IGNORED) {
                freed.insert(KernelObject::File(event.wd()));
            }
        }
        freed
    }

    fn fd(&self) -> io::Result<&OwnedFd> {
        if let Some(fd) = self.0.get() {
            return Ok(fd);
        }
        // If another thread was faster, its descriptor is used.
        let fresh = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(self.0.get_or_init(|| fresh))
    }
}

/// Offsets in the context of a listing program, and in what it points to: `struct bpf_iter__bpf_map` and
/// `struct bpf_iter_meta`.
const META: i16 = 0;
const OBJECT: i16 = 8;
const SEQ: i16 = 0;
/// Stack offset of the id.
const ID: i16 = -4;

/// The programs that list maps and programs.
#[derive(Debug)]
pub(super) struct Listing {
    /// Maps with a descriptor or a mapping in user space.
    used_maps: Loaded,
    maps: Loaded,
    programs: Loaded,
}

impl Listing {
    pub(super) fn new(btf: &Btf) -> io::Result<Listing> {
        let steps = |structure, path| member_steps(btf, structure, path).map_err(io::Error::other);
        let (users, id) = (steps("bpf_map", "usercnt")?, steps("bpf_map", "id")?);
        let programs = assemble(&steps("bpf_prog", "aux.id")?, None);
        Ok(Listing {
            used_maps: load(btf, "bpf_iter_bpf_map", assemble(&id, Some(&users[..])))?,
            maps: load(btf, "bpf_iter_bpf_map", assemble(&id, None))?,
            programs: load(btf, "bpf_iter_bpf_prog", programs)?,
        })
    }

    /// The objects of the whole host that are held; first the maps, then the programs.
    pub(super) fn held(&self) -> io::Result<BTreeSet<KernelObject>> {
        let maps = self.used_maps.list()?.into_iter().map(KernelObject::Map);
        Ok(maps.chain(self.programs.list()?.into_iter().map(KernelObject::Program)).collect())
    }

    /// The maps of the whole host.
    pub(super) fn maps(&self) -> io::Result<BTreeSet<KernelObject>> {
        Ok(self.maps.list()?.into_iter().map(KernelObject::Map).collect())
    }
}

fn load(btf: &Btf, function: &str, code: Code) -> io::Result<Loaded> {
    let lacking = || io::Error::other(missing(&format!("the list {function}")));
    let objects = btf.function(function).ok_or_else(lacking)?;
    let loaded = Program { kind: Kind::Listing(objects), code, maps: &[] }.load();
    loaded.map_err(|refusal| io::Error::other(format!("{}: {}", refusal.error, refusal.log)))
}

/// Writes the `id` of the object, if it is one and `users` is not zero.
fn assemble(id: &[(u32, Size)], users: Option<&[(u32, Size)]>) -> Code {
    let mut asm = Asm::new();
    let end = asm.label();
    asm.mov(Reg::R6, Reg::R1);
    asm.load(Size::D, Reg::R7, Reg::R6, OBJECT);
    // After the last object the program runs once without one.
    asm.jump_if(Jmp::Eq, Reg::R7, 0, end);
    if let Some(users) = users {
        read(&mut asm, users);
        asm.jump_if(Jmp::Eq, Reg::R1, 0, end);
    }
    read(&mut asm, id);
    asm.store(Size::W, Reg::R10, ID, Reg::R1);
    asm.load(Size::D, Reg::R1, Reg::R6, META);
    asm.load(Size::D, Reg::R1, Reg::R1, SEQ);
    asm.mov(Reg::R2, Reg::R10);
    asm.alu64(Alu::Add, Reg::R2, i32::from(ID));
    asm.mov(Reg::R3, 4);
    asm.call(helper::SEQ_WRITE);
    asm.bind(end);
    asm.mov(Reg::R0, 0);
    asm.exit();
    asm.finish().expect("some twenty instructions")
}

/// r1 = the member of the object r7.
fn read(asm: &mut Asm, steps: &[(u32, Size)]) {
    let mut from = Reg::R7;
    for &(offset, size) in steps {
        asm.load(size, Reg::R1, from, offset as i16);
        from = Reg::R1;
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::mm::ProtFlags;

    use super::*;
    use crate::bpf::Mapping;

    #[test]
    fn a_memfd_is_held_until_its_last_descriptor_and_mapping_are_gone() {
        let watch = FileWatch::default();
        let [file, other] = [(); 2].map(|()| memfd_create("qfabric-test", MemfdFlags::CLOEXEC).unwrap());
        ftruncate(&file, 4_096).unwrap();
        let number = watch.watch(file.as_fd()).unwrap();
        assert_eq!(watch.watch(file.as_fd()).unwrap(), number);
        assert_ne!(watch.watch(other.as_fd()).unwrap(), number);
        let mapping = Mapping::new(&file, 4_096, 0, ProtFlags::READ).unwrap();
        drop(file);
        assert!(watch.freed().is_empty(), "it is mapped");
        drop(mapping);
        assert_eq!(watch.freed(), BTreeSet::from([number]));
        assert!(watch.freed().is_empty());
    }
}
