//! The steps of a translation, with their formulas and numbers.

use qfabric_types::{Direction, Nanos};

use crate::flow::Flow;
use crate::inverse::delay_of;
use crate::memory::{Buffers, PAGE_BYTES};
use crate::network::{ACKNOWLEDGMENT_DIVISOR, Carriage, HEADER_BYTES, processing_hosts};
use crate::pattern::FrameKind;
use crate::step::{Step, amount, bits, bytes, cpu, memory, milliseconds};
use crate::stream::{End, Host, Medium, Sound, Stream, TransportCost, Video};
use crate::translate::{HostPart, Task, Translation, link_rate};

/// The steps of a translation, in the order of calculation.
pub(crate) fn of(stream: &Stream, translation: &Translation) -> Vec<Step> {
    let mut steps = Vec::new();
    for (flow, carriage) in &translation.flows {
        steps.extend(media_steps(stream, translation, flow));
        steps.extend(carriage.iter().flat_map(|carriage| network_steps(stream, flow, carriage)));
    }
    for (part, (_, end)) in translation.hosts.iter().zip(stream.ends()) {
        steps.extend(host_steps(stream, translation, part, end));
    }
    steps
}

/// The amounts at the worst accepted quality, one step for each.
pub(crate) fn of_minimum(minimum: &Translation) -> Vec<Step> {
    let quality = minimum.quality;
    let step = |host: &Host, resource: String, found| {
        let mut step =
            Step::new(format!("least {resource} on {host}"), "the same steps at the worst accepted quality", found);
        if let Some(rate) = quality.frame_rate {
            step = step.with("R_A", (rate.as_f64(), "frames/s")).with("D", (quality.degradation.as_f64(), "1"));
        }
        match quality.sample_rate {
            Some(rate) => step.with("sample rate", (rate as f64, "samples/s")),
            None => step,
        }
    };
    let amounts = minimum.resources.iter().flat_map(|(host, found)| found.iter().map(move |pair| (host, pair)));
    amounts.map(|(host, (resource, found))| step(host, resource.to_string(), amount(found))).collect()
}

fn media_steps(stream: &Stream, translation: &Translation, flow: &Flow) -> Vec<Step> {
    match (flow.medium, &stream.video, &stream.sound) {
        (Medium::Video, Some(video), _) => video_steps(video, translation, flow),
        (Medium::Sound, _, Some(sound)) => sound_steps(sound, translation, flow),
        _ => Vec::new(),
    }
}

fn video_steps(video: &Video, translation: &Translation, flow: &Flow) -> Vec<Step> {
    let rate = translation.quality.frame_rate.map_or(0.0, |rate| rate.as_f64());
    let frames = flow.original.len() as f64;
    let kinds = [(FrameKind::I, "I"), (FrameKind::P, "P"), (FrameKind::B, "B")];
    let kinds = kinds.into_iter().filter(|(kind, _)| video.pattern.count(*kind) > 0);
    let mut group = Step::new("G video: frames per GOP", "G = G_I + G_P + G_B", (frames, "frames"));
    let mut size = Step::new(
        "M_G video: original size of a GOP",
        "M_G = G_I·M_A^I + G_P·M_A^P + G_B·M_A^B",
        bytes(flow.group_size()),
    );
    for (kind, letter) in kinds {
        let count = (video.pattern.count(kind) as f64, "frames");
        group = group.with(format!("G_{letter}"), count);
        size =
            size.with(format!("G_{letter}"), count).with(format!("M_A^{letter}"), memory(video.sizes[kind as usize]));
    }
    vec![
        Step::new("T video: cycle time", "T = 1 / R_A", milliseconds(flow.period)).with("R_A", (rate, "frames/s")),
        group,
        size,
        processing_step(translation, flow),
        Step::new(
            "M_A video: mean sample size",
            "M_A = ceil(M'_G / G)",
            bytes(flow.processing_size().div_ceil(flow.original.len() as u64)),
        )
        .with("M'_G", bytes(flow.processing_size()))
        .with("G", (frames, "frames")),
    ]
}

fn processing_step(translation: &Translation, flow: &Flow) -> Step {
    let formula = "M'_G = M_G − dropped frames, at most D·M_G";
    Step::new("M'_G video: processing size of a GOP", formula, bytes(flow.processing_size()))
        .with("M_G", bytes(flow.group_size()))
        .with("D", (translation.quality.degradation.as_f64(), "1"))
}

fn sound_steps(sound: &Sound, translation: &Translation, flow: &Flow) -> Vec<Step> {
    let sample_rate = translation.quality.sample_rate.unwrap_or_default() as f64;
    let rate = 1e9 / flow.period.as_f64();
    vec![
        Step::new("R_A sound: rate of blocks", "R_A = 1 / T", (rate, "blocks/s")).with("T", milliseconds(flow.period)),
        Step::new("M_A sound: size of a block", "M_A = ceil(sample rate · T) · sample size", bytes(flow.group_size()))
            .with("sample rate", (sample_rate, "samples/s"))
            .with("T", milliseconds(flow.period))
            .with("sample size", memory(sound.sample_size)),
    ]
}

fn network_steps(stream: &Stream, flow: &Flow, carriage: &Carriage) -> Vec<Step> {
    let medium = flow.medium;
    let seconds = flow.group_time().as_secs_f64();
    let wire: u64 = carriage.wire.iter().sum();
    let largest = carriage.wire.iter().copied().max().unwrap_or(0);
    let mut steps = vec![
        Step::new(
            format!("R_N {medium}: packet rate"),
            "R_N = Σ ceil(M_A / M_N) / (G·T)",
            (carriage.packets as f64 / seconds, "packets/s"),
        )
        .with("Σ ceil(M_A / M_N)", (carriage.packets as f64, "packets"))
        .with("M_N", memory(stream.network.packet))
        .with("G·T", milliseconds(flow.group_time())),
        wire_step(stream, flow, carriage, wire),
        Step::new(
            format!("B_mean {medium}: mean bandwidth"),
            "B_mean = bytes on the link / (G·T)",
            bits(carriage.mean),
        )
        .with("bytes on the link", bytes(wire))
        .with("G·T", milliseconds(flow.group_time())),
        Step::new(
            format!("B_peak {medium}: peak bandwidth"),
            "B_peak = largest frame on the link / T",
            bits(carriage.peak),
        )
        .with("largest frame on the link", bytes(largest))
        .with("T", milliseconds(flow.period)),
    ];
    steps.extend(delay_steps(stream, flow, carriage));
    steps.push(bandwidth_step(medium, carriage));
    steps.push(acknowledgment_step(medium, carriage));
    steps
}

fn wire_step(stream: &Stream, flow: &Flow, carriage: &Carriage, wire: u64) -> Step {
    let name = format!("bytes on the link {}: a group with its headers", flow.medium);
    match stream.network.overhead {
        Some(overhead) => Step::new(name, "Σ ceil(M_A·(1 + overhead))", bytes(wire))
            .with("Σ M_A", bytes(flow.processing_size()))
            .with("overhead", (overhead.as_f64(), "1")),
        None => Step::new(name, "Σ M_A + h·Σ ceil(M_A / M_N)", bytes(wire))
            .with("Σ M_A", bytes(flow.processing_size()))
            .with("h", bytes(HEADER_BYTES))
            .with("Σ ceil(M_A / M_N)", (carriage.packets as f64, "packets")),
    }
}

fn delay_steps(stream: &Stream, flow: &Flow, carriage: &Carriage) -> Vec<Step> {
    let medium = flow.medium;
    let processing = |step: Step| {
        step.with("hosts", (processing_hosts(stream, medium) as f64, "1"))
            .with("T_max", milliseconds(flow.longest_period))
    };
    let sending = format!("sending time {medium}: from release to the last packet");
    let packet = format!("E_N {medium}: end-to-end delay of a packet");
    match (stream.delay, stream.network.delay, carriage.packet_delay) {
        (Some(delay), Some(measured), _) => {
            let formula = "E_A − E_N − hosts·T_max";
            let step = Step::new(sending, formula, milliseconds(carriage.sending)).with("E_A", milliseconds(delay));
            vec![processing(step.with("E_N", milliseconds(measured)))]
        }
        (Some(delay), None, Some(allowed)) => {
            let step = Step::new(packet, "E_N ≤ E_A − (hosts + 1)·T_max", milliseconds(allowed));
            vec![sending_of_a_period(sending, flow.period), processing(step.with("E_A", milliseconds(delay)))]
        }
        (_, Some(measured), _) => {
            let hosts = processing_hosts(stream, medium);
            let total = delay_of(measured, flow.longest_period, flow.longest_period, hosts);
            let name = format!("E_A {medium}: end-to-end delay of a frame");
            let step = Step::new(name, "E_A = E_N + (hosts + 1)·T_max", milliseconds(total));
            vec![sending_of_a_period(sending, flow.period), processing(step.with("E_N", milliseconds(measured)))]
        }
        _ => vec![sending_of_a_period(sending, flow.period)],
    }
}

/// Without a delay and a packet delay, each frame leaves before the next one is released.
fn sending_of_a_period(name: String, period: Nanos) -> Step {
    Step::new(name, "T", milliseconds(period)).with("T", milliseconds(period))
}

fn bandwidth_step(medium: Medium, carriage: &Carriage) -> Step {
    let formula = "B_N = max(B_mean, rate for the sending time)";
    Step::new(format!("B_N {medium}: requested bandwidth"), formula, bits(carriage.bandwidth))
        .with("B_mean", bits(carriage.mean))
        .with("B_peak", bits(carriage.peak))
        .with("sending time", milliseconds(carriage.sending))
}

fn acknowledgment_step(medium: Medium, carriage: &Carriage) -> Step {
    let name = format!("B_ack {medium}: bandwidth of acknowledgments");
    Step::new(name, format!("B_ack = B_N / {ACKNOWLEDGMENT_DIVISOR}"), bits(carriage.acknowledgments()))
        .with("B_N", bits(carriage.bandwidth))
}

fn host_steps(stream: &Stream, translation: &Translation, part: &HostPart, end: &End) -> Vec<Step> {
    let tasks = part
        .tasks
        .iter()
        .flat_map(|task| [transport_step(stream, translation, part, end, task), Some(task_step(&part.host, task))]);
    let mut steps: Vec<Step> = tasks.flatten().collect();
    for (medium, buffers, _) in &part.buffers {
        let period = translation.flows.iter().find(|(flow, _)| flow.medium == *medium);
        let period = period.map(|(flow, _)| flow.period).unwrap_or_default();
        steps.push(buffer_step(stream, &part.host, *medium, *buffers, period));
    }
    steps.push(memory_step(part, end));
    if end.interface.is_some() && stream.peer.is_some() {
        let directions = [Direction::Out, Direction::In];
        steps.extend(directions.map(|direction| link_step(stream, translation, &part.host, direction)));
    }
    steps
}

fn task_step(host: &Host, task: &Task) -> Step {
    let kind = if task.is_transport { "transport of " } else { "" };
    Step::new(format!("U {kind}{} on {host}: CPU utilization", task.medium), "U = C / T", cpu(task.utilization))
        .with("C", milliseconds(task.computation))
        .with("T", milliseconds(task.period))
}

/// C of a transport task whose cost depends on the size of the message.
fn transport_step(stream: &Stream, translation: &Translation, part: &HostPart, end: &End, task: &Task) -> Option<Step> {
    let cost = stream.transport(end).filter(|_| task.is_transport)?;
    let TransportCost::Message { message, megabyte } = cost else { return None };
    let (flow, _) = translation.flows.iter().find(|(flow, _)| flow.medium == task.medium)?;
    let name = format!("C transport of {} on {}: CPU time of a message", task.medium, part.host);
    let formula = "C = directions·(message + byte·largest M_A)";
    let step = Step::new(name, formula, milliseconds(task.computation))
        .with("directions", (1.0 + f64::from(u8::from(stream.is_duplex)), "1"))
        .with("message", milliseconds(message))
        .with("byte", (megabyte.as_f64() / 1e6, "ns/byte"));
    Some(step.with("largest M_A", bytes(flow.largest_frame())))
}

fn buffer_step(stream: &Stream, host: &Host, medium: Medium, buffers: Buffers, period: Nanos) -> Step {
    let formula = match stream.network.is_metp && stream.peer.is_some() {
        true => "working + jitter + skew frames + messages of METP: (1 + ceil(t_out / T)) in each direction",
        false => "working + jitter + skew + unacknowledged frames",
    };
    let kept = if buffers.transport > 0 { "messages of METP" } else { "unacknowledged" };
    let mut step = Step::new(format!("buffers {medium} on {host}"), formula, (buffers.frames() as f64, "frames"))
        .with("working", (buffers.working as f64, "frames"))
        .with("jitter", (buffers.jitter as f64, "frames"))
        .with("skew", (buffers.skew as f64, "frames"))
        .with(kept, (buffers.unacknowledged.max(buffers.transport) as f64, "frames"))
        .with("T", milliseconds(period));
    for (name, time) in [("J_A", stream.jitter), ("Sync_A", stream.skew)] {
        step = time.into_iter().fold(step, |step, time| step.with(name, milliseconds(time)));
    }
    if buffers.unacknowledged + buffers.transport > 0 { step.with("t_out", milliseconds(stream.timeout)) } else { step }
}

fn memory_step(part: &HostPart, end: &End) -> Step {
    let formula = "Mem_req = program + Σ buffers · largest M_A, in whole pages";
    let mut step = Step::new(format!("Mem_req on {}: memory request", part.host), formula, memory(part.memory))
        .with("program", memory(end.memory))
        .with("page", bytes(PAGE_BYTES));
    for (medium, buffers, largest) in &part.buffers {
        step = step.with(format!("buffers {medium}"), (buffers.frames() as f64, "frames"));
        step = step.with(format!("largest M_A {medium}"), bytes(*largest));
    }
    step
}

fn link_step(stream: &Stream, translation: &Translation, host: &Host, direction: Direction) -> Step {
    let carries_media = (*host == Host::Local) == (stream.direction == direction);
    let formula = match (stream.is_duplex, carries_media) {
        (true, _) => "Σ B_N + Σ B_ack",
        (false, true) => "Σ B_N",
        (false, false) => "Σ B_ack",
    };
    let rate = link_rate(stream, &translation.flows, host, direction);
    let mut step = Step::new(format!("bandwidth {direction} of {host}"), formula, bits(rate));
    for (flow, carriage) in &translation.flows {
        let Some(carriage) = carriage else { continue };
        if stream.is_duplex || carries_media {
            step = step.with(format!("B_N {}", flow.medium), bits(carriage.bandwidth));
        }
        if stream.is_duplex || !carries_media {
            step = step.with(format!("B_ack {}", flow.medium), bits(carriage.acknowledgments()));
        }
    }
    step
}
