//! Figures that change one number: the share of the processor or the network, the size of a packet or an image.

use qfabric_energy::{ClockRule, Energy, Model, slowest_level, stretch_limit};
use qfabric_sched::dwcs::BadTask;

use super::device::{Source, Techniques, Usage, run};
use super::report::Report;
use super::scenarios::{AT_ONCE, MS, SECOND, STRICT, scaled, window};
use super::transcoders::{GRAY, REDUCE};

const CLOCK: Techniques = Techniques { clock: ClockRule::Windows, ..Techniques::NONE };
const DOZE: Techniques = Techniques { card: AT_ONCE, ..Techniques::NONE };

/// Seconds of each run; the mean of one is reported.
const SECONDS: u64 = 10;

fn second(model: &Model, sources: &[Source], techniques: Techniques) -> Result<Usage, BadTask> {
    Ok(run(model, sources, techniques, SECONDS * SECOND)?.mean_of(SECONDS))
}

/// A task without a packet, or with one.
fn task(period: u64, work: u64, bytes: u64, network: u8) -> Source {
    Source { period, arrival: 0, work: work.max(1), bytes, window: window(STRICT), slack: period, network }
}

/// Frequency scaling by the share of the processor, and sleep by the share of the network (§7.1, Figure 60).
pub(super) fn figure_60(mut report: Report, model: &Model) -> Result<Report, BadTask> {
    let period = 100 * MS;
    for percent in [10, 25, 50, 75, 95] {
        let sources = [task(period, period * percent / 100, 0, 0)];
        report.begin_group();
        report.add(&format!("{percent} % of the processor"), 0.0, &second(model, &sources, Techniques::NONE)?);
        report.add("  clock", 0.0, &second(model, &sources, CLOCK)?);
    }
    let radio = &model.radio;
    for percent in [0, 10, 25, 50, 75] {
        let time_ms = period as f64 / MS as f64 * f64::from(percent) / 100.0;
        let bytes = (time_ms / (radio.air_s_per_kb + radio.cpu_s_per_kb)) as u64;
        let sources = [task(period, MS / 10, bytes, 100)];
        report.begin_group();
        report.add(&format!("{percent} % of the network"), 0.0, &second(model, &sources, Techniques::NONE)?);
        report.add("  doze at once", 0.0, &second(model, &sources, DOZE)?);
    }
    Ok(report)
}

/// Tasks that send and tasks that only compute, in turn, with equal deadlines (§7.1.2, Figure 67, Table 5).
pub(super) fn figure_67(mut report: Report, model: &Model) -> Result<Report, BadTask> {
    let period = 200 * MS;
    for pairs in [2, 3, 4] {
        let pair = [task(period, scaled(2 * MS, model), 5_000, 100), task(period, scaled(20 * MS, model), 0, 0)];
        let sources = vec![pair; pairs].concat();
        report.begin_group();
        for (policy, coordinates) in [("in their order", false), ("by the state of the queue", true)] {
            let techniques = Techniques { coordinates, ..DOZE };
            let policy = format!("{pairs} tasks that send, {policy}");
            report.add(&policy, 0.0, &second(model, &sources, techniques)?);
        }
    }
    Ok(report)
}

/// The cost of a clock that is higher than necessary, and of one that is lower than the card wants (§7.1.3, Figure 68):
/// the same code within 100 ms, and one packet, each at the highest and at the lowest clock.
pub(super) fn figure_68(mut report: Report, model: &Model) -> Report {
    let (cpu, radio) = (&model.cpu, &model.radio);
    let levels = [("highest clock", cpu.highest()), ("lowest clock", 0)];
    let mut add = |first: bool, policy: String, joules: f64, level: usize, awake_s: f64| {
        if first {
            report.begin_group();
        }
        let mean_mhz = cpu.levels[level].mhz;
        let usage = Usage { mean_mhz, awake: awake_s * 1e9, ..Usage::of(Energy::modelled(joules)) };
        report.add(&policy, 0.0, &usage);
    };
    for percent in [25, 50, 75, 100] {
        // `percent` of 100 ms at the lowest clock.
        let work_s = 0.1 * f64::from(percent) / 100.0 / cpu.stretch(0);
        for (name, level) in levels {
            let joules = 0.1 * cpu.idle_w + work_s * cpu.stretch(level) * cpu.busy_w(level);
            let policy = format!("{percent} % of 100 ms, {name}");
            add(level == cpu.highest(), policy, joules, level, 0.0);
        }
    }
    for kilobytes in [2.0, 5.0, 12.0, 19.3] {
        for (name, level) in levels {
            // The work for the packet costs about the same at both clocks; what differs is the time of the idle card.
            let cpu_s = kilobytes * radio.cpu_s_per_kb * cpu.stretch(level);
            let air_s = kilobytes * radio.air_s_per_kb;
            let joules = cpu_s * radio.awake_w() + air_s * (radio.transmit_w - radio.doze_w);
            add(level == cpu.highest(), format!("{kilobytes} kB, {name}"), joules, level, cpu_s + air_s);
        }
    }
    report
}

/// A transcoder needs a higher clock for computation and lets the card sleep longer (§7.2, Figure 70). Without it the
/// processor is used to 20 %. The thesis does not print the rate of the images; at 15 images/s one of 50 kB just fits on
/// the air. Packets are sent at the highest clock, as with coordination.
pub(super) fn figure_70(mut report: Report, model: &Model) -> Report {
    const PERIOD_S: f64 = 1.0 / 15.0;
    let (cpu, radio) = (&model.cpu, &model.radio);
    for kilobytes in [10, 20, 30, 40, 50].map(f64::from) {
        report.begin_group();
        for (name, ms_per_kb, part) in
            [("unmodified", 0.0, 1.0), ("reduce to 25 %", REDUCE, 0.25), ("gray", GRAY, 1.0 / 3.0)]
        {
            let work_s = 0.2 * PERIOD_S + ms_per_kb * kilobytes / 1e3 * on_this(model);
            let level = slowest_level(cpu, stretch_limit(work_s / PERIOD_S));
            let sent_kb = kilobytes * part;
            let awake_s = sent_kb * (radio.air_s_per_kb + radio.cpu_s_per_kb);
            let joules = work_s * cpu.stretch(level) * cpu.busy_w(level)
                + sent_kb * radio.send_j_per_kb(cpu)
                + awake_s * radio.awake_w();
            let mean_mhz = cpu.levels[level].mhz;
            let usage = Usage { mean_mhz, awake: awake_s * 1e9, ..Usage::of(Energy::modelled(joules)) };
            report.add(&format!("{kilobytes} kB, {name}"), 0.0, &usage);
        }
    }
    report
}

/// The run time on this processor of what takes a second on the iPAQ.
fn on_this(model: &Model) -> f64 {
    scaled(SECOND, model) as f64 / SECOND as f64
}
