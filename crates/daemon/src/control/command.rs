//! What the API asks of the control thread, and the way there: a bounded queue and an eventfd.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};

use qfabric_host::monitor::Published;
use qfabric_linux::ApplyError;
use qfabric_linux::capacity::Probes;
use qfabric_linux::ecalls::Aim;
use qfabric_shm::SharedRing;
use qfabric_types::api::{Application, ApplicationRequest, Claim, HostLimits, HostStatus, LimitsPatch, Problem};
use qfabric_types::{AppId, Contract, Instant, Share};
use tokio::sync::oneshot;

use super::counters::Counters;
use super::loans::Keep;
use super::rings::RingCounters;
use super::sources::wake;
use crate::auth::{Peer, Target};
use crate::problem;

/// Requests that may wait. Each is a millisecond at worst; more waiting would only be answered too late.
pub(crate) const WAITING: usize = 64;

/// Where an answer goes. Nobody listening any more is no error.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Problem>>;

/// What a monitor reads of an application.
#[derive(Debug)]
pub(crate) struct Monitored {
    pub pid: i32,
    /// Published at the end of each turn, until it leaves.
    pub numbers: Weak<Published>,
}

/// A request, its credentials already looked up.
pub(crate) enum Command {
    Join {
        peer: Peer,
        target: Target,
        request: Box<ApplicationRequest>,
        /// What another host was promised for it.
        claim: Option<Claim>,
        reply: Reply<Application>,
    },
    Change {
        peer: Peer,
        app: AppId,
        contract: Box<Contract>,
        reply: Reply<Application>,
    },
    Leave {
        peer: Peer,
        app: AppId,
        reply: Reply<()>,
    },
    Show {
        app: AppId,
        reply: Reply<Application>,
    },
    /// The application is to be monitored by its owner.
    Monitor {
        peer: Peer,
        app: AppId,
        reply: Reply<Monitored>,
    },
    Status {
        reply: Reply<HostStatus>,
    },
    Report {
        reply: Reply<Box<Report>>,
    },
    TakeRing {
        peer: Peer,
        app: AppId,
        ring: NewRing,
        reply: Reply<()>,
    },
    /// An event is pending for the process.
    Favour {
        pid: i32,
        deadline: Option<Instant>,
    },
    /// A handler in the kernel is to favour the process's servers.
    Aim {
        pid: i32,
        aim: Weak<Aim>,
    },
    /// A policy decided about an application. Nobody waits for the answer: what is refused is logged.
    Adjust {
        peer: Peer,
        whom: AdjustmentTarget,
        adjustment: Adjustment,
    },
    /// Something is to be kept for an application of another host. The answer comes through its teller.
    Keep(Box<Keep>),
    /// It need not be kept any more.
    LetGo(Claim),
    /// So much is booked for nobody.
    Lost(i64),
    /// Asks admission control by these threads, between our own settings.
    Grantable {
        probes: Probes,
        reply: oneshot::Sender<(Probes, Result<u64, ApplyError>)>,
    },
    /// What the administrator allows now.
    Limits {
        reply: Reply<HostLimits>,
    },
    /// What it allows from now on, checked already.
    SetLimits {
        limits: Box<HostLimits>,
        reply: Reply<HostLimits>,
    },
    /// What it allows differently from now on.
    ChangeLimits {
        patch: Box<LimitsPatch>,
        reply: Reply<HostLimits>,
    },
}

/// Whom a policy decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdjustmentTarget {
    Application(AppId),
    /// Whatever it has under reservation.
    Process(i32),
}

/// What a policy changes of a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adjustment {
    /// Q̄/P.
    Most(Share),
    Weight(u32),
}

/// A fresh ring for an application.
pub(crate) struct NewRing {
    pub memory: SharedRing,
    pub wake: OwnedFd,
    pub lease: OwnedFd,
}

/// Everything that is measured.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub status: HostStatus,
    pub rings: Vec<(AppId, RingCounters)>,
    pub counters: Counters,
    pub notes_dropped: u64,
}

/// The API's end of the queue.
#[derive(Clone)]
pub(crate) struct Requests {
    queue: SyncSender<Command>,
    wake: Arc<OwnedFd>,
}

/// Both ends; `wake` is what the control thread waits for.
pub(crate) fn requests(wake: Arc<OwnedFd>) -> (Requests, Receiver<Command>) {
    let (queue, receiver) = sync_channel(WAITING);
    (Requests { queue, wake }, receiver)
}

impl Requests {
    /// Asks, and waits for the answer. A full queue is refused at once.
    pub async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply))?;
        answer.await.unwrap_or_else(|_| Err(problem::stopping()))
    }

    /// An event is pending for the process. `false`: the queue is full, nobody is told.
    pub fn favour(&self, pid: i32, deadline: Option<Instant>) -> bool {
        self.send(Command::Favour { pid, deadline }).is_ok()
    }

    /// From now on the handler favours the process's servers, wherever they are.
    pub fn aim(&self, pid: i32, aim: &Arc<Aim>) -> Result<(), Problem> {
        self.send(Command::Aim { pid, aim: Arc::downgrade(aim) })
    }

    /// A policy decided. `false`: the queue is full.
    pub fn adjust(&self, peer: Peer, whom: AdjustmentTarget, adjustment: Adjustment) -> bool {
        self.send(Command::Adjust { peer, whom, adjustment }).is_ok()
    }

    /// Something is to be kept. `false`: the queue is full.
    pub fn keep(&self, keep: Keep) -> bool {
        self.send(Command::Keep(Box::new(keep))).is_ok()
    }

    /// It need not be kept any more. `false`: the queue is full, and it ends when its time is over.
    pub fn let_go(&self, claim: Claim) -> bool {
        self.send(Command::LetGo(claim)).is_ok()
    }

    /// So much is booked for nobody. With a full queue it is told at the next look.
    pub fn lost(&self, units: i64) {
        let _ = self.send(Command::Lost(units));
    }

    /// What admission control grants now, in units of 2⁻²⁰ CPU. Blocks; `None`: the queue is full, or the service ends.
    pub fn grantable(&self, probes: Probes) -> Option<(Probes, Result<u64, ApplyError>)> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Grantable { probes, reply }).ok()?;
        answer.blocking_recv().ok()
    }

    /// The administrator allows something else: all of it is in force when this answers, or nothing has changed.
    pub async fn set_limits(&self, limits: HostLimits) -> Result<HostLimits, Problem> {
        limits.check().map_err(|why| problem::invalid_limit(&why))?;
        self.ask(|reply| Command::SetLimits { limits: Box::new(limits), reply }).await
    }

    fn send(&self, command: Command) -> Result<(), Problem> {
        self.queue.try_send(command).map_err(|refused| match refused {
            TrySendError::Full(_) => problem::busy(WAITING),
            TrySendError::Disconnected(_) => problem::stopping(),
        })?;
        wake(&*self.wake);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::sources::wake_descriptor;

    #[test]
    fn a_full_queue_is_refused_at_once_and_a_closed_one_says_so() {
        let (requests, receiver) = requests(Arc::new(wake_descriptor().unwrap()));
        let status = || {
            let (reply, _) = oneshot::channel();
            requests.send(Command::Status { reply })
        };
        assert!((0..WAITING).all(|_| status().is_ok()));
        assert_eq!(status().unwrap_err().code, "busy");
        drop(receiver);
        assert_eq!(status().unwrap_err().code, "stopping");
    }
}
