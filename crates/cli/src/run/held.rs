//! The contract of a program that `run` started, over restarts of the daemon.
//!
//! ```text
//! Held ── the daemon has restarted ──> Lost ── granted ──> Held
//!   └──── ended otherwise ──> Over       └─ refused: the next requests wait longer
//! ```
//! A daemon that ends restores all threads, so the program goes on without a reservation until the next daemon grants
//! one.

use qfabric_client::{Client, ClientError};
use qfabric_linux::targets::Refused;
use qfabric_types::api::{Application, ApplicationRequest, Claim, Problem};
use qfabric_types::{AppId, MechanismName};

use super::{admit, check_mechanism, of_same_process, release, rhythm_news, save_energy};
use crate::connect::{self, DaemonMark};
use crate::exit::Failure;
use crate::output;

/// Largest number of earlier contracts that are reported; the oldest ones are left out.
const MOST_EARLIER: usize = 64;

/// Everything that the daemon is asked for, at first and after each of its restarts.
pub(super) struct Request<'a> {
    pub(super) client: &'a Client,
    pub(super) application: &'a ApplicationRequest,
    /// The joint contract to draw from. A loan is asked for only at first: it is used up.
    pub(super) joint: Option<&'a Claim>,
    pub(super) mechanism: MechanismName,
    pub(super) saves_energy: bool,
    pub(super) quiet: bool,
}

impl Request<'_> {
    /// Asks a daemon that has restarted.
    fn again(&self) -> Result<Application, Failure> {
        check_mechanism(self.client, self.mechanism)?;
        let application = admit(self.client, self.application, self.joint)?;
        self.ask_for_energy(application.id);
        Ok(application)
    }

    /// Asks for the lowest clock that suffices, if the user wants it.
    pub(super) fn ask_for_energy(&self, id: AppId) {
        if self.saves_energy {
            save_energy(self.client, id, self.quiet);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    Lost,
    Over,
}

/// The contract, and those that restarts of the daemon ended.
pub(super) struct Held<'a> {
    request: Request<'a>,
    /// The last row that the daemon showed of the contract.
    last: Application,
    /// The last rows of earlier contracts, the oldest first; at most [`MOST_EARLIER`].
    earlier: Vec<Application>,
    /// The daemon that made the contract.
    daemon: Option<DaemonMark>,
    state: State,
    refused: Refused,
    /// Whether the user knows that the daemon that made the contract has not answered.
    is_reported: bool,
}

impl<'a> Held<'a> {
    /// The contract `first`, which the daemon `daemon` made.
    pub(super) fn new(request: Request<'a>, first: Application, daemon: Option<DaemonMark>) -> Held<'a> {
        let (earlier, refused) = (Vec::new(), Refused::default());
        Held { request, last: first, earlier, daemon, state: State::Held, refused, is_reported: false }
    }

    /// Process id of the program, as the daemon shows it.
    pub(super) fn pid(&self) -> i32 {
        self.last.pid
    }

    /// All contracts, the oldest first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Application> {
        self.earlier.iter().chain([&self.last])
    }

    /// Reads the row of the contract.
    ///
    /// # Errors
    /// The daemon does not answer, or has no such contract; then [`Held::lose`] decides.
    pub(super) fn look(&mut self) -> Result<(), ClientError> {
        if self.state != State::Held {
            return Ok(());
        }
        let row = of_same_process(self.request.client.application(self.last.id), self.last.pid)?;
        if let Some(news) = rhythm_news(&self.last, &row).filter(|_| !self.request.quiet) {
            output::note(format_args!("qfabric: {news}"));
        }
        self.last = row;
        Ok(())
    }

    /// After a look that failed while the program runs.
    pub(super) fn lose(&mut self, error: &ClientError) {
        let name = &self.last.contract.name;
        self.state = match error {
            ClientError::Refused(problem) => {
                after_refusal(problem, self.daemon, connect::daemon_mark(self.request.client.socket()))
            }
            _ => State::Held,
        };
        match self.state {
            State::Over => output::note(format_args!(
                "qfabric: the contract of {name} has ended; the program continues without a reservation"
            )),
            State::Lost => {
                self.refused.expect(self.last.pid);
                output::note(format_args!("qfabric: the daemon has restarted; asking again for a contract for {name}"));
            }
            State::Held if !self.is_reported => {
                self.is_reported = true;
                output::note(format_args!(
                    "qfabric: {error}; the program continues, and a daemon that has restarted is asked again"
                ));
            }
            State::Held => {}
        }
    }

    /// Asks for a contract if a restart of the daemon ended the last one. A refusal is reported once.
    pub(super) fn ask_again(&mut self) {
        let pid = self.last.pid;
        if self.state != State::Lost || !self.refused.is_due(pid) {
            return;
        }
        // Read first: a daemon that restarts during the request has another mark.
        let daemon = connect::daemon_mark(self.request.client.socket());
        match self.request.again() {
            Ok(application) => {
                self.refused.forget(pid);
                (self.state, self.daemon, self.is_reported) = (State::Held, daemon, false);
                if self.earlier.len() >= MOST_EARLIER {
                    self.earlier.remove(0);
                }
                let Application { contract, granted, .. } = &application;
                output::note(format_args!("qfabric: {} is reserved again: {granted} granted", contract.name));
                self.earlier.push(std::mem::replace(&mut self.last, application));
            }
            Err(why) => {
                if self.refused.again(pid, "") {
                    output::note(format_args!("qfabric: the program continues without a reservation: {why}"));
                }
            }
        }
    }

    /// Releases the contract of a program that has ended.
    pub(super) fn release(&self) {
        release(self.request.client, &self.last);
    }
}

/// The state after the daemon `now` has refused to show a contract that the daemon `made_by` made. A daemon that is
/// busy, that stops, or that has too many callers still has it.
fn after_refusal(problem: &Problem, made_by: Option<DaemonMark>, now: Option<DaemonMark>) -> State {
    match problem.code.as_str() {
        _ if now.is_some() && now != made_by => State::Lost,
        "not_found" => State::Over,
        _ => State::Held,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contract_has_ended_only_if_its_daemon_does_not_find_it_or_another_daemon_answers() {
        let (made_by, next) = (Some((1, 2, 3, 4)), Some((1, 2, 5, 6)));
        let after = |code: &str, now| after_refusal(&Problem::new(code, "why", "next"), made_by, now);
        let passing = ["busy", "stopping", "timeout", "too_many_connections"];
        assert_eq!(passing.map(|code| after(code, made_by)), [State::Held; 4]);
        assert_eq!(after("stopping", None), State::Held, "a daemon that stops removes its socket first");
        assert_eq!(after("not_found", made_by), State::Over);
        assert_eq!(["not_found", "other_version"].map(|code| after(code, next)), [State::Lost; 2]);
    }
}
