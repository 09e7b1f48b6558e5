//! Table 1: each symbol from the application's terms to the system's, and back.
//!
//! The rows are printed: the value of each symbol with its formula, and the value that the inverse gives from it. The
//! panels show both directions for a film of 5 to 50 frames per second.

use anyhow::{Context, Result};
use qfabric_translate::{
    Explanation, FrameRate, Host, Level, Offer, Profiles, Stream, computation_within, degradation_of, delay_of,
    explain, jitter_within, largest_group, largest_sample, offer, rate_of_packets, rate_of_period, rate_within,
    samples_in_memory, translate,
};
use qfabric_types::{BitRate, Bytes, Direction, LinkEnd, Nanos, Resources, Share};

use crate::plot::{Curve, Panel};

/// A film with every symbol of Table 1: an IBBP pattern, degradation, delay, jitter and skew.
fn film(rate: f64) -> Result<Stream> {
    let text = format!(
        r#"name = "film"
delay = "900ms"
jitter = "10ms"
skew = "80ms"
[video]
frame_rate = {{ min = 5, max = {rate} }}
frame_size = {{ I = "20kB", P = "10kB", B = "4kB" }}
pattern = "IBBPBB"
degradation = 0.2
[sound]
sample_rate = 44100
sample_size = "4B"
[local]
interface = "eth0"
memory = "8MiB"
computation = {{ video = "5ms", sound = "200us" }}
[peer]
host = "viewer"
interface = "eth1"
computation = {{ video = "8ms", sound = "300us" }}
transport = "1ms"
"#
    );
    Ok(Stream::parse(&text)?)
}

pub(crate) fn panels(_short: bool) -> Result<Vec<Panel>> {
    let example = film(25.0)?;
    let explanation = explain(&example, &Profiles::new())?;
    print_steps(&explanation);
    print_inverses(&example, &explanation)?;
    let (mut cpu, mut bandwidth, mut memory, mut back) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for rate in (1..=10).map(|step| f64::from(step) * 5.0) {
        let stream = film(rate)?;
        let wanted = translate(&stream, stream.quality(Level::Wanted), &Profiles::new())?;
        let part = |host: &Host| wanted.resources.iter().find(|(found, _)| found == host).map(|(_, part)| part.clone());
        let viewer = part(&Host::Peer("viewer".parse()?)).context("the viewer's part")?;
        cpu.push((rate, viewer.cpu.as_f64()));
        bandwidth.push((rate, viewer.network(&end("eth1", Direction::In)?).as_f64() / 1e6));
        memory.push((rate, viewer.memory.as_f64() / 1e6));
        // A wish for 50 frames per second, with the amounts of this rate.
        back.push((rate, offered_rate(&film(50.0)?, &wanted.resources)?));
    }
    let panel = |title: &str, up: &str, curves| Panel::lines(title.into(), "R_A, frames per second", up, curves);
    let one = |name: &str, points| vec![Curve { name: name.into(), points }];
    let amounts = [("U of the viewer, CPU", cpu), ("B_N, Mbit/s", bandwidth), ("Mem_req of the viewer, MB", memory)];
    let amounts = amounts.map(|(name, points)| Curve { name: name.into(), points });
    Ok(vec![
        panel("Table 1: from the application to the system", "amount", amounts.into()),
        panel("Table 1: back, from these amounts", "R_A offered", one("offer of 50 asked frames per second", back)),
    ])
}

fn end(interface: &str, direction: Direction) -> Result<LinkEnd> {
    Ok(LinkEnd { interface: interface.parse()?, direction })
}

fn offered_rate(stream: &Stream, granted: &[(Host, Resources)]) -> Result<f64> {
    let Offer::Within(translation) = offer(stream, granted, &Profiles::new())? else { return Ok(0.0) };
    Ok(translation.quality.frame_rate.context("a film has a rate")?.as_f64())
}

fn print_steps(explanation: &Explanation) {
    println!("| symbol | value | formula |\n|---|---|---|");
    for step in &explanation.steps {
        println!("| {} | {} {} | {} |", step.name, step.value, step.unit, step.formula);
    }
}

/// Each inverse, applied to the values of the forward steps.
fn print_inverses(stream: &Stream, explanation: &Explanation) -> Result<()> {
    let value = |name: &str| {
        let step = explanation.steps.iter().find(|step| step.name.starts_with(name));
        step.map(|step| step.value).with_context(|| format!("no step {name}"))
    };
    let time = |name: &str| Ok::<_, anyhow::Error>(Nanos::from_f64(value(name)? * 1e6));
    let bytes = |name: &str| Ok::<_, anyhow::Error>(Bytes::new(value(name)? as u64));
    let per_second = |rate: Option<FrameRate>| rate.map(|rate| format!("{} per second", rate.as_f64()));
    let (cycle, packet) = (time("T video")?, stream.network.packet);
    let utilization = Share::from_f64(value("U video on viewer")?);
    let computation = computation_within(utilization, cycle);
    let micro_packets = (value("R_N sound")? * 1e6) as u64;
    let frames = value("G video")? as u64;
    let mean = BitRate::new(value("B_mean video")? as u64);
    let group = largest_group(mean, cycle.saturating_mul(frames), frames, &stream.network);
    let blocks = FrameRate::from_f64(value("R_A sound")?).context("a rate")?;
    let delay = delay_of(time("E_N video")?, time("sending time video")?, cycle, 2);
    let largest = stream.video.as_ref().context("a film")?.sizes[0];
    let rows = [
        ("R_A of T", per_second(Some(rate_of_period(cycle)))),
        ("C of U and T", Some(computation.to_string())),
        ("R_A of U and C", per_second(rate_within(utilization, computation))),
        ("R_A of R_N, M_A and M_N", per_second(rate_of_packets(micro_packets, bytes("M_A sound")?, packet))),
        ("largest M_A of R_N, R_A and M_N", Some(largest_sample(micro_packets, blocks, packet).to_string())),
        ("M'_G of B_mean, G and T", Some(group.to_string())),
        ("D of M'_G and M_G", Some(degradation_of(group, bytes("M_G video")?).as_f64().to_string())),
        ("frames of Mem_req", Some(samples_in_memory(bytes("Mem_req on viewer")?, Bytes::ZERO, largest).to_string())),
        ("J_A of E_A and two buffers", Some(jitter_within(delay, 2, cycle).to_string())),
        ("E_A of E_N, sending time and T", Some(delay.to_string())),
    ];
    println!("| back | value |\n|---|---|");
    for (name, value) in rows {
        println!("| {name} | {} |", value.with_context(|| format!("{name} is outside the allowed range"))?);
    }
    Ok(())
}
