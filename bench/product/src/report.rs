//! Results: tables for people, all numbers for programs. Medians of the rounds, with the smallest and the largest
//! value.

use anyhow::Result;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::{Value, json};
use statrs::statistics::{Data, Max, Median, Min};

use crate::contestant::Contestant;
use crate::flow::RATE;
use crate::run::{CONDITIONS, Condition, FLOWS, Record, Run};
use crate::threads::Share;

/// One number over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Summary {
    median: f64,
    least: f64,
    most: f64,
    rounds: usize,
}

impl Summary {
    fn of(values: Vec<f64>) -> Option<Summary> {
        let rounds = values.len();
        let values = Data::new(values);
        (rounds > 0).then(|| Summary { median: values.median(), least: values.min(), most: values.max(), rounds })
    }

    fn text(&self) -> String {
        if self.rounds == 1 {
            return number(self.median);
        }
        format!("{} ({} to {})", number(self.median), number(self.least), number(self.most))
    }
}

/// At least three digits.
fn number(value: f64) -> String {
    match value.abs() {
        small if small < 10.0 => format!("{value:.2}"),
        middle if middle < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A goal, with the measured value.
#[derive(Clone, Debug, Serialize)]
struct Goal {
    what: String,
    measured: Option<Summary>,
    at_most: Option<f64>,
    at_least: Option<f64>,
}

impl Goal {
    /// None if it was not measured.
    fn is_met(&self) -> Option<bool> {
        let median = self.measured?.median;
        Some(self.at_most.is_none_or(|most| median <= most) && self.at_least.is_none_or(|least| median >= least))
    }
}

/// Numbers of a run, found by their names.
pub(crate) struct Report<'a> {
    run: &'a Run,
    missing: &'a [(Contestant, String)],
}

impl<'a> Report<'a> {
    pub(crate) fn new(run: &'a Run, missing: &'a [(Contestant, String)]) -> Report<'a> {
        Report { run, missing }
    }

    fn values(&self, experiment: &str, who: &str, metric: &str) -> Vec<(usize, f64)> {
        let of = |r: &&Record| r.experiment == experiment && r.contestant == who && r.metric == metric;
        self.run.records.iter().filter(of).map(|record| (record.round, record.value)).collect()
    }

    fn summary(&self, experiment: &str, who: &str, metric: &str) -> Option<Summary> {
        Summary::of(self.values(experiment, who, metric).into_iter().map(|(_, value)| value).collect())
    }

    /// Ratio over the rounds in which both were measured.
    fn ratio(&self, one: [&str; 3], other: [&str; 3]) -> Option<Summary> {
        let others = self.values(other[0], other[1], other[2]);
        let of = |(round, value): (usize, f64)| Some(value / others.iter().find(|(at, _)| *at == round)?.1);
        Summary::of(self.values(one[0], one[1], one[2]).into_iter().filter_map(of).collect())
    }

    fn cell(&self, experiment: &str, who: &str, metric: &str) -> String {
        self.summary(experiment, who, metric).map_or("–".to_owned(), |summary| summary.text())
    }

    /// The rival with the smallest number.
    fn best_rival(&self, experiment: &str, metric: &str) -> Option<&'static str> {
        let rivals = self.run.contestants.iter().filter(|who| who.is_rival()).map(|who| who.name());
        let known = rivals.filter_map(|name| Some((name, self.summary(experiment, name, metric)?.median)));
        known.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(name, _)| name)
    }

    fn goals(&self) -> Vec<Goal> {
        let (ours, floor, tcp) = (Contestant::Qfabric.name(), Contestant::Floor.name(), Contestant::Tcp.name());
        let at_most = |what: String, measured, most| Goal { what, measured, at_most: Some(most), at_least: None };
        let at_least = |what: &str, measured, least| {
            let what = what.to_owned();
            Goal { what, measured, at_most: None, at_least: Some(least) }
        };
        let mut goals = Vec::new();
        for condition in CONDITIONS {
            let name = condition.name;
            let beside = |metric, who| self.ratio([name, ours, metric], [name, who, metric]);
            if condition.is_busy {
                let own = self.ratio([name, ours, "p99"], [condition.idle(), ours, "p99"]);
                goals.push(at_most(format!("{name}: p99, of its idle value"), own, 1.2));
                let best = self.best_rival(name, "p99").unwrap_or("any rival");
                goals.push(at_most(format!("{name}: p99, of the best rival's, {best}"), beside("p99", best), 1.0));
            } else {
                goals.push(at_most(format!("{name}: p50, of the floor's"), beside("p50", floor), 1.3));
                goals.push(at_most(format!("{name}: p50, of TCP echo's"), beside("p50", tcp), 2.5));
            }
        }
        let stream = |who: Contestant| self.ratio(["stream", ours, "MB/s"], ["stream", who.name(), "MB/s"]);
        let submission = |metric| self.summary("submission", ours, metric);
        goals.extend([
            at_least("16 KiB events: MB/s, of bare Zenoh's", stream(Contestant::Zenoh), 0.7),
            at_least("16 KiB events: MB/s, of bare Zenoh's with TLS", stream(Contestant::ZenohTls), 0.7),
            // The last events arrive a moment after the end of the publishing.
            at_least(
                "100 B events a second, submitted",
                self.summary("rate", ours, "events/s"),
                0.99 * f64::from(RATE),
            ),
            at_most("of 300,000 lost".into(), self.summary("rate", ours, "lost"), 0.0),
            at_most("submission of 50 at once, CPU µs".into(), submission("together"), 2.0),
            at_most("submission of one a millisecond, CPU µs".into(), submission("alone"), 2.0),
        ]);
        goals
    }

    pub(crate) fn text(&self) -> String {
        let (rounds, trips) = (self.run.stolen.len(), self.run.trips);
        let stolen = Summary::of(self.run.stolen.clone()).map_or("–".to_owned(), |stolen| stolen.text());
        let mut text = format!(
            "One way of 100 B between applications of two hosts, µs: half of a round trip; {rounds} rounds of {trips} trips\n\
             each, 0.5 ms between; medians of rounds (least to most). CPU time stolen: {stolen} %.\n\n",
        );
        CONDITIONS.iter().for_each(|condition| text += &format!("{}\n\n", self.trips(condition)));
        self.missing.iter().for_each(|(who, why)| text += &format!("{} is missing: {why}\n", who.name()));
        self.run.failures.iter().for_each(|failure| text += &format!("{failure}\n"));
        text += &format!("One publisher, one subscriber, 3 s\n{}\n\n", self.flows());
        if self.run.has_threads {
            text += &format!("For each event that was sent\n{}\n\n", self.threads());
        }
        text + &format!("{}\n", self.goal_table())
    }

    /// What each thread costs for an event.
    fn threads(&self) -> Table {
        let costs = &self.run.costs;
        let mut rows: Vec<_> =
            costs.iter().map(|cost| (cost.experiment, cost.contestant, &*cost.share.thread)).collect();
        rows.sort_unstable();
        rows.dedup();
        let mut table = table(["thread", "CPU µs", "sleeps"].map(str::to_owned));
        for row in rows {
            let own = costs.iter().filter(|cost| (cost.experiment, cost.contestant, &*cost.share.thread) == row);
            let cell = |of: fn(&Share) -> f64| {
                let summary = Summary::of(own.clone().map(|cost| of(&cost.share)).collect());
                summary.map_or("–".to_owned(), |summary| summary.text())
            };
            let (flow, who, thread) = row;
            let cells = [cell(|share| share.cpu_us), cell(|share| share.sleeps)];
            table.add_row([format!("{flow}, {who}, {thread}")].into_iter().chain(cells));
        }
        table
    }

    fn trips(&self, condition: &Condition) -> Table {
        let name = condition.name;
        let mut table = table([name, "p50", "p99", "p50 of the floor's", "of TCP's"].map(str::to_owned));
        for who in self.run.contestants.iter().map(|who| who.name()) {
            let of = |other: Contestant| {
                let ratio = self.ratio([name, who, "p50"], [name, other.name(), "p50"]);
                ratio.map_or("–".to_owned(), |ratio| ratio.text())
            };
            let cells = [self.cell(name, who, "p50"), self.cell(name, who, "p99")];
            table
                .add_row([who.to_owned()].into_iter().chain(cells).chain([of(Contestant::Floor), of(Contestant::Tcp)]));
        }
        table
    }

    fn flows(&self) -> Table {
        let rows = [
            ("16 KiB, as fast as taken, MB/s", "stream", "MB/s"),
            ("sent", "stream", "sent"),
            ("lost", "stream", "lost"),
            ("100 B, 100,000 a second: submitted a second", "rate", "events/s"),
            ("sent", "rate", "sent"),
            ("delivered", "rate", "delivered"),
            ("lost", "rate", "lost"),
            ("submission of 50 at once, CPU µs", "submission", "together"),
            ("submission of one a millisecond, CPU µs", "submission", "alone"),
        ];
        let names = FLOWS.map(Contestant::name);
        let mut table = table([""].into_iter().chain(names).map(str::to_owned));
        for (what, experiment, metric) in rows {
            let cells = names.iter().map(|who| self.cell(experiment, who, metric));
            table.add_row([what.to_owned()].into_iter().chain(cells));
        }
        table
    }

    fn goal_table(&self) -> Table {
        let mut table = table(["goals", "measured", "wanted", ""].map(str::to_owned));
        for goal in self.goals() {
            let limit = goal.at_most.map(|most| format!("≤ {}", number(most)));
            let limit = limit.or_else(|| goal.at_least.map(|least| format!("≥ {}", number(least))));
            let word = goal.is_met().map_or("not measured", |met| if met { "met" } else { "not met" });
            let measured = goal.measured.map_or("–".to_owned(), |measured| measured.text());
            table.add_row([goal.what, measured, limit.unwrap_or_default(), word.to_owned()]);
        }
        table
    }

    /// All numbers, and the tables' values.
    pub(crate) fn json(&self) -> Result<Value> {
        let goals = self.goals();
        let goals = goals.iter().map(|goal| json!({ "goal": goal, "met": goal.is_met() }));
        let missing = self.missing.iter().map(|(who, why)| json!({ "contestant": who.name(), "why": why }));
        Ok(json!({
            "trips": self.run.trips, "stolen_percent": self.run.stolen, "records": self.run.records, "failures": self.run.failures,
            "threads": self.run.costs, "missing": missing.collect::<Vec<_>>(), "goals": goals.collect::<Vec<_>>(),
        }))
    }
}

fn table(head: impl IntoIterator<Item = String>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(head);
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_of_all_rounds() {
        let summary = Summary::of(vec![3.0, 100.0, 2.0]);
        assert_eq!(summary, Some(Summary { median: 3.0, least: 2.0, most: 100.0, rounds: 3 }));
        assert_eq!(summary.unwrap().text(), "3.00 (2.00 to 100)");
        assert_eq!(Summary::of(Vec::new()), None);
    }

    #[test]
    fn a_goal_without_a_figure_is_neither_met_nor_not() {
        let goal = |measured, at_most| Goal { what: String::new(), measured, at_most, at_least: None };
        assert_eq!(goal(None, Some(1.0)).is_met(), None);
        assert_eq!(goal(Summary::of(vec![1.0]), Some(1.0)).is_met(), Some(true));
        assert_eq!(goal(Summary::of(vec![1.1]), Some(1.0)).is_met(), Some(false));
    }
}
