//! Reads the kernel's own type information: the tracepoints, and the offsets of structure members.
//!
//! Reads all of `/sys/kernel/btf/vmlinux` (about 5 MB, 60,000 types) and indexes the names of structures, tracepoints
//! and some functions in one pass. Source: Linux `Documentation/bpf/btf.rst`.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use crate::files;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TypeId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Bytes from the beginning of the structure.
    pub offset: u32,
    /// Type without modifiers and typedefs.
    pub ty: TypeId,
}

/// Kind of a type, without modifiers and typedefs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// An integer or enumeration; its size in bytes.
    Int(u32),
    Pointer(TypeId),
    Struct(TypeId),
    /// An array; its total size in bytes.
    Array(u32),
    Other,
}

mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

const TRACEPOINT: &str = "btf_trace_";
/// Names of functions that are indexed begin with this, or are one of [`FUNCTIONS`].
const FUNCTION: &str = "scx_bpf_";
/// The functions by which handlers send signals, and by which those that the kernel can preempt keep their CPU; and
/// those that stand for the kernel's lists of maps and programs.
const FUNCTIONS: [&str; 7] = [
    "bpf_task_from_pid",
    "bpf_task_release",
    "bpf_send_signal_task",
    "bpf_preempt_disable",
    "bpf_preempt_enable",
    "bpf_iter_bpf_map",
    "bpf_iter_bpf_prog",
];

/// The kernel's type information.
#[derive(Debug)]
pub(crate) struct Btf {
    data: Vec<u8>,
    types: usize,
    strings: usize,
    /// Offset of each type's record, by type number.
    offsets: Vec<u32>,
    structs: HashMap<String, TypeId>,
    tracepoints: HashMap<String, TypeId>,
    functions: HashMap<String, TypeId>,
}

impl Btf {
    /// Reads the type information of the running kernel.
    pub(crate) fn vmlinux() -> io::Result<Btf> {
        Btf::parse(files::bytes(Path::new("/sys/kernel/btf/vmlinux"))?)
    }

    fn parse(data: Vec<u8>) -> io::Result<Btf> {
        let header: Vec<usize> = (0..6)
            .map(|word| word_at(&data, word * 4).map(|w| w as usize))
            .collect::<Option<_>>()
            .ok_or_else(damaged)?;
        if header[0] & 0xffff != 0xeb9f {
            return Err(damaged());
        }
        let (types, end) = (header[1] + header[2], header[1] + header[2] + header[3]);
        let mut btf = Btf {
            types,
            strings: header[1] + header[4],
            data,
            offsets: vec![0],
            structs: HashMap::new(),
            tracepoints: HashMap::new(),
            functions: HashMap::new(),
        };
        btf.index(end)?;
        Ok(btf)
    }

    fn index(&mut self, end: usize) -> io::Result<()> {
        let mut at = self.types;
        while at < end {
            let id = TypeId(self.offsets.len() as u32);
            self.offsets.push(at as u32);
            let (kind, count) = self.info(id).ok_or_else(damaged)?;
            match kind {
                kind::STRUCT => self.remember(id, count),
                kind::TYPEDEF => self.remember_tracepoint(id),
                kind::FUNC => self.remember_function(id),
                _ => {}
            }
            at += 12 + extra_bytes(kind, count).ok_or_else(damaged)?;
        }
        Ok(())
    }

    fn remember(&mut self, id: TypeId, members: u32) {
        if members > 0
            && let Some(name) = self.name(id).filter(|name| !name.is_empty())
        {
            let name = name.to_owned();
            self.structs.entry(name).or_insert(id);
        }
    }

    fn remember_tracepoint(&mut self, id: TypeId) {
        if let Some(name) = self.name(id).and_then(|name| name.strip_prefix(TRACEPOINT)) {
            let name = name.to_owned();
            self.tracepoints.insert(name, id);
        }
    }

    fn remember_function(&mut self, id: TypeId) {
        if let Some(name) = self.name(id).filter(|name| name.starts_with(FUNCTION) || FUNCTIONS.contains(name)) {
            let name = name.to_owned();
            self.functions.insert(name, id);
        }
    }

    /// The function of sched_ext or of [`FUNCTIONS`] with this name, which programs may call by this number.
    pub(crate) fn function(&self, name: &str) -> Option<TypeId> {
        self.functions.get(name).copied()
    }

    pub(crate) fn structure(&self, name: &str) -> Option<TypeId> {
        self.structs.get(name).copied()
    }

    /// The tracepoint with this name; a program is attached to this type.
    pub(crate) fn tracepoint(&self, name: &str) -> Option<TypeId> {
        self.tracepoints.get(name).copied()
    }

    /// Type of an argument of a tracepoint; `number` counts from 0.
    pub(crate) fn argument(&self, tracepoint: TypeId, number: usize) -> Option<TypeId> {
        let pointer = self.plain(tracepoint)?;
        let proto = self.plain(TypeId(self.word(pointer, 8)?))?;
        let (kind, count) = self.info(proto)?;
        // The first parameter belongs to the tracepoint mechanism.
        if kind != kind::FUNC_PROTO || number + 1 >= count as usize {
            return None;
        }
        self.plain(TypeId(self.word(proto, 12 + 8 * (number + 1) + 4)?))
    }

    pub(crate) fn shape(&self, id: TypeId) -> Shape {
        let Some(id) = self.plain(id) else { return Shape::Other };
        self.shape_of_plain(id).unwrap_or(Shape::Other)
    }

    fn shape_of_plain(&self, id: TypeId) -> Option<Shape> {
        let (kind, _) = self.info(id)?;
        let size_or_type = self.word(id, 8)?;
        Some(match kind {
            kind::INT | kind::ENUM | kind::ENUM64 => Shape::Int(size_or_type),
            kind::PTR => Shape::Pointer(TypeId(size_or_type)),
            kind::STRUCT | kind::UNION => Shape::Struct(id),
            kind::ARRAY => Shape::Array(self.size(TypeId(self.word(id, 12)?))? * self.word(id, 20)?),
            _ => Shape::Other,
        })
    }

    /// Size of a value of the type, in bytes.
    pub(crate) fn size(&self, id: TypeId) -> Option<u32> {
        match self.shape(id) {
            Shape::Int(bytes) | Shape::Array(bytes) => Some(bytes),
            Shape::Pointer(_) => Some(8),
            Shape::Struct(id) => self.word(id, 8),
            Shape::Other => None,
        }
    }

    /// Finds a member by name, including members of unnamed structures and unions. Does not find bit fields.
    pub(crate) fn member(&self, structure: TypeId, name: &str) -> Option<Member> {
        let structure = self.plain(structure)?;
        let (kind, count) = self.info(structure)?;
        if kind != kind::STRUCT && kind != kind::UNION {
            return None;
        }
        (0..count as usize).find_map(|i| self.member_at(structure, i, name))
    }

    fn member_at(&self, structure: TypeId, index: usize, wanted: &str) -> Option<Member> {
        let at = 12 + 12 * index;
        let name = self.string(self.word(structure, at)?)?;
        let ty = self.plain(TypeId(self.word(structure, at + 4)?))?;
        let offset = self.bit_offset(structure, self.word(structure, at + 8)?)? / 8;
        if name == wanted {
            return Some(Member { offset, ty });
        }
        let inner = if name.is_empty() { self.member(ty, wanted) } else { None }?;
        Some(Member { offset: offset + inner.offset, ty: inner.ty })
    }

    /// `None` for bit fields: if the flag is set, the upper 8 bits contain their width.
    fn bit_offset(&self, structure: TypeId, word: u32) -> Option<u32> {
        let flagged = self.word(structure, 4)? >> 31 == 1;
        let (width, offset) = if flagged { (word >> 24, word & 0xff_ffff) } else { (0, word) };
        (width == 0 && offset.is_multiple_of(8)).then_some(offset)
    }

    /// Removes modifiers and typedefs.
    fn plain(&self, mut id: TypeId) -> Option<TypeId> {
        const MODIFIERS: [u32; 5] = [kind::TYPEDEF, kind::VOLATILE, kind::CONST, kind::RESTRICT, kind::TYPE_TAG];
        for _ in 0..16 {
            match self.info(id) {
                Some((kind, _)) if MODIFIERS.contains(&kind) => id = TypeId(self.word(id, 8)?),
                _ => return Some(id),
            }
        }
        None
    }

    /// Kind, and number of parts.
    fn info(&self, id: TypeId) -> Option<(u32, u32)> {
        let info = self.word(id, 4)?;
        Some((info >> 24 & 0x1f, info & 0xffff))
    }

    fn name(&self, id: TypeId) -> Option<&str> {
        self.string(self.word(id, 0)?)
    }

    fn word(&self, id: TypeId, offset: usize) -> Option<u32> {
        if id.0 == 0 {
            return None;
        }
        word_at(&self.data, *self.offsets.get(id.0 as usize)? as usize + offset)
    }

    fn string(&self, offset: u32) -> Option<&str> {
        let bytes = self.data.get(self.strings + offset as usize..)?;
        let end = bytes.iter().position(|&byte| byte == 0)?;
        std::str::from_utf8(&bytes[..end]).ok()
    }
}

/// Size of a type's record after its first 12 bytes.
fn extra_bytes(kind: u32, count: u32) -> Option<usize> {
    let count = count as usize;
    Some(match kind {
        kind::INT | kind::VAR | kind::DECL_TAG => 4,
        kind::ARRAY => 12,
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * count,
        kind::ENUM | kind::FUNC_PROTO => 8 * count,
        0 | 20.. => return None,
        _ => 0,
    })
}

fn word_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "/sys/kernel/btf/vmlinux has an unknown format")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `None` if the kernel has no type information; prints that the test is skipped.
    fn vmlinux() -> Option<Btf> {
        Btf::vmlinux().map_err(crate::testing::skip).ok()
    }

    #[test]
    fn other_data_is_refused() {
        assert!(Btf::parse(Vec::new()).is_err());
        assert!(Btf::parse(vec![0; 64]).is_err());
    }

    #[test]
    fn members_of_a_task_are_found() {
        let Some(btf) = vmlinux() else { return };
        let task = btf.structure("task_struct").unwrap();
        let pid = btf.member(task, "pid").unwrap();
        assert_eq!(btf.shape(pid.ty), Shape::Int(4));
        assert_eq!(btf.shape(btf.member(task, "comm").unwrap().ty), Shape::Array(16));
        assert!(matches!(btf.shape(btf.member(task, "real_parent").unwrap().ty), Shape::Pointer(_)));
        assert_eq!(btf.member(task, "no_such_member"), None);
    }

    #[test]
    fn members_of_unnamed_structures_are_found() {
        let Some(btf) = vmlinux() else { return };
        let common = btf.structure("sock_common").unwrap();
        assert_eq!(btf.member(common, "skc_daddr").unwrap().offset, 0);
        assert_eq!(btf.member(common, "skc_rcv_saddr").unwrap().offset, 4);
    }

    #[test]
    fn functions_of_sched_ext_are_found_and_no_others() {
        let Some(btf) = vmlinux() else { return };
        let (kick, scheduler) = (btf.function("scx_bpf_kick_cpu"), btf.structure("sched_ext_ops"));
        assert_eq!(kick.is_some(), scheduler.is_some());
        assert_eq!((btf.function("schedule"), btf.function("bpf_task_acquire")), (None, None));
    }

    #[test]
    fn a_tracepoints_arguments_have_types() {
        let Some(btf) = vmlinux() else { return };
        let wakeup = btf.tracepoint("sched_wakeup").unwrap();
        let Shape::Pointer(task) = btf.shape(btf.argument(wakeup, 0).unwrap()) else { panic!("not a pointer") };
        assert_eq!(btf.shape(task), btf.shape(btf.structure("task_struct").unwrap()));
        assert_eq!(btf.argument(wakeup, 1), None);
        assert_eq!(btf.tracepoint("no_such_tracepoint"), None);
    }
}
