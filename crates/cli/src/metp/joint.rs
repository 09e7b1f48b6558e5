//! The resources of a sender from one joint contract: CPU time and memory of this process, and the rate of its packets.

use qfabric_carrier::{ClientConnection, Error};
use qfabric_client::{Client, JointHandle, JointResource};
use qfabric_translate::Stream;
use qfabric_types::api::{ApplicationRequest, ApplicationScope, Claim};
use qfabric_types::channel::Name;
use qfabric_types::{BitRate, Bytes, Class, Contract, Direction, JobSource, LinkEnd, Resource, Share};

use super::failure;
use super::rate::Terms;
use crate::connect::{self, Daemon};
use crate::contracts::leased_request;
use crate::exit::Failure;

/// A joint contract in force, with what this host gives for it. Ends with this value, or with the process.
pub(super) struct Joint {
    client: Client,
    here: Name,
    contract: JointHandle,
}

impl Joint {
    /// Reserves all amounts of the stream on all its hosts, or nothing. CPU time and memory of this host are this
    /// process's from now on.
    pub(super) fn begin(stream: &Stream, daemon: &Daemon) -> Result<Joint, Failure> {
        let client = daemon.client()?;
        let here = client.host_name().map_err(connect::failure)?;
        let request = leased_request(stream, &here)?;
        let contract = JointHandle::apply(&client, &request).map_err(connect::failure)?;
        let joint = Joint { client, here, contract };
        joint.cover_process()?;
        Ok(joint)
    }

    /// What this host gives of a resource, in its unit.
    fn own(&self, resource: &Resource) -> u64 {
        let is_own = |found: &&JointResource| found.host == self.here && found.resource == *resource;
        self.contract.resources().iter().find(is_own).map_or(0, JointResource::granted_units)
    }

    fn cover_process(&self) -> Result<(), Failure> {
        let share = Share::from_ppm(u32::try_from(self.own(&Resource::Cpu)).unwrap_or(u32::MAX));
        let memory = Bytes::new(self.own(&Resource::Memory));
        if share == Share::ZERO && memory == Bytes::ZERO {
            return Ok(());
        }
        let mut contract = Contract { jobs: JobSource::Consumption, memory, ..Contract::default() };
        contract.name = "metp-send".to_owned();
        if share > Share::ZERO {
            // What ffprobe and bursts need beyond the contract comes from the free capacity.
            let most = contract.max_bandwidth.max(share);
            (contract.class, contract.guaranteed, contract.max_bandwidth) = (Class::B, Some(share), most);
        }
        let request =
            ApplicationRequest { pid: std::process::id() as i32, covers: ApplicationScope::Program, contract };
        let claim = Claim::from(self.contract.id());
        self.client.claim(&claim, &request).map(drop).map_err(connect::failure)
    }

    /// Sends at the contract's rate from now on.
    pub(super) fn grant_rate(&self, connection: &ClientConnection, terms: &Terms) -> Result<BitRate, Failure> {
        let Some(interface) = &terms.interface else {
            return Err(Failure::usage(
                "--joint needs an interface, and the contract names none\ntry: interface = in [local]",
            ));
        };
        let end = LinkEnd { interface: interface.clone(), direction: Direction::Out };
        let rate = BitRate::new(self.own(&Resource::Network(end)));
        let id = Some(self.contract.id());
        connection.reserve(&self.client, interface.as_str(), rate, terms.period, id).map_err(|error| match error {
            Error::Daemon(error) => connect::failure(*error),
            error => failure(&error),
        })
    }

    /// The contract and its amounts on this host, for a person.
    pub(super) fn text(&self) -> String {
        let own = self.contract.resources().iter().filter(|found| found.host == self.here);
        let amounts: Vec<String> = own.map(|found| found.resource.amount(found.granted_units()).to_string()).collect();
        format!("contract {}: {} here", self.contract.id(), amounts.join(", "))
    }
}
