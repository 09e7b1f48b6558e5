//! The scenarios, each named after its figure of the thesis (000, chapters 6 and 7).

use qfabric_energy::{ClockRule, Energy, Model};
use qfabric_sched::dwcs::BadTask;
use qfabric_types::Window;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::checkpoints::figure_56;
use super::device::{CardRule, Source, Techniques, Usage, run};
use super::report::Report;
use super::sweeps::{figure_60, figure_67, figure_68, figure_70};
use super::transcoders::{figure_46, figure_47, figure_48, figure_49, figure_50, figure_52};

pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000 * MS;

/// Name and title of each scenario.
pub const SCENARIOS: [(&str, &str); 20] = [
    ("fig46", "Figure 46: gray and crop of one image, active energy at the highest clock"),
    ("fig47", "Figure 47: reduce, Huffman and LZ77, active energy; run times of compression are assumed"),
    ("fig48", "Figure 48: chains in both orders, active energy; run times of compression are assumed"),
    ("fig49", "Figure 49: four contents of 230 kB, active energy; run times of compression are assumed"),
    ("fig50", "Figure 50: active energy of a transcoder's run time at three clocks, and of sending data"),
    ("fig52", "Figure 52: TEQ of gray, crop and reduce, and what is chosen (saved: the TEQ)"),
    ("fig53", "Figure 53: three streams, 5 kB every 200 ms, with and without bursts, for 10 s"),
    ("fig54", "Figure 54: a loop of 3.09 s at the lowest clock, at each clock, without the card"),
    ("fig56", "Figures 55 to 59: 1000 jobs, of which one in four is delayed, with power checkpoints"),
    ("fig60", "Figure 60: clock by the share of the processor, doze by the share of the network, for 1 s"),
    ("fig61", "Figure 61: 25 % of the processor and 50 % of the network, expected and actual, for 1 s"),
    ("fig62", "Figures 62, 65 and 66: a packet of 12 kB at both clocks, and with the clock raised for it, for 1 s"),
    ("fig63", "Figures 63 and 64: two tasks that send one after the other, at both clocks, for 1 s"),
    ("fig67", "Figure 67: tasks with equal deadlines, of which half send, for 1 s"),
    ("fig68", "Figure 68: the same code within 100 ms, and one packet, at the highest and the lowest clock"),
    ("fig69", "Figure 69: four streams of 5 kB (200, 250, 333 and 500 ms), for 500 ms"),
    ("fig69-double", "Figure 69 with packets of 10 kB, for 500 ms"),
    ("fig70", "Figure 70: 15 images/s, unmodified and transcoded: clock and time of the awake card, for one image"),
    ("fig73", "Figure 73: video of 25 frames/s and 30 kB, reduced to 10 frames/s and 7.5 kB, for 1 s"),
    ("fig73-load", "Figure 73 beside the three other streams of Figure 69, for 1 s"),
];

/// Simulates the scenario of this name; `None` if there is none.
///
/// # Errors
/// [`BadTask`] if the model is so slow that a task does not fit into its period.
pub fn simulate(scenario: &str, model: &Model, seed: u64) -> Option<Result<Report, BadTask>> {
    let (name, title) = SCENARIOS.into_iter().find(|(name, _)| *name == scenario)?;
    let report = Report::new(name, title, seed, model);
    let chance = Chance(ChaCha8Rng::seed_from_u64(seed));
    Some(match name {
        "fig46" => Ok(figure_46(report, model, seed as u32)),
        "fig47" => Ok(figure_47(report, model, seed as u32)),
        "fig48" => Ok(figure_48(report, model, seed as u32)),
        "fig49" => Ok(figure_49(report, model, seed as u32)),
        "fig50" => Ok(figure_50(report, model)),
        "fig52" => Ok(figure_52(report, model, seed as u32)),
        "fig54" => Ok(figure_54(report, model)),
        "fig56" => Ok(figure_56(report, model, chance)),
        "fig60" => figure_60(report, model),
        "fig61" => figure_61(report, model),
        "fig62" => figure_62(report, model),
        "fig63" => figure_63(report, model),
        "fig67" => figure_67(report, model),
        "fig68" => Ok(figure_68(report, model)),
        "fig69" => figure_69(report, model, chance, 5_000),
        "fig69-double" => figure_69(report, model, chance, 10_000),
        "fig70" => Ok(figure_70(report, model)),
        "fig73" => figure_73(report, model, chance, (20, 1_000)),
        "fig73-load" => figure_73(report, model, chance, (55, 5_000)),
        _ => figure_53(report, model, chance),
    })
}

/// Linux's default: the card dozes 100 ms after the last packet.
const DEFAULT_CARD: CardRule = CardRule::Doze(100 * MS);
pub(super) const AT_ONCE: CardRule = CardRule::Doze(0);

pub(super) struct Chance(ChaCha8Rng);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0.random_range(0..limit.max(1))
    }

    /// In [0, 1).
    pub(super) fn part(&mut self) -> f64 {
        self.0.random::<f64>()
    }
}

/// A stream that loses no packet: deadlines count.
pub(super) const STRICT: (u32, u32) = (0, 1);

pub(super) fn window((x, y): (u32, u32)) -> Window {
    Window::new(x.into(), y.into()).expect("the windows of the scenarios are valid")
}

fn figure_53(mut report: Report, model: &Model, mut chance: Chance) -> Result<Report, BadTask> {
    let period = 200 * MS;
    // The three phases are a third of the period apart, give or take 5 ms.
    let mut source = |third: u64| Source {
        period,
        arrival: third * period / 3 + chance.below(10 * MS),
        work: MS,
        bytes: 5_000,
        window: window((1, 10)),
        slack: 0,
        network: 100,
    };
    let sources = [source(0), source(1), source(2)];
    let ladder = [
        ("card always awake", CardRule::Awake, false),
        ("doze after 100 ms", DEFAULT_CARD, false),
        ("doze at once", AT_ONCE, false),
        ("bursts, doze after 100 ms", DEFAULT_CARD, true),
        ("bursts, doze at once", AT_ONCE, true),
    ];
    for (policy, card, shapes) in ladder {
        let techniques = Techniques { card, shapes, ..Techniques::NONE };
        report.add(policy, 0.0, &run(model, &sources, techniques, 10 * SECOND)?);
    }
    Ok(report)
}

/// The device without card and sleeve, over the run time at the lowest clock (§6.4).
fn figure_54(mut report: Report, model: &Model) -> Report {
    const WORST_S: f64 = 3.09;
    let cpu = &model.cpu;
    for level in (0..=cpu.highest()).rev() {
        let busy = WORST_S / cpu.stretch(0) * cpu.stretch(level);
        let joules = cpu.idle_w * WORST_S + cpu.busy_w(level) * busy;
        let policy = format!("{:.1} MHz, {busy:.2} s", cpu.levels[level].mhz);
        report.add(&policy, 0.0, &Usage { mean_mhz: cpu.levels[level].mhz, ..Usage::of(Energy::modelled(joules)) });
    }
    report
}

/// One stream whose packets occupy the card for half of the time at the highest clock; computation and packets together
/// need 25 % of the processor.
fn figure_61(mut report: Report, model: &Model) -> Result<Report, BadTask> {
    let (period, radio) = (100 * MS, &model.radio);
    let bytes = (0.5 * period as f64 / 1e6 / (radio.air_s_per_kb + radio.cpu_s_per_kb)) as u64;
    let work = (period / 4).saturating_sub(radio.cpu_ns(bytes)).max(period / 100);
    let source = Source { period, arrival: 0, work, bytes, window: window(STRICT), slack: period, network: 100 };
    let usage = |techniques| {
        let usage = run(model, std::slice::from_ref(&source), techniques, 10 * SECOND)?;
        Ok::<Usage, BadTask>(usage.mean_of(10))
    };
    let nothing = usage(Techniques::NONE)?;
    let clock = usage(Techniques { clock: ClockRule::Windows, ..Techniques::NONE })?;
    let doze = usage(Techniques { card: AT_ONCE, ..Techniques::NONE })?;
    let expected = [clock.energy, doze.energy, nothing.energy];
    report.add("nothing", 0.0, &nothing);
    report.add("default kernel policy", 0.0, &usage(DEFAULT_KERNEL)?);
    for (policy, techniques) in GRUB_PA {
        report.add(policy, 0.0, &usage(techniques)?);
    }
    report.add("clock alone", 0.0, &clock);
    report.add("doze alone", 0.0, &doze);
    report.add("bursts alone", 0.0, &usage(Techniques { card: AT_ONCE, shapes: true, ..Techniques::NONE })?);
    report.add("both, expected: sum of the savings", 0.0, &Usage::of(sum_of_savings(expected)));
    report.add("both, actual", 0.0, &usage(UNCOORDINATED.without_bursts())?);
    let timeout = Techniques { card: DEFAULT_CARD, ..UNCOORDINATED };
    report.add("all uncoordinated, 100 ms timeout", 0.0, &usage(timeout)?);
    report.add("all uncoordinated, immediate doze", 0.0, &usage(UNCOORDINATED)?);
    report.add("coordinated (thesis)", 0.0, &usage(THESIS.without_bursts())?);
    report.add("coordinated (ours)", 0.0, &usage(OURS.without_bursts())?);
    Ok(report)
}

/// The clock of the moment, without bursts: the highest one, the one that computation needs, and both coordinated rules.
const CLOCKS: [(&str, ClockRule); 4] = [
    ("highest clock", ClockRule::Highest),
    ("clock of the computation", ClockRule::Windows),
    ("highest clock while packets wait (thesis)", ClockRule::Printed),
    ("clock raised while the card waits (ours)", ClockRule::Optimal),
];

/// The card dozes at once; each row is the mean of ten seconds.
fn clocks(mut report: Report, model: &Model, sources: &[Source]) -> Result<Report, BadTask> {
    for (policy, clock) in CLOCKS {
        let techniques = Techniques { clock, card: AT_ONCE, shapes: false, coordinates: false };
        report.add(policy, 0.0, &run(model, sources, techniques, 10 * SECOND)?.mean_of(10));
    }
    Ok(report)
}

/// One packet of 12 kB each second, after 20 ms of computation.
fn figure_62(report: Report, model: &Model) -> Result<Report, BadTask> {
    let (period, work) = (SECOND, scaled(20 * MS, model));
    let source =
        Source { period, arrival: 0, work, bytes: 12_000, window: window(STRICT), slack: period, network: 100 };
    clocks(report, model, &[source])
}

/// At the highest clock the second packet is ready while the first is on its way: one burst. At the lowest clock the card
/// has dozed before.
fn figure_63(report: Report, model: &Model) -> Result<Report, BadTask> {
    let (period, work) = (SECOND / 5, scaled(4 * MS, model));
    let source = Source { period, arrival: 0, work, bytes: 5_000, window: window(STRICT), slack: period, network: 100 };
    clocks(report, model, &[source.clone(), source])
}

/// The energy if the savings of both techniques were simply added.
fn sum_of_savings([one, other, nothing]: [Energy; 3]) -> Energy {
    one.plus(other).and_then(|both| both.minus(nothing)).expect("all are modelled")
}

const UNCOORDINATED: Techniques =
    Techniques { clock: ClockRule::Windows, card: AT_ONCE, shapes: true, coordinates: false };
const THESIS: Techniques = Techniques { clock: ClockRule::Printed, card: AT_ONCE, shapes: true, coordinates: true };
const OURS: Techniques = Techniques { clock: ClockRule::Optimal, ..THESIS };
const DEFAULT_KERNEL: Techniques =
    Techniques { clock: ClockRule::Governor, card: DEFAULT_CARD, shapes: false, coordinates: false };

/// The kernel's allies: SCHED_DEADLINE with schedutil. Feedback keeps budgets near the demand; static budgets have to cover
/// the most expensive job, which is assumed to cost twice the mean.
const GRUB_PA: [(&str, Techniques); 2] = [
    ("GRUB-PA, budgets as needed", Techniques { clock: ClockRule::Reserved { percent: 100 }, ..DEFAULT_KERNEL }),
    ("GRUB-PA, static budgets", Techniques { clock: ClockRule::Reserved { percent: 200 }, ..DEFAULT_KERNEL }),
];

/// The ladder, from nothing to everything.
const LADDER: [(&str, Techniques); 12] = [
    ("nothing", Techniques::NONE),
    ("default kernel policy", DEFAULT_KERNEL),
    GRUB_PA[0],
    GRUB_PA[1],
    ("clock alone", Techniques { clock: ClockRule::Windows, ..Techniques::NONE }),
    ("doze alone", Techniques { card: AT_ONCE, ..Techniques::NONE }),
    ("bursts alone", Techniques { card: AT_ONCE, shapes: true, ..Techniques::NONE }),
    ("clock and doze", Techniques { shapes: false, ..UNCOORDINATED }),
    ("all uncoordinated, 100 ms timeout", Techniques { card: DEFAULT_CARD, ..UNCOORDINATED }),
    ("all uncoordinated, immediate doze", UNCOORDINATED),
    ("coordinated (thesis)", THESIS),
    ("coordinated (ours)", OURS),
];

/// A stream of `bytes` every `period` whose job takes `work`; its packet may begin a period after the job's (Θ = T).
fn stream(period: u64, work: u64, bytes: u64, network: u8, chance: &mut Chance) -> Source {
    Source { period, arrival: chance.below(period), work, bytes, window: window(STRICT), slack: period, network }
}

/// Simulated windows of half a second, of which the mean is reported.
const WINDOWS: u64 = 60;

fn figure_69(mut report: Report, model: &Model, mut chance: Chance, bytes: u64) -> Result<Report, BadTask> {
    // Each task takes 5.5 % of the processor; with the packets, the clock's saving is the 25 mJ of the text.
    let periods = [(200, 100), (250, 90), (333, 80), (500, 70)];
    let sources = periods.map(|(ms, network)| stream(ms * MS, ms * MS * 55 / 1_000, bytes, network, &mut chance));
    for (policy, techniques) in LADDER {
        let usage = run(model, &sources, techniques, WINDOWS * SECOND / 2)?;
        report.add(policy, 0.0, &usage.mean_of(WINDOWS));
    }
    Ok(report)
}

/// U_rate = 8·rate and U_size = (width + height) / 2 (§7.4.2).
fn utility(rate: u32, side: u32) -> f64 {
    f64::from(8 * rate + side)
}

/// Seconds that are simulated; the mean of one is reported.
const VIDEO_SECONDS: u64 = 30;

/// `background` is the share of the processor, in thousandths, and the packet size of each of three other streams.
fn figure_73(
    mut report: Report,
    model: &Model,
    mut chance: Chance,
    (share, size): (u64, u64),
) -> Result<Report, BadTask> {
    let background = [250, 333, 500].map(|ms| stream(ms * MS, ms * MS * share / 1_000, size, 50, &mut chance));
    let arrival = chance.below(40 * MS);
    // Live video: a packet begins within the period of its job.
    let video = |rate: u64, work: u64, bytes: u64| {
        let (period, work) = (SECOND / rate, scaled(work, model));
        let video = Source { period, arrival, work, bytes, window: window(STRICT), slack: 0, network: 100 };
        [vec![video], background.to_vec()].concat()
    };
    // Capture of a frame takes 8 ms, and its reduction 0.27 ms/kB (Table 4), at the highest clock of the iPAQ.
    let full = video(25, 8 * MS, 30_000);
    let reduced = video(10, 8 * MS + 81 * MS / 10, 7_500);
    let mut add = |policy: &str, sources: &[Source], utility: f64, techniques| -> Result<(), BadTask> {
        let usage = run(model, sources, techniques, VIDEO_SECONDS * SECOND)?;
        report.add(policy, utility, &usage.mean_of(VIDEO_SECONDS));
        Ok(())
    };
    for (policy, techniques) in LADDER.iter().take(7) {
        add(policy, &full, utility(25, 100), *techniques)?;
    }
    add("transcoding alone", &reduced, utility(10, 50), Techniques::NONE)?;
    add("transcoding, default kernel policy", &reduced, utility(10, 50), DEFAULT_KERNEL)?;
    for (policy, techniques) in LADDER.iter().skip(8) {
        add(policy, &reduced, utility(10, 50), *techniques)?;
    }
    Ok(report)
}

/// Work that was measured on the iPAQ, on another processor: in proportion to its highest clock.
pub(super) fn scaled(work: u64, model: &Model) -> u64 {
    const IPAQ_MHZ: f64 = 206.4;
    ((work as f64 * IPAQ_MHZ / model.cpu.levels[model.cpu.highest()].mhz) as u64).max(1)
}
