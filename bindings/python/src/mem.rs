//! Memory that stays resident (QualMan §6.4): the native halves of `Mem` and `Allocation`.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use qfabric_client::{Allocation, AllocationId, Mem, PageKind, ReserveId};

use crate::connect;
use crate::ecalls::value_error;
use crate::errors::python;
use crate::held::Held;

const CLOSED: &str = "the connection for memory is closed";
const FREED: &str = "the allocation is freed";

/// A connection to the memory of the daemon.
#[pyclass(frozen)]
pub(crate) struct NativeMem(Held<Mem>);

#[pymethods]
impl NativeMem {
    #[new]
    #[pyo3(signature = (socket=None))]
    fn new(py: Python<'_>, socket: Option<String>) -> PyResult<Self> {
        let made = py.detach(|| Mem::connect(&connect(socket)?).map_err(python))?;
        Ok(NativeMem(Held::new(made)))
    }

    fn reserve(&self, py: Python<'_>, bytes: u64) -> PyResult<u64> {
        self.0.with(py, CLOSED, |mem| Ok(mem.reserve(bytes).map_err(python)?.0))
    }

    /// From the memory of a joint contract.
    fn reserve_from(&self, py: Python<'_>, contract: &str, bytes: u64) -> PyResult<u64> {
        let contract = contract.parse().map_err(value_error)?;
        self.0.with(py, CLOSED, |mem| Ok(mem.reserve_from(&contract, bytes).map_err(python)?.0))
    }

    /// The number of the reserve, its size, and the text of what is missing for huge pages.
    #[pyo3(signature = (bytes, contract=None))]
    fn reserve_huge(&self, py: Python<'_>, bytes: u64, contract: Option<&str>) -> PyResult<(u64, u64, Option<String>)> {
        let contract = contract.map(|contract| contract.parse().map_err(value_error)).transpose()?;
        let make = |mem: &Mem| match &contract {
            Some(contract) => mem.reserve_huge_from(contract, bytes),
            None => mem.reserve_huge(bytes),
        };
        let made = self.0.with(py, CLOSED, |mem| make(mem).map_err(python))?;
        Ok((made.reserve.0, made.bytes, made.missing))
    }

    fn join(&self, py: Python<'_>, reserve: u64) -> PyResult<u64> {
        self.0.with(py, CLOSED, |mem| mem.join(ReserveId(reserve)).map_err(python))
    }

    fn resize(&self, py: Python<'_>, reserve: u64, bytes: u64) -> PyResult<u64> {
        self.0.with(py, CLOSED, |mem| mem.resize(ReserveId(reserve), bytes).map_err(python))
    }

    fn lock_text(&self, py: Python<'_>, reserve: u64) -> PyResult<u64> {
        self.0.with(py, CLOSED, |mem| mem.lock_text(ReserveId(reserve)).map_err(python))
    }

    fn alloc(&self, py: Python<'_>, reserve: u64, bytes: u64) -> PyResult<NativeAllocation> {
        let made = self.0.with(py, CLOSED, |mem| mem.alloc(ReserveId(reserve), bytes).map_err(python))?;
        Ok(NativeAllocation(Held::new(made)))
    }

    fn open(&self, py: Python<'_>, reserve: u64, allocation: u64) -> PyResult<NativeAllocation> {
        let open = |mem: &mut Mem| mem.open(ReserveId(reserve), AllocationId(allocation)).map_err(python);
        Ok(NativeAllocation(Held::new(self.0.with(py, CLOSED, open)?)))
    }

    fn free_reserve(&self, py: Python<'_>, reserve: u64) -> PyResult<()> {
        self.0.with(py, CLOSED, |mem| mem.free_reserve(ReserveId(reserve)).map_err(python))
    }

    fn close(&self, py: Python<'_>) {
        let _ = self.0.end(py, drop);
    }
}

/// Memory of a reserve.
#[pyclass(frozen)]
pub(crate) struct NativeAllocation(Held<Allocation>);

#[pymethods]
impl NativeAllocation {
    fn id(&self, py: Python<'_>) -> PyResult<u64> {
        self.0.with(py, FREED, |allocation| Ok(allocation.id().0))
    }

    fn pages(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.0.with(py, FREED, |allocation| {
            Ok(match allocation.pages() {
                PageKind::Base => "base",
                PageKind::Advised => "advised",
                PageKind::Huge => "huge",
            })
        })
    }

    fn length(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.with(py, FREED, |allocation| Ok(allocation.len()))
    }

    fn write(&self, py: Python<'_>, offset: usize, data: &[u8]) -> PyResult<()> {
        self.0.with(py, FREED, |allocation| {
            check(allocation, offset, data.len())?;
            allocation.write(offset, data);
            Ok(())
        })
    }

    fn read<'py>(&self, py: Python<'py>, offset: usize, length: usize) -> PyResult<Bound<'py, PyBytes>> {
        let copied = self.0.with(py, FREED, |allocation| {
            check(allocation, offset, length)?;
            let mut data = vec![0; length];
            allocation.read(offset, &mut data);
            Ok(data)
        })?;
        Ok(PyBytes::new(py, &copied))
    }

    fn free(&self, py: Python<'_>) -> PyResult<()> {
        self.0.end(py, |allocation| allocation.free().map_err(python)).unwrap_or(Ok(()))
    }
}

fn check(allocation: &Allocation, offset: usize, length: usize) -> PyResult<()> {
    match offset.checked_add(length).is_some_and(|end| end <= allocation.len()) {
        true => Ok(()),
        false => Err(value_error(format!(
            "{length} bytes at {offset} reach beyond the {} bytes of the allocation",
            allocation.len()
        ))),
    }
}
