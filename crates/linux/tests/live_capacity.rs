//! The room for reservations, on the real scheduler.

use qfabric_linux::{capacity, testing};

#[test]
fn probing_again_and_again_finds_the_same_room() {
    let _alone = testing::live_lock();
    if !testing::may_reserve() {
        return;
    }
    testing::settled_room();
    let rooms: Vec<_> = (0..20).map(|_| capacity::probe().unwrap().ppm()).collect();
    let (least, most) = (rooms.iter().min().unwrap(), rooms.iter().max().unwrap());
    println!("room {rooms:?} {:?}", capacity::timed_probe());
    assert!(*least > 0 && most - least <= 10_000, "{rooms:?}");
}
