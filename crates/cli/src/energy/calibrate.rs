//! `qfabric energy calibrate`: fits a power model to this host's own meter.
//!
//! Steps of load between idle and all CPUs busy, first up and then down, so that a slow drift (temperature) cancels out.
//! P = a + b·x is fitted by least squares, x the number of busy CPUs: a/m is the power of an idle CPU, b that of a busy
//! one above it. With `--clocks` the same is done at lower clocks, each of which becomes a level of the model.

mod clocks;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nalgebra::{DMatrix, DVector};
use qfabric_daemon::Config;
use qfabric_energy::Model;
use qfabric_linux::clock;
use qfabric_linux::cpus::CpuList;
use qfabric_linux::power::{self, MeanClock, Meters, Reading};
use qfabric_types::{Energy, EnergySource};

use crate::exit::{Advice, Done, Failure, Outcome};
use crate::{interrupt, output};
use clocks::Clocks;

/// Parts of the CPUs that are busy in the steps of one direction.
const STEPS: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];
/// Least part of the variance of the power that the load explains.
const LEAST_R2: f64 = 0.8;
/// A clock that is above the wanted one by more than this part did not obey.
const FASTER: f64 = 0.1;
/// Time between two looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);

/// Fits a power model to the meter of this host.
///
/// Loads the CPUs in steps and reads the energy counters of the processor (RAPL), or the sensor of the board with the
/// largest power. Takes ten times --seconds, and with --clocks as long again for each lower clock. Use a quiet host.
/// Ends with 4 if the host has no such meter or clock, and with 1 if the power does not follow the load.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples: sudo qfabric energy calibrate --out /etc/qfabric/power.toml
          sudo qfabric energy calibrate --clocks --out /etc/qfabric/power.toml

Then name the file in the daemon's configuration: [energy] model = \"/etc/qfabric/power.toml\"")]
pub(super) struct Args {
    /// Write the model to this file; - is stdout
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
    /// Time of each of the ten steps, in seconds
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Fit the power at up to five lower clocks, too; sets the clocks of all CPUs meanwhile, and needs root
    #[arg(long)]
    clocks: bool,
    /// Print the samples and the result as JSON to stdout, instead of the model if --out is not given
    #[arg(long)]
    json: bool,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
struct Sample {
    /// Mean number of busy CPUs.
    busy_cpus: f64,
    watts: f64,
}

/// P = a + b·x.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
struct Fit {
    /// a: all CPUs idle, W.
    idle_w: f64,
    /// b, W.
    per_busy_cpu_w: f64,
    /// Part of the variance of the power that the load explains.
    r2: f64,
}

/// The power at one clock.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
struct Level {
    /// `None`: the kernel reports no clock.
    mhz: Option<f64>,
    fit: Fit,
}

#[derive(serde::Serialize)]
struct Report<'a> {
    source: EnergySource,
    meters: &'a [String],
    cpus: usize,
    /// At the highest clock.
    fit: Fit,
    samples: &'a [Sample],
    /// By rising clock; the last one is the highest.
    levels: &'a [Level],
}

/// What is read and loaded in each step.
struct Host {
    meters: Meters,
    names: Vec<String>,
    cpus: usize,
    /// Time of a step.
    time: Duration,
    stop: Arc<AtomicBool>,
}

impl Host {
    /// The ten steps at the present clock, which the text names.
    fn steps(&mut self, clock: &str) -> Result<Vec<Sample>, Failure> {
        let mut samples = Vec::new();
        for step in STEPS.into_iter().chain(STEPS.into_iter().rev()) {
            let busy = (step * self.cpus as f64).round() as usize;
            let seconds = self.time.as_secs();
            output::note(format_args!("qfabric: {busy} of {} CPUs busy for {seconds} s{clock}", self.cpus));
            samples.push(sample(&mut self.meters, &self.names, busy, self.time, &self.stop)?);
        }
        Ok(samples)
    }

    /// The power at the lower clocks, by rising clock. One whose power does not follow the load, or at which the CPUs
    /// run faster, is left out.
    fn lower_levels(&mut self, clocks: &mut Clocks, highest_mhz: f64) -> Result<Vec<Level>, Failure> {
        let mut levels = Vec::new();
        for part in clocks.lower() {
            clocks.pin(part)?;
            let mhz = part * highest_mhz;
            let mut mean = MeanClock::default();
            // Only sets the baseline.
            mean.take(Path::new(power::SYS));
            let samples = self.steps(&format!(" at {mhz:.0} MHz"))?;
            let is_faster = mean.take(Path::new(power::SYS)).is_some_and(|seen| seen > (1.0 + FASTER) * part);
            match fit(&samples) {
                Ok(_) if is_faster => output::note(format_args!("qfabric: {mhz:.0} MHz is left out: CPUs ran faster")),
                Ok(fit) => levels.push(Level { mhz: Some(mhz), fit }),
                Err(why) => output::note(format_args!("qfabric: {mhz:.0} MHz is left out: {why}")),
            }
        }
        Ok(levels)
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    output::check_writable(&args.out)?;
    let (meters, names, source) = meters(Path::new(power::SYS))?;
    let cpus = CpuList::online().len().max(1);
    let stop = interrupt::interrupted_or_hung_up()?;
    let mut host = Host { meters, names, cpus, time: Duration::from_secs(args.seconds), stop };
    let mut clocks = if args.clocks { Some(clocks_of_this_host()?) } else { None };
    clocks.as_mut().map_or(Ok(()), |clocks| clocks.pin(1.0))?;
    let samples = host.steps("")?;
    let fit = fit(&samples).map_err(Failure::fault)?;
    let mhz = mhz(Path::new(power::SYS));
    let mut levels = match (&mut clocks, mhz) {
        (Some(clocks), Some(highest)) => host.lower_levels(clocks, highest)?,
        _ => Vec::new(),
    };
    drop(clocks);
    levels.push(Level { mhz, fit });
    let levels = rising(levels);
    let text = model_text(&levels, cpus, source, samples.len());
    Model::parse("the fitted model", &text)
        .map_err(|invalid| Failure::fault(format!("{invalid}; repeat the calibration on a quiet host")))?;
    let to_stdout = args.out.as_os_str() == "-";
    if args.json {
        let (meters, samples, levels) = (&host.names, &samples, &levels);
        output::print_json(&Report { source, meters, cpus, fit, samples, levels })?;
    } else if to_stdout {
        output::print(&text)?;
    }
    if !to_stdout {
        let failed = |error| Failure::fault(format!("cannot write {}: {error}", args.out.display()));
        std::fs::write(&args.out, &text).map_err(failed)?;
    }
    Ok(Done(0))
}

fn clocks_of_this_host() -> Result<Clocks, Failure> {
    let directory = Config::load(None).and_then(|config| config.directory());
    let directory = directory.map_err(|error| Failure::usage(Advice(&error.problem())))?;
    Clocks::take(Path::new(power::SYS), Path::new("/"), &directory)
}

/// Leaves levels out that take as much power as a higher one, or more: noise, or a supply voltage that no longer falls.
/// The highest one stays. By rising clock before and after.
fn rising(mut levels: Vec<Level>) -> Vec<Level> {
    let mut above = f64::INFINITY;
    levels.reverse();
    levels.retain(|level| {
        let is_lower = level.fit.per_busy_cpu_w < above;
        above = above.min(level.fit.per_busy_cpu_w);
        is_lower
    });
    levels.reverse();
    levels
}

/// Drivers whose sensors measure a device beside the processor. Its power does not follow the load of the CPUs.
const DEVICES: [&str; 9] = ["amdgpu", "radeon", "nouveau", "i915", "xe", "nvme", "drivetemp", "iwlwifi", "mlx5"];

/// Whether a sensor may measure the supply of the processor: it is not a graphics card, a disk or a network card.
fn is_of_the_board(reading: &Reading) -> bool {
    let driver = reading.name.split("-hwmon").next().unwrap_or_default();
    !DEVICES.contains(&driver)
}

/// The meters of the whole processor, or else the sensor with the largest power, which is the one nearest to the supply.
fn meters(sys: &Path) -> Result<(Meters, Vec<String>, EnergySource), Failure> {
    let mut meters = Meters::find(sys);
    let readings = meters.look(clock::now());
    let (faulty, good): (Vec<Reading>, Vec<Reading>) = readings.into_iter().partition(|r| r.fault.is_some());
    let packages: Vec<String> = good.iter().filter(|reading| reading.package).map(|r| r.name.clone()).collect();
    if !packages.is_empty() {
        return Ok((meters, packages, EnergySource::Rapl));
    }
    let sensors = good.into_iter().filter(|r| r.energy.source() == EnergySource::Ina && is_of_the_board(r));
    let watts = |reading: &Reading| reading.power_w.unwrap_or(0.0);
    if let Some(sensor) = sensors.max_by(|a, b| watts(a).total_cmp(&watts(b))) {
        return Ok((meters, vec![sensor.name], EnergySource::Ina));
    }
    let why = faulty.first().and_then(|reading| Some(reading.fault.as_ref()?.to_string())).unwrap_or_else(|| {
        "it has no energy counters of the processor (class/powercap) and no power sensor (class/hwmon)".to_owned()
    });
    Err(Failure::unavailable(format!(
        "this host has no meter to calibrate with: {why}\ntry: calibrate on hardware with such a meter, or write a model \
         by hand (see `qfabric sim energy --help`) and name it in [energy] of the daemon's configuration"
    )))
}

fn sample(
    meters: &mut Meters,
    names: &[String],
    busy: usize,
    time: Duration,
    stop: &AtomicBool,
) -> Result<Sample, Failure> {
    let _load = Load::start(busy);
    // The first look only sets the baseline of this step.
    meters.look(clock::now());
    let begin = (clock::now(), cpu_time()?);
    let mut left = time;
    while left > Duration::ZERO && !stop.load(Ordering::Relaxed) {
        thread::sleep(left.min(LOOK));
        left = left.saturating_sub(LOOK);
    }
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::fault("interrupted; nothing was written"));
    }
    let end = (clock::now(), cpu_time()?);
    let seconds = end.0.since(begin.0).as_f64() / 1e9;
    let mut joules = 0.0;
    for reading in meters.look(end.0).into_iter().filter(|reading| names.contains(&reading.name)) {
        if let Some(fault) = reading.fault {
            return Err(Failure::fault(fault));
        }
        joules += reading.step.map_or(0.0, |step| step.ratio(Energy::new(1.0, step.source())));
    }
    Ok(Sample { busy_cpus: (end.1 - begin.1) / seconds, watts: joules / seconds })
}

fn cpu_time() -> Result<f64, Failure> {
    let busy = power::busy_time(Path::new("/proc")).ok_or_else(|| Failure::fault("cannot read /proc/stat"))?;
    Ok(busy.as_f64() / 1e9)
}

/// Threads that compute until dropped.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(count: usize) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let spin = |stop: Arc<AtomicBool>| move || while !stop.load(Ordering::Relaxed) {};
        Load { threads: (0..count).map(|_| thread::spawn(spin(stop.clone()))).collect(), stop }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The thread only counts time, and cannot panic.
            let _ = thread.join();
        }
    }
}

/// Least squares; the error says why the samples give no model.
fn fit(samples: &[Sample]) -> Result<Fit, String> {
    let matrix =
        DMatrix::from_fn(samples.len(), 2, |row, column| if column == 0 { 1.0 } else { samples[row].busy_cpus });
    let watts = DVector::from_fn(samples.len(), |row, _| samples[row].watts);
    let solved = matrix.clone().svd(true, true).solve(&watts, 1e-9);
    let solved = solved.map_err(|why| format!("the samples have no least-squares solution: {why}"))?;
    let (idle_w, per_busy_cpu_w) = (solved[0], solved[1]);
    let mean = watts.mean();
    let total: f64 = watts.iter().map(|w| (w - mean).powi(2)).sum();
    let rest = (&watts - matrix * &solved).norm_squared();
    let r2 = if total > 0.0 { 1.0 - rest / total } else { 0.0 };
    if per_busy_cpu_w > 0.0 && idle_w >= 0.0 && r2 >= LEAST_R2 {
        return Ok(Fit { idle_w, per_busy_cpu_w, r2 });
    }
    Err(format!(
        "the power does not follow the load: {idle_w:.2} W idle, {per_busy_cpu_w:.2} W for each busy CPU, R² {r2:.2} (at \
         least {LEAST_R2} is needed); end other programs, and repeat with a larger --seconds"
    ))
}

/// The clock under load, MHz: the highest one, if the kernel reports it.
fn mhz(sys: &Path) -> Option<f64> {
    power::clocks(sys).iter().map(|clock| clock.range.1).max().map(|khz| khz as f64 / 1e3)
}

/// `levels` by rising clock; there is at least one, the highest. `samples`: number of samples of each level.
fn model_text(levels: &[Level], cpus: usize, source: EnergySource, samples: usize) -> String {
    let idle = levels.last().map_or(0.0, |highest| highest.fit.idle_w / cpus as f64);
    let derived = |value: f64, fit: &Fit| {
        let how = format!("qfabric energy calibrate: {samples} samples by {}, R2 {:.3}", source.name(), fit.r2);
        format!("{{ value = {value:.4}, kind = \"derived\", source = \"{how}\" }}")
    };
    let how = match levels.len() {
        1 => "one level, because the clock was not changed".to_owned(),
        count => format!("{count} levels, at clocks that were set for it"),
    };
    let of_idle = levels.last().map_or(String::new(), |highest| derived(idle, &highest.fit));
    let level = |level: &Level| {
        let (mhz, active) = (mhz_text(level.mhz), derived(idle + level.fit.per_busy_cpu_w, &level.fit));
        format!("\n[[cpu.levels]]\nmhz = {mhz}\nactive_w = {active}\n")
    };
    format!(
        "# Fitted by `qfabric energy calibrate`: {how}.\n\
         name = \"calibrated\"\n\
         about = \"one of {cpus} CPUs of this host, fitted to its own meter\"\n\
         radio_of = \"x86-server\"\n\n\
         [cpu]\n\
         idle_w = {of_idle}\n\
         rest_w = {{ value = 0.0, kind = \"assumed\", source = \"not in the range of the meter\" }}\n{}",
        levels.iter().map(level).collect::<String>()
    )
}

fn mhz_text(mhz: Option<f64>) -> String {
    match mhz {
        Some(mhz) => format!("{{ value = {mhz:.1}, kind = \"printed\", source = \"cpufreq of this host\" }}"),
        None => {
            "{ value = 1000.0, kind = \"assumed\", source = \"the kernel reports no clock; one level stands for all\" }"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_linux::testing::power::PowerTree;

    fn samples(power: impl Fn(f64) -> f64) -> Vec<Sample> {
        let loads = STEPS.into_iter().chain(STEPS.into_iter().rev());
        loads.map(|part| Sample { busy_cpus: 8.0 * part, watts: power(8.0 * part) }).collect()
    }

    #[test]
    fn the_fit_finds_the_power_of_idle_and_busy_cpus() {
        let Fit { idle_w, per_busy_cpu_w, r2 } = fit(&samples(|x| 16.0 + 3.5 * x)).unwrap();
        assert!((idle_w - 16.0).abs() < 1e-6 && (per_busy_cpu_w - 3.5).abs() < 1e-6 && r2 > 0.999_999);
        let highest = Level { mhz: Some(3_600.0), fit: fit(&samples(|x| 16.0 + 3.5 * x)).unwrap() };
        let text = model_text(&[highest], 8, EnergySource::Rapl, 10);
        let model = Model::parse("x", &text).unwrap();
        assert!((model.cpu.idle_w - 2.0).abs() < 1e-3 && (model.cpu.busy_w(0) - 3.5).abs() < 1e-3, "{text}");
        assert_eq!(model.tally.assumed, Model::shipped("x86-server").unwrap().tally.assumed - 9, "{text}");
    }

    #[test]
    fn lower_clocks_become_levels_of_the_model_if_their_power_is_lower_than_above_them() {
        let level =
            |mhz: f64, per_cpu: f64| Level { mhz: Some(mhz), fit: fit(&samples(|x| 16.0 + per_cpu * x)).unwrap() };
        // At 1600 MHz the host took more than at 2400 MHz.
        let levels = rising(vec![level(800.0, 1.0), level(1_600.0, 2.5), level(2_400.0, 2.0), level(3_000.0, 3.5)]);
        let model = Model::parse("x", &model_text(&levels, 8, EnergySource::Rapl, 10)).unwrap();
        let clocks: Vec<f64> = model.cpu.levels.iter().map(|level| level.mhz).collect();
        assert_eq!(clocks, [800.0, 2_400.0, 3_000.0]);
        assert!((model.cpu.busy_w(0) - 1.0).abs() < 1e-3 && (model.cpu.busy_w(2) - 3.5).abs() < 1e-3);
        assert_eq!(rising(vec![level(3_000.0, 3.5)]).len(), 1);
    }

    #[test]
    fn power_that_does_not_follow_the_load_gives_no_model() {
        for power in [|_: f64| 20.0, |x: f64| 20.0 - x, |x: f64| if x < 1.0 { 90.0 } else { 10.0 * x }] {
            let refusal = fit(&samples(power)).unwrap_err();
            assert!(refusal.contains("does not follow the load") && refusal.contains("--seconds"), "{refusal}");
        }
    }

    #[test]
    fn packages_come_before_sensors_and_a_host_without_a_meter_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let tree = PowerTree::new(folder.path());
        let refusal = format!("{:?}", meters(tree.root()).unwrap_err());
        assert!(refusal.contains("no energy counters") && refusal.contains("code: 4"), "{refusal}");
        for (number, watts) in [(1, 2_000_000), (2, 9_000_000)] {
            tree.set("class/hwmon/hwmon0/name", "ina3221");
            tree.set(&format!("class/hwmon/hwmon0/power{number}_input"), watts);
        }
        // A graphics card takes more than the board, and its power does not follow the CPUs.
        tree.set("class/hwmon/hwmon1/name", "amdgpu");
        tree.set("class/hwmon/hwmon1/power1_average", 90_000_000);
        assert_eq!(meters(tree.root()).unwrap().1, ["ina3221-hwmon0-2"]);
        tree.zone("intel-rapl:0", "package-0", 7, None);
        tree.zone("intel-rapl:0:0", "core", 7, None);
        assert_eq!(meters(tree.root()).unwrap().1, ["package-0-0"]);
    }
}
