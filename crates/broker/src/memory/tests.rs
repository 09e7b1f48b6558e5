use proptest::prelude::*;

use super::*;

const PAGE: u64 = 4096;

fn limits(mib: u64) -> MemoryLimits {
    MemoryLimits { global_reserve: Bytes::from_mib(mib), ..MemoryLimits::default() }
}

fn user(uid: u32) -> MemoryRequester<'static> {
    MemoryRequester { owner: Owner { uid, gid: 100 + uid % 3 }, name: "player", pid: 7 }
}

#[test]
fn a_refusal_names_asked_free_holders_and_the_largest_amount() {
    let mut broker = MemoryBroker::new(limits(10), PAGE);
    broker.admit(user(1), Bytes::from_mib(7)).unwrap();
    let problem = broker.admit(user(2), Bytes::from_mib(4)).unwrap_err().problem();
    for part in ["asked for 4 MiB", "3 MiB of 10 MiB is free", "player (process 7): 7 MiB"] {
        assert!(problem.message.contains(part), "{problem:?}");
    }
    let shortage = problem.shortage.unwrap();
    assert_eq!((shortage.unit.as_str(), shortage.asked, shortage.largest), ("bytes", 4194304.0, 3145728.0));
    assert!(problem.code == "over_committed" && problem.next_step.contains("at most 3 MiB"));
}

#[test]
fn a_reserve_is_counted_in_whole_pages() {
    let mut broker = MemoryBroker::new(limits(1), PAGE);
    let id = broker.admit(user(1), Bytes::new(1)).unwrap();
    assert_eq!((broker.granted(id), broker.promised()), (Some(Bytes::new(PAGE)), Bytes::new(PAGE)));
}

#[test]
fn a_user_and_a_group_have_their_own_maxima() {
    let mut given = limits(10);
    given.users = [(1, Bytes::from_mib(2))].into();
    given.groups = [(102, Bytes::from_mib(3))].into();
    let mut broker = MemoryBroker::new(given, PAGE);
    let refused = |broker: &mut MemoryBroker, uid, mib| {
        let refusal = broker.admit(user(uid), Bytes::from_mib(mib)).unwrap_err();
        (refusal.code(), refusal.largest)
    };
    assert_eq!(refused(&mut broker, 1, 3), ("user_cap", Bytes::from_mib(2)));
    broker.admit(user(2), Bytes::from_mib(2)).unwrap();
    assert_eq!(refused(&mut broker, 5, 2), ("group_cap", Bytes::from_mib(1)));
}

#[test]
fn a_decrease_frees_its_room_only_when_it_is_settled() {
    let mut broker = MemoryBroker::new(limits(4), PAGE);
    let id = broker.admit(user(1), Bytes::from_mib(4)).unwrap();
    broker.want(id, Bytes::from_mib(1)).unwrap();
    assert!(broker.admit(user(2), Bytes::from_mib(1)).is_err());
    broker.settle(id);
    broker.admit(user(2), Bytes::from_mib(3)).unwrap();
    let refusal = broker.want(id, Bytes::from_mib(2)).unwrap_err();
    assert_eq!((refusal.largest, broker.granted(id)), (Bytes::from_mib(1), Some(Bytes::from_mib(1))));
}

#[test]
fn changed_limits_keep_every_promise() {
    let mut broker = MemoryBroker::new(limits(10), PAGE);
    let id = broker.admit(user(1), Bytes::from_mib(6)).unwrap();
    let problem = broker.set_limits(limits(5)).unwrap_err().problem();
    for part in ["cannot be 5 MiB", "6 MiB is promised", "player (process 7): 6 MiB"] {
        assert!(problem.message.contains(part), "{problem:?}");
    }
    assert!(problem.next_step.contains("at least 6291456 bytes (6 MiB)"), "{problem:?}");
    assert_eq!(broker.limits(), &limits(10));
    let tight = MemoryLimits { users: [(1, Bytes::from_mib(2))].into(), ..limits(6) };
    broker.set_limits(tight).unwrap();
    assert_eq!((broker.granted(id), broker.free()), (Some(Bytes::from_mib(6)), Bytes::ZERO));
    broker.want(id, Bytes::from_mib(1)).unwrap();
    broker.settle(id);
    assert_eq!(broker.want(id, Bytes::from_mib(3)).unwrap_err().code(), "user_cap");
    assert_eq!(broker.largest_for(id), Some(Bytes::from_mib(2)));
}

#[test]
fn a_host_without_a_reserve_says_so() {
    let problem = MemoryBroker::new(limits(0), PAGE).admit(user(0), Bytes::new(1)).unwrap_err().problem();
    assert!(problem.message.contains("switched off") && problem.next_step.contains("memory.global_reserve"));
}

#[test]
fn one_user_has_a_limited_number_of_reserves() {
    let mut broker = MemoryBroker::new(MemoryLimits { exempt: [0].into(), ..limits(100) }, PAGE);
    for _ in 0..MemoryBroker::MOST_RESERVES_PER_USER {
        broker.admit(user(3), Bytes::new(1)).unwrap();
    }
    assert_eq!(broker.admit(user(3), Bytes::new(1)).unwrap_err().code(), "too_many_reserves");
    assert!(broker.admit(user(4), Bytes::new(1)).is_ok());
}

#[derive(Clone, Debug)]
enum Step {
    Admit(u32, u64),
    Want(usize, u64),
    Settle(usize),
    Release(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = 0..3 * (1_u64 << 20);
    prop_oneof![
        (0..5_u32, bytes.clone()).prop_map(|(uid, bytes)| Step::Admit(uid, bytes)),
        (any::<usize>(), bytes).prop_map(|(at, bytes)| Step::Want(at, bytes)),
        any::<usize>().prop_map(Step::Settle),
        any::<usize>().prop_map(Step::Release),
    ]
}

/// Carries out a step; returns whether the broker refused it.
fn take(broker: &mut MemoryBroker, held: &mut Vec<ReserveId>, step: &Step) -> bool {
    let nth = |held: &Vec<ReserveId>, at: usize| held.get(at % held.len().max(1)).copied();
    match *step {
        Step::Admit(uid, bytes) => match broker.admit(user(uid), Bytes::new(bytes)) {
            Ok(id) => held.push(id),
            Err(_) => return true,
        },
        Step::Want(at, bytes) => {
            return nth(held, at).is_some_and(|id| broker.want(id, Bytes::new(bytes)).is_err());
        }
        Step::Settle(at) => nth(held, at).into_iter().for_each(|id| broker.settle(id)),
        Step::Release(at) => {
            if let Some(id) = nth(held, at) {
                broker.release(id);
                held.retain(|other| *other != id);
            }
        }
    }
    false
}

proptest! {
    #[test]
    fn the_sum_stays_within_every_limit_and_a_refusal_changes_nothing(steps in prop::collection::vec(step(), 1..80)) {
        let mut given = limits(8);
        given.default_user = Some(Bytes::from_mib(4));
        given.groups = [(101, Bytes::from_mib(3))].into();
        let (mut broker, mut held) = (MemoryBroker::new(given, PAGE), Vec::new());
        for step in &steps {
            let before = format!("{:?}", broker.entries);
            if take(&mut broker, &mut held, step) {
                prop_assert_eq!(&before, &format!("{:?}", broker.entries));
            }
            prop_assert!(broker.promised() <= Bytes::from_mib(8));
            for uid in 0..5 {
                let owner = user(uid).owner;
                let user_bound = MemoryBound::User { uid, cap: Bytes::ZERO };
                prop_assert!(broker.held_beside(None, owner, user_bound) <= Bytes::from_mib(4));
            }
            let in_group = broker.held_beside(None, user(1).owner, MemoryBound::Group { gid: 101, cap: Bytes::ZERO });
            prop_assert!(in_group <= Bytes::from_mib(3));
        }
        held.iter().for_each(|id| broker.release(*id));
        prop_assert_eq!((broker.promised(), broker.free()), (Bytes::ZERO, Bytes::from_mib(8)));
    }

    #[test]
    fn the_largest_amount_of_a_refusal_is_admitted(asked in 1_u64..32 << 20, held in 0_u64..8 << 20) {
        let mut broker = MemoryBroker::new(limits(8), PAGE);
        broker.admit(user(1), Bytes::new(held)).unwrap();
        if let Err(refusal) = broker.admit(user(2), Bytes::new(asked)) {
            prop_assert!(broker.clone().admit(user(2), refusal.largest).is_ok());
            prop_assert!(broker.admit(user(2), refusal.largest + Bytes::new(1)).is_err());
        }
    }
}
