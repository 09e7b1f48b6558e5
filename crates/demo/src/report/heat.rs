//! Draws the grid as heat maps: players downwards, load to the right. Colour and number show the ratio of misses
//! to those of static GRUB.
//!
//! The colours are plain values, for viewers without CSS variables; the page replaces them
//! ([`super::plots::themed`]).

use std::fmt::Write;

use crate::grid::{Cell, Comparison, LOADS, Outcome, PLAYERS, Pattern};
use crate::verdict::Verdict;

const CELL: (usize, usize) = (92, 58);
const LEFT: usize = 74;
const TOP: usize = 46;
/// A ratio of this value, or of its inverse, has the full colour.
const FULL: f64 = 8.0;

/// The comparison that a heat map shows in a cell, and the verdict on it, if there is one for each cell.
pub(super) type Shown = fn(&Outcome) -> Option<(&Comparison, Option<&Verdict>)>;

/// The heat map of one comparison.
pub(super) fn svg(title: &str, outcomes: &[Outcome], shown: Shown) -> String {
    let (width, height) = (LEFT + CELL.0 * LOADS.len() + 12, TOP + CELL.1 * PLAYERS.len() + 44);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\"><rect width=\"{width}\" height=\"{height}\" fill=\"#FFFFFF\"/>"
    );
    text(&mut svg, (LEFT, 20), 15, "start", title);
    for (i, load) in LOADS.iter().enumerate() {
        let x = LEFT + CELL.0 * i + CELL.0 / 2;
        text(&mut svg, (x, TOP + CELL.1 * PLAYERS.len() + 16), 12, "middle", &format!("{:.0}", load * 100.0));
    }
    for (i, players) in PLAYERS.iter().enumerate() {
        text(&mut svg, (LEFT - 8, TOP + CELL.1 * i + CELL.1 / 2 + 4), 12, "end", &players.to_string());
    }
    text(&mut svg, (LEFT + CELL.0 * LOADS.len() / 2, height - 6), 12, "middle", "demand [% of the room]");
    text(&mut svg, (8, TOP - 8), 12, "start", "players");
    for outcome in outcomes {
        if let Some((comparison, verdict)) = shown(outcome) {
            draw(&mut svg, outcome, comparison, verdict);
        }
    }
    svg + "</svg>"
}

fn draw(svg: &mut String, outcome: &Outcome, comparison: &Comparison, verdict: Option<&Verdict>) {
    let ratio = comparison.ratio;
    let place = |Cell { players, load, .. }: Cell| {
        let column = LOADS.iter().position(|&l| l == load)?;
        Some((LEFT + CELL.0 * column, TOP + CELL.1 * PLAYERS.iter().position(|&p| p == players)?))
    };
    let Some((x, y)) = place(outcome.cell) else { return };
    let colour = if ratio <= 1.0 { "#059669" } else { "#DC2626" };
    let strength = (ratio.ln().abs() / FULL.ln()).min(1.0) * 0.75;
    let (w, h) = (CELL.0 - 3, CELL.1 - 3);
    let dashed = if comparison.disturbance.is_some() { " stroke-dasharray=\"4 3\"" } else { "" };
    put(
        svg,
        format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"4\"{dashed} \
             fill=\"{colour}\" fill-opacity=\"{strength:.2}\" stroke=\"#E2E8F0\"/>"
        ),
    );
    text(svg, (x + w / 2, y + 19), 14, "middle", &format!("{ratio:.2}x"));
    text(svg, (x + w / 2, y + 34), 10, "middle", &interval(comparison, verdict));
    text(svg, (x + w / 2, y + 48), 10, "middle", &kind(outcome));
}

/// The mark of the verdict, and the interval of the comparison.
fn interval(Comparison { low, high, .. }: &Comparison, verdict: Option<&Verdict>) -> String {
    let mark = verdict.map_or(String::new(), |verdict| format!("{} ", verdict.mark()));
    let high = high.map_or("∞".into(), |high| format!("{high:.2}"));
    format!("{mark}[{low:.2}, {high}]")
}

/// The pattern and the hogs; instead the reached load if it is clearly lower than the load of the column.
fn kind(Outcome { cell, reached_load, .. }: &Outcome) -> String {
    if !cell.is_reached(*reached_load) {
        return format!("{:.0} % reached", reached_load * 100.0);
    }
    let pattern = match (cell.shifts, cell.pattern) {
        (true, _) => "shift",
        (_, Pattern::Closed) => "closed",
        (_, Pattern::Mixed) => "mixed",
        (_, Pattern::None) => "no pattern",
    };
    format!("{pattern}{}", if cell.hogs { ", hogs" } else { "" })
}

fn text(svg: &mut String, (x, y): (usize, usize), size: u32, anchor: &str, text: &str) {
    put(
        svg,
        format_args!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" text-anchor=\"{anchor}\" \
             fill=\"#334155\">{text}</text>"
        ),
    );
}

fn put(svg: &mut String, text: std::fmt::Arguments) {
    svg.write_fmt(text).expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Phases;
    use crate::verdict::State;

    fn comparison(ratio: f64) -> Comparison {
        Comparison { ratio, low: ratio / 2.0, high: Some(ratio * 2.0), samples: 600, disturbance: None }
    }

    #[test]
    fn a_map_shows_the_interval_of_its_own_comparison() {
        let (players, load, pattern) = (PLAYERS[0], LOADS[0], Pattern::Closed);
        let outcome = Outcome {
            cell: Cell { players, load, pattern, shifts: false, hogs: true, phases: Phases::Together },
            reached_load: load,
            rival: 0.2,
            ours: 0.6,
            plain: comparison(3.0),
            verdict: Verdict {
                claim: String::new(),
                state: State::Missed,
                samples: 600,
                value: Some(3.0),
                low: Some(1.5),
                high: Some(6.0),
                bound: 1.0,
                percent: false,
                reason: None,
            },
            skipping: None,
            both_skip: Some(comparison(0.4)),
        };
        let outcomes = [outcome];
        let plain = svg("plain", &outcomes, |outcome| Some((&outcome.plain, Some(&outcome.verdict))));
        assert!(plain.contains("3.00x") && plain.contains("✘ [1.50, 6.00]"), "{plain}");
        let both = svg("both", &outcomes, |outcome| Some((outcome.both_skip.as_ref()?, None)));
        assert!(both.contains("0.40x") && both.contains(">[0.20, 0.80]<"), "{both}");
    }
}
