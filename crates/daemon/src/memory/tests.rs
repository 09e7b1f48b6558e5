use proptest::prelude::*;
use qfabric_shm::SharedSegment;
use qfabric_types::api::memory::{AllocationId, AllocationPlace, MemoryAnswer, MemoryRequest};

use super::session::Session;
use super::*;
use crate::auth::Peer;
use crate::metrics::tests::application;

const PAGE: u64 = 4096;

fn memory(config: &str) -> Arc<Memory> {
    let config: MemoryConfig = toml::from_str(config).unwrap();
    Memory::start(&config, tempfile::tempdir().unwrap().path(), &Ending::new().unwrap()).unwrap()
}

fn session(memory: &Arc<Memory>) -> Session {
    let owner = Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    Session::open(memory.clone(), Peer { pid: std::process::id() as i32, owner }).unwrap()
}

fn reserve(session: &mut Session, bytes: u64) -> ReserveId {
    match session.answer(MemoryRequest::Reserve(Bytes::new(bytes))).0 {
        MemoryAnswer::Reserved { reserve, bytes: granted } => {
            assert_eq!(granted, Bytes::new(bytes.next_multiple_of(PAGE)));
            reserve
        }
        other => panic!("{other:?}"),
    }
}

fn refused(session: &mut Session, request: MemoryRequest) -> Problem {
    match session.answer(request.clone()).0 {
        MemoryAnswer::Refused(problem) => *problem,
        other => panic!("{request:?}: {other:?}"),
    }
}

fn promised(memory: &Memory) -> Bytes {
    memory.accounts.with(|accounts| accounts.broker.promised())
}

#[test]
fn two_members_share_an_allocation_and_a_member_that_leaves_frees_its_own() {
    let memory = memory("global_reserve = \"1M\"");
    let (mut first, mut second) = (session(&memory), session(&memory));
    let reserve = reserve(&mut first, 100_000);
    assert!(matches!(second.answer(MemoryRequest::Join(reserve)).0, MemoryAnswer::Reserved { .. }));
    let (answer, file) = first.answer(MemoryRequest::Allocate { reserve, bytes: Bytes::new(20) });
    let MemoryAnswer::Placed(place) = answer else { panic!("{answer:?}") };
    let map = |file| SharedSegment::map(&file, place.segment_bytes as usize).unwrap();
    let written = map(file.unwrap());
    written.bytes()[3].store(7, std::sync::atomic::Ordering::Relaxed);
    let (_, file) = second.answer(MemoryRequest::Open { reserve, allocation: place.allocation });
    assert_eq!(map(file.unwrap()).bytes()[3].load(std::sync::atomic::Ordering::Relaxed), 7);
    assert_eq!((memory.pools()[0].members, memory.pools()[0].used), (2, Bytes::new(PAGE)));
    drop(first);
    assert_eq!((memory.pools()[0].members, memory.pools()[0].used), (1, Bytes::ZERO));
    let gone = refused(&mut second, MemoryRequest::Open { reserve, allocation: place.allocation });
    assert_eq!(gone.code, "no_such_allocation");
    drop(second);
    assert_eq!((promised(&memory), memory.pools().len()), (Bytes::ZERO, 0));
}

#[test]
fn a_reserve_grows_and_shrinks_within_the_global_reserve() {
    let memory = memory("global_reserve = \"1M\"");
    let mut session = session(&memory);
    let reserve = reserve(&mut session, 500_000);
    let (_, _file) = session.answer(MemoryRequest::Allocate { reserve, bytes: Bytes::new(300_000) });
    let problem = refused(&mut session, MemoryRequest::Resize { reserve, bytes: Bytes::from_mib(2) });
    assert!(problem.code == "over_committed" && problem.next_step.contains("at most 1 MiB"), "{problem:?}");
    let problem = refused(&mut session, MemoryRequest::Resize { reserve, bytes: Bytes::new(PAGE) });
    assert!(problem.code == "over_reserve" && problem.next_step.contains("shrink"), "{problem:?}");
    session.answer(MemoryRequest::Resize { reserve, bytes: Bytes::new(400_000) });
    assert_eq!(promised(&memory), Bytes::new(400_000_u64.next_multiple_of(PAGE)));
    session.answer(MemoryRequest::FreeReserve(reserve));
    assert_eq!(promised(&memory), Bytes::ZERO);
}

#[test]
fn memory_of_a_loan_is_promised_to_no_other_and_names_the_host_that_asked() {
    let memory = memory("global_reserve = \"1M\"\ndefault_user = \"4M\"");
    let [first, second]: [JointId; 2] = ["alpha:7", "beta:7"].map(|id| id.parse().unwrap());
    memory.lend(&first, Bytes::new(100 * PAGE)).unwrap();
    let refused = memory.lend(&second, Bytes::from_mib(1)).unwrap_err();
    assert_eq!((refused.holders[0].name.as_str(), promised(&memory)), ("for alpha", Bytes::new(100 * PAGE)));
    let contract: JointId = "gamma:7".parse().unwrap();
    memory.hold(&contract, Owner::NOBODY, &[], Bytes::new(PAGE), Bytes::ZERO).unwrap();
    assert_eq!(memory.without_contract(), Bytes::new(100 * PAGE));
    memory.free_held(&contract);
    memory.free_held(&first);
    memory.lend(&second, Bytes::from_mib(1)).unwrap();
}

#[test]
fn a_reserve_draws_from_a_contract_grows_shrinks_and_returns_the_rest() {
    let memory = memory("global_reserve = \"1M\"\ndefault_user = \"1M\"");
    let mut session = session(&memory);
    let owner = Owner { uid: rustix::process::geteuid().as_raw(), gid: 0 };
    let contract: JointId = "alpha:7".parse().unwrap();
    let from = |bytes| MemoryRequest::ReserveFrom { contract: contract.clone(), bytes: Bytes::new(bytes) };
    let held = |pages: u64| assert_eq!(memory.accounts.with(|a| a.held_pages(&contract)), Some(pages));
    assert_eq!(refused(&mut session, from(PAGE)).code, "no_such_claim");
    memory.hold(&contract, owner, &[], Bytes::new(100 * PAGE), Bytes::ZERO).unwrap();
    let _rest = reserve(&mut session, Bytes::from_mib(1).get() - 100 * PAGE);
    assert_eq!(refused(&mut session, from(101 * PAGE)).code, "over_committed");
    held(100);
    let MemoryAnswer::Reserved { reserve, .. } = session.answer(from(40 * PAGE)).0 else { panic!("refused") };
    held(60);
    let resize = |pages| MemoryRequest::Resize { reserve, bytes: Bytes::new(pages * PAGE) };
    session.answer(resize(90));
    held(10);
    assert_eq!(refused(&mut session, resize(101)).code, "over_committed");
    held(10);
    session.answer(resize(20));
    held(80);
    drop(session);
    held(100);
    assert_eq!(promised(&memory), Bytes::new(100 * PAGE));
}

#[test]
fn a_reserve_of_huge_pages_draws_from_a_contract_and_returns_there() {
    let memory = memory("global_reserve = \"64M\"\ndefault_user = \"64M\"");
    let mut session = session(&memory);
    let contract: JointId = "alpha:7".parse().unwrap();
    let held = || memory.accounts.with(|accounts| accounts.held_pages(&contract));
    let asked = || MemoryRequest::ReserveHugeFrom { contract: contract.clone(), bytes: Bytes::new(1) };
    assert_eq!(refused(&mut session, asked()).code, "no_such_claim");
    let owner = Owner { uid: rustix::process::geteuid().as_raw(), gid: 0 };
    memory.hold(&contract, owner, &[], Bytes::from_mib(32), Bytes::ZERO).unwrap();
    let MemoryAnswer::HugeReserved { bytes, .. } = session.answer(asked()).0 else { panic!("refused") };
    assert_eq!(held(), Some((32 << 20) / PAGE - bytes.get() / PAGE));
    assert_eq!(promised(&memory), Bytes::from_mib(32), "nothing beyond the contract");
    drop(session);
    assert_eq!(held(), Some((32 << 20) / PAGE));
}

#[test]
fn a_promise_to_a_program_grows_from_its_contract_and_returns_there_what_it_loses() {
    let memory = memory("global_reserve = \"1M\"");
    let (contract, owner) = ("alpha:7".parse::<JointId>().unwrap(), Owner { uid: 7, gid: 7 });
    memory.hold(&contract, owner, &[], Bytes::new(100 * PAGE), Bytes::ZERO).unwrap();
    let held = |pages: u64| {
        memory.settle();
        assert_eq!(memory.accounts.with(|a| a.held_pages(&contract)), Some(pages));
        assert!(promised(&memory) >= Bytes::new(100 * PAGE), "the contract keeps its whole amount");
    };
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id() as i32;
    let whom = PromiseTarget { owner, groups: &[], name: "program", pid, from: Some(contract.clone()) };
    let promise = memory.promise(whom, Bytes::new(60 * PAGE)).unwrap();
    held(40);
    for (pages, left) in [(20, 80), (70, 30), (110, 0), (50, 50)] {
        promise.change(Bytes::new(pages * PAGE)).unwrap();
        held(left);
    }
    assert_eq!(promise.change(Bytes::from_mib(2)).unwrap_err().code, "over_committed");
    held(50);
    drop(promise);
    held(100);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_memory_of_a_contract_counts_for_the_group_of_its_program_with_the_smallest_maximum() {
    let memory = memory("global_reserve = \"1M\"\n[groups]\n44 = 65536\n45 = 131072");
    let (id, owner): (JointId, _) = ("alpha:1".parse().unwrap(), Owner { uid: 7, gid: 7 });
    let hold = |groups: &[u32]| memory.hold(&id, owner, groups, Bytes::new(131_072), Bytes::new(131_072));
    let refused = hold(&[45, 44]).unwrap_err();
    assert!(matches!(refused.bound, qfabric_broker::MemoryBound::Group { gid: 44, .. }), "{refused:?}");
    assert_eq!(hold(&[45]).unwrap(), Bytes::new(131_072));
}

#[test]
fn only_the_user_of_a_contract_draws_its_memory_unless_another_host_made_it() {
    let memory = memory("global_reserve = \"1M\"");
    let (mine, theirs) = ("alpha:7".parse::<JointId>().unwrap(), "beta:8".parse::<JointId>().unwrap());
    let user = |uid| Peer { pid: 1, owner: Owner { uid, gid: uid } };
    memory.hold(&mine, Owner { uid: 7, gid: 7 }, &[], Bytes::new(PAGE), Bytes::ZERO).unwrap();
    memory.hold(&theirs, Owner::NOBODY, &[], Bytes::new(PAGE), Bytes::ZERO).unwrap();
    assert_eq!(memory.check_drawer(user(8), &mine).unwrap_err().code, "not_yours");
    for (uid, id) in [(7, &mine), (0, &mine), (8, &theirs)] {
        memory.check_drawer(user(uid), id).unwrap();
    }
}

#[test]
fn hostile_requests_are_refused_with_the_limit() {
    let memory = memory("global_reserve = \"1M\"");
    let mut session = session(&memory);
    let own = reserve(&mut session, 100_000);
    let (foreign, allocation) = (ReserveId(u64::MAX), AllocationId(7));
    for (request, code) in [
        (MemoryRequest::Reserve(Bytes::new(u64::MAX)), "over_committed"),
        (MemoryRequest::Join(foreign), "no_such_reserve"),
        (MemoryRequest::Resize { reserve: foreign, bytes: Bytes::ZERO }, "no_such_reserve"),
        (MemoryRequest::Allocate { reserve: own, bytes: Bytes::ZERO }, "invalid"),
        (MemoryRequest::Allocate { reserve: own, bytes: Bytes::new(u64::MAX) }, "over_reserve"),
        (MemoryRequest::Open { reserve: own, allocation }, "no_such_allocation"),
        (MemoryRequest::Free { reserve: own, allocation }, "no_such_allocation"),
        (MemoryRequest::FreeReserve(foreign), "no_such_reserve"),
        (MemoryRequest::LockText(own), "over_reserve"),
    ] {
        let problem = refused(&mut session, request.clone());
        assert!(problem.code == code && !problem.next_step.is_empty(), "{request:?}: {problem:?}");
    }
    (1..16).for_each(|_| _ = reserve(&mut session, 1));
    assert_eq!(refused(&mut session, MemoryRequest::Reserve(Bytes::new(1))).code, "too_many_reserves");
}

#[test]
fn changed_limits_keep_promises_and_apply_to_the_next_request() {
    let memory = memory("global_reserve = \"1M\"");
    let mut session = session(&memory);
    let own = reserve(&mut session, 500_000);
    let set = |bytes| {
        let global_reserve = Some(Bytes::new(bytes));
        memory.set_limits(&HostMemoryLimits { global_reserve, ..HostMemoryLimits::default() })
    };
    assert_eq!(set(400_000).unwrap_err().code, "below_promises");
    assert!(set(u64::MAX).unwrap_err().next_step.contains("at most 80 %"));
    set(600_000).unwrap();
    let more = MemoryRequest::Resize { reserve: own, bytes: Bytes::new(700_000) };
    assert_eq!(refused(&mut session, more.clone()).code, "over_committed");
    set(800_000).unwrap();
    assert!(matches!(session.answer(more).0, MemoryAnswer::Reserved { .. }));
}

#[test]
fn pressure_is_counted_and_a_larger_promise_is_offered() {
    let memory = memory("global_reserve = \"1M\"");
    let owner = Owner { uid: 0, gid: 0 };
    let pid = std::process::id() as i32;
    let whom = PromiseTarget { owner, groups: &[], name: "player", pid, from: None };
    let promise = memory.promise(whom, Bytes::new(400 << 10)).unwrap();
    promise.belongs_to(AppId(4));
    let shown = || memory.accounts.with(|accounts| accounts.status(AppId(4))).unwrap().pressure;
    assert_eq!(shown(), None);
    let pressed = |kib: u64| {
        memory.accounts.with(|accounts| accounts.pressed(promise.reserve(), Bytes::new(kib << 10)));
        shown().unwrap()
    };
    assert_eq!((pressed(480).notices, shown().unwrap().offered), (1, Some(Bytes::new(600 << 10))));
    assert_eq!((pressed(4_000).notices, shown().unwrap().offered), (2, Some(Bytes::from_mib(1))), "no more is free");
    assert_eq!(
        (pressed(100).used, shown().unwrap().offered),
        (Bytes::new(100 << 10), None),
        "the promise is sufficient"
    );
    memory.accounts.with(|accounts| assert_eq!(accounts.pressure_notices, 3));
}

#[test]
fn the_text_of_a_program_counts_against_its_reserve() {
    let memory = memory("global_reserve = \"512M\"");
    let mut session = session(&memory);
    let reserve = reserve(&mut session, 400 << 20);
    match session.answer(MemoryRequest::LockText(reserve)).0 {
        MemoryAnswer::TextLocked { bytes, .. } => assert_eq!(memory.pools()[0].used, bytes),
        // Without the capabilities, the refusal names them.
        MemoryAnswer::Refused(problem) => assert!(problem.next_step.contains("CAP_"), "{problem:?}"),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The daemon's table does not lie in the segments, so members that overwrite them harm data only.
    #[test]
    fn allocations_survive_members_that_scribble_over_whole_segments(
        steps in prop::collection::vec((0_usize..2, any::<bool>(), 1_u64..3 * PAGE, any::<u8>()), 1..40),
    ) {
        let memory = memory("global_reserve = \"1M\"");
        let mut members = [session(&memory), session(&memory)];
        let reserve = reserve(&mut members[0], 16 * PAGE);
        members[1].answer(MemoryRequest::Join(reserve));
        let mut held = Vec::new();
        for (member, is_free, bytes, scribble) in steps {
            if is_free && !held.is_empty() {
                let (owner, place): (usize, AllocationPlace) = held.swap_remove(bytes as usize % held.len());
                let allocation = place.allocation;
                prop_assert_eq!(members[owner].answer(MemoryRequest::Free { reserve, allocation }).0, MemoryAnswer::Done);
                continue;
            }
            let bytes = Bytes::new(if bytes % 2 == 0 { bytes } else { bytes % 700 + 1 });
            let (answer, file) = members[member].answer(MemoryRequest::Allocate { reserve, bytes });
            let MemoryAnswer::Placed(place) = answer else { continue };
            let all = SharedSegment::map(&file.unwrap(), place.segment_bytes as usize).unwrap();
            all.bytes().iter().for_each(|byte| byte.store(scribble, std::sync::atomic::Ordering::Relaxed));
            held.push((member, place));
            prop_assert!(are_apart(&held));
        }
        drop(members);
        prop_assert_eq!((promised(&memory), memory.pools().len()), (Bytes::ZERO, 0));
    }
}

/// Whether all places lie in their segments, and no two overlap.
fn are_apart(held: &[(usize, AllocationPlace)]) -> bool {
    let mut places: Vec<_> = held.iter().map(|(_, place)| (place.segment, place.offset, place.bytes)).collect();
    places.sort_unstable();
    held.iter().all(|(_, place)| place.offset + place.bytes <= place.segment_bytes)
        && places.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[0].1 + pair[0].2 <= pair[1].1)
}

#[test]
fn a_promise_to_a_program_is_counted_and_ends_with_it() {
    let memory = memory("global_reserve = \"1M\"");
    let whom = PromiseTarget {
        owner: Owner { uid: 0, gid: 0 },
        groups: &[],
        name: "player",
        pid: std::process::id() as i32,
        from: None,
    };
    let promise = memory.promise(whom.clone(), Bytes::new(500_000)).unwrap();
    promise.belongs_to(AppId(4));
    assert!(memory.promise(whom, Bytes::new(600_000)).unwrap_err().message.contains("player"));
    promise.change(Bytes::new(600_000)).unwrap();
    assert!(promise.change(Bytes::from_mib(2)).is_err());
    memory.settle();
    memory.accounts.with(|accounts| {
        let program = accounts.programs.values().next().unwrap();
        assert_eq!(program.protection == MemoryProtection::None, program.missing.is_some());
    });
    drop(promise);
    memory.settle();
    assert_eq!(promised(&memory), Bytes::ZERO);
    memory.put_back();
}

#[test]
fn the_files_of_a_process_are_read_only_if_it_has_a_promise() {
    let memory = memory("global_reserve = \"1M\"");
    let pid = std::process::id() as i32;
    let target = PromiseTarget { owner: Owner { uid: 0, gid: 0 }, groups: &[], name: "player", pid, from: None };
    let promise = memory.promise(target, Bytes::new(500_000)).unwrap();
    promise.belongs_to(AppId(4));
    let mut read = Vec::new();
    for id in [3, 4] {
        let mut shown = Application { pid, ..application(id) };
        memory.complete_by(&mut shown, |pid| {
            read.push((id, pid));
            Some(ProcessMemory { resident: Bytes::new(7), ..ProcessMemory::default() })
        });
        assert_eq!(shown.memory.map(|memory| memory.used), (id == 4).then_some(Bytes::new(7)));
    }
    assert_eq!(read, [(4, pid)]);
    drop(promise);
    memory.settle();
    memory.put_back();
}

#[test]
fn a_program_draws_from_the_memory_of_a_contract_and_returns_it() {
    let memory = memory("global_reserve = \"1M\"");
    // A user may have half of the reserve.
    let (id, owner): (JointId, _) = ("alpha:1".parse().unwrap(), Owner::NOBODY);
    let pages = |pages: u64| Bytes::new(pages * PAGE);
    assert_eq!(
        memory.hold(&id, owner, &[], Bytes::from_mib(2), pages(8)).unwrap(),
        pages(128),
        "all that the user may have"
    );
    assert_eq!(memory.hold(&id, owner, &[], pages(100), pages(100)).unwrap(), pages(100));
    assert!(memory.hold(&id, owner, &[], Bytes::from_mib(2), Bytes::from_mib(2)).is_err());
    assert_eq!(promised(&memory), pages(100), "a refusal changes nothing");
    let whom = |from| PromiseTarget {
        owner: Owner { uid: 0, gid: 0 },
        groups: &[],
        name: "player",
        pid: std::process::id() as i32,
        from,
    };
    let drawn = memory.promise(whom(Some(id.clone())), pages(60)).unwrap();
    assert_eq!(promised(&memory), pages(100), "within the contract");
    let more = memory.promise(whom(Some(id.clone())), pages(50)).unwrap();
    assert_eq!(promised(&memory), pages(110), "ten pages beyond it");
    drop((drawn, more));
    memory.settle();
    assert_eq!(promised(&memory), pages(100), "kept for the next program");
    let drawn = memory.promise(whom(Some(id.clone())), pages(60)).unwrap();
    memory.free_held(&id);
    assert_eq!(promised(&memory), pages(60));
    drop(drawn);
    memory.settle();
    assert_eq!(promised(&memory), Bytes::ZERO);
    memory.put_back();
}

impl Accounts {
    /// The part of a contract's memory that no application uses, in pages.
    fn held_pages(&self, id: &JointId) -> Option<u64> {
        let held = self.held.get(id)?;
        Some(self.broker.granted(held.reserve)?.get() / PAGE)
    }
}
