//! The promises of a host if servers are bound to CPUs, as plans; then random lives, checked against the sum on
//! every CPU.

mod common;

use std::collections::BTreeMap;

use common::*;
use proptest::prelude::*;
use qfabric_host::{HostConfig, HostEvent, Input, Limits};
use qfabric_types::api::{ApplicationScope, Problem};
use qfabric_types::{
    AppId, Class, Contract, ControlPlace, DispatchRules, JobSource, MechanismFeatures, MechanismName, Nanos, Owner,
    Reclaiming, Reservation, Setting, Share, ThreadId, Window,
};

const EACH: u32 = 90;

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Two CPUs with 90 % of each for servers, under a mechanism with all features.
fn config() -> HostConfig {
    let features = MechanismFeatures {
        terms: true,
        rescues: true,
        kernel_control: true,
        cpus: vec![0, 1],
        ..MechanismFeatures::default()
    };
    HostConfig {
        limits: Limits::of_capacity(share(2 * EACH)),
        cpu_capacity: share(EACH),
        features,
        mechanism: "ext".to_owned(),
        ..HostConfig::default()
    }
}

fn bench() -> Bench {
    Bench::with_config(config())
}

fn fixed(service_ms: u64, period_ms: u64, window: Option<&str>) -> Contract {
    let window = window.map(|text| text.parse().unwrap());
    Contract { window, ..Contract::fixed("player", ms(period_ms), ms(service_ms)) }
}

/// The mechanisms of a machine with a recent kernel, beside deadline.
fn others() -> Vec<(MechanismName, MechanismFeatures)> {
    let ext = MechanismFeatures { terms: true, all_reclaiming: true, ..MechanismFeatures::default() };
    let dispatcher = MechanismFeatures { slots: Some(DispatchRules::default()), ..MechanismFeatures::default() };
    vec![(MechanismName::Ext, ext), (MechanismName::Dispatcher, dispatcher)]
}

fn program(bench: &mut Bench, contract: &Contract, threads: &[i32]) -> Result<AppId, Problem> {
    bench.join(contract, ApplicationScope::Program, threads)
}

fn last(bench: &Bench, thread: i32) -> Setting {
    *bench.settings.iter().rfind(|setting| setting.thread == ThreadId(thread)).expect("the thread has a setting")
}

#[test]
fn soft_and_iris_are_refused_if_the_mechanism_has_only_hard_and_grub() {
    let (features, alternatives) = (MechanismFeatures::default(), others());
    let config = HostConfig { features, alternatives, mechanism: "deadline".to_owned(), ..config() };
    let mut bench = Bench::with_config(config);
    for (kind, named) in [(Reclaiming::Soft, "cannot give soft"), (Reclaiming::Iris, "cannot give IRIS")] {
        let asked = Contract::new("player", ms(40)).reclaimed_as(kind);
        let refused = bench.join(&asked, ApplicationScope::Program, &[1]).unwrap_err();
        assert!(refused.message.contains(named) && refused.next_step.contains("--mechanism ext"), "{refused:?}");
    }
    assert!(bench.settings.is_empty(), "a refusal changes nothing");
    for kind in [Reclaiming::Hard, Reclaiming::Grub] {
        bench
            .join(&Contract::new("player", ms(40)).reclaimed_as(kind), ApplicationScope::Program, &[1 + kind as i32])
            .unwrap();
    }
}

#[test]
fn a_fixed_service_is_one_server_for_all_threads_and_counts_once() {
    let mut bench = bench();
    let app = program(&mut bench, &fixed(10, 40, Some("1/5")), &[1, 2, 3]).unwrap();
    for thread in [1, 2, 3] {
        let setting = last(&bench, thread);
        assert_eq!(setting.reservation, Reservation::new(ms(10), ms(40)).ok());
        let terms = (setting.terms.group, setting.terms.cpu, setting.terms.window);
        assert_eq!(terms, (Some(app), Some(0), Window::new(1, 5).ok()));
    }
    let seen = bench.host.application(app).unwrap();
    assert_eq!((seen.guaranteed, seen.granted, seen.cpus), (share(20), share(20), vec![0]));
    assert_eq!(bench.host.held(), share(20), "less the part that the window lets pass");
    bench.input(Input::ThreadGone { app, thread: ThreadId(1) });
    assert_eq!(bench.host.held(), share(20), "another thread is counted for all now");
}

#[test]
fn a_kept_share_has_its_place_on_one_cpu() {
    let mut bench = bench();
    let mut keep = |percent| {
        let input =
            Input::Keep { request: 1, name: "for alpha".to_owned(), owner: Owner::NOBODY, share: share(percent) };
        bench.input(input).expect("every request is answered")
    };
    let kept = keep(60).unwrap();
    keep(60).unwrap();
    assert_eq!(keep(40).unwrap_err().code, "over_committed", "30 % of each CPU is left");
    bench.input(Input::Leave { app: kept });
    program(&mut bench, &fixed(24, 40, None), &[1]).unwrap();
}

#[test]
fn a_missing_ability_is_refused_with_the_alternatives_that_this_machine_has_for_it() {
    let windowed = fixed(10, 40, Some("1/5"));
    for (alternatives, contract, next) in [
        (others(), &windowed, "use --mechanism ext, or omit"),
        (others(), &fixed(10, 40, None), "use --mechanism ext or --mechanism dispatcher, or omit"),
        (others().split_off(1), &windowed, "omit the option; no other mechanism"),
        (Vec::new(), &windowed, "omit the option; no other mechanism"),
    ] {
        let config = HostConfig { mechanism: "deadline".to_owned(), alternatives, ..HostConfig::default() };
        let mut bench = Bench::with_config(config);
        let refused = program(&mut bench, contract, &[1]).unwrap_err();
        assert!(refused.code == "unavailable" && refused.message.contains("deadline cannot give a "), "{refused:?}");
        assert!(refused.next_step.contains(next), "{}", refused.next_step);
        assert!(bench.settings.is_empty());
    }
}

#[test]
fn a_server_that_fits_no_cpu_is_refused_with_the_numbers_and_changes_nothing() {
    let mut bench = bench();
    for thread in [1, 2] {
        program(&mut bench, &fixed(20, 40, None), &[thread]).unwrap();
    }
    let (settings, before) = (bench.settings.len(), bench.host.status());
    let refused = program(&mut bench, &fixed(20, 40, None), &[3]).unwrap_err();
    assert_eq!(refused.code, "over_committed");
    for part in ["U = 0.5 CPU", "0.9 CPU on each of 2", "at most 0.4 CPU", "player (1): 0.5 CPU"] {
        assert!(refused.message.contains(part), "{} lacks {part}", refused.message);
    }
    assert_eq!((bench.settings.len(), bench.host.status()), (settings, before));
    assert_eq!((refused.asked, refused.free), (Some(share(50)), Some(share(40))));
    program(&mut bench, &fixed(16, 40, None), &[3]).unwrap();
}

#[test]
fn services_go_to_the_cpu_where_most_is_free() {
    let mut bench = bench();
    for (thread, service) in [(1, 20), (2, 16), (3, 12), (4, 16)] {
        program(&mut bench, &fixed(service, 40, None), &[thread]).unwrap();
    }
    let cpus: Vec<_> = [1, 2, 3, 4].map(|thread| last(&bench, thread).terms.cpu.unwrap()).into();
    assert_eq!(cpus, [0, 1, 1, 0]);
    let seen: Vec<_> = bench.host.status().cpus.iter().map(|cpu| (cpu.cpu, cpu.guaranteed, cpu.granted)).collect();
    assert_eq!(seen, [(0, share(90), share(90)), (1, share(70), share(70))]);
}

#[test]
fn bandwidth_without_a_promise_makes_room_for_a_promise_and_moves() {
    let mut bench = bench();
    bench.join_thread(&Contract { max_bandwidth: share(60), ..marked() }, 1).unwrap();
    bench.join_thread(&Contract { max_bandwidth: share(60), ..marked() }, 2).unwrap();
    assert_eq!((last(&bench, 1).terms.cpu, last(&bench, 2).terms.cpu), (Some(0), Some(1)));
    program(&mut bench, &fixed(34, 40, None), &[3]).unwrap();
    assert!(!bench.kernel.contains_key(&ThreadId(3)), "it waits until the room is free");
    bench.wait_until(at(1_200));
    assert_eq!(bench.kernel[&ThreadId(3)].budget(), ms(34));
    let cpu = last(&bench, 3).terms.cpu;
    let (crowded, other) = if cpu == Some(0) { (1, 2) } else { (2, 1) };
    assert_ne!(last(&bench, crowded).terms.cpu, cpu, "5 % is left there, more elsewhere");
    assert_eq!(
        (bench.budget_us(other), bench.budget_us(crowded)),
        (4_750, 4_250),
        "both lack the same part of 1.2 CPU"
    );
}

#[test]
fn a_guarantee_holds_on_its_cpu_against_applications_without_one() {
    let mut bench = bench();
    let guaranteed = Contract { class: Class::A, guaranteed: Some(share(50)), max_bandwidth: share(50), ..marked() };
    let app = bench.join_thread(&guaranteed, 1).unwrap();
    bench.job(app, 0, 4, 0);
    bench.wait_until(at(1_060));
    assert_eq!(bench.budget_us(1), 1_000);
    for thread in 2..6 {
        bench.join_thread(&Contract { max_bandwidth: share(90), ..marked() }, thread).unwrap();
    }
    bench.wait_until(at(1_070));
    let home = last(&bench, 1).terms.cpu;
    let there: u64 =
        (2..6).filter(|&thread| last(&bench, thread).terms.cpu == home).map(|thread| bench.budget_us(thread)).sum();
    assert!(there <= 4_000, "{there} µs in 10 ms beside a guarantee of 50 %");
    bench.job(app, 1, 20, 0);
    bench.wait_until(at(1_120));
    assert_eq!(bench.budget_us(1), 5_000, "the guarantee is available when it is wanted");
}

#[test]
fn a_job_that_has_used_up_its_budget_is_rescued_at_once() {
    let mut bench = bench();
    let contract = Contract { jobs: JobSource::Activations, ..marked() };
    let app = bench.join_thread(&contract, 1).unwrap();
    for k in 0..3 {
        bench.ran(app, 1, at(1_000 + 40 * k), ms(8), true);
        bench.wait_until(at(1_000 + 40 * k + 39));
    }
    assert_eq!(bench.budget_us(1), 2_000);
    bench.ran(app, 1, at(1_120), ms(8), false);
    assert_eq!(bench.budget_us(1), 9_000, "90 % of a CPU");
    assert!(bench.events.contains(&HostEvent::Rescue { app, thread: ThreadId(1) }));
    bench.ran(app, 1, at(1_130), ms(2), true);
    bench.wait_until(at(1_159));
    assert!(bench.budget_us(1) < 4_000, "the prediction of the next job is unaffected: {} µs", bench.budget_us(1));
}

#[test]
fn a_mechanism_without_rescues_receives_none() {
    let features = MechanismFeatures { rescues: false, ..config().features };
    let mut bench = Bench::with_config(HostConfig { features, ..config() });
    let app = bench.join_thread(&Contract { jobs: JobSource::Activations, ..marked() }, 1).unwrap();
    for k in 0..3 {
        bench.ran(app, 1, at(1_000 + 40 * k), ms(8), true);
        bench.wait_until(at(1_000 + 40 * k + 39));
    }
    bench.ran(app, 1, at(1_120), ms(8), false);
    assert_eq!(bench.budget_us(1), 2_000);
}

#[test]
fn a_controller_in_the_kernel_decides_within_the_grant() {
    let mut bench = bench();
    let contract = Contract {
        controller: ControlPlace::Kernel,
        jobs: JobSource::Activations,
        max_bandwidth: share(60),
        rho: 1.5,
        ..marked()
    };
    let app = bench.join_thread(&contract, 1).unwrap();
    let control = last(&bench, 1).terms.control.unwrap();
    assert_eq!((control.max_budget, control.periods_per_job, control.rho_milli), (ms(6), 4, 1_500));
    for k in 0..3 {
        bench.ran(app, 1, at(1_000 + 40 * k), ms(8), true);
    }
    assert_eq!(bench.settings.len(), 1, "the controller in the kernel decides its budget");
}

#[test]
fn a_refused_change_leaves_the_old_promise_in_force() {
    let mut bench = bench();
    let app = program(&mut bench, &fixed(20, 40, None), &[1]).unwrap();
    program(&mut bench, &fixed(30, 40, None), &[2]).unwrap();
    let before = bench.host.status();
    assert!(bench.change(app, &fixed(38, 40, None)).is_err());
    assert_eq!(bench.host.status(), before);
    bench.change(app, &fixed(24, 40, None)).unwrap();
    assert_eq!(bench.kernel[&ThreadId(1)].budget(), ms(24));
}

#[test]
fn the_room_of_an_application_that_left_is_used_only_after_its_period() {
    let mut bench = bench();
    let apps: Vec<_> = [1, 2].map(|thread| program(&mut bench, &fixed(32, 40, None), &[thread]).unwrap()).into();
    bench.input(Input::Leave { app: apps[0] });
    assert!(!bench.kernel.contains_key(&ThreadId(1)));
    program(&mut bench, &fixed(32, 40, None), &[3]).unwrap();
    assert!(!bench.kernel.contains_key(&ThreadId(3)), "its last period is still booked");
    bench.wait_until(at(1_041));
    assert_eq!(bench.budget_us(3), 32_000);
}

#[test]
fn periods_are_aligned_if_promises_fit_only_with_windows() {
    let mut bench = Bench::with_config(HostConfig {
        features: MechanismFeatures { cpus: vec![0], ..config().features },
        ..config()
    });
    program(&mut bench, &fixed(20, 40, Some("1/2")), &[1]).unwrap();
    assert!(!last(&bench, 1).terms.aligned, "half a CPU fits without a window");
    program(&mut bench, &fixed(20, 40, Some("1/2")), &[2]).unwrap();
    let aligned = [1, 2].map(|thread| last(&bench, thread).terms.aligned);
    assert_eq!(aligned, [true, true], "both together fit only with windows and aligned releases");
}

#[test]
fn the_services_own_threads_count_on_their_cpu() {
    let own = Reservation::new(Nanos::from_micros(500), ms(5)).ok();
    let mut bench = Bench::with_config(HostConfig { own, ..config() });
    assert_eq!(bench.host.own_cpu(), Some(0));
    assert_eq!(bench.host.status().cpus[0].guaranteed, share(10));
    program(&mut bench, &fixed(36, 40, None), &[1]).unwrap();
    assert_eq!(last(&bench, 1).terms.cpu, Some(1));
    let refused = program(&mut bench, &fixed(36, 40, None), &[2]).unwrap_err();
    assert!(refused.message.contains("qfabric (0): 0.1 CPU"), "{}", refused.message);
}

#[test]
fn another_mechanism_starts_again_and_suspends_promises_that_it_cannot_keep() {
    let mut bench = bench();
    let windowed = program(&mut bench, &fixed(10, 40, Some("1/5")), &[1]).unwrap();
    let plain = bench.join_thread(&Contract { max_bandwidth: share(60), ..marked() }, 2).unwrap();
    let leaves = bench.join_thread(&marked(), 3).unwrap();
    bench.hold_back = true;
    bench.input(Input::Leave { app: leaves });
    bench.hold_back = false;
    (bench.kernel, bench.unanswered) = Default::default();
    let (name, features, capacity) = ("deadline".to_owned(), MechanismFeatures::default(), share(180));
    bench.input(Input::Mechanism { name, features, capacity });
    assert!(bench.events.contains(&HostEvent::Suspended { app: windowed, what: "a window" }));
    assert!(bench.events.contains(&HostEvent::Left { app: leaves }));
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (0, 6_000));
    assert_eq!(last(&bench, 2).terms, Default::default());
    let status = bench.host.status();
    assert_eq!((status.mechanism.as_str(), status.cpus.len()), ("deadline", 0));
    assert_eq!(bench.host.sink(plain), Some(ThreadId(2)));
    bench.change(windowed, &Contract { jobs: JobSource::Marked, ..Contract::new("player", T) }).unwrap();
    bench.wait_until(at(1_100));
    assert!(bench.budget_us(1) > 0, "the changed contract can be served");
}

#[test]
fn servers_of_an_offline_cpu_move_where_there_is_room() {
    let mut bench = bench();
    let player = program(&mut bench, &fixed(10, 40, Some("1/5")), &[1, 2]).unwrap();
    let other = program(&mut bench, &fixed(10, 40, None), &[3]).unwrap();
    let loose = bench.join_thread(&Contract { max_bandwidth: share(30), ..marked() }, 4).unwrap();
    assert_eq!([1, 3].map(|thread| last(&bench, thread).terms.cpu), [Some(0), Some(1)]);
    let before = bench.budget_us(4);
    bench.input(Input::Cpus(vec![1]));
    bench.wait_until(at(200));
    assert_eq!([1, 2, 3, 4].map(|thread| last(&bench, thread).terms.cpu), [Some(1); 4]);
    assert_eq!((bench.budget_us(1), bench.budget_us(4)), (10_000, before));
    let status = bench.host.status();
    assert_eq!((status.cpus.len(), status.cpus[0].guaranteed), (1, share(45)));
    assert!(!bench.events.iter().any(|event| matches!(event, HostEvent::Suspended { .. })));
    let refused = program(&mut bench, &fixed(30, 40, None), &[5]).unwrap_err();
    assert!(refused.message.contains("0.9 CPU on each of 1"), "{}", refused.message);
    for app in [player, other, loose] {
        bench.input(Input::Leave { app });
    }
    bench.wait_until(at(400));
    assert_eq!(bench.kernel.len(), 0, "all are restored: {:?}", bench.kernel);
}

#[test]
fn a_server_that_fits_no_remaining_cpu_is_suspended_until_one_comes() {
    let mut bench = bench();
    let (kept, lost) = (fixed(30, 40, None), fixed(20, 40, None));
    program(&mut bench, &kept, &[1]).unwrap();
    let lost = program(&mut bench, &lost, &[2]).unwrap();
    bench.input(Input::Cpus(vec![0]));
    bench.wait_until(at(100));
    let what = "room on the remaining CPUs";
    assert!(bench.events.contains(&HostEvent::Suspended { app: lost, what }));
    assert_eq!(
        (bench.budget_us(1), bench.budget_us(2)),
        (30_000, 0),
        "the server whose CPU is online keeps its service"
    );
    bench.input(Input::Cpus(vec![0, 7]));
    bench.wait_until(at(300));
    assert_eq!((bench.budget_us(1), bench.budget_us(2)), (30_000, 20_000));
    assert_eq!(last(&bench, 2).terms.cpu, Some(7));
    assert_eq!(bench.events.iter().filter(|event| matches!(event, HostEvent::Suspended { .. })).count(), 1);
}

#[test]
fn the_services_own_threads_move_to_a_remaining_cpu() {
    let own = Reservation::new(Nanos::from_micros(500), ms(5)).ok();
    let mut bench = Bench::with_config(HostConfig { own, ..config() });
    bench.input(Input::Cpus(vec![1]));
    assert_eq!((bench.host.own_cpu(), bench.host.status().cpus[0].guaranteed), (Some(1), share(10)));
}

#[derive(Clone, Debug)]
enum Step {
    Fixed {
        service_ms: u64,
        threads: i32,
    },
    Guaranteed {
        percent: u32,
    },
    Loose {
        percent: u32,
    },
    Leave {
        app: u64,
    },
    Job {
        app: u64,
        cost_ms: u64,
    },
    Wait {
        ms: u64,
    },
    /// Which of the CPUs 0 and 1 are online.
    Cpus {
        online: Vec<u32>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1u64..30, 1..4).prop_map(|(service_ms, threads)| Step::Fixed { service_ms, threads }),
        (1u32..70).prop_map(|percent| Step::Guaranteed { percent }),
        (1u32..90).prop_map(|percent| Step::Loose { percent }),
        (1u64..12).prop_map(|app| Step::Leave { app }),
        (1u64..12, 0u64..40).prop_map(|(app, cost_ms)| Step::Job { app, cost_ms }),
        (1u64..60).prop_map(|ms| Step::Wait { ms }),
        prop_oneof![Just(vec![0]), Just(vec![1]), Just(vec![0, 1])].prop_map(|online| Step::Cpus { online }),
    ]
}

/// Sums the bandwidth in force on every CPU.
#[derive(Default)]
struct Cpus {
    /// For each server: its CPU and its share.
    servers: BTreeMap<(Option<AppId>, ThreadId), (u32, u64)>,
    /// Servers that several threads share.
    members: BTreeMap<ThreadId, AppId>,
    seen: usize,
}

impl Cpus {
    fn look(&mut self, bench: &Bench) {
        for setting in &bench.settings[self.seen..] {
            let thread = if setting.terms.group.is_some() { ThreadId(0) } else { setting.thread };
            let key = (setting.terms.group, thread);
            match setting.reservation {
                Some(reservation) => {
                    let share = u64::from(reservation.share().ppm());
                    self.servers.insert(key, (setting.terms.cpu.expect("every server has its CPU"), share));
                    self.members.extend(setting.terms.group.map(|app| (setting.thread, app)));
                }
                None => {
                    self.members.remove(&setting.thread);
                    self.servers.retain(|(_, thread), _| *thread != setting.thread);
                }
            }
            let members = &self.members;
            self.servers.retain(|(group, _), _| group.is_none_or(|app| members.values().any(|of| *of == app)));
        }
        self.seen = bench.settings.len();
        let apps: Vec<_> = bench.host.status().applications.iter().map(|app| app.id).collect();
        self.servers.retain(|(group, _), _| group.is_none_or(|app| apps.contains(&app)));
        for cpu in [0, 1] {
            let sum: u64 = self.servers.values().filter(|(on, _)| *on == cpu).map(|(_, share)| share).sum();
            assert!(sum <= u64::from(share(EACH).ppm()), "{sum} millionths on CPU {cpu}: {:?}", self.servers);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_cpu_ever_holds_more_than_its_capacity(steps in prop::collection::vec(step(), 1..80)) {
        let mut bench = bench();
        let (mut cpus, mut thread) = (Cpus::default(), 0);
        for (k, step) in steps.into_iter().enumerate() {
            thread += 8;
            // The answer is up to the host; the test checks what is in force.
            match step {
                Step::Fixed { service_ms, threads } => {
                    let all: Vec<i32> = (thread..thread + threads).collect();
                    let _ = program(&mut bench, &fixed(service_ms, 40, None), &all);
                }
                Step::Guaranteed { percent } => {
                    let part = Some(share(percent));
                    let contract = Contract { class: Class::B, guaranteed: part, max_bandwidth: share(90), ..marked() };
                    let _ = bench.join_thread(&contract, thread);
                }
                Step::Loose { percent } => {
                    let _ = bench.join_thread(&Contract { max_bandwidth: share(percent), ..marked() }, thread);
                }
                Step::Leave { app } => drop(bench.input(Input::Leave { app: AppId(app) })),
                Step::Job { app, cost_ms } => bench.job(AppId(app), 3 * k as u64, cost_ms, 0),
                Step::Cpus { online } => drop(bench.input(Input::Cpus(online))),
                Step::Wait { ms } => bench.wait_until(bench.now + Nanos::from_millis(ms)),
            }
            cpus.look(&bench);
            prop_assert!(bench.host.held() <= share(2 * EACH));
        }
        for app in 1..100 {
            bench.input(Input::Leave { app: AppId(app) });
        }
        bench.wait_until(bench.now + Nanos::from_millis(1_000));
        prop_assert_eq!((bench.kernel.len(), bench.host.held()), (0, Share::ZERO));
        prop_assert!(bench.host.status().cpus.iter().all(|cpu| cpu.guaranteed == Share::ZERO));
    }
}
