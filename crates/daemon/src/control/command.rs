//! Requests of the API to the control thread, and their way: a bounded queue and an eventfd.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};

use qfabric_host::monitor::Published;
use qfabric_linux::ApplyError;
use qfabric_linux::capacity::Probes;
use qfabric_linux::ecalls::Aim;
use qfabric_shm::SharedRing;
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::{
    Application, ApplicationRequest, Change, Claim, HostLimits, HostStatus, LimitsPatch, Problem,
};
use qfabric_types::channel::Name;
use qfabric_types::{AppId, Class, Contract, Instant, Nanos, Share, Window};
use tokio::sync::oneshot;

use super::counters::Counters;
use super::decided::Decision;
use super::engine::Bounds;
use super::joint::{ShareHold, ShareShortage};
use super::loans::Keep;
use super::rings::RingCounters;
use super::sources::wake;
use crate::auth::{Peer, Target};
use crate::closer::Foreign;
use crate::config::check_capacity;
use crate::energy::Checkpoints;
use crate::problem;

/// Requests that may wait. Each takes a millisecond at worst; with more waiting, the answers would come too late.
pub(crate) const WAITING: usize = 64;

/// Where the answer goes. It is not an error if the receiver is gone.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, Problem>>;

/// What a monitor needs to read the numbers of an application.
#[derive(Debug)]
pub(crate) struct Monitored {
    pub pid: i32,
    /// Updated at the end of each turn, until the application leaves.
    pub numbers: Weak<Published>,
}

/// A request whose credentials are checked already.
pub(crate) enum Command {
    Join {
        peer: Peer,
        target: Target,
        request: Box<ApplicationRequest>,
        /// The loan of another host's manager that this application uses.
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
    /// Publishes the application's numbers for its owner's monitor.
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
    /// From now on the handler in the kernel favours the process's servers.
    Aim {
        pid: i32,
        aim: Weak<Aim>,
    },
    /// From now on the application's checkpoints go to the thread that chooses the clock.
    FollowCheckpoints {
        app: AppId,
        checkpoints: Checkpoints,
    },
    /// Carries out a policy's decision about an application. What is granted goes to the decision's `teller`.
    Adjust(Box<Adjust>),
    /// Ends the decisions of a policy: those about the application with this number, or all.
    Withdraw {
        policy: Name,
        member: Option<AppId>,
    },
    /// Keeps capacity for an application of another host. The result goes to the `teller`.
    Keep(Box<Keep>),
    /// Ends a loan.
    LetGo(Claim),
    /// Guarantees a share to a joint contract.
    HoldShare {
        hold: Box<ShareHold>,
        reply: oneshot::Sender<Result<Share, ShareShortage>>,
    },
    /// Frees the share of a joint contract.
    FreeShare {
        id: JointId,
        reply: oneshot::Sender<()>,
    },
    /// Reports bandwidth that the kernel has booked for no thread, in units of 2⁻²⁰ CPU; negative: subtracted twice.
    Lost(i64),
    /// Measures with these threads how much admission control grants; between settings of our own, so that the
    /// measurement disturbs none of them.
    Grantable {
        probes: Probes,
        reply: oneshot::Sender<(Probes, Result<u64, ApplyError>)>,
    },
    /// Reads the limits in force.
    Limits {
        reply: Reply<HostLimits>,
    },
    SetBounds(Bounds),
    /// Replaces all limits. They were checked before.
    SetLimits {
        limits: Box<HostLimits>,
        reply: Reply<HostLimits>,
    },
    /// Changes some limits.
    ChangeLimits {
        patch: Box<LimitsPatch>,
        reply: Reply<HostLimits>,
    },
}

/// A policy's decision about contracts.
pub(crate) struct Adjust {
    /// The user who answers for the policy.
    pub peer: Peer,
    pub whom: AdjustmentTarget,
    pub decision: Decision,
}

/// The application or process that a policy decided about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AdjustmentTarget {
    Application(AppId),
    /// All applications of the process.
    Process(i32),
}

/// The change of a contract that a policy decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adjustment {
    /// The largest bandwidth Q̄/P.
    Most(Share),
    Weight(u32),
    /// The guaranteed share; for a contract with a fixed service, that service.
    Guaranteed(Share),
    /// C, the fixed service in every period.
    Service(Nanos),
    Window(Window),
}

impl Adjustment {
    /// Changes the contract, whose owner is guaranteed the share `own`. A guarantee is at most the contract's largest
    /// bandwidth, and makes a contract of class C one of class B: class C has none. A guarantee or service that is not
    /// larger than the owner's leaves the contract as it is.
    pub(crate) fn apply(self, own: Share, contract: &mut Contract) {
        match self {
            Adjustment::Most(most) => contract.max_bandwidth = most,
            Adjustment::Weight(weight) => contract.weight = weight,
            Adjustment::Service(service) => contract.service = contract.service.max(Some(service)),
            Adjustment::Window(window) => contract.window = Some(window),
            Adjustment::Guaranteed(share) => match (share.min(contract.max_bandwidth), contract.service) {
                (share, _) if share <= own => {}
                (share, Some(service)) => contract.service = Some(share.budget_in(contract.period).max(service)),
                (share, None) => {
                    contract.guaranteed = Some(share);
                    contract.class = if contract.class == Class::C { Class::B } else { contract.class };
                }
            },
        }
    }
}

/// A new ring for an application.
pub(crate) struct NewRing {
    pub memory: SharedRing,
    pub wake: OwnedFd,
    pub lease: Foreign,
}

/// Everything that `/metrics` shows of the control thread.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub status: HostStatus,
    pub rings: Vec<(AppId, RingCounters)>,
    pub counters: Counters,
    pub notes_dropped: u64,
}

/// The sending end of the queue.
#[derive(Clone)]
pub(crate) struct Requests {
    queue: SyncSender<Command>,
    wake: Arc<OwnedFd>,
}

/// Creates the queue. `wake` wakes the control thread.
pub(crate) fn requests(wake: Arc<OwnedFd>) -> (Requests, Receiver<Command>) {
    let (queue, receiver) = sync_channel(WAITING);
    (Requests { queue, wake }, receiver)
}

impl Requests {
    /// Sends a request and waits for the answer. If the queue is full, the request is refused at once.
    pub(crate) async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply))?;
        answer.await.unwrap_or_else(|_| Err(problem::stopping()))
    }

    /// Sends a request, also while the queue is full, and waits for the answer. Blocks.
    pub(crate) fn ask_waiting<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        self.send_waiting(command(reply)).ok_or_else(problem::stopping)?;
        answer.blocking_recv().unwrap_or_else(|_| Err(problem::stopping()))
    }

    /// Reports a pending event for the process. `false`: the queue is full and the event favours no server.
    pub(crate) fn favour(&self, pid: i32, deadline: Option<Instant>) -> bool {
        self.send(Command::Favour { pid, deadline }).is_ok()
    }

    /// From now on the handler favours the process's servers on whatever CPUs they are.
    pub(crate) fn aim(&self, pid: i32, aim: &Arc<Aim>) -> Result<(), Problem> {
        self.send(Command::Aim { pid, aim: Arc::downgrade(aim) })
    }

    /// Sends a policy's decision. `false`: the queue is full.
    pub(crate) fn adjust(&self, adjust: Adjust) -> bool {
        self.send(Command::Adjust(Box::new(adjust))).is_ok()
    }

    /// From now on the application's checkpoints go to `checkpoints`. Waits until the queue has room.
    pub(crate) fn follow_checkpoints(&self, app: AppId, checkpoints: Checkpoints) {
        // Without a receiver the service is ending.
        let _ = self.send_waiting(Command::FollowCheckpoints { app, checkpoints });
    }

    /// Ends decisions of a policy. Waits until the queue has room: otherwise they would stand for ever.
    pub(crate) fn withdraw(&self, policy: Name, member: Option<AppId>) {
        // Without a receiver the service is ending.
        let _ = self.send_waiting(Command::Withdraw { policy, member });
    }

    /// Requests a loan or extends one. `false`: the queue is full.
    pub(crate) fn keep(&self, keep: Keep) -> bool {
        self.send(Command::Keep(Box::new(keep))).is_ok()
    }

    /// Ends a loan. `false`: the queue is full, and the loan ends when its time runs out.
    pub(crate) fn let_go(&self, claim: Claim) -> bool {
        self.send(Command::LetGo(claim)).is_ok()
    }

    /// Guarantees a share to a joint contract, and waits for the answer. `None`: the service ends.
    pub(crate) fn hold_share(&self, hold: ShareHold) -> Option<Result<Share, ShareShortage>> {
        let (reply, answer) = oneshot::channel();
        self.send_waiting(Command::HoldShare { hold: Box::new(hold), reply })?;
        answer.blocking_recv().ok()
    }

    /// Frees the share of a joint contract, and waits until it is free. `false`: the service ends.
    pub(crate) fn free_share(&self, id: JointId) -> bool {
        let (reply, answer) = oneshot::channel();
        self.send_waiting(Command::FreeShare { id, reply }).is_some() && answer.blocking_recv().is_ok()
    }

    /// Reports bandwidth booked for no thread. If the queue is full, the next measurement reports it again.
    pub(crate) fn lost(&self, units: i64) {
        let _ = self.send(Command::Lost(units));
    }

    /// All applications. Blocks. `None`: the queue is full, or the service ends.
    pub(crate) fn applications(&self) -> Option<Vec<Application>> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Status { reply }).ok()?;
        Some(answer.blocking_recv().ok()?.ok()?.applications)
    }

    /// What admission control grants now, in units of 2⁻²⁰ CPU. Blocks. `None`: the queue is full, or the service
    /// ends.
    pub(crate) fn grantable(&self, probes: Probes) -> Option<(Probes, Result<u64, ApplyError>)> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Grantable { probes, reply }).ok()?;
        answer.blocking_recv().ok()
    }

    /// Replaces all limits. When this returns, all are in force, or nothing has changed.
    pub(crate) async fn set_limits(&self, limits: HostLimits) -> Result<HostLimits, Problem> {
        let checked = limits.check().and_then(|()| check_capacity(limits.capacity));
        checked.map_err(|why| why.problem())?;
        self.ask(|reply| Command::SetLimits { limits: Box::new(limits), reply }).await
    }

    /// Replaces the bounds of the loop and the rule for contracts; new contracts obey it.
    pub(crate) fn set_bounds(&self, bounds: Bounds) -> Result<(), Problem> {
        self.send(Command::SetBounds(bounds))
    }

    /// Changes some limits. When this returns, all changes are in force, or nothing has changed.
    pub(crate) async fn change_limits(&self, patch: LimitsPatch) -> Result<HostLimits, Problem> {
        let capacity = if let Change::Set(capacity) = patch.capacity { Some(capacity) } else { None };
        check_capacity(capacity).map_err(|why| why.problem())?;
        self.ask(|reply| Command::ChangeLimits { patch: Box::new(patch), reply }).await
    }

    /// Waits until the queue has room. `None`: the service ends.
    fn send_waiting(&self, command: Command) -> Option<()> {
        self.queue.send(command).ok()?;
        wake(&*self.wake);
        Some(())
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

    /// The control thread does not get the request: its queue stays empty.
    #[tokio::test]
    async fn a_capacity_beyond_the_machines_cpus_is_refused_while_the_service_runs() {
        let (requests, receiver) = requests(Arc::new(wake_descriptor().unwrap()));
        let capacity = Share::from_ppm(4_000_000_000);
        let patch = LimitsPatch { capacity: Change::Set(capacity), ..LimitsPatch::default() };
        let limits = HostLimits { capacity: Some(capacity), ..HostLimits::default() };
        // Dropped unanswered where the request is not refused.
        let closes = std::thread::spawn(move || receiver.recv_timeout(std::time::Duration::from_secs(1)).is_ok());
        for refused in [requests.change_limits(patch).await, requests.set_limits(limits).await] {
            let refused = refused.unwrap_err();
            assert!(refused.code == "invalid_limit" && refused.message.contains("limits.capacity"), "{refused:?}");
        }
        drop(requests);
        assert!(!closes.join().unwrap(), "nothing reached the control thread");
    }

    #[test]
    fn a_request_to_a_full_queue_is_busy_and_to_a_closed_one_stopping() {
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
