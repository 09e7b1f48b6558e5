//! QualMan's programming interface to the processor (§6.4): probe, reserve, start, yield, free.
//!
//! ```no_run
//! use qfabric_client::{Client, Cpu, Nanos};
//!
//! # fn play_a_frame() {}
//! # fn main() -> Result<(), qfabric_client::ClientError> {
//! let period = Nanos::from_millis(40);
//! let mut cpu = Cpu::new();
//! cpu.probe_on(period);
//! for _ in 0..5 {
//!     play_a_frame();
//!     cpu.yield_now(); // marks the end of one iteration
//! }
//! let probe = cpu.probe_off();
//! cpu.reserve(&Client::connect()?, std::process::id() as i32, probe.utilisation, period)?;
//! cpu.start();
//! for _ in 0..100 {
//!     play_a_frame();
//!     cpu.yield_now();
//! }
//! cpu.free_reserve()
//! # }
//! ```
//!
//! The reservation is fixed, as in the paper: C = U·T in every T, without feedback, so every mechanism can serve it. Other
//! tasks use the part that a job does not need.

use std::process;

use qfabric_shm::Process;
use qfabric_types::api::contracts::JointId;
use qfabric_types::api::{ApplicationRequest, ApplicationScope, Claim};
use qfabric_types::{AppId, Class, Contract, Foresight, JobSource, Nanos, Profile, Share};

use crate::client::Client;
use crate::error::ClientError;
use crate::session::Session;

/// Result of a measurement with [`Cpu::probe_on`] and [`Cpu::probe_off`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probe {
    /// U = C/T, where C is the mean computation time of an iteration and T the period.
    pub utilisation: Share,
    /// Measured computation times, for [`Contract::profile`]: QualMan's QoS profile.
    pub profile: Profile,
}

/// The CPU interface of QualMan (§6.4). Belongs to one thread.
#[derive(Default)]
pub struct Cpu {
    state: State,
}

#[derive(Default)]
enum State {
    #[default]
    Free,
    Probing {
        /// Paced and measured, without a reservation.
        pace: Box<Session>,
        costs: Vec<Nanos>,
    },
    /// A reservation for the calling thread.
    Reserved(Box<Session>),
    /// A reservation for another process.
    ReservedFor { client: Client, id: AppId, by: Process },
}

impl Cpu {
    /// Without measurement and reservation.
    pub fn new() -> Self {
        Cpu::default()
    }

    /// Starts to measure iterations with this `period`, without a reservation. Ends a running measurement or
    /// reservation. A period outside the valid range is clamped to the nearest valid value.
    pub fn probe_on(&mut self, period: Nanos) {
        let (shortest, longest) = qfabric_types::PERIOD_RANGE;
        let contract = Contract::new("probe", period.clamp(shortest, longest));
        let mut pace = Session::alone(contract).expect("a default contract with a possible period is valid");
        pace.begin(Foresight::Nothing);
        self.state = State::Probing { pace: Box::new(pace), costs: Vec::with_capacity(64) };
    }

    /// Ends the measurement. The result is empty if [`Cpu::probe_on`] was not called.
    pub fn probe_off(&mut self) -> Probe {
        match std::mem::take(&mut self.state) {
            State::Probing { pace, costs } => {
                let profile = Profile { costs, hints: Vec::new() };
                Probe { utilisation: Share::of_budget(profile.mean(), pace.contract().period), profile }
            }
            other => {
                self.state = other;
                Probe::default()
            }
        }
    }

    /// Reserves `utilisation` of one CPU in every `period`: for the calling thread if `pid` is the caller's process,
    /// otherwise for the whole program `pid`, which must belong to the same user. Ends a running measurement or
    /// reservation. On [`ClientError::Refused`] the problem names the free capacity and its holders.
    pub fn reserve(&mut self, client: &Client, pid: i32, utilisation: Share, period: Nanos) -> Result<(), ClientError> {
        self.state = State::Free;
        self.state = begin(client, None, pid, utilisation, period)?;
        Ok(())
    }

    /// Like [`Cpu::reserve`], from the share of a joint contract, on any of its hosts. The part beyond the contract comes
    /// from the free capacity.
    pub fn reserve_from(
        &mut self,
        client: &Client,
        contract: &JointId,
        pid: i32,
        utilisation: Share,
        period: Nanos,
    ) -> Result<(), ClientError> {
        self.state = State::Free;
        self.state = begin(client, Some(&contract.into()), pid, utilisation, period)?;
        Ok(())
    }

    /// Begins the first iteration now; this time is the origin of the grid of releases.
    pub fn start(&mut self) {
        if let State::Reserved(session) = &mut self.state {
            session.begin(Foresight::Nothing);
        }
    }

    /// Marks the end of an iteration and sleeps until the release of the next one. Without a reservation or
    /// measurement it yields the CPU to other threads once.
    pub fn yield_now(&mut self) {
        match &mut self.state {
            State::Probing { pace, costs } => {
                let job = pace.end_cycle(Foresight::Nothing);
                if costs.len() < Profile::MAX_JOBS {
                    costs.push(job.cost);
                }
                pace.wait_for_next_job();
            }
            State::Reserved(session) => {
                session.end_cycle(Foresight::Nothing);
                session.wait_for_next_job();
            }
            State::Free | State::ReservedFor { .. } => std::thread::yield_now(),
        }
    }

    /// Ends the reservation. Does nothing if there is none.
    pub fn free_reserve(&mut self) -> Result<(), ClientError> {
        match std::mem::take(&mut self.state) {
            State::Reserved(session) => session.end(),
            // In a child of a fork the reservation belongs to the parent.
            State::ReservedFor { client, id, by } if by.is_current() => client.release(id),
            State::ReservedFor { .. } | State::Free | State::Probing { .. } => Ok(()),
        }
    }

    /// The session behind a reservation of the calling thread; None in all other states.
    pub fn session(&mut self) -> Option<&mut Session> {
        match &mut self.state {
            State::Reserved(session) => Some(session),
            _ => None,
        }
    }
}

/// Requests the reservation, with a loan or a joint contract if `claim` names one.
fn begin(
    client: &Client,
    claim: Option<&Claim>,
    pid: i32,
    utilisation: Share,
    period: Nanos,
) -> Result<State, ClientError> {
    let contract = contract(pid, utilisation, period);
    if pid == process::id() as i32 {
        let session = match claim {
            Some(claim) => Session::claim(client, contract, claim)?,
            None => Session::start(client, contract)?,
        };
        return Ok(State::Reserved(Box::new(session)));
    }
    let request = ApplicationRequest { pid, covers: ApplicationScope::Program, contract };
    let by = Process::current().map_err(ClientError::unnumbered)?;
    let admitted = match claim {
        Some(claim) => client.claim(claim, &request)?,
        None => client.admit(&request)?,
    };
    Ok(State::ReservedFor { client: client.clone(), id: admitted.id, by })
}

/// A fixed share in every T. The calls of the own process mark its jobs; nothing marks those of another one.
fn contract(pid: i32, utilisation: Share, period: Nanos) -> Contract {
    let is_own = pid == process::id() as i32;
    Contract {
        class: Class::B,
        fixed: Some(utilisation),
        max_bandwidth: utilisation,
        jobs: if is_own { JobSource::Marked } else { JobSource::Consumption },
        server_period: period,
        ..Contract::new(&format!("pid-{pid}"), period)
    }
}
