//! Draws the grid as heat maps: players downwards, load to the right. Colour and number show the ratio of misses
//! to those of static GRUB.
//!
//! The colours are plain values, for viewers without CSS variables; the page replaces them
//! ([`super::plots::themed`]).

use std::fmt::Write;

use crate::grid::{Cell, LOADS, Outcome, PLAYERS, Pattern};
use crate::verdict::Verdict;

const CELL: (usize, usize) = (92, 58);
const LEFT: usize = 74;
const TOP: usize = 46;
/// A ratio of this value, or of its inverse, has the full colour.
const FULL: f64 = 8.0;

/// The heat map of one ratio.
pub(super) fn svg(title: &str, outcomes: &[Outcome], ratio: fn(&Outcome) -> Option<f64>) -> String {
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
        if let Some(ratio) = ratio(outcome) {
            draw(&mut svg, outcome, ratio);
        }
    }
    svg + "</svg>"
}

fn draw(svg: &mut String, outcome: &Outcome, ratio: f64) {
    let place = |Cell { players, load, .. }: Cell| {
        let column = LOADS.iter().position(|&l| l == load)?;
        Some((LEFT + CELL.0 * column, TOP + CELL.1 * PLAYERS.iter().position(|&p| p == players)?))
    };
    let Some((x, y)) = place(outcome.cell) else { return };
    let colour = if ratio <= 1.0 { "#059669" } else { "#DC2626" };
    let strength = (ratio.ln().abs() / FULL.ln()).min(1.0) * 0.75;
    let (w, h) = (CELL.0 - 3, CELL.1 - 3);
    let dashed = if outcome.plain.disturbance.is_some() { " stroke-dasharray=\"4 3\"" } else { "" };
    put(
        svg,
        format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" rx=\"4\"{dashed} \
             fill=\"{colour}\" fill-opacity=\"{strength:.2}\" stroke=\"#E2E8F0\"/>"
        ),
    );
    text(svg, (x + w / 2, y + 19), 14, "middle", &format!("{ratio:.2}x"));
    text(svg, (x + w / 2, y + 34), 10, "middle", &verdict(&outcome.verdict));
    text(svg, (x + w / 2, y + 48), 10, "middle", &kind(outcome));
}

/// The mark and the interval of a cell.
fn verdict(verdict: &Verdict) -> String {
    let number = |x: Option<f64>| x.map_or("∞".into(), |x| format!("{x:.2}"));
    format!("{} [{}, {}]", verdict.mark(), number(verdict.low.or(Some(0.0))), number(verdict.high))
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
