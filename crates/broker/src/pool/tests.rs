use proptest::prelude::*;

use super::*;

const PAGE: u64 = 4096;

fn pool(pages: u64) -> Pool {
    Pool::new(PAGE, Bytes::new(pages * PAGE))
}

#[test]
fn small_allocations_share_a_page_and_large_ones_do_not() {
    let mut pool = pool(4);
    let places = [20, 30, PAGE + 1, 40].map(|bytes| pool.allocate(1, bytes).unwrap());
    assert_eq!(places.map(|place| (place.segment, place.offset)), [(1, 0), (1, 32), (2, 0), (1, 64)]);
    assert_eq!((pool.used(), places[2].segment_bytes), (Bytes::new(3 * PAGE), 2 * PAGE));
    let full = pool.allocate(1, 2 * PAGE).unwrap_err();
    assert_eq!(full.to_string(), "asked for 8 KiB, the reserve has 4 KiB of 16 KiB left");
    assert!(pool.allocate(1, 0).unwrap_err().problem().next_step.contains("1 byte"));
}

#[test]
fn the_first_hole_that_fits_is_taken_and_holes_join() {
    let mut pool = pool(1);
    let [a, b, c, _d] = [1024; 4].map(|bytes| pool.allocate(1, bytes).unwrap());
    pool.free(1, a.allocation).unwrap();
    pool.free(1, c.allocation).unwrap();
    assert_eq!(pool.allocate(1, 100).unwrap().offset, 0);
    assert!(pool.allocate(1, 2048).is_err());
    pool.free(1, b.allocation).unwrap();
    assert_eq!(pool.allocate(1, 2048).unwrap().offset, 112);
}

#[test]
fn only_the_member_that_allocated_may_free() {
    let mut pool = pool(2);
    let place = pool.allocate(1, 10).unwrap();
    assert_eq!(pool.free(2, place.allocation).unwrap_err().problem().code, "no_such_allocation");
    assert_eq!(pool.place(place.allocation).unwrap(), place);
    assert_eq!(pool.free(1, place.allocation), Ok(Some(place.segment)));
    assert!(pool.place(place.allocation).is_err());
}

#[test]
fn a_member_that_leaves_gives_everything_back() {
    let mut pool = pool(8);
    pool.lock_text(1, Bytes::new(100)).unwrap();
    let small = pool.allocate(2, 10).unwrap();
    let [_, large] = [20, 2 * PAGE].map(|bytes| pool.allocate(1, bytes).unwrap());
    assert_eq!(pool.leave(1), [large.segment]);
    assert_eq!(pool.used(), Bytes::new(PAGE));
    assert_eq!(pool.leave(2), [small.segment]);
    assert_eq!(pool.used(), Bytes::ZERO);
}

#[test]
fn text_counts_once_and_a_reserve_shrinks_to_its_use() {
    let mut pool = pool(4);
    pool.lock_text(1, Bytes::new(2 * PAGE)).unwrap();
    pool.lock_text(1, Bytes::new(3 * PAGE)).unwrap();
    assert!(pool.lock_text(1, Bytes::new(5 * PAGE)).is_err());
    assert_eq!(pool.used(), Bytes::new(3 * PAGE));
    assert!(pool.check_size(Bytes::new(2 * PAGE)).unwrap_err().to_string().contains("12 KiB of the reserve"));
    pool.check_size(Bytes::new(3 * PAGE)).unwrap();
    pool.resize(Bytes::new(3 * PAGE));
    assert!(pool.allocate(1, 1).is_err());
}

#[test]
fn the_tables_of_a_reserve_are_bounded() {
    let mut pool = pool(1 << 20);
    for _ in 0..Pool::MOST_SEGMENTS {
        pool.allocate(1, PAGE).unwrap();
    }
    assert_eq!(pool.allocate(1, PAGE).unwrap_err().problem().code, "too_many_allocations");
}

/// Checks that allocations do not overlap, and that holes and allocations fill each segment.
fn check(pool: &Pool) {
    for (id, segment) in &pool.segments {
        let in_it = pool.allocations.values().filter(|found| found.segment == *id);
        let mut spans: Vec<Span> = in_it.map(|found| found.span).chain(segment.holes.iter().copied()).collect();
        spans.sort_by_key(|span| span.start);
        let end = spans.iter().fold(0, |end, span| {
            assert_eq!(end, span.start, "{segment:?}");
            span.start + span.length
        });
        assert_eq!(end, segment.bytes);
        assert!(segment.holes.windows(2).all(|pair| pair[0].start + pair[0].length < pair[1].start));
    }
    assert!(pool.used() <= pool.reserved());
}

proptest! {
    #[test]
    fn no_two_allocations_overlap_and_the_reserve_is_never_exceeded(
        steps in prop::collection::vec((0_u64..3, any::<bool>(), 1_u64..3 * PAGE, any::<prop::sample::Index>()), 1..120),
    ) {
        let (mut pool, mut held) = (pool(16), Vec::<(Member, AllocationId)>::new());
        for (member, is_free, bytes, at) in steps {
            if is_free && !held.is_empty() {
                let (owner, id) = held.swap_remove(at.index(held.len()));
                pool.free(owner, id).unwrap();
            } else if let Ok(place) = pool.allocate(member, if bytes % 2 == 0 { bytes } else { bytes % 700 + 1 }) {
                held.push((member, place.allocation));
            }
            check(&pool);
        }
        (0..3).for_each(|member| drop(pool.leave(member)));
        prop_assert_eq!((pool.used(), pool.segments.len(), pool.allocations.len()), (Bytes::ZERO, 0, 0));
    }
}
