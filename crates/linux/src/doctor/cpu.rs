//! Checks what reservations of CPU time need: the policy itself, free bandwidth, exact enforcement, reclaiming.

use std::collections::BTreeMap;
use std::path::Path;

use qfabric_types::api::Problem;
use qfabric_types::{MechanismName, Nanos, Reservation, Share, ThreadId};
use rustix::thread::CapabilitySet;

use super::{Facts, Finding, State};
use crate::books::{self, Books, BooksError, Corrected, LentError, Limit};
use crate::cpus::CpuList;
use crate::hrtick::{self, DEBUGFS, Feature};
use crate::mechanism::ApplyError;
use crate::sched_attr::{self, SchedAttr};
use crate::{capability, capacity, cgroup};

/// Less free bandwidth than this causes a warning.
const LITTLE: Share = Share::from_ppm(100_000);

pub(super) fn examine(facts: &mut Facts, debugfs: &Path) -> Vec<Finding> {
    let tried = try_out();
    facts.grub = tried.as_ref().is_ok_and(|t| t.grub);
    facts.dynamic_getattr = tried.as_ref().is_ok_and(|t| t.dynamic);
    facts.tick_ns = tick().map(Nanos::get);
    let (room, took) = capacity::timed_probe();
    facts.capacity = room.as_ref().ok().copied().filter(|r| *r > Share::ZERO);
    facts.mechanism = facts.capacity.map(|_| MechanismName::Deadline);
    let books = books::lost(debugfs);
    facts.booked_for_nobody = books.as_ref().ok().map(|books| books::cpus(books.without_owner()));
    let hrtick_dl = hrtick::state(debugfs, Feature::HrtickDl);
    facts.hrtick_dl = hrtick_dl == hrtick::State::On;
    vec![
        mechanism(facts, &room),
        admission_room(room, took),
        booked(&books),
        rt_throttling(Limit::of_host(debugfs), rustix::process::geteuid().is_root()),
        hrtick(hrtick_dl, tick()),
        grub(&tried),
        dynamic(&tried),
        root_domain(),
    ]
}

/// Abilities found by a thread that reserved bandwidth for itself.
struct Tried {
    grub: bool,
    dynamic: bool,
}

fn try_out() -> std::io::Result<Tried> {
    let me = ThreadId(0);
    let small = Reservation::new(Nanos::from_micros(100), Nanos::from_millis(100)).expect("0.1 % is one");
    let trial = move || {
        SchedAttr::deadline(small, false).give(me)?;
        let dynamic = sched_attr::remaining(me).is_ok();
        let grub = SchedAttr::deadline(small, true).give(me).is_ok();
        SchedAttr::fair(0).give_leaving(me)?;
        Ok(Tried { grub, dynamic })
    };
    std::thread::Builder::new().spawn(trial)?.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))
}

fn mechanism(facts: &Facts, room: &Result<Share, ApplyError>) -> Finding {
    match (facts.mechanism, room) {
        (Some(name), _) => Finding::ok(
            "mechanism",
            format!("{name}: SCHED_DEADLINE works on this host, with one reservation per thread"),
        ),
        (None, Err(error)) => {
            Finding::new("mechanism", State::Missing, format!("none: {}", reason(error))).fix(remedy(error))
        }
        (None, Ok(_)) => Finding::new("mechanism", State::Missing, "none: all bandwidth is already booked")
            .fix("read the findings `admission_room` and `booked`"),
    }
}

fn reason(error: &ApplyError) -> String {
    match error {
        ApplyError::Denied { why, .. } => why.clone(),
        other => other.problem().message,
    }
}

fn remedy(error: &ApplyError) -> String {
    match error {
        ApplyError::Denied { fix, .. } => fix.clone(),
        ApplyError::Affinity { needed, .. } => {
            format!("allow this program to run on CPUs {needed}, or move it to a cpuset partition")
        }
        other => other.problem().next_step,
    }
}

fn admission_room(room: Result<Share, ApplyError>, took: Nanos) -> Finding {
    let cpus = CpuList::online().len();
    match room {
        Ok(room) if room >= LITTLE => Finding::ok(
            "admission_room",
            format!("{room} of {cpus} CPUs can be reserved now, probed in {took} (the kernel keeps the rest)"),
        ),
        Ok(room) => Finding::new("admission_room", State::Warn, format!("only {room} of {cpus} CPUs is free"))
            .fix("the finding `booked` shows the owners of the rest"),
        Err(error) => Finding::new("admission_room", State::Missing, reason(&error)).fix(remedy(&error)),
    }
}

/// The owners of the booked bandwidth. Other tools, such as chrt, take threads out so that their bandwidth stays
/// booked.
pub(super) fn booked(books: &Result<Books, BooksError>) -> Finding {
    let books = match books {
        Ok(books) => books,
        Err(error) => {
            let Problem { message, next_step, .. } = error.problem();
            let fix = format!("{next_step}; the finding `admission_room` shows the free bandwidth in any case");
            return Finding::new("booked", State::Unknown, format!("unknown: {message}")).fix(fix);
        }
    };
    let cpus = |units: u64| capacity::share_of(units);
    let who = format!(
        "{} threads hold {}, the kernel's own servers {}",
        books.threads,
        cpus(books.held),
        cpus(books.servers)
    );
    match books.without_owner() {
        0 => Finding::ok("booked", format!("{who}; all booked bandwidth has an owner")),
        lost if lost > 0 => Finding {
            fixable: true,
            ..Finding::new("booked", State::Warn, format!("{who}; {:.6} CPU is booked with no owner", books::cpus(lost)))
                .fix("run qfabric doctor --fix, which rebuilds the root domain; until then this bandwidth cannot be reserved")
        },
        missing => {
            let reason = format!("{who}; {}", too_little(books, missing));
            let fix = "run qfabric doctor --fix, which rebuilds the root domain after no thread has left for 5 s";
            Finding { fixable: true, ..Finding::new("booked", State::Warn, reason).fix(fix) }
        }
    }
}

/// Reservations were subtracted twice. The consequence depends on the sign of the sum.
fn too_little(books: &Books, missing: i64) -> String {
    let sum = format!("the kernel's sum of reserved bandwidth is {:.6} CPU", books::cpus(books.total));
    let twice = format!("{:.6} CPU was subtracted twice", -books::cpus(missing));
    match books.refuses_everybody() {
        true => format!("{sum}, so the kernel refuses every reservation; {twice}"),
        false => format!("{sum}, so the kernel admits more than it has; {twice}"),
    }
}

/// Frees booked bandwidth with no owner.
pub(super) fn fix_booked(debugfs: &Path) -> Finding {
    match books::rebuild(debugfs) {
        Ok((before, _)) if before.without_owner() == 0 => Finding::ok("booked", "all booked bandwidth has an owner"),
        Ok((before, after)) => rebuilt(&before, &after),
        Err(error) => {
            let Problem { message, next_step, .. } = error.problem();
            Finding::new("booked", State::Unknown, format!("the root domain was not rebuilt: {message}")).fix(next_step)
        }
    }
}

/// The result of a rebuild of the root domain.
fn rebuilt(before: &Books, after: &Books) -> Finding {
    let (lost, left) = (books::cpus(before.without_owner()), books::cpus(after.without_owner()));
    let done = format!(
        "the root domain was rebuilt: the kernel's sum was {:.6} CPU, {lost:+.6} CPU of it with no owner; now it is \
         {:.6} CPU, {left:+.6} CPU of it with no owner",
        books::cpus(before.total),
        books::cpus(after.total)
    );
    match after.without_owner() {
        0 => Finding::ok("booked", done),
        _ => Finding::new("booked", State::Warn, done)
            .fix("end the programs that set their own reservations, then run qfabric doctor --fix again"),
    }
}

/// Under kernel lockdown the file with this limit is still readable, because it cannot be written.
fn rt_throttling(limit: Option<Limit>, to_root: bool) -> Finding {
    let name = "rt_runtime";
    match limit {
        Some(Limit::None) => Finding::new(
            name,
            State::Warn,
            "real-time threads may use all CPU time, so an endless loop in one of them stops the host",
        )
        .fix("run sysctl kernel.sched_rt_runtime_us=950000"),
        Some(Limit::Units(0)) => {
            Finding::new(name, State::Missing, "kernel.sched_rt_runtime_us is 0, so no reservation is possible")
                .fix("run sysctl kernel.sched_rt_runtime_us=950000")
        }
        Some(Limit::Units(units)) => Finding::ok(
            name,
            format!("real-time threads may use {:.1} % of each CPU", 100.0 * books::cpus(units as i64)),
        ),
        None => {
            let why =
                "unknown: debugfs cannot be read, and reading kernel.sched_rt_runtime_us disturbs the kernel's sums";
            let mount = format!("mount debugfs: mount -t debugfs none {DEBUGFS}");
            let fix = if to_root { mount } else { format!("run it as root; if that does not help, {mount}") };
            Finding::new(name, State::Unknown, why).fix(fix)
        }
    }
}

pub(super) fn hrtick(state: hrtick::State, tick: Option<Nanos>) -> Finding {
    let name = "hrtick_dl";
    let coarse = tick.map_or("at the tick".into(), |t| format!("at the tick, every {t}"));
    let meaning = format!("budgets are enforced only {coarse}; short budgets overrun, averages are exact");
    let stay = "choose server periods of several ticks";
    match state {
        hrtick::State::On => Finding::ok(name, "on: a separate timer enforces budgets").fix(
            "leave it on for hard reservations and short server periods; players under GRUB miss fewer jobs without it",
        ),
        hrtick::State::Off => Finding::ok(name, format!("off, best for GRUB: {meaning}")).fix(
            "for hard reservations and server periods of a few ticks, switch it on with qfabric doctor --fix --exact",
        ),
        hrtick::State::Absent => {
            Finding::new(name, State::Missing, format!("this kernel has no HRTICK_DL, so {meaning}")).fix(stay)
        }
        hrtick::State::Refused { why, fix } => Finding::new(
            name,
            State::Unknown,
            format!("{why}; if it is off, {meaning}"),
        )
        .fix(format!(
            "to see and switch it, {fix}; without that, {stay}, or use Linux 7.1 or newer, where it is on by default"
        )),
    }
}

fn grub(tried: &std::io::Result<Tried>) -> Finding {
    match tried {
        Ok(Tried { grub: true, .. }) => {
            Finding::ok("grub", "reservations can use the bandwidth that others leave over")
        }
        Ok(_) => Finding::new("grub", State::Missing, "this kernel refuses SCHED_FLAG_RECLAIM")
            .fix("use Linux 4.13 or later, or contracts without reclaiming"),
        Err(e) => Finding::new("grub", State::Unknown, format!("the test reservation failed: {e}"))
            .fix("read the finding `mechanism`"),
    }
}

/// Reports wrong sums of single CPUs; `books/lent.rs` explains their cause.
pub(super) fn reclaiming(lent: Result<BTreeMap<u32, Share>, LentError>) -> Finding {
    let name = "reclaiming";
    match lent {
        Ok(lent) if lent.is_empty() => Finding::ok(name, "GRUB lends only free bandwidth"),
        Ok(lent) => {
            let reason =
                format!("GRUB lends reserved bandwidth ({}), so reservations may be served late", parts(&lent));
            Finding::new(name, State::Warn, reason).fix(
                "on an idle host run qfabric doctor --reclaiming --fix, which corrects the kernel's sums; \
                 hard reservations are not affected",
            )
        }
        Err(error) => not_measured(&error),
    }
}

/// Removes the wrongly lent bandwidth from the kernel's sums.
pub(super) fn fix_reclaiming(debugfs: &Path) -> Finding {
    let name = "reclaiming";
    let (before, after) = match books::stop_lending(debugfs) {
        Ok(Corrected { before, after }) => (before, after),
        Err(error) => return not_measured(&error),
    };
    match (before.is_empty(), after.is_empty()) {
        (true, _) => Finding::ok(name, "nothing to correct: GRUB lends only free bandwidth"),
        (_, true) => {
            Finding::ok(name, format!("GRUB lent reserved bandwidth ({}); this is now corrected", parts(&before)))
        }
        (_, false) => {
            let left = format!("GRUB lent reserved bandwidth ({}), and still lends {}", parts(&before), parts(&after));
            Finding::new(name, State::Warn, left).fix("try again when the host is idle, or restart the host")
        }
    }
}

fn not_measured(error: &LentError) -> Finding {
    let Problem { message, next_step, .. } = error.problem();
    Finding::new("reclaiming", State::Unknown, format!("unknown: {message}")).fix(next_step)
}

fn parts(lent: &BTreeMap<u32, Share>) -> String {
    let parts: Vec<_> = lent.iter().map(|(cpu, share)| format!("{share} of CPU {cpu}")).collect();
    parts.join(", ")
}

fn dynamic(tried: &std::io::Result<Tried>) -> Finding {
    match tried.as_ref().is_ok_and(|t| t.dynamic) {
        true => Finding::ok("dynamic_getattr", "the kernel reports the remaining budget"),
        false => Finding::new(
            "dynamic_getattr",
            State::Absent,
            "this kernel does not report the remaining budget (Linux 7.1 does); Q-Fabric computes it from CPU time",
        ),
    }
}

/// The tick, which is the resolution of the coarse clock.
fn tick() -> Option<Nanos> {
    let step = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    Some(Nanos::new(step.tv_nsec as u64)).filter(|t| *t > Nanos::ZERO)
}

fn root_domain() -> Finding {
    let me = std::process::id() as i32;
    let (needed, mask) = (cgroup::root_domain(me), CpuList::allowed(me).unwrap_or_default());
    let all = CpuList::online();
    match mask.contains_all(&needed) {
        true if needed == all => Finding::ok("root_domain", format!("one root domain with all CPUs ({all})")),
        true => Finding::ok("root_domain", format!("this program is in the root domain with CPUs {needed}, of {all}")),
        false => Finding::new(
            "root_domain",
            State::Warn,
            format!("this program may run only on CPUs {mask}, of {needed}"),
        )
        .fix("programs with this mask get no reservation; allow all CPUs, or make a cpuset partition of these CPUs"),
    }
}

/// The capabilities of this program. `setcap` replaces all capabilities of a file, so one command names them all; it
/// stands at the first.
pub(super) fn rights() -> Vec<Finding> {
    let all = format!("use the systemd unit, or run setcap {} PROGRAM", capability::setcap_argument());
    let first = capability::SERVICE[0].0;
    let finding =
        |(name, set, used_for): (&'static str, CapabilitySet, &str)| match capability::held(set) {
            true => Finding::ok(name, format!("held; used for {used_for}")),
            false => Finding::new(name, State::Missing, format!("not held; needed for {used_for}"))
                .fix(if name == first { all.clone() } else { format!("see {first}") }),
        };
    capability::SERVICE.map(finding).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booked_bandwidth_with_no_owner_is_found() {
        let books = Books { total: 314_572, held: 209_716, threads: 1, servers: 104_856 };
        assert_eq!(booked(&Ok(books)).state, State::Ok);
        let leaked = booked(&Ok(Books { total: 314_572 + 65_536, ..books }));
        assert!(leaked.state == State::Warn && leaked.fixable, "{leaked:?}");
        assert!(leaked.reason.contains("0.062500 CPU is booked with no owner"), "{leaked:?}");
        assert!(leaked.reason.contains("servers 0.1 CPU;"), "a leak is not counted for the servers: {leaked:?}");
        let unknown = booked(&Err(BooksError::NotAllSeen));
        assert_eq!((unknown.state, unknown.reason.contains("run as root")), (State::Unknown, false), "{unknown:?}");
        assert!(unknown.fix.as_ref().is_some_and(|fix| fix.starts_with("run as root")), "{unknown:?}");
    }

    #[test]
    fn a_rebuild_that_leaves_bandwidth_without_an_owner_did_not_repair() {
        let clean = Books { total: 314_572, held: 209_716, threads: 1, servers: 104_856 };
        let leaked = Books { total: 314_572 + 65_536, ..clean };
        assert_eq!(rebuilt(&leaked, &clean).state, State::Ok);
        let left = rebuilt(&leaked, &Books { total: 314_572 + 32_768, ..clean });
        assert!(left.state == State::Warn && left.fix.is_some(), "{left:?}");
        assert!(left.reason.contains("+0.031250 CPU of it with no owner"), "{left:?}");
    }

    #[test]
    fn wrongly_lent_bandwidth_is_named_with_its_cpu() {
        assert_eq!(reclaiming(Ok(BTreeMap::new())).state, State::Ok);
        let found = reclaiming(Ok([(1, Share::from_ppm(420_000))].into()));
        assert!(found.state == State::Warn && found.reason.contains("0.42 CPU of CPU 1"), "{found:?}");
        let unknown = reclaiming(Err(LentError::Reserved { threads: 3 }));
        assert!(unknown.state == State::Unknown && unknown.reason.contains("3 threads hold"), "{unknown:?}");
        assert_eq!(unknown.fix.as_deref(), Some("stop them first"));
    }

    #[test]
    fn a_sum_with_a_double_subtraction_is_named_and_can_be_repaired() {
        let negative = Books { total: -1_405_091, held: 0, threads: 0, servers: 104_856 };
        let finding = booked(&Ok(negative));
        assert!(finding.state == State::Warn && finding.fixable && finding.fix.is_some(), "{finding:?}");
        let named = "the kernel's sum of reserved bandwidth is -1.339999 CPU, so the kernel refuses every reservation";
        assert!(finding.reason.contains(named), "{finding:?}");
        let short = booked(&Ok(Books { total: 0, ..negative }));
        assert!(short.fixable && short.reason.contains("admits more than it has"), "{short:?}");
    }

    #[test]
    fn the_thread_of_the_test_reservation_leaves_it() {
        let _alone = crate::testing::live_lock();
        match try_out() {
            Ok(_) => {}
            // No permission, or not enough bandwidth.
            Err(error) => assert!(matches!(error.raw_os_error(), Some(libc::EPERM | libc::EBUSY)), "{error}"),
        }
    }

    #[test]
    fn coarse_enforcement_names_the_tick_and_is_fixed_only_on_demand() {
        let off = hrtick(hrtick::State::Off, Some(Nanos::from_millis(4)));
        assert!(!off.fixable && off.reason.contains("every 4 ms"), "a plain --fix leaves it off: {off:?}");
        assert!(off.fix.is_some_and(|fix| fix.contains("--exact") && fix.contains("hard")));
        assert_eq!(hrtick(hrtick::State::On, None).state, State::Ok);
    }

    #[test]
    fn under_lockdown_the_next_step_of_root_is_to_boot_without_it() {
        let refused = std::io::Error::from_raw_os_error(libc::EPERM);
        for level in [Some("integrity"), None] {
            let finding = hrtick(hrtick::refusal(Path::new(DEBUGFS), &refused, true, level), None);
            assert!(!finding.fixable && finding.state == State::Unknown, "{finding:?}");
            assert!(finding.reason.starts_with("kernel lockdown ("), "{finding:?}");
            let fix = finding.fix.unwrap();
            assert!(fix.contains("boot without lockdown") && fix.contains("choose server periods"), "{fix}");
            assert!(!fix.contains("as root"), "{fix}");
        }
    }

    #[test]
    fn a_host_that_grants_no_time_to_real_time_threads_is_reported() {
        assert_eq!(rt_throttling(Some(Limit::Units(0)), true).state, State::Missing);
        assert_eq!(rt_throttling(Some(Limit::None), true).state, State::Warn);
        assert!(rt_throttling(Some(Limit::Units(996_147)), true).reason.contains("95.0 %"));
        let [user, root] = [false, true].map(|to_root| rt_throttling(None, to_root).fix.unwrap());
        assert!(user.contains("run it as root") && user.contains("mount -t debugfs"), "{user}");
        assert!(root.contains("mount -t debugfs") && !root.contains("as root"), "{root}");
    }
}
