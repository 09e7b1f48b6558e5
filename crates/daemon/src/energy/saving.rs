//! Applications that save energy: their deadlines are held at the lowest clock that suffices.
//!
//! The needed clock is s = max(u_max, Σu/m) / 0.95 of the highest one: u are the reservations of all threads, m the
//! number of CPUs. At this clock the kernel's own bound on lateness holds (Σu <= m, every u <= 1), and 5 % stay for best
//! effort: 1/s is k' of the thesis (000 §6.4.1) for several CPUs.
//!
//! The jobs of an adaptive application were measured at the present clock, so at the highest clock its reservations
//! would be as small as u · (present part). A fixed budget does not depend on the clock. So s has a lower bound, with
//! u · (present part) for adaptive applications, and an upper bound, with u for all. An application that joined after
//! the last look counts with u in both. Between the bounds the clock stays:
//!
//! ```text
//!        too slow: raise to upper      keep         too fast: lower to upper
//!   ─────────────────────────────┬────────────┬───────────────────────────────▶ present part of the highest clock
//!                              lower        upper
//! ```
//! If more than [`LATE`] of the jobs between two looks of the daemon's thread were late, the clock becomes the highest one
//! ([`lateness`]). A job that is late in its course raises the clock until it ends, at most until its deadline
//! ([`raises`]). The frequencies are those of this host; the power model only says below which one nothing is saved
//! ([`Frequencies`]).

mod frequencies;
mod lateness;
mod raises;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use qfabric_energy::{Cpu, USABLE};
use qfabric_linux::ext::SchedulerClock;
use qfabric_linux::journal::Journal;
use qfabric_linux::power::{self, Clock, FOLDER, FULL, KnobName, PowerManager};
use qfabric_linux::threads;
use qfabric_types::api::Application;
use qfabric_types::api::energy::EnergySaving;
use qfabric_types::ring::Checkpoint;
use qfabric_types::{AppId, Instant, ThreadId};

use super::EnergyConfig;
use frequencies::Frequencies;
use lateness::Lateness;
use raises::Raises;

/// Part of late jobs from which on the clock is too slow.
const LATE: f64 = 0.05;
/// The governor that keeps the lowest frequency within its limits. `intel_pstate` has one of the same name, under which
/// the processor chooses itself.
const POWERSAVE: &str = "powersave";
/// Preference of a processor that chooses its clock itself, within the limits that this program sets.
const PREFERENCE: &str = "balance_power";

/// Jobs and misses of an application at the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Jobs {
    jobs: u64,
    misses: u64,
}

#[derive(Default)]
struct Saver {
    jobs: Jobs,
    pid: i32,
    clamped: usize,
}

pub(super) struct Saving {
    frequencies: Frequencies,
    cpus: usize,
    allowed: bool,
    radios_allowed: bool,
    sys: PathBuf,
    root: PathBuf,
    /// Run folder of the service.
    directory: PathBuf,
    /// Opened for the first application that saves.
    journal: Option<Journal>,
    savers: BTreeMap<AppId, Saver>,
    lateness: Lateness,
    raises: Raises,
    /// Applications at the last look. Reservations of later ones were not measured at the present clock.
    measured: BTreeSet<AppId>,
    /// Part of the highest clock that all need, without what single jobs ask for at their checkpoints.
    part: f64,
    /// The clocks at the last choice.
    clocks: Vec<Clock>,
    /// Asks for the clocks that follow it, if the mechanism can.
    scheduler: Option<SchedulerClock>,
    /// Whether the clocks are limited; the control thread reads it.
    limited: Arc<AtomicBool>,
    missing: Vec<String>,
    /// Why knobs are not back after the last application that saves has left.
    not_back: Vec<String>,
}

impl Saving {
    pub(super) fn new(config: &EnergyConfig, cpu: Cpu, cpus: usize, directory: &Path) -> Saving {
        Saving {
            frequencies: Frequencies::of(cpu),
            cpus: cpus.max(1),
            allowed: config.clocks,
            radios_allowed: config.radios,
            sys: config.sys.clone(),
            root: config.root.clone(),
            directory: directory.to_owned(),
            journal: None,
            savers: BTreeMap::new(),
            lateness: Lateness::default(),
            raises: Raises::default(),
            measured: BTreeSet::new(),
            part: 1.0,
            clocks: Vec::new(),
            scheduler: None,
            limited: Arc::default(),
            missing: Vec::new(),
            not_back: Vec::new(),
        }
    }

    /// From now on the scheduler asks for the clocks that follow it.
    pub(super) fn ask_scheduler(&mut self, scheduler: SchedulerClock) {
        self.scheduler = Some(scheduler);
    }

    /// From now on the application saves energy.
    pub(super) fn begin(&mut self, app: &Application, applications: &[Application]) -> EnergySaving {
        let Application { quality, pid, .. } = app;
        let jobs = Jobs { jobs: quality.jobs, misses: quality.misses };
        self.savers.insert(app.id, Saver { jobs, pid: *pid, clamped: 0 });
        self.follow(applications);
        self.of(app.id).expect("inserted above, and the application is in the list")
    }

    pub(super) fn of(&self, app: AppId) -> Option<EnergySaving> {
        let saver = self.savers.get(&app)?;
        let Saving { part, missing, .. } = self;
        let limited = self.is_limited();
        Some(EnergySaving { clock_part: *part, clamped: saver.clamped, limited, missing: missing.clone() })
    }

    /// Whether the clocks are limited, from now on.
    pub(super) fn limited(&self) -> Arc<AtomicBool> {
        self.limited.clone()
    }

    fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }

    fn set_limited(&self, limited: bool) {
        self.limited.store(limited, Ordering::Relaxed);
    }

    /// Whether an application saves energy.
    pub(super) fn is_on(&self) -> bool {
        !self.savers.is_empty()
    }

    /// One look of the daemon's thread: samples the late jobs since the last one, and chooses the clock again.
    pub(super) fn look(&mut self, applications: &[Application]) {
        let late = self.are_late(applications);
        self.lateness.count(late);
        self.follow(applications);
        self.measured = applications.iter().map(|app| app.id).collect();
    }

    /// Follows only if the clock is lower than the reservations need.
    pub(super) fn raise(&mut self, applications: &[Application]) {
        if self.is_on() && self.needed(applications) > self.part + 1e-9 {
            self.follow(applications);
        }
    }

    /// Chooses the clock again for these reservations; puts everything back after the last application that saves.
    pub(super) fn follow(&mut self, applications: &[Application]) {
        self.remove_left(applications);
        if self.savers.is_empty() {
            self.put_back();
            return;
        }
        let clocks = power::clocks(&self.sys);
        let suffices = self.frequencies.lowest(&clocks, self.needed(applications));
        self.part = self.lateness.bound(suffices, |part| self.frequencies.below(&clocks, part));
        self.missing.clear();
        if self.journal.is_none() {
            match open(&self.directory) {
                Ok(journal) => self.journal = Some(journal),
                Err(why) => return self.missing.push(format!("nothing is limited: {why}")),
            }
        }
        self.limit_clocks(clocks);
        self.let_radios_sleep();
        self.clamp();
    }

    /// Removes the savers that have left. Their programs may go on, with threads that were started since the last look.
    fn remove_left(&mut self, applications: &[Application]) {
        let is_present = |id: &AppId| applications.iter().any(|app| app.id == *id);
        let left: Vec<AppId> = self.savers.keys().copied().filter(|id| !is_present(id)).collect();
        for id in left {
            self.adopt(id);
            self.savers.remove(&id);
            self.raises.remove(id);
        }
    }

    /// Records the threads of a saver that inherited their clamps, so that they are put back, too.
    fn adopt(&mut self, app: AppId) {
        let (Some(saver), Some(journal)) = (self.savers.get(&app), self.journal.as_mut()) else { return };
        for thread in program(saver.pid) {
            if let Err(error) = journal.adopt(thread, ThreadId(saver.pid)) {
                tracing::error!(%error, %app, "threads of the application keep their clamps");
                return;
            }
        }
    }

    /// As [`Saving::adopt`], for all savers.
    fn adopt_all(&mut self) {
        let savers: Vec<AppId> = self.savers.keys().copied().collect();
        savers.into_iter().for_each(|app| self.adopt(app));
    }

    /// The part of the highest clock that the reservations need.
    fn needed(&self, applications: &[Application]) -> f64 {
        let scale = |app: &Application| if self.is_measured(app) { self.part } else { 1.0 };
        let lower = load(applications, self.cpus, scale) / USABLE;
        next_part(self.part, lower, load(applications, self.cpus, |_| 1.0) / USABLE)
    }

    /// Whether the reservation was measured at the present clock: that of an adaptive application that has run for a
    /// while.
    fn is_measured(&self, app: &Application) -> bool {
        let is_fixed = app.contract.fixed.is_some() || app.contract.service.is_some();
        !is_fixed && self.measured.contains(&app.id)
    }

    fn are_late(&mut self, applications: &[Application]) -> bool {
        let mut late = false;
        for app in applications {
            let Some(saver) = self.savers.get_mut(&app.id) else { continue };
            let now = Jobs { jobs: app.quality.jobs, misses: app.quality.misses };
            let before = std::mem::replace(&mut saver.jobs, now);
            let (jobs, misses) = (now.jobs.saturating_sub(before.jobs), now.misses.saturating_sub(before.misses));
            late |= jobs > 0 && misses as f64 > LATE * jobs as f64;
        }
        late
    }

    fn limit_clocks(&mut self, clocks: Vec<Clock>) {
        self.clocks = clocks;
        let lack = lack_of_clocks(self.allowed, &self.clocks, || power::power_manager(&self.root));
        self.set_limited(lack.is_none());
        if lack.is_some() {
            self.scheduler.iter().for_each(|scheduler| scheduler.set(1.0));
        }
        let Some(journal) = self.journal.as_mut() else { return };
        if let Some(lack) = lack {
            self.missing.push(lack);
            self.missing.extend(journal.turn_back());
            return;
        }
        let part = self.raises.bound(self.part);
        let set = self.set_clocks(part);
        self.missing.extend(set.into_iter().filter_map(|set| set.unwrap_or_else(Some)));
    }

    /// Sets all clocks to this part, as [`set`] does each. They are not limited if one of them fails.
    fn set_clocks(&mut self, part: f64) -> Vec<Result<Option<String>, String>> {
        let Some(journal) = self.journal.as_mut() else { return Vec::new() };
        let (raised, scheduler) = (part > self.part, self.scheduler.as_ref());
        let each = self.clocks.iter().map(|clock| set(journal, clock, part, raised, scheduler, &self.sys));
        let each: Vec<_> = each.collect();
        if each.iter().any(Result::is_err) {
            self.set_limited(false);
        }
        each
    }

    /// A job of the application is at a checkpoint: until its end, or its deadline, the clock is as high as the rest of
    /// the job needs, and as many levels higher as the job asks for. Does nothing while the clocks are not limited.
    pub(super) fn checkpoint(&mut self, app: AppId, checkpoint: Checkpoint, now: Instant) {
        if !self.is_limited() || !self.savers.contains_key(&app) {
            return;
        }
        let before = self.raises.bound(self.part);
        let suffices = self.frequencies.lowest(&self.clocks, raises::needed(self.part, checkpoint));
        let part = self.frequencies.above(&self.clocks, suffices, checkpoint.levels);
        if part > self.part + 1e-9 {
            self.raises.set(app, part, checkpoint, now);
        } else {
            self.raises.end_soon(app, checkpoint, now);
        }
        self.turn_from(before);
    }

    /// Ends what checkpoints asked for, if it is over. Returns when the next one is over.
    pub(super) fn end_raises(&mut self, now: Instant) -> Option<Instant> {
        let before = self.raises.bound(self.part);
        self.raises.end(now);
        self.turn_from(before);
        self.raises.next()
    }

    /// Turns the clocks if the highest part that a checkpoint asks for was `before`. Who manages the clocks, and which
    /// threads are clamped, is asked at the next choice: here a job waits for its clock.
    fn turn_from(&mut self, before: f64) {
        let part = self.raises.bound(self.part);
        let is_turned = self.is_limited() && part != before;
        if is_turned {
            let failed = self.set_clocks(part).into_iter().filter_map(Result::err);
            self.missing.extend(failed);
        }
    }

    /// Switches on the power save of all wireless cards. It follows the rules of the clocks: it stays while another program
    /// manages power, and without leave.
    fn let_radios_sleep(&mut self) {
        let radios = if self.radios_allowed { power::radios(&self.sys) } else { Vec::new() };
        let Some(journal) = self.journal.as_mut() else { return };
        let lack = match self.radios_allowed {
            false => return,
            true if radios.is_empty() => Some("no wireless card can sleep: this host has none".to_owned()),
            true => power::power_manager(&self.root)
                .map(|manager| format!("wireless cards stay as they are: {manager}; to end it: {}", manager.stop)),
        };
        if let Some(lack) = lack {
            self.missing.push(lack);
            self.missing.extend(journal.power_save_back());
            return;
        }
        let failed = radios.iter().filter_map(|radio| journal.power_save(radio, true).err());
        self.missing.extend(failed.map(|error| error.to_string()));
    }

    /// Whether all clocks follow the scheduler. Then no thread is clamped: a clamp of the running thread would also
    /// limit what the scheduler asks for at its checkpoints.
    fn follows_scheduler(&self) -> bool {
        let governs = |clock: &Clock| SchedulerClock::governs(&self.sys, clock);
        self.scheduler.is_some() && self.is_limited() && self.clocks.iter().all(governs)
    }

    /// Clamps the threads of all applications that save, or puts their clamps back while all clocks follow the
    /// scheduler. The kernel ignores clamps of threads under SCHED_DEADLINE, and takes their reservations as the
    /// request instead.
    fn clamp(&mut self) {
        let follows = self.follows_scheduler();
        if !power::has_clamps() {
            let why =
                "threads cannot be limited: the kernel has no utilization clamps; boot one with CONFIG_UCLAMP_TASK";
            return self.missing.extend((!follows).then(|| why.to_owned()));
        }
        if follows {
            self.adopt_all();
        }
        let Some(journal) = self.journal.as_mut() else { return };
        let most = (self.part * f64::from(FULL)).ceil() as u32;
        let (mut present, mut refused) = (BTreeSet::new(), Vec::new());
        for saver in self.savers.values_mut() {
            saver.clamped = 0;
            let threads = if follows { Vec::new() } else { program(saver.pid) };
            for thread in threads {
                present.insert(thread);
                match journal.clamp(thread, most, ThreadId(saver.pid)) {
                    Ok(clamped) => saver.clamped += usize::from(clamped),
                    // Such as a real-time thread, whose lower clamp is the highest. The others are limited.
                    Err(error) => refused.push(format!("thread {thread} is not limited: {error}")),
                }
            }
        }
        self.missing.extend(first_of(refused));
        // Threads of applications that have left, threads that have ended, and all if the clocks follow the scheduler.
        for thread in journal.clamped().into_iter().filter(|thread| !present.contains(thread)) {
            self.missing.extend(journal.unclamp(thread).err().map(|error| error.to_string()));
        }
    }

    /// Puts all knobs and clamps back. What cannot be put back yet, such as the clamp of a thread that is just leaving
    /// its reservation, is tried again at the next call.
    fn put_back(&mut self) {
        (self.part, self.lateness) = (1.0, Lateness::default());
        self.set_limited(false);
        self.scheduler.iter().for_each(|scheduler| scheduler.set(1.0));
        self.raises = Raises::default();
        let Some(mut journal) = self.journal.take() else { return };
        let threads = journal.clamped();
        let clamps = threads.into_iter().filter_map(|tid| journal.unclamp(tid).err().map(|error| error.to_string()));
        let mut failed: Vec<String> = clamps.collect();
        failed.extend(journal.turn_back().into_iter().chain(journal.power_save_back()));
        for failure in failed.iter().filter(|failure| !self.not_back.contains(failure)) {
            tracing::error!("not restored: {failure}; this service tries again, and `qfabric restore` after its end");
        }
        self.not_back = failed;
        self.journal = (!journal.has_energy_back()).then_some(journal);
    }

    /// Puts back as [`Saving::put_back`], for the last time. The journal is free for the next service, with what is not
    /// back.
    pub(super) fn end(&mut self) {
        self.adopt_all();
        self.put_back();
        self.journal = None;
    }
}

/// The first of several reasons, with the number of the others.
fn first_of(reasons: Vec<String>) -> Option<String> {
    let others = reasons.len().saturating_sub(1);
    let first = reasons.into_iter().next()?;
    Some(if others == 0 { first } else { format!("{first}; {others} more threads are not limited") })
}

/// Largest number of threads of a program that are clamped.
const MOST_THREADS: usize = 4_096;

fn program(pid: i32) -> Vec<ThreadId> {
    let processes = std::iter::once(pid).chain(threads::descendants(pid));
    processes.flat_map(|pid| threads::list(pid).unwrap_or_default()).take(MOST_THREADS).collect()
}

fn open(directory: &Path) -> Result<Journal, String> {
    let folder = directory.join(FOLDER);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    Journal::open(&folder).map_err(|error| error.to_string())
}

/// max(u_max, Σu/m) of all reservations, each × the `scale` of its application. An application without reserved threads
/// counts with its grant.
fn load(applications: &[Application], cpus: usize, scale: impl Fn(&Application) -> f64) -> f64 {
    let (mut sum, mut most) = (0.0, 0.0_f64);
    for app in applications {
        let scale = scale(app);
        let shares = app.threads.iter().filter_map(|thread| Some(thread.reservation?.share().as_f64()));
        let (of_threads, largest) = shares.fold((0.0, 0.0_f64), |(sum, most), share| (sum + share, most.max(share)));
        // The grant may be ahead of the reservations.
        sum += scale * app.granted.as_f64().max(of_threads);
        most = most.max(scale * if of_threads > 0.0 { largest } else { app.granted.as_f64().min(1.0) });
    }
    most.max(sum / cpus as f64)
}

/// The part of the highest clock from now on, with the bounds of the needed one.
fn next_part(present: f64, lower: f64, upper: f64) -> f64 {
    let (lower, upper) = (lower.clamp(0.0, 1.0), upper.clamp(0.0, 1.0));
    // The bounds come from products, whose last digits differ.
    if (lower - 1e-9..=upper).contains(&present) { present } else { upper }
}

/// The search for another manager reads all processes, so it comes last.
fn lack_of_clocks(allowed: bool, clocks: &[Clock], manager: impl FnOnce() -> Option<PowerManager>) -> Option<String> {
    if clocks.is_empty() {
        return Some("the clocks stay as they are: no cpufreq; run qfabric doctor to see why".to_owned());
    }
    if !allowed {
        let why = "the clocks stay as they are: set clocks = true in [energy] of the daemon's configuration";
        return Some(why.to_owned());
    }
    manager().map(|manager| format!("the clocks stay as they are: {manager}; to end it: {}", manager.stop))
}

/// Sets one clock to this part of its highest frequency, whatever its governor does, until the journal turns it back.
/// Returns what is missing although the clock is set.
///
/// # Errors
/// A text for the user: the kernel refused a value, or the clock did not take it.
pub fn pin_clock(journal: &mut Journal, clock: &Clock, part: f64) -> Result<Option<String>, String> {
    // Without a scheduler that asks for clocks, the root of sysfs is not used.
    set(journal, clock, part, true, None, Path::new(power::SYS))
}

/// Sets one clock. Under the governor `userspace` the frequency itself is set. If the clock follows the scheduler, the
/// scheduler asks for this part, or more at its own checkpoints, and there is no limit; but a clock that is `raised` by
/// a checkpoint of an application is limited on both sides, so that it is in force at once and not only with the next
/// thread of each CPU. Returns what is missing although the clock is set.
fn set(
    journal: &mut Journal,
    clock: &Clock,
    part: f64,
    raised: bool,
    scheduler: Option<&SchedulerClock>,
    sys: &Path,
) -> Result<Option<String>, String> {
    if clock.knob(KnobName::SetFrequency).value().is_some() {
        return hold(journal, clock, part);
    }
    let Some(scheduler) = scheduler.filter(|_| SchedulerClock::governs(sys, clock)) else {
        return limit(journal, clock, part, raised);
    };
    scheduler.set(part);
    if raised {
        return limit(journal, clock, part, raised);
    }
    put_limits_back(journal, clock).map(|()| None)
}

/// Puts the limits and the preference of one clock back, if this program has set them.
fn put_limits_back(journal: &mut Journal, clock: &Clock) -> Result<(), String> {
    for name in [KnobName::MaxFrequency, KnobName::MinFrequency, KnobName::Preference] {
        let knob = clock.knob(name);
        if let Some(before) = journal.before(&knob).map(str::to_owned) {
            journal.turn(&knob, &before).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Sets the frequency of a clock under the governor `userspace`, which follows no load: below a limit the clock would
/// stay where its user left it, also if the reservations need more. The user's limits hold. Returns what is missing if
/// they are lower than what is needed.
fn hold(journal: &mut Journal, clock: &Clock, part: f64) -> Result<Option<String>, String> {
    put_limits_back(journal, clock)?;
    let khz =
        |name: KnobName, otherwise: u64| clock.knob(name).value().and_then(|khz| khz.parse().ok()).unwrap_or(otherwise);
    let (least, most) = clock.range;
    let limits = (khz(KnobName::MinFrequency, least), khz(KnobName::MaxFrequency, most));
    let needed = clock.at_least(part);
    let possible = clock.within(needed, limits);
    let knob = clock.knob(KnobName::SetFrequency);
    journal.turn(&knob, &possible.to_string()).map_err(|error| error.to_string())?;
    let lack = || {
        let most = clock.knob(KnobName::MaxFrequency);
        format!("{knob} is {possible} kHz and {needed} kHz are needed: raise {most}")
    };
    Ok((possible < needed).then(lack))
}

/// Limits one clock. A processor that chooses its clock itself gets the lower limit, too: it must not fall below the
/// clock that the reservations need. So does every clock that is `raised` by a checkpoint: governors follow the load or
/// the reservations, which do not know that a job is late. So does a clock under the governor `powersave`, which
/// keeps the lower limit or lets the processor choose. Returns what is missing although the clock is limited.
fn limit(journal: &mut Journal, clock: &Clock, part: f64, raised: bool) -> Result<Option<String>, String> {
    let (least, _) = clock.range;
    let on_both_sides = raised || clock.knob(KnobName::Governor).value().as_deref() == Some(POWERSAVE);
    let khz = clock.at_least(part);
    let min = clock.knob(KnobName::MinFrequency);
    let is_above = min.value().and_then(|min| min.parse::<u64>().ok()).is_some_and(|min| min > khz);
    let before = journal.before(&min).filter(|_| is_above || !on_both_sides).map(str::to_owned);
    let khz = khz.to_string();
    let turn = |journal: &mut Journal, name, value: &str| {
        journal.turn(&clock.knob(name), value).map(drop).map_err(|error| error.to_string())
    };
    let chooses_itself = clock.knob(KnobName::Preference).value().is_some();
    if chooses_itself {
        turn(journal, KnobName::MinFrequency, &least.to_string())?;
    } else if let Some(before) = before {
        turn(journal, KnobName::MinFrequency, &before)?;
    }
    turn(journal, KnobName::MaxFrequency, &khz)?;
    if chooses_itself || on_both_sides {
        turn(journal, KnobName::MinFrequency, &khz)?;
    }
    if chooses_itself {
        return Ok(turn(journal, KnobName::Preference, PREFERENCE).err());
    }
    Ok(None)
}
