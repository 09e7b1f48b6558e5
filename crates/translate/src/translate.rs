//! From the application's terms to the amounts of resources.

use std::collections::BTreeMap;

use qfabric_types::api::Problem;
use qfabric_types::{BitRate, Bytes, Direction, LinkEnd, Nanos, Resources, Share};

use crate::flow::Flow;
use crate::memory::{self, Buffers};
use crate::network::Carriage;
use crate::step::{Explanation, HostResource};
use crate::steps;
use crate::stream::{Computation, End, Host, Level, Medium, Quality, Stream};

/// The mean computation time of each profile that a stream names.
pub type Profiles = BTreeMap<String, Nanos>;

/// The amounts that a stream needs at one quality.
#[derive(Clone, Debug, PartialEq)]
pub struct Translation {
    pub quality: Quality,
    pub resources: Vec<(Host, Resources)>,
    pub(crate) flows: Vec<(Flow, Option<Carriage>)>,
    pub(crate) hosts: Vec<HostPart>,
}

/// The calculated parts of one host's amounts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostPart {
    pub host: Host,
    /// C and U of each task.
    pub tasks: Vec<Task>,
    pub buffers: Vec<(Medium, Buffers, u64)>,
    pub memory: Bytes,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Task {
    pub medium: Medium,
    pub is_transport: bool,
    pub computation: Nanos,
    pub period: Nanos,
    pub utilization: Share,
}

/// A stream asks for amounts that no host can have, or an input is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untranslatable {
    #[error("the profile {name:?} is unknown")]
    UnknownProfile { name: String },
    #[error(
        "{medium}: the delay must be longer than {least}, which the periods of the hosts and the packet delay take"
    )]
    DelayTooShort { medium: Medium, least: Nanos },
    #[error("{host}: {computation} of CPU time in every {period} of {medium} is more than one CPU")]
    MoreThanOneCpu { host: Host, medium: Medium, computation: Nanos, period: Nanos },
    #[error("{medium}: {asked} is more than {}", BitRate::MAX)]
    TooMuchBandwidth { medium: Medium, asked: BitRate },
    #[error("{host}: {asked} of memory is more than {}", Bytes::MAX)]
    TooMuchMemory { host: Host, asked: Bytes },
}

impl Untranslatable {
    pub fn problem(&self) -> Problem {
        let (code, next_step) = match self {
            Untranslatable::UnknownProfile { .. } => {
                ("unknown_profile", "measure it with qfabric probe, or write the time under computation")
            }
            Untranslatable::DelayTooShort { .. } => {
                ("delay_too_short", "allow a longer delay, or a higher lowest rate")
            }
            Untranslatable::MoreThanOneCpu { .. } => ("more_than_one_cpu", "ask for a lower rate"),
            Untranslatable::TooMuchBandwidth { .. } => {
                ("too_much_bandwidth", "ask for a lower rate, smaller frames, or a longer delay")
            }
            Untranslatable::TooMuchMemory { .. } => ("too_much_memory", "ask for smaller frames, or a shorter timeout"),
        };
        Problem::new(code, self.to_string(), next_step)
    }
}

/// Translates `stream` at `quality` into the amounts that each host must promise.
///
/// # Errors
/// A profile is missing, or an amount is impossible.
pub fn translate(stream: &Stream, quality: Quality, profiles: &Profiles) -> Result<Translation, Untranslatable> {
    let media = stream.media().filter_map(|medium| Flow::of(stream, &quality, medium));
    let flows: Vec<_> = media.map(|flow| carried(stream, flow)).collect::<Result<_, _>>()?;
    let hosts: Vec<_> =
        stream.ends().map(|(host, end)| part_of(stream, &flows, host, end, profiles)).collect::<Result<_, _>>()?;
    let ends = stream.ends().zip(&hosts);
    let resources = ends.map(|((host, end), part)| (host.clone(), amounts(stream, &flows, &host, end, part))).collect();
    Ok(Translation { quality, resources, flows, hosts })
}

/// The amounts of each host at the worst accepted quality and at the wanted quality, for a partial acceptance.
///
/// # Errors
/// As [`translate`].
pub fn resources_by_level(
    stream: &Stream,
    profiles: &Profiles,
) -> Result<Vec<(Host, Resources, Resources)>, Untranslatable> {
    let minimum = translate(stream, stream.quality(Level::Minimum), profiles)?;
    let wanted = translate(stream, stream.quality(Level::Wanted), profiles)?;
    let pairs = minimum.resources.into_iter().zip(wanted.resources);
    Ok(pairs.map(|((host, minimum), (_, wanted))| (host, minimum, wanted)).collect())
}

/// The steps from `stream` to the amounts at the wanted quality, and the amounts at the worst accepted one.
///
/// # Errors
/// As [`translate`].
pub fn explain(stream: &Stream, profiles: &Profiles) -> Result<Explanation, Untranslatable> {
    let wanted = translate(stream, stream.quality(Level::Wanted), profiles)?;
    let minimum = translate(stream, stream.quality(Level::Minimum), profiles)?;
    let mut steps = steps::of(stream, &wanted);
    if minimum.resources != wanted.resources {
        steps.extend(steps::of_minimum(&minimum));
    }
    let amounts = wanted.resources.iter().flat_map(|(host, amounts)| amounts.iter().map(move |found| (host, found)));
    let resources = amounts
        .map(|(host, (resource, amount))| HostResource {
            host: host.clone(),
            resource,
            amount: amount.value(),
            unit: amount.unit(),
        })
        .collect();
    Ok(Explanation { steps, resources })
}

fn carried(stream: &Stream, flow: Flow) -> Result<(Flow, Option<Carriage>), Untranslatable> {
    let carriage = stream.peer.as_ref().map(|_| Carriage::of(stream, &flow)).transpose()?;
    Ok((flow, carriage))
}

fn part_of(
    stream: &Stream,
    flows: &[(Flow, Option<Carriage>)],
    host: Host,
    end: &End,
    profiles: &Profiles,
) -> Result<HostPart, Untranslatable> {
    let mut tasks = Vec::new();
    for (flow, carriage) in flows {
        let computation = end.computation(flow.medium).map(|found| time_of(found, profiles)).transpose()?;
        let cost = stream.transport(end).filter(|_| carriage.is_some());
        let transport = cost.map(|cost| cost.of(flow.largest_frame(), stream.is_duplex));
        for (is_transport, computation) in [(false, computation), (true, transport)] {
            tasks.extend(computation.map(|time| task(&host, flow, is_transport, time)).transpose()?);
        }
    }
    let buffers = buffers_of(stream, flows, &host);
    let memory = memory::requested(end.memory, buffers.iter().map(|(_, buffers, largest)| (*buffers, *largest)));
    if memory > Bytes::MAX {
        return Err(Untranslatable::TooMuchMemory { host, asked: memory });
    }
    Ok(HostPart { host, tasks, buffers, memory })
}

fn time_of(computation: &Computation, profiles: &Profiles) -> Result<Nanos, Untranslatable> {
    match computation {
        Computation::Measured(time) => Ok(*time),
        Computation::Profile(name) => {
            profiles.get(name).copied().ok_or_else(|| Untranslatable::UnknownProfile { name: name.clone() })
        }
    }
}

/// U = C/T (§3.4). A task runs on one CPU at a time, so U is at most one.
fn task(host: &Host, flow: &Flow, is_transport: bool, computation: Nanos) -> Result<Task, Untranslatable> {
    let (medium, period) = (flow.medium, flow.period);
    let utilization = Share::of_budget(computation, period);
    if utilization > Share::ONE {
        return Err(Untranslatable::MoreThanOneCpu { host: host.clone(), medium, computation, period });
    }
    Ok(Task { medium, is_transport, computation, period, utilization })
}

fn buffers_of(stream: &Stream, flows: &[(Flow, Option<Carriage>)], host: &Host) -> Vec<(Medium, Buffers, u64)> {
    let variation = |(flow, carriage): &(Flow, Option<Carriage>)| memory::variation(stream, flow, carriage.as_ref());
    let of = |found: &(Flow, Option<Carriage>)| {
        let medium = found.0.medium;
        let other = flows.iter().find(|(flow, _)| flow.medium == memory::other(medium)).map(variation);
        let buffers = memory::buffers(stream, host, &found.0, variation(found), other);
        (medium, buffers, found.0.largest_frame())
    };
    flows.iter().map(of).collect()
}

fn amounts(stream: &Stream, flows: &[(Flow, Option<Carriage>)], host: &Host, end: &End, part: &HostPart) -> Resources {
    let cpu = part.tasks.iter().map(|task| task.utilization).sum();
    let mut resources = Resources::default();
    (resources.cpu, resources.memory) = (cpu, part.memory);
    let Some(interface) = end.interface.as_ref().filter(|_| stream.peer.is_some()) else { return resources };
    for direction in [Direction::Out, Direction::In] {
        let rate = link_rate(stream, flows, host, direction);
        let end = LinkEnd { interface: interface.clone(), direction };
        resources.set_network(end, rate).expect("two links are within the limit");
    }
    resources
}

/// The media in their direction, acknowledgments in the other one; both in both directions if duplex.
pub(crate) fn link_rate(
    stream: &Stream,
    flows: &[(Flow, Option<Carriage>)],
    host: &Host,
    direction: Direction,
) -> BitRate {
    let carries_media = (*host == Host::Local) == (stream.direction == direction);
    let carriages = || flows.iter().filter_map(|(_, carriage)| carriage.as_ref());
    let media: BitRate = carriages().map(|carriage| carriage.bandwidth).sum();
    let acknowledgments: BitRate = carriages().map(Carriage::acknowledgments).sum();
    match (stream.is_duplex, carries_media) {
        (true, _) => media + acknowledgments,
        (false, true) => media,
        (false, false) => acknowledgments,
    }
}
