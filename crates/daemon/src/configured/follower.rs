//! The contracts of one table `[[contract]]`: one for each process of the group that is no child of another.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use qfabric_linux::targets::{self, MOST_ROOTS, Refused};
use qfabric_linux::{threads, watch};
use qfabric_types::api::{Application, ApplicationRequest, ApplicationScope, ConfiguredContract, Problem};
use qfabric_types::{AppId, Owner};

use super::ContractConfig;
use crate::auth::{self, Peer};
use crate::control::{Command, Requests};
use crate::problem;

/// One table and the processes that have its contract.
#[derive(Debug)]
pub(super) struct Follower {
    pub config: ContractConfig,
    /// The group, at the last look.
    folder: Option<PathBuf>,
    covered: BTreeMap<i32, Covered>,
    refused: Refused,
    /// The refusal that the log has: the same one is not logged again until a process is admitted.
    logged: Option<String>,
    /// The last refusal.
    refusal: Option<Problem>,
    /// All processes of the group, at the last look.
    listed: BTreeSet<i32>,
    /// Those of them that have no contract and are no children of others.
    waiting: Vec<i32>,
}

/// A process with a contract of this table.
#[derive(Debug)]
struct Covered {
    app: AppId,
    /// The user that the contract counts against. A service begins as root, and changes its user later.
    owner: Owner,
    process: watch::Process,
}

impl Follower {
    pub(super) fn new(config: ContractConfig) -> Follower {
        Follower {
            config,
            folder: None,
            covered: BTreeMap::new(),
            refused: Refused::default(),
            logged: None,
            refusal: None,
            listed: BTreeSet::new(),
            waiting: Vec::new(),
        }
    }

    /// Compares the group with the contracts: ends those of processes that left, asks for new ones.
    pub(super) fn look(&mut self, requests: &Requests) {
        self.folder = self.config.place.folder();
        let listed = match self.folder.as_deref().map_or_else(|| Ok(BTreeSet::new()), targets::processes) {
            Ok(listed) => listed,
            // It has vanished after it was found.
            Err(_) if self.config.place.folder().is_none() => BTreeSet::new(),
            Err(error) => return self.report(error.problem()),
        };
        let is_same = listed == self.listed;
        self.listed = listed;
        if self.end_contracts_of_others(requests) || !is_same {
            self.waiting = targets::roots_among(self.listed.clone());
        }
        self.waiting.retain(|pid| !self.covered.contains_key(pid));
        self.refused.keep(&self.waiting);
        for pid in self.waiting.clone() {
            if self.refused.is_due(pid) {
                self.admit(pid, requests);
            }
        }
        self.refusal.take_if(|_| self.refused.is_empty());
    }

    /// Ends the contracts of processes that left the group or changed their user. Those that ended have none any more.
    /// Returns whether there was one of them.
    fn end_contracts_of_others(&mut self, requests: &Requests) -> bool {
        let before = self.covered.len();
        self.covered.retain(|pid, covered| {
            let is_there = !covered.process.ended();
            let stays = is_there && self.listed.contains(pid) && threads::owner(*pid) == Some(covered.owner);
            if is_there && !stays {
                leave(covered.app, requests);
            }
            stays
        });
        if before > 0 && self.covered.is_empty() {
            let ContractConfig { place, contract } = &self.config;
            tracing::info!(contract = contract.name, %place, "no process has this contract any more");
        }
        self.covered.len() < before
    }

    fn admit(&mut self, pid: i32, requests: &Requests) {
        let ContractConfig { place, contract } = &self.config;
        match self.ask(pid, requests) {
            Ok((covered, Application { granted, .. })) => {
                tracing::info!(contract = contract.name, %place, pid, app = %covered.app, %granted, "a process has a contract");
                self.covered.insert(pid, covered);
                self.refused.forget(pid);
                (self.logged, self.refusal) = (None, None);
            }
            Err(problem) if problem.code == "gone" => self.refused.forget(pid),
            Err(problem) => {
                if self.refused.again(pid, &problem.code) {
                    self.report(problem);
                } else {
                    self.refusal = Some(problem);
                }
            }
        }
    }

    fn ask(&self, pid: i32, requests: &Requests) -> Result<(Covered, Application), Problem> {
        if self.covered.len() >= MOST_ROOTS {
            let why = format!("the group has more than {MOST_ROOTS} processes that are not children of each other");
            return Err(Problem::new("too_many_applications", why, "name a smaller group"));
        }
        let process = watch::Process::watch(pid).map_err(|error| problem::unwatchable(pid, &error))?;
        let peer = own_peer();
        let covers = ApplicationScope::Program;
        let target = auth::target(peer, pid, covers)?;
        let owner = target.owner;
        let request = Box::new(ApplicationRequest { pid, covers, contract: self.config.contract.clone() });
        let application = requests.ask_waiting(|reply| Command::Join { peer, target, request, claim: None, reply })?;
        Ok((Covered { app: application.id, owner, process }, application))
    }

    /// Logs a refusal, unless it is the one that was logged last.
    fn report(&mut self, problem: Problem) {
        if self.logged.as_ref() != Some(&problem.code) && problem.code != problem::stopping().code {
            let ContractConfig { place, contract } = &self.config;
            let Problem { code, message, next_step, .. } = &problem;
            tracing::warn!(contract = contract.name, %place, code, why = message, next = next_step, "a process has no \
                                                                                                      contract");
            self.logged = Some(code.clone());
        }
        self.refusal = Some(problem);
    }

    /// The options have changed: changes the contracts in force.
    pub(super) fn change(&mut self, config: ContractConfig, requests: &Requests) {
        self.config = config;
        (self.logged, self.refused) = (None, Refused::default());
        let peer = own_peer();
        for (pid, covered) in &self.covered {
            let (app, contract) = (covered.app, Box::new(self.config.contract.clone()));
            if let Err(why) = requests.ask_waiting(|reply| Command::Change { peer, app, contract, reply }) {
                let contract = &self.config.contract.name;
                tracing::error!(contract, pid, %why, "the old contract stays in force until the process restarts");
            }
        }
    }

    /// Ends all contracts of the table.
    pub(super) fn end(self, requests: &Requests) {
        self.covered.values().for_each(|covered| leave(covered.app, requests));
    }

    /// What has to be watched: where the group appears and vanishes, and whether it has processes.
    pub(super) fn watched(&self) -> BTreeSet<PathBuf> {
        let mut watched = self.config.place.watched();
        watched.extend(self.config.place.folder().map(|folder| folder.join("cgroup.events")));
        watched
    }

    /// The processes whose ends have to be watched.
    pub(super) fn processes(&self) -> impl Iterator<Item = &watch::Process> {
        self.covered.values().map(|covered| &covered.process)
    }

    pub(super) fn is_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Whether processes may join without an event: beside others, or in a group of version 1.
    pub(super) fn needs_looks(&self) -> bool {
        self.folder.as_ref().is_some_and(|folder| !self.listed.is_empty() || !folder.join("cgroup.events").exists())
    }

    pub(super) fn shown(&self) -> ConfiguredContract {
        ConfiguredContract {
            name: self.config.contract.name.clone(),
            place: self.config.place.to_string(),
            applications: self.covered.values().map(|covered| covered.app).collect(),
            refused: self.refusal.as_ref().map(ToString::to_string),
        }
    }
}

/// The service asks in its own name: as root for the processes of all users, otherwise for those of its user.
fn own_peer() -> Peer {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Peer { pid: 0, owner: Owner { uid, gid } }
}

/// The contract may have been ended by another command already.
fn leave(app: AppId, requests: &Requests) {
    let _ = requests.ask_waiting(|reply| Command::Leave { peer: own_peer(), app, reply });
}
