"""QualMan's interface to memory (its section 6.4): reserve, lock the text, allocate, free, free the reserve."""

from ._qfabric import NativeMem
from .joint import identity


class Allocation:
    """Memory of a reserve. Freed at the end of a ``with`` block, by ``free``, or when it is collected."""

    def __init__(self, native):
        self._native = native

    @property
    def id(self):
        """Its number, for ``Mem.open`` in another process."""
        return self._native.id()

    @property
    def pages(self):
        """The kind of its pages: ``"base"``, ``"advised"`` (the kernel may combine them), or ``"huge"``."""
        return self._native.pages()

    def __len__(self):
        return self._native.length()

    def write(self, data, offset=0):
        """Copies ``data`` to ``offset``."""
        self._native.write(offset, bytes(data))

    def read(self, length, offset=0):
        """A copy of ``length`` bytes from ``offset`` on."""
        return self._native.read(offset, length)

    def free(self):
        """Frees it; a second call does nothing."""
        self._native.free()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free()


class Mem:
    """A connection to the memory of the daemon. Everything allocated through it is free when it closes.

    ::

        with qfabric.Mem() as mem:
            reserve = mem.reserve(500_000)
            mem.lock_text(reserve)
            with mem.alloc(reserve, 76_800) as frame:
                frame.write(pixels)
    """

    def __init__(self, socket=None):
        self._native = NativeMem(socket)

    def reserve(self, size, *, contract=None):
        """Reserves ``size`` bytes that stay resident, rounded up to whole pages; returns the number of the reserve.

        With a joint ``contract`` (a `JointContract`, or the identity of one, on any of its hosts), the memory comes from
        it; the part beyond it comes from the free memory. The reserve stays when the contract ends.
        """
        return self._native.reserve(size) if contract is None else self._native.reserve_from(identity(contract), size)

    def reserve_huge(self, size, *, contract=None):
        """Like :meth:`reserve`, also with a ``contract``, in whole huge pages where the host has free ones.

        Returns the number of the reserve, its size, and what the host lacks to have all of it in huge pages, or None.
        """
        return self._native.reserve_huge(size, None if contract is None else identity(contract))

    def join(self, reserve):
        """Takes part in a reserve of another process of the same user; returns its size in bytes."""
        return self._native.join(reserve)

    def resize(self, reserve, size):
        """Lets a reserve grow or shrink; returns its new size in bytes."""
        return self._native.resize(reserve, size)

    def lock_text(self, reserve):
        """Locks the program text of this process; returns the number of bytes, which count against the reserve."""
        return self._native.lock_text(reserve)

    def alloc(self, reserve, size):
        """Allocates ``size`` bytes of the reserve."""
        return Allocation(self._native.alloc(reserve, size))

    def open(self, reserve, allocation):
        """Opens an allocation of another member of the reserve: the same memory, without a copy."""
        return Allocation(self._native.open(reserve, allocation))

    def free_reserve(self, reserve):
        """Leaves a reserve; the last member ends it."""
        self._native.free_reserve(reserve)

    def close(self):
        """Closes the connection, after its allocations are freed."""
        self._native.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
