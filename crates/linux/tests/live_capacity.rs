//! The free bandwidth for reservations, on the real scheduler.

use qfabric_linux::{capacity, testing};

#[test]
fn repeated_probes_find_the_same_bandwidth() {
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
