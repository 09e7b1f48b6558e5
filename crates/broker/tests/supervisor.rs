//! Tests of the supervisor: scenarios with expected grants, and properties over random steps.

use proptest::prelude::*;
use qfabric_broker::{Limits, Steps, Supervisor, UtilityStep};
use qfabric_types::api::Problem;
use qfabric_types::{AppId, Class, Contract, Demand, Instant, Nanos, Owner, Share};

const P: Nanos = Nanos::from_millis(10);
const ME: Owner = Owner { uid: 1000, gid: 100 };

fn share(percent: u32) -> Share {
    Share::from_ppm(percent * 10_000)
}

fn at(ms: u64) -> Instant {
    Instant::new(ms * 1_000_000)
}

fn contract(change: impl FnOnce(&mut Contract)) -> Contract {
    let mut contract = Contract { server_period: P, max_bandwidth: Share::ONE, ..Contract::default() };
    change(&mut contract);
    contract
}

fn class_a(name: &str) -> Contract {
    contract(|c| (c.class, c.name) = (Class::A, name.to_owned()))
}

fn demand(app: u64, percent: u32) -> Demand {
    Demand { app: AppId(app), share: share(percent) }
}

fn with_apps(capacity: u32, apps: u64) -> Supervisor {
    let mut supervisor = Supervisor::new(Limits::of_capacity(share(capacity)));
    for app in 1..=apps {
        supervisor.admit(AppId(app), ME, &contract(|_| ()), Share::ZERO).unwrap();
    }
    supervisor
}

fn held(supervisor: &Supervisor, apps: u64) -> Vec<u32> {
    (1..=apps).map(|app| supervisor.grant_of(AppId(app)).ppm() / 10_000).collect()
}

/// A minimum of 10 %, and one step of 40 % more with this gain.
fn utility(gain: u64) -> Option<Steps> {
    Some(Steps { floor: share(10), steps: vec![UtilityStep { share: share(40), gain }] })
}

#[test]
fn under_overload_utilities_decide_among_the_programs_of_one_user_and_take_nothing_from_others() {
    let mut books = with_apps(90, 2);
    let other = Owner { uid: 1001, gid: 100 };
    books.admit(AppId(3), other, &contract(|_| ()), Share::ZERO).unwrap();
    (1..=3).for_each(|app| books.free_at_once(AppId(app), true));
    (1..=3).for_each(|app| books.want(demand(app, 50), at(0)));
    assert_eq!(held(&books, 3), [30, 30, 30], "without utilities the weights decide");
    books.set_utility(AppId(1), utility(1), at(1));
    books.set_utility(AppId(3), utility(u64::MAX), at(1));
    assert_eq!(held(&books, 3), [30, 30, 30], "the utility of one program of a user changes nothing");
    books.set_utility(AppId(2), utility(1_000), at(2));
    assert_eq!(held(&books, 3), [10, 50, 30], "the second gains more; the other user's claim does not count");
    books.set_utility(AppId(2), None, at(3));
    assert_eq!(held(&books, 3), [30, 30, 30]);
    books.set_utility(AppId(2), utility(1_000), at(4));
    books.release(AppId(3), at(5));
    books.settle(AppId(3), at(6));
    assert_eq!(held(&books, 2), [40, 50], "with more room both get what is left");
}

#[test]
fn free_at_once_frees_the_room_of_a_decrease_but_not_of_a_release() {
    let mut books = with_apps(90, 2);
    books.free_at_once(AppId(1), true);
    books.want(demand(1, 90), at(0));
    books.want(demand(2, 60), at(1));
    assert_eq!((held(&books, 2), books.booked()), (vec![45, 45], share(90)), "the first loses, the second gains");
    books.want(demand(2, 20), at(2));
    assert_eq!((held(&books, 2), books.booked()), (vec![45, 20], share(90)), "the decrease of the second stays booked");
    books.on_time(at(12));
    assert_eq!(held(&books, 2), [70, 20]);
    books.release(AppId(1), at(13));
    assert_eq!(books.booked(), share(90));
    books.settle(AppId(1), at(14));
    assert_eq!(books.booked(), share(20));
}

#[test]
fn a_guarantee_that_does_not_fit_is_refused_with_asked_free_and_holders() {
    let mut books = Supervisor::new(Limits::of_capacity(share(90)));
    books.admit(AppId(1), ME, &class_a("mpv"), share(50)).unwrap();
    books.admit(AppId(2), ME, &class_a("audio"), share(20)).unwrap();
    let problem: Problem = books.admit(AppId(3), ME, &class_a("late"), share(30)).unwrap_err().into();
    assert_eq!(
        (problem.code.as_str(), problem.asked, problem.free),
        ("over_committed", Some(share(30)), Some(share(20)))
    );
    let holders: Vec<_> = problem.holders.iter().map(|h| (h.name.as_str(), h.share)).collect();
    assert_eq!(holders, [("mpv", share(50)), ("audio", share(20))]);
    for named in ["0.3 CPU", "0.2 CPU", "mpv (1): 0.5 CPU"] {
        assert!(problem.message.contains(named), "{} does not name {named}", problem.message);
    }
    books.admit(AppId(3), ME, &class_a("late"), share(20)).unwrap();
}

#[test]
fn a_user_at_its_maximum_is_refused_while_others_are_not() {
    let limits = Limits { default_user: Some(share(40)), ..Limits::of_capacity(share(90)) };
    let limits = Limits { users: [(7, share(10))].into(), groups: [(9, share(5))].into(), ..limits };
    let mut books = Supervisor::new(limits);
    let code = |books: &mut Supervisor, app, owner, asked| {
        books.admit(AppId(app), owner, &class_a("x"), asked).map_err(|refusal| refusal.code())
    };
    assert_eq!(code(&mut books, 1, ME, share(41)), Err("user_cap"));
    assert_eq!(code(&mut books, 1, ME, share(40)), Ok(()));
    assert_eq!(code(&mut books, 2, Owner { uid: 7, gid: 1 }, share(11)), Err("user_cap"));
    assert_eq!(code(&mut books, 2, Owner { uid: 8, gid: 9 }, share(6)), Err("group_cap"));
    assert_eq!(code(&mut books, 2, Owner { uid: 7, gid: 1 }, share(10)), Ok(()));
}

#[test]
fn a_refusal_names_the_bound_that_leaves_the_least() {
    let limits = Limits { users: [(7, share(10))].into(), ..Limits::of_capacity(share(90)) };
    let mut books = Supervisor::new(limits);
    books.admit(AppId(1), ME, &class_a("mpv"), share(50)).unwrap();
    let refused = books.admit(AppId(2), Owner { uid: 7, gid: 1 }, &class_a("late"), share(60)).unwrap_err();
    assert_eq!((refused.code(), refused.free), ("user_cap", share(10)), "0.4 CPU of the host is free");
}

proptest! {
    #[test]
    fn what_a_refusal_offers_is_accepted(
        capacity in 0u32..=100, user in 0u32..=100, group in 0u32..=100,
        asked in proptest::collection::vec((0u32..3, 0u32..3, 1u32..=100), 1..12),
    ) {
        let limits = Limits { default_user: Some(share(user)), ..Limits::of_capacity(share(capacity)) };
        let mut books = Supervisor::new(Limits { groups: [(1, share(group))].into(), ..limits });
        for (app, (uid, gid, percent)) in (1..).zip(asked) {
            let (app, owner) = (AppId(app), Owner { uid, gid });
            let Err(refused) = books.admit(app, owner, &class_a("x"), share(percent)) else { continue };
            prop_assert!(refused.free < share(percent));
            prop_assert_eq!(books.admit(app, owner, &class_a("x"), refused.free), Ok(()));
        }
    }
}

#[test]
fn a_users_maximum_also_limits_shares_without_guarantee() {
    let mut books = Supervisor::new(Limits { default_user: Some(share(30)), ..Limits::of_capacity(share(90)) });
    for app in 1..=3 {
        let owner = Owner { uid: (app as u32).min(2), gid: 0 };
        books.admit(AppId(app), owner, &contract(|_| ()), Share::ZERO).unwrap();
        books.want(demand(app, 50), at(0));
    }
    books.on_time(at(100));
    assert_eq!(held(&books, 3), [30, 15, 15]);
}

#[test]
fn room_from_a_decrease_is_given_only_when_it_has_taken_effect() {
    let mut books = with_apps(90, 2);
    books.want(demand(1, 80), at(0));
    books.want(demand(2, 30), at(0));
    assert_eq!(held(&books, 2), [60, 10], "the second gets the free room; the first is cut at once");
    assert_eq!(books.next_wakeup(), Some(at(10)));
    books.on_time(at(9));
    assert_eq!(held(&books, 2), [60, 10]);
    books.on_time(at(10));
    assert_eq!(held(&books, 2), [60, 30]);
    assert_eq!(books.booked(), share(90));
}

#[test]
fn settling_grants_pending_increases_before_the_period_is_over() {
    let mut books = with_apps(90, 2);
    books.want(demand(1, 80), at(0));
    books.want(demand(2, 30), at(0));
    books.settle(AppId(1), at(1));
    assert_eq!(held(&books, 2), [60, 30]);
}

#[test]
fn a_pending_increase_is_granted_when_another_application_leaves() {
    let mut books = with_apps(90, 2);
    books.want(demand(1, 60), at(0));
    books.want(demand(2, 60), at(0));
    books.on_time(at(10));
    assert_eq!(held(&books, 2), [45, 45]);
    books.grants().for_each(drop);
    books.release(AppId(1), at(20));
    assert_eq!(books.guaranteed_to(AppId(1)), Share::ZERO);
    assert_eq!(held(&books, 2), [0, 45]);
    books.on_time(at(30));
    assert_eq!(held(&books, 2), [0, 60]);
    let last = books.grants().find(|(app, _)| *app == AppId(2));
    assert_eq!(last, Some((AppId(2), share(60))));
}

#[test]
fn a_guarantee_is_honoured_against_higher_levels() {
    let mut books = Supervisor::new(Limits::of_capacity(share(90)));
    books.admit(AppId(1), ME, &contract(|c| c.priority = 9), Share::ZERO).unwrap();
    books.admit(AppId(2), ME, &contract(|c| (c.class, c.priority) = (Class::B, 0)), share(30)).unwrap();
    books.want(demand(1, 90), at(0));
    books.want(demand(2, 50), at(5));
    books.on_time(at(15));
    assert_eq!(held(&books, 2), [60, 30]);
}

#[test]
fn class_c_gets_no_guarantee() {
    let mut books = Supervisor::new(Limits::of_capacity(share(10)));
    books.admit(AppId(1), ME, &contract(|_| ()), share(90)).unwrap();
    assert_eq!(books.guaranteed(), Share::ZERO);
}

#[test]
fn a_refused_change_leaves_the_old_contract_in_force() {
    let mut books = Supervisor::new(Limits::of_capacity(share(90)));
    books.admit(AppId(1), ME, &class_a("x"), share(50)).unwrap();
    assert!(books.change(AppId(1), &class_a("x"), share(91), at(0)).is_err());
    assert_eq!(books.guaranteed_to(AppId(1)), share(50));
    books.change(AppId(1), &class_a("x"), share(90), at(0)).unwrap();
    assert_eq!(books.guaranteed_to(AppId(1)), share(90));
}

#[test]
fn a_smaller_capacity_cuts_all_grants_in_proportion() {
    let mut books = with_apps(90, 2);
    books.want(demand(1, 40), at(0));
    books.want(demand(2, 40), at(0));
    books.set_limits(Limits::of_capacity(share(40)), at(0));
    assert_eq!(held(&books, 2), [20, 20]);
    books.on_time(at(10));
    assert_eq!(books.booked(), share(40));
}

#[test]
fn lower_maxima_divide_the_capacity_again_and_keep_guarantees() {
    let mut books = Supervisor::new(Limits::of_capacity(share(90)));
    books.admit(AppId(1), ME, &class_a("promised"), share(50)).unwrap();
    books.admit(AppId(2), ME, &contract(|_| ()), Share::ZERO).unwrap();
    books.want(demand(1, 60), at(0));
    books.want(demand(2, 30), at(0));
    assert_eq!(held(&books, 2), [60, 30]);
    let lower = Limits { users: [(ME.uid, share(40))].into(), ..Limits::of_capacity(share(90)) };
    books.set_limits(lower, at(1));
    assert_eq!(
        held(&books, 2),
        [50, 0],
        "the guarantee is above the new maximum, and no room is left for the other application"
    );
    books.on_time(at(11));
    assert_eq!(books.booked(), share(50));
    let mut weightier = class_a("promised");
    weightier.weight = 3;
    books.change(AppId(1), &weightier, share(50), at(12)).expect("an existing guarantee is not checked again");
    assert!(
        books.change(AppId(1), &weightier, share(51), at(12)).is_err(),
        "a larger guarantee is checked against the maximum"
    );
    books.set_limits(Limits::of_capacity(share(90)), at(13));
    assert_eq!(held(&books, 2), [60, 30], "a raised maximum raises the grants");
}

#[test]
fn a_lower_maximum_of_a_level_cuts_present_applications() {
    let mut books = with_apps(90, 2);
    books.want(demand(1, 40), at(0));
    books.want(demand(2, 20), at(0));
    let level = contract(|_| ()).priority;
    books.set_limits(Limits { levels: [(level, share(30))].into(), ..Limits::of_capacity(share(90)) }, at(1));
    assert_eq!(held(&books, 2), [15, 15], "equal weights");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Want(u64, u32),
    Settle(u64),
    Release(u64),
    Admit {
        class_c: bool,
        weight: u32,
        priority: u8,
        uid: u32,
        percent: u32,
    },
    Wait(u64),
    /// A new maximum of user 1, in percent of one CPU.
    Limits(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1u64..12, 0u32..70).prop_map(|(app, percent)| Step::Want(app, percent)),
        1 => (1u64..12).prop_map(Step::Settle),
        1 => (1u64..12).prop_map(Step::Release),
        2 => (any::<bool>(), 1u32..9, 3u8..6, 1u32..4, 0u32..50).prop_map(
            |(class_c, weight, priority, uid, percent)| Step::Admit { class_c, weight, priority, uid, percent }
        ),
        3 => (0u64..15).prop_map(Step::Wait),
        1 => (0u32..80).prop_map(Step::Limits),
    ]
}

/// An application as seen from observed: the share that it may still be using.
#[derive(Default)]
struct Observed {
    uid: u32,
    guaranteed: Share,
    wanted: Share,
    held: Share,
    may_consume: Share,
    until: u64,
    gone: bool,
}

struct World {
    books: Supervisor,
    apps: Vec<Observed>,
    now_ms: u64,
    user_cap: Share,
}

const CAPACITY: u32 = 100;
const USER_CAP: u32 = 60;

impl World {
    fn new() -> Self {
        let user_cap = share(USER_CAP);
        World { books: Supervisor::new(World::limits(user_cap)), apps: Vec::new(), now_ms: 0, user_cap }
    }

    fn limits(user_cap: Share) -> Limits {
        let (users, levels) = ([(1, user_cap)].into(), [(5, share(70))].into());
        Limits { users, levels, ..Limits::of_capacity(share(CAPACITY)) }
    }

    fn run(&mut self, step: Step) {
        let now = at(self.now_ms);
        let known = |app: u64| app <= self.apps.len() as u64 && !self.apps[app as usize - 1].gone;
        match step {
            Step::Want(app, percent) => {
                self.books.want(demand(app, percent), now);
                if known(app) {
                    self.apps[app as usize - 1].wanted = share(percent);
                }
            }
            Step::Settle(app) if known(app) => {
                self.books.settle(AppId(app), now);
                self.apps[app as usize - 1].until = 0;
            }
            Step::Release(app) if known(app) => {
                self.books.release(AppId(app), now);
                let observed = &mut self.apps[app as usize - 1];
                (observed.gone, observed.guaranteed, observed.wanted) = (true, Share::ZERO, Share::ZERO);
            }
            Step::Admit { class_c, weight, priority, uid, percent } => {
                self.admit(class_c, weight, priority, uid, share(percent))
            }
            Step::Wait(ms) => {
                self.now_ms += ms;
                self.books.on_time(at(self.now_ms));
            }
            Step::Limits(percent) => {
                self.user_cap = share(percent);
                self.books.set_limits(World::limits(self.user_cap), now);
            }
            _ => (),
        }
        self.apply_grants();
    }

    fn admit(&mut self, class_c: bool, weight: u32, priority: u8, uid: u32, guaranteed: Share) {
        let class = if class_c { Class::C } else { Class::A };
        let contract = contract(|c| (c.class, c.weight, c.priority) = (class, weight, priority));
        let app = AppId(self.apps.len() as u64 + 1);
        if self.books.admit(app, Owner { uid, gid: 0 }, &contract, guaranteed).is_ok() {
            let guaranteed = if class_c { Share::ZERO } else { guaranteed };
            self.apps.push(Observed { uid, guaranteed, ..Observed::default() });
        }
    }

    /// Applies the changed grants: an application may use the old share for another P after a decrease.
    fn apply_grants(&mut self) {
        let changes: Vec<_> = self.books.grants().collect();
        for (app, granted) in changes {
            let observed = &mut self.apps[app.0 as usize - 1];
            if granted < observed.held {
                observed.may_consume = observed.may_consume.max(observed.held);
                observed.until = self.now_ms + 10;
            }
            observed.held = granted;
        }
        for observed in &mut self.apps {
            if observed.until <= self.now_ms {
                observed.may_consume = Share::ZERO;
            }
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let consumable: Share = self.apps.iter().map(|a| a.held.max(a.may_consume)).sum();
        prop_assert!(consumable <= share(CAPACITY), "{consumable} may be in use");
        let of_user = |part: fn(&Observed) -> Share| self.apps.iter().filter(|a| a.uid == 1).map(part).sum::<Share>();
        // A maximum may have been lowered below an earlier guarantee.
        let most = self.user_cap.max(of_user(|a| a.guaranteed.min(a.wanted)));
        prop_assert!(of_user(|a| a.held) <= most, "user 1 holds {} of {most}", of_user(|a| a.held));
        prop_assert!(self.apps.iter().all(|a| a.held <= a.wanted));
        prop_assert!(self.books.booked() <= share(CAPACITY));
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn at_no_instant_can_more_than_the_capacity_be_consumed(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in steps {
            world.run(step);
            world.check()?;
        }
        world.now_ms += 1_000;
        world.books.on_time(at(world.now_ms));
        world.apply_grants();
        for app in &world.apps {
            prop_assert!(app.held >= app.wanted.min(app.guaranteed), "a guarantee is not honoured at rest");
        }
        let (held, wanted) = (world.books.granted(), world.apps.iter().map(|a| a.wanted).sum::<Share>());
        prop_assert!(held <= wanted);
    }

    #[test]
    fn without_maxima_no_capacity_is_left_over_at_rest(wants in prop::collection::vec(0u32..60, 1..9)) {
        let mut books = with_apps(100, wants.len() as u64);
        for (app, percent) in wants.iter().enumerate() {
            books.want(demand(app as u64 + 1, *percent), at(app as u64));
        }
        books.on_time(at(1_000));
        let could_use = share(wants.iter().sum::<u32>().min(100));
        prop_assert!(could_use.saturating_sub(books.granted()).ppm() <= wants.len() as u32);
    }
}

#[test]
fn the_default_maximum_does_not_apply_to_exempt_users() {
    let limits = Limits { default_user: Some(share(30)), exempt: [0].into(), ..Limits::of_capacity(share(90)) };
    let mut books = Supervisor::new(limits.clone());
    let of = |uid| Owner { uid, gid: uid };
    assert_eq!(
        books.admit(AppId(1), of(7), &class_a("x"), share(31)).map_err(|refusal| refusal.code()),
        Err("user_cap")
    );
    books.admit(AppId(1), of(0), &class_a("x"), share(50)).unwrap();
    let named = Limits { users: [(0, share(60))].into(), ..limits };
    books.set_limits(named, at(0));
    assert_eq!(
        books.admit(AppId(2), of(0), &class_a("x"), share(11)).map_err(|refusal| refusal.code()),
        Err("user_cap")
    );
}
