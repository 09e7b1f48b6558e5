//! Dispatch tables in the output of `status`.

use qfabric_types::api::{Application, DispatchTableStatus, HostStatus};

/// One line for each dispatch table and for each application with slots; empty under other mechanisms.
pub(super) fn lines(status: &HostStatus) -> String {
    let applications = if status.tables.is_empty() { &[] } else { &status.applications[..] };
    status.tables.iter().map(table).chain(applications.iter().filter_map(application)).collect()
}

fn table(table: &DispatchTableStatus) -> String {
    let DispatchTableStatus { cpu, groups, slot, frame, free, dispatches, late, late_total, late_most, cost, .. } =
        table;
    let mean = late_total.as_f64() / 1e3 / (*dispatches).max(1) as f64;
    let part = 100.0 * *late as f64 / (*dispatches).max(1) as f64;
    let percent = 100.0 * cost.as_f64();
    format!(
        "slots of CPU {cpu}: {groups} groups, {frame} slots of {slot}, {free} free; the dispatcher uses {percent:.2} % of \
         the CPU; slots begin {mean:.1} µs late in the mean, {late_most} at most, {part:.1} % of them over 50 µs\n"
    )
}

fn application(app: &Application) -> Option<String> {
    let counts = app.server?;
    let (id, name, missed) = (app.id, &app.contract.name, counts.missed);
    let (given, overruns, underruns) = (counts.slots, counts.throttles, counts.underruns);
    Some(format!(
        "slots of application {id} ({name}): {given} given, {missed} periods missed, {overruns} overruns, {underruns} \
         underruns\n"
    ))
}

#[cfg(test)]
mod tests {
    use qfabric_types::{Nanos, Share};

    use super::*;
    use crate::status::tests::{application, host, served};

    #[test]
    fn a_table_is_shown_with_its_frame_its_cost_and_its_lateness() {
        let mut host = host(vec![served(1, "mpv"), application(2, "plain", 0.1)]);
        assert_eq!(lines(&host), "", "servers without slots");
        let counts = host.applications[0].server.as_mut().unwrap();
        (counts.slots, counts.throttles, counts.underruns) = (1_200, 7, 30);
        let (slot, late_total, late_most) =
            (Nanos::from_millis(10), Nanos::from_micros(2_000), Nanos::from_micros(700));
        let cost = Share::from_f64(0.004);
        let (cpu, groups, frame, free, used) = (1, 2, 4, 1, Nanos::ZERO);
        host.tables = vec![DispatchTableStatus {
            cpu,
            groups,
            slot,
            frame,
            free,
            dispatches: 1_000,
            late: 15,
            late_total,
            late_most,
            used,
            cost,
        }];
        assert_eq!(
            lines(&host),
            "slots of CPU 1: 2 groups, 4 slots of 10 ms, 1 free; the dispatcher uses 0.40 % of the CPU; slots begin \
             2.0 µs late in the mean, 700 µs at most, 1.5 % of them over 50 µs\n\
             slots of application 1 (mpv): 1200 given, 12 periods missed, 7 overruns, 30 underruns\n"
        );
    }
}
