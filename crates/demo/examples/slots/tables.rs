//! Dispatch tables as text.

use anyhow::{Result, anyhow};
use qfabric_sched::dispatch::{Demand, GroupId, admit};
use qfabric_types::{DispatchOrder, DispatchRules, Nanos};

use crate::round::{NEIGHBOURS, PLAYERS};

/// Table 2 of the paper, and the table of one CPU of this experiment. The frame is the least common multiple of the
/// periods, as in Table 2; the text of the paper says GCD.
pub(crate) fn print() -> Result<()> {
    let free = "0.25".parse()?;
    let paper = DispatchRules { free, order: DispatchOrder::RateMonotonic, ..DispatchRules::default() };
    show("Table 2 of the paper", &paper, &[("721", 10, 20), ("773, 774, 775", 10, 40)])?;
    let mine = PLAYERS.iter().take(3).chain(&NEIGHBOURS[..1]).enumerate();
    let named: Vec<_> =
        mine.map(|(at, t)| (["player 1", "player 2", "player 3", "neighbour"][at], t.service, t.period)).collect();
    show("One CPU of this experiment", &DispatchRules::default(), &named)
}

/// Names of groups with service and period in ms.
fn show(title: &str, rules: &DispatchRules, groups: &[(&str, u64, u64)]) -> Result<()> {
    let demand = |(at, (_, service, period)): (usize, &(&str, u64, u64))| Demand {
        group: GroupId(at as u64),
        service: Nanos::from_millis(*service),
        period: Nanos::from_millis(*period),
    };
    let demands: Vec<Demand> = groups.iter().enumerate().map(demand).collect();
    let table = admit(rules, &demands).map_err(|refusal| anyhow!("{}", refusal.problem().message))?;
    let slot = rules.slot.get() / 1_000_000;
    let periods: Vec<String> = groups.iter().map(|(_, _, period)| period.to_string()).collect();
    println!(
        "{title}: frame LCM({}) = {} ms, order {}",
        periods.join(", "),
        slot * u64::from(table.frame()),
        rules.order
    );
    for number in 0..table.frame() {
        let owner = table.owner(number).map_or("free", |group| groups[group.0 as usize].0);
        println!("{number:>6}  {:>3} to {:>3} ms  {owner}", slot * u64::from(number), slot * u64::from(number + 1));
    }
    Ok(())
}
