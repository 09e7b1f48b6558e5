//! Owns the memory shared with applications: BPF arrays that are mapped here and, through their descriptors, by
//! applications.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

use qfabric_ecode::bpf::{Alu, Asm, Reg, Size};
use qfabric_sync::{Lock, rank};
use qfabric_types::memory::{Down, Geometry, HEADER_BYTES, Stamp, Up, UpHeader, UpParts};

use super::deferred::Positions;
use super::delivery::{Functions, Place, Target, private};
use super::holders::KernelObject;
use super::state;
use super::wake::Wake;
use crate::bpf::{Kind, Loaded, Map, Mapping, Program};

/// A memory_up. The application receives its descriptors.
#[derive(Debug)]
pub struct UpMemory {
    geometry: Geometry,
    area: Map,
    mapping: Mapping,
    private: Map,
    wake: Wake,
    writer: Lock<Writer, { rank::MEMORY_WRITER }>,
}

impl UpMemory {
    pub fn new(geometry: Geometry) -> io::Result<UpMemory> {
        let area = Map::array(geometry.total_bytes(), 1)?;
        let mapping = area.map(geometry.total_bytes() as usize)?;
        mapping.head::<UpHeader>().initialize(geometry);
        let (private, wake) = (Map::array(private::BYTES, 1)?, Wake::new()?);
        Ok(UpMemory { geometry, area, mapping, private, wake, writer: Lock::default() })
    }

    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The area. Map it shared for reading and writing, `geometry.total_bytes()` from offset 0.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.area.fd()
    }

    /// The wake descriptor (a BPF ring buffer of one page): readable after an event for a sleeping reader.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.fd()
    }

    /// The maps whose descriptors the application receives.
    pub fn objects(&self) -> io::Result<[KernelObject; 2]> {
        Ok([KernelObject::Map(self.area.id()?), self.wake.object()?])
    }

    pub(super) fn private_fd(&self) -> BorrowedFd<'_> {
        self.private.fd()
    }

    /// Writes an event from user space (`raise_event` by the daemon). The kernel does the writing on demand, so that no
    /// writer can be stopped while it holds the area's lock. `position`: the slot, for the layout with bits; `None`:
    /// the next free slot. Returns `false` if there is no room; the event is then dropped and counted. Longer `data` is
    /// truncated to the size of an event, shorter `data` is padded with zeros.
    pub fn put(&self, data: &[u8], stamp: Stamp, position: Option<u32>) -> io::Result<bool> {
        let mut writer = self.writer.lock();
        let slot = if position.is_some() { &mut writer.at_position } else { &mut writer.anywhere };
        if slot.is_none() {
            *slot = Some(Putter::new(self, position.is_some())?);
        }
        slot.as_ref().expect("just made").put(data, stamp, position)
    }

    /// Makes the wake descriptor unreadable again. A reader in another process does this with its own mapping
    /// ([`qfabric_types::memory::acknowledge`]).
    pub fn acknowledge(&self) -> io::Result<()> {
        self.wake.acknowledge()
    }

    /// A reader for this process.
    pub fn reader(&self) -> Up<UpParts<'_>> {
        let parts = (self.mapping.head(), self.mapping.words(HEADER_BYTES as usize));
        Up::new(parts).expect("initialized by `new`, and the mapping has its size")
    }
}

/// Programs that write events on demand, created when they are first needed.
#[derive(Debug, Default)]
struct Writer {
    anywhere: Option<Putter>,
    at_position: Option<Putter>,
}

#[derive(Debug)]
struct Putter {
    program: Loaded,
    state: Mapping,
    data_bytes: u32,
    _map: Map,
}

/// The event follows the state's header, and the position follows the event.
const EVENT: u32 = state::HEADER;

impl Putter {
    fn new(memory: &UpMemory, at_position: bool) -> io::Result<Putter> {
        let data_bytes = memory.geometry.data_bytes();
        let behind = data_bytes.next_multiple_of(8);
        let bytes = EVENT + behind + 8;
        let map = Map::array(bytes, 1)?;
        let state = map.map(bytes as usize)?;
        let position = at_position.then_some((behind, Size::D));
        let target = Target::Memory { area: 1, private: 2, wake: 3, geometry: memory.geometry, position };
        let mut asm = Asm::new();
        asm.lddw_map_value(Reg::R9, 0, 0);
        asm.mov(Reg::R6, Reg::R9);
        asm.alu64(Alu::Add, Reg::R6, EVENT as i32);
        target.deliver(&mut asm, Place { offset: 0, bytes: data_bytes }, Functions::default());
        asm.mov(Reg::R0, 0);
        asm.exit();
        let code = asm.finish().map_err(io::Error::other)?;
        let maps = [map.fd(), memory.fd(), memory.private_fd(), memory.wake_fd()];
        let program = Program { kind: Kind::Demand, code, maps: &maps }.load();
        let program = program.map_err(|refusal| io::Error::other(format!("{}: {}", refusal.error, refusal.log)))?;
        state.words(state::SPINS as usize)[0].store(SPINS, std::sync::atomic::Ordering::Relaxed);
        Ok(Putter { program, state, data_bytes, _map: map })
    }

    fn put(&self, data: &[u8], stamp: Stamp, position: Option<u32>) -> io::Result<bool> {
        use std::sync::atomic::Ordering::Relaxed;
        let word = |at: i16| &self.state.words(at as usize)[0];
        let dropped = word(state::DROPPED_MEMORY).load(Relaxed);
        word(state::TIME).store(stamp.time_ns, Relaxed);
        word(state::DEADLINE).store(stamp.deadline_ns, Relaxed);
        let behind = self.data_bytes.next_multiple_of(8) as usize;
        self.state.words(EVENT as usize)[..behind / 8].iter().for_each(|word| word.store(0, Relaxed));
        self.state.copy_from(EVENT as usize, &data[..data.len().min(self.data_bytes as usize)]);
        self.state.words(EVENT as usize + behind)[0].store(position.unwrap_or(0).into(), Relaxed);
        self.program.run(1)?;
        Ok(word(state::DROPPED_MEMORY).load(Relaxed) == dropped)
    }
}

/// Attempts to take the lock of a handler that is writing; a handler never holds it that long.
const SPINS: u64 = 100_000;

/// The memory_down of an application session. The application receives its descriptor.
#[derive(Debug)]
pub struct DownMemory {
    map: Map,
    area: Arc<DownArea>,
    /// Created for the first handler of deferred values.
    positions: OnceLock<Arc<Positions>>,
}

/// The area, mapped in this process.
#[derive(Debug)]
pub(super) struct DownArea(Mapping);

impl DownArea {
    pub(super) fn down(&self) -> &Down {
        self.0.head()
    }
}

impl DownMemory {
    pub fn new() -> io::Result<DownMemory> {
        let map = Map::array(size_of::<Down>() as u32, 1)?;
        let area = Arc::new(DownArea(map.map(size_of::<Down>())?));
        Ok(DownMemory { map, area, positions: OnceLock::new() })
    }

    /// The area. Map it shared for reading and writing, `size_of::<Down>()` from offset 0.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.map.fd()
    }

    /// The map whose descriptor the application receives.
    pub fn object(&self) -> io::Result<KernelObject> {
        self.map.id().map(KernelObject::Map)
    }

    /// The attributes, mapped in this process.
    pub fn down(&self) -> &Down {
        self.area.down()
    }

    pub(super) fn area(&self) -> Arc<DownArea> {
        self.area.clone()
    }

    /// The positions of the handlers of deferred values.
    pub(super) fn positions(&self) -> io::Result<Arc<Positions>> {
        if let Some(positions) = self.positions.get() {
            return Ok(positions.clone());
        }
        let fresh = Arc::new(Positions::new()?);
        Ok(self.positions.get_or_init(|| fresh).clone())
    }
}
