//! Runs the experiments of `qfabric sim fabric`, and turns their outcomes into tables, JSON and curves.

use std::fmt::Write;

use qfabric_control::adapt::implosion::Rule;

use qfabric_sim::fabric::experiments::{self, Curve};
use serde::Serialize;

use super::{OfferRule, Results, RuleName};
use crate::exit::Failure;

fn value(of: &impl Serialize) -> Result<serde_json::Value, Failure> {
    serde_json::to_value(of).map_err(Failure::fault)
}

pub(super) fn roles(seconds: u64, fade: bool, seed: u64) -> Result<Results, Failure> {
    let outcome = experiments::roles::run(&experiments::roles::Options { seconds, fade, seed });
    let at = |time: Option<f64>| time.map_or("-".to_owned(), |time| format!("{time:.0} s"));
    let mut text = String::from("role      before    degraded at   stopped at   back at   at the end\n");
    for role in &outcome.roles {
        let (degraded, stopped, resumed) = (at(role.degraded_at), at(role.stopped_at), at(role.resumed_at));
        let (before, after) = (role.before, role.after);
        let _ = writeln!(
            text,
            "{:<8} {before:>4.1} fps {degraded:>12} {stopped:>12} {resumed:>9} {after:>6.1} fps",
            role.role
        );
    }
    let json = value(&outcome)?;
    let title = "Three roles under a growing disturber";
    Ok(Results { text, json, title, axes: ("seconds", "frames per second"), curves: outcome.curves })
}

pub(super) fn spread(clients: u64, seconds: u64, rule: RuleName, crowd: bool, seed: u64) -> Result<Results, Failure> {
    let rule = match rule {
        RuleName::None => None,
        RuleName::Printed => Some(Rule::AsPrinted),
        RuleName::Placed => Some(Rule::Placed),
    };
    let outcome = experiments::spread::run(&experiments::spread::Options {
        clients: clients as usize,
        seconds,
        rule,
        crowd,
        seed,
    });
    let mut text = format!("slot           10th second   {seconds}th second\n");
    for (slot, (early, late)) in outcome.at_10.iter().zip(&outcome.at_end).enumerate() {
        let _ = writeln!(text, "{:>3}-{:<4} ms {early:>12} {late:>12}", slot * 100, slot * 100 + 100);
    }
    let settled = outcome.settled_at.map_or("never".to_owned(), |second| format!("from second {second} on"));
    let _ = writeln!(text, "no slot above 1.3 times the mean: {settled}; {} delay requests", outcome.delayed);
    let points = outcome.largest.iter().enumerate().map(|(second, largest)| (second as f64, *largest)).collect();
    let curves = vec![Curve { name: "largest slot / mean".into(), points }];
    let json = value(&outcome)?;
    Ok(Results { text, json, title: "Reports in slots of 100 ms", axes: ("seconds", "largest slot / mean"), curves })
}

pub(super) fn balance(options: &experiments::balance::Options) -> Result<Results, Failure> {
    let rates = [20.0, 25.0, 28.0, 30.0, 33.0, 36.0, 40.0, 45.0, 50.0];
    let outcomes = rates.map(|rate| experiments::balance::run(&experiments::balance::Options { rate, ..*options }));
    let mut text = String::from("requests/s   here      elsewhere   timed out   duplicates   cancelled   events\n");
    for outcome in &outcomes {
        let experiments::balance::Outcome { rate, timed_out, duplicates, cancelled, events, .. } = outcome;
        let (here, elsewhere) =
            (response(outcome.local, outcome.local_ms), response(outcome.remote, outcome.remote_ms));
        let _ = writeln!(
            text,
            "{rate:>10} {here:>9} {elsewhere:>11} {timed_out:>11} {duplicates:>12} {cancelled:>11} {events:>8}"
        );
    }
    let curve = |name: &str, of: fn(&experiments::balance::Outcome) -> (u64, f64)| Curve {
        name: name.into(),
        points: outcomes.iter().filter(|o| of(o).0 > 0).map(|o| (o.rate, of(o).1)).collect(),
    };
    let curves =
        vec![curve("served here", |o| (o.local, o.local_ms)), curve("served elsewhere", |o| (o.remote, o.remote_ms))];
    let json = value(&outcomes.as_slice())?;
    Ok(Results {
        text,
        json,
        title: "Response of a web cluster",
        axes: ("requests per second", "response, ms"),
        curves,
    })
}

pub(super) fn calls(seconds: u64, seed: u64) -> Result<Results, Failure> {
    let courses = experiments::calls::run(seconds, seed);
    let mut text = String::from("called      at 10 ± 1 fps after   calls/s      without a change\n");
    for course in &courses {
        let reached = course.reached_after.map_or("never".to_owned(), |time| format!("{time:.1} s"));
        let (calls, empty) = (course.calls_per_second, 100.0 * course.empty);
        let _ = writeln!(text, "{:<10} {reached:>20} {calls:>9.1} {empty:>19.0} %", course.mode);
    }
    let json = value(&courses)?;
    let curves = courses.into_iter().map(|course| course.curve).collect();
    let title = "A controller that is polled, and one that is called";
    Ok(Results { text, json, title, axes: ("seconds", "frames per second"), curves })
}

pub(super) fn crowd(hosts: u64, seconds: u64, seed: u64) -> Result<Results, Failure> {
    let outcome = experiments::crowd::run(&experiments::crowd::Options {
        hosts: hosts as usize,
        seconds,
        seed,
        ..experiments::crowd::Options::default()
    });
    let text = format!(
        "{hosts} hosts, {seconds} virtual seconds\nframes on the network  {}\nframes at sinks        {}\nreports                {}\n\
         calls of controllers   {}\nhosts killed           {}\nsinks known at the end {}\n",
        outcome.network.frames,
        outcome.frames,
        outcome.reports,
        outcome.controller_calls,
        outcome.killed,
        outcome.known_sinks
    );
    let json = value(&outcome)?;
    let title = "Hosts that come and go, and what arrives at them";
    Ok(Results { text, json, title, axes: ("seconds", "hosts, frames per second"), curves: outcome.curves })
}

/// The mean response time in ms; a dash without responses.
fn response(of: u64, ms: f64) -> String {
    if of > 0 { format!("{ms:.0} ms") } else { "-".to_owned() }
}

pub(super) fn overhead(seconds: u64, seed: u64) -> Result<Results, Failure> {
    let run = |updates: u32, copies: u32| {
        let (updates, rate) = (f64::from(updates), 40.0);
        experiments::balance::run(&experiments::balance::Options {
            rate,
            copies,
            updates,
            cancel: false,
            seconds,
            seed,
        })
    };
    let by_updates: Vec<_> = (1..=5).map(|updates| run(updates, 1)).collect();
    let by_copies: Vec<_> = (1..=5).map(|copies| run(1, copies)).collect();
    let mut text = String::from("loads/s   servers   received    sent        forwarded   CPU per second\n");
    for outcome in by_updates.iter().chain(&by_copies) {
        let experiments::balance::Overhead { heard_us, said_us, forwarded_us } = outcome.overhead;
        let ms = |us: f64| format!("{:.3} ms", us / 1e3);
        let (updates, copies, sum) = (outcome.updates, outcome.copies, ms(heard_us + said_us + forwarded_us));
        let (received, sent, forwarded) = (ms(heard_us), ms(said_us), ms(forwarded_us));
        let _ = writeln!(text, "{updates:>7} {copies:>9}   {received:<11} {sent:<11} {forwarded:<11} {sum}");
    }
    let curve = |name: &str, rows: &[experiments::balance::Outcome], of: fn(&experiments::balance::Overhead) -> f64| {
        let points = rows.iter().enumerate().map(|(row, outcome)| (row as f64 + 1.0, of(&outcome.overhead) / 1e3));
        Curve { name: name.into(), points: points.collect() }
    };
    let curves = vec![
        curve("received, by loads/s", &by_updates, |o| o.heard_us),
        curve("sent, by loads/s", &by_updates, |o| o.said_us),
        curve("received, by servers", &by_copies, |o| o.heard_us),
        curve("forwarded, by servers", &by_copies, |o| o.forwarded_us),
    ];
    let json = serde_json::json!({ "by_updates": value(&by_updates)?, "by_copies": value(&by_copies)? });
    let axes = ("load reports per second, or servers that receive a request", "CPU, ms per second");
    Ok(Results { text, json, title: "What load balancing costs the first server", axes, curves })
}

pub(super) fn sync(options: &experiments::sync::Options) -> Result<Results, Failure> {
    let outcome = experiments::sync::run(options);
    let (half, most) = outcome.spread_ms;
    let text = format!(
        "frames shown by all four sinks           {}\nfrom the first sink to the last          50 % below {half:.1} ms, 99 % below {most:.1} ms\n\
         frames too late for the others           {}\npicture and sound apart by > 80 ms       {:.1} % of the time\n\
         apart in the last five seconds           {:.1} ms\n",
        outcome.frames,
        outcome.late,
        outcome.out_of_step * 100.0,
        outcome.skew_at_end_ms
    );
    let json = value(&outcome)?;
    let title = "Four hosts with wrong clocks, and picture and sound on one of them";
    Ok(Results { text, json, title, axes: ("seconds", "ms apart"), curves: outcome.curves })
}

pub(super) fn tree(seconds: u64, linked: bool, seed: u64) -> Result<Results, Failure> {
    let outcome = experiments::tree::run(seconds, linked, seed);
    let mut text =
        String::from("from    for both        low            medium         high           (film/s + sound/s)\n");
    for phase in &outcome.phases {
        let _ = write!(text, "{:>3} s   {:>8} kbit/s ", phase.from, phase.granted / 1_000);
        for (film, sound) in &phase.rates {
            let rates = if *film + *sound > 0.0 { format!("{film:.1} + {sound:.1}") } else { "stopped".to_owned() };
            let _ = write!(text, "  {rates:<13}");
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    let json = value(&outcome)?;
    let title = "A film and its sound in three roles";
    Ok(Results { text, json, title, axes: ("seconds", "events per second"), curves: outcome.curves })
}

pub(super) fn cut(options: &experiments::cut::Options) -> Result<Results, Failure> {
    let outcome = experiments::cut::run(options);
    let after = |time: Option<f64>| time.map_or("-".to_owned(), |time| format!("after {time:.1} s"));
    let text = format!(
        "largest sum of all parts           {} of {}\nsum above the resource             for {:.1} s\n\
         separated hosts had no part left   {}\nother hosts had the whole          {}\n\
         all hosts had parts again          {}\n",
        outcome.most,
        experiments::cut::CAPACITY,
        outcome.above,
        after(outcome.given_up_after),
        after(outcome.taken_after),
        after(outcome.healed_after)
    );
    let json = value(&outcome)?;
    let axes = ("seconds", "parts of a hundred");
    Ok(Results { text, json, title: "A group that is cut in two", axes, curves: outcome.curves })
}

pub(super) fn admission(rule: OfferRule, rate: u32, seconds: u64, seed: u64) -> Result<Results, Failure> {
    let rule = match rule {
        OfferRule::None => None,
        OfferRule::First => Some(experiments::admission::Offer::First),
        OfferRule::Best => Some(experiments::admission::Offer::BestOf(2)),
        OfferRule::Nearest => Some(experiments::admission::Offer::Nearest),
    };
    let rate = f64::from(rate) / 60.0;
    let outcome = experiments::admission::run(&experiments::admission::Options { rule, rate, seconds, seed });
    let experiments::admission::Outcome { came, here, elsewhere, withdrawn, refused, broken, .. } = outcome;
    let text = format!(
        "applications                              {came}\nadmitted by their own host                {here}\n\
         refused there, admitted elsewhere         {elsewhere}\noffered elsewhere, but not started        {withdrawn}\n\
         refused by all hosts                      {refused}\nbroken promises                           {broken}\n\
         largest promise of a host                 {:.1} % of its capacity\n\
         still promised after the end of all       {} ppm of a CPU\n",
        100.0 * outcome.most,
        outcome.left_over
    );
    let json = value(&outcome)?;
    let axes = ("seconds", "CPU guaranteed");
    Ok(Results { text, json, title: "Admission over four hosts", axes, curves: outcome.curves })
}
