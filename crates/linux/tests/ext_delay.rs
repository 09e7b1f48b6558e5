//! The delay of events until their receivers run, on several CPUs, in the test machine: prints the tables of the
//! benchmark `event_delay`, and writes them to `out/vm`, one file for each number of CPUs.

#[path = "../benches/event_delay/measure.rs"]
mod measure;

use measure::Plan;
use qfabric_linux::cpus::CpuList;
use qfabric_linux::ecalls::Kernel;
use qfabric_linux::ext::Ext;
use qfabric_linux::testing::{live_lock, skip};

/// Events of each row; the emulated machine needs their time.
const EVENTS: usize = 100;

#[test]
fn every_event_reaches_its_receiver_however_it_is_scheduled() {
    if Ext::supported().map_err(skip).is_err() {
        return;
    }
    let _alone = live_lock();
    let kernel = Kernel::open().unwrap();
    let plan = Plan { events: EVENTS, ..Plan::new() };
    let tables = measure::tables(&kernel, &plan);
    let text: String = tables.iter().map(measure::Table::text).collect();
    print!("{text}");
    if let Some(folder) = std::env::var_os("QFABRIC_VM_OUT") {
        let name = format!("event-delay-{}-cpus.txt", CpuList::online().len());
        std::fs::write(std::path::Path::new(&folder).join(name), text).unwrap();
    }
    for table in &tables {
        assert_eq!(table.rows.len(), 5, "{table:?}");
        for row in &table.rows {
            let delays = row.delays.as_ref().unwrap_or_else(|why| panic!("{}: {why}", row.name));
            assert_eq!(delays.len(), EVENTS, "{}", row.name);
        }
    }
}
