from contextlib import AbstractContextManager
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from .ecalls import ECalls as ECalls

__version__: str

class Error(Exception): ...
class NoDaemon(Error): ...

class Refused(Error):
    code: str
    next_step: str
    asked: Optional[float]
    free: Optional[float]
    # Host, seconds until the loan expires, claim.
    offer: Optional[Tuple[str, float, str]]

class Grant(NamedTuple):
    budget_ns: int
    period_ns: int
    error_ns: int
    jobs: int
    @property
    def bandwidth(self) -> float: ...

class Overload(NamedTuple):
    wanted: float
    granted: float
    @property
    def part(self) -> float: ...

class Probe(NamedTuple):
    utilisation: float
    costs_ns: List[int]

class Cpu:
    def __init__(
        self,
        period_ms: Optional[float] = None,
        service_ms: Optional[float] = None,
        *,
        name: str = "cpu",
        socket: Optional[str] = None,
    ) -> None: ...
    def probe_on(self, period_ms: float) -> None: ...
    def probe_off(self) -> Probe: ...
    def reserve(self, utilisation: float, period_ms: float) -> None: ...
    def start(self) -> None: ...
    def yield_now(self) -> None: ...
    def free(self) -> None: ...
    @property
    def session(self) -> Optional["Session"]: ...
    def __enter__(self) -> "Cpu": ...
    def __exit__(self, *_: object) -> None: ...

class Session:
    def __init__(
        self,
        period_ms: float,
        *,
        name: str = "python",
        server_period_ms: Optional[float] = None,
        max_bandwidth: float = 0.95,
        predictor: str = "ma:12",
        controller: str = "left",
        cls: str = "C",
        guaranteed: Optional[float] = None,
        rho: float = 1.0,
        early: float = 0.2,
        late: float = 0.0,
        recovery_jobs: int = 10,
        deviation: float = 1.0,
        priority: int = 5,
        weight: int = 1,
        reclaim: bool = True,
        skip_late: bool = False,
        socket: Optional[str] = None,
        alone: bool = False,
        service_ms: Optional[float] = None,
        window: Optional[str] = None,
        work_conserving: bool = False,
        favour_events: bool = False,
        control_place: str = "user",
        claim: Optional[str] = None,
        reclaiming: Optional[str] = None,
        fixed: Optional[float] = None,
        profile: Optional[Tuple[List[int], List[float]]] = None,
    ) -> None: ...
    def on_overload(self, tell: Optional[Callable[[Optional[Overload]], object]]) -> None: ...
    @property
    def overload(self) -> Optional[Overload]: ...
    def predicted_lateness(self) -> Optional[int]: ...
    def skip(self) -> None: ...
    def job(
        self,
        hint: Optional[float] = None,
        *,
        interval: Optional[Tuple[int, int]] = None,
        budget: Optional[int] = None,
        wait: bool = True,
    ) -> AbstractContextManager[Optional[int]]: ...
    def periods(self, count: Optional[int] = None) -> Iterator[int]: ...
    def expect_next(
        self,
        hint: Optional[float] = None,
        *,
        interval: Optional[Tuple[int, int]] = None,
        budget: Optional[int] = None,
    ) -> None: ...
    def begin(
        self,
        hint: Optional[float] = None,
        *,
        interval: Optional[Tuple[int, int]] = None,
        budget: Optional[int] = None,
        release: Optional[int] = None,
    ) -> None: ...
    def end_cycle(
        self,
        hint: Optional[float] = None,
        *,
        interval: Optional[Tuple[int, int]] = None,
        budget: Optional[int] = None,
    ) -> int: ...
    def wait(self) -> int: ...
    def reconnect(self) -> None: ...
    def end(self) -> None: ...
    @property
    def grant(self) -> Grant: ...
    @property
    def quality(self) -> Dict[str, Any]: ...
    @property
    def last_error(self) -> int: ...
    @property
    def id(self) -> Optional[int]: ...
    @property
    def alone_because(self) -> Optional[str]: ...
    def __enter__(self) -> "Session": ...
    def __exit__(self, *_: object) -> None: ...

def suggest(
    costs_ns: Iterable[int],
    period_ms: float,
    *,
    hints: Iterable[float] = (),
    server_period_ms: Optional[float] = None,
    max_bandwidth: float = 0.95,
    controller: str = "left",
    rho: float = 1.0,
    early: float = 0.2,
    late: float = 0.0,
    recovery_jobs: int = 10,
    deviation: float = 1.0,
) -> Dict[str, Any]: ...
def limits(socket: Optional[str] = None) -> Dict[str, Any]: ...
def set_limits(limits: Dict[str, Any], socket: Optional[str] = None) -> Dict[str, Any]: ...
def change_limits(change: Dict[str, Any], socket: Optional[str] = None) -> Dict[str, Any]: ...
def status(socket: Optional[str] = None) -> Dict[str, Any]: ...
def give_back(claim: str, socket: Optional[str] = None) -> None: ...
