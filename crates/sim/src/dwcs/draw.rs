//! Draws the timeline as a picture: one row per task, one box per run, and an arrow for each raised event.

use std::fmt::Write;

use super::files::PARTS;
use super::{Dispatch, Output, RaisedEvent, TaskSet, Tick};

/// Largest number of ticks in a picture; more could not be distinguished.
pub const MAX_DRAWN: u64 = 2_000;

const ROW: u64 = 34;
const BOX: u64 = 20;
const LEFT: u64 = 90;
const TOP: u64 = 30;
const COLOURS: [&str; 6] = ["#2f6fab", "#3f8f4f", "#b5651d", "#7a4fa3", "#a33b4a", "#4a7f8c"];
const FREE: &str = "#b9bec4";
const MISS: &str = "#d01c2a";

/// Groups adjacent ticks of the same kind into runs: kind, first tick, number of ticks.
pub(super) fn runs(timeline: &[Tick]) -> impl Iterator<Item = (Tick, u64, u64)> {
    let mut start = 0;
    timeline.chunk_by(|a, b| a == b).map(move |run| {
        let (first, length) = (start, run.len() as u64);
        start += length;
        (run[0], first, length)
    })
}

/// Draws the first [`MAX_DRAWN`] ticks as SVG. `free` is the name of the row for ticks without a task.
pub fn svg(set: &TaskSet, events: &[RaisedEvent], output: &Output, free: &str) -> String {
    let ticks = (output.timeline.len() as u64).min(MAX_DRAWN);
    let mut rows = vec![0; set.len()];
    set.in_file().iter().enumerate().for_each(|(place, &task)| rows[task] = place as u64);
    let step = (1_300 / ticks.max(1)).clamp(1, 40);
    Drawing { set, output, rows, ticks, step, text: String::new() }.whole(events, free)
}

struct Drawing<'a> {
    set: &'a TaskSet,
    output: &'a Output,
    /// Row of each task: its position in the file.
    rows: Vec<u64>,
    ticks: u64,
    /// Pixels per tick.
    step: u64,
    text: String,
}

impl Drawing<'_> {
    fn whole(mut self, events: &[RaisedEvent], free: &str) -> String {
        let rows = self.set.len() as u64 + 1;
        let (width, height) = (LEFT + self.ticks * self.step + 20, TOP + rows * ROW + 46);
        self.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
             {height}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
             fill=\"#ffffff\"/>"
        ));
        self.axis(rows);
        self.names(free);
        self.boxes();
        self.misses();
        events.iter().zip(&self.output.events).for_each(|(event, dispatch)| self.event(event, *dispatch));
        self.legend(height - 12);
        self.text + "</svg>\n"
    }

    fn put(&mut self, line: std::fmt::Arguments) {
        self.text.write_fmt(line).and_then(|()| self.text.write_str("\n")).expect("writing to a String cannot fail");
    }

    fn x(&self, tick: u64) -> u64 {
        LEFT + tick * self.step
    }

    /// Upper edge of the boxes in a row.
    fn y(row: u64) -> u64 {
        TOP + row * ROW + (ROW - BOX)
    }

    fn row(&self, task: u32) -> u64 {
        self.rows[task as usize]
    }

    fn axis(&mut self, rows: u64) {
        let every = (40 / self.step).max(1).next_multiple_of(if self.step < 20 { 5 } else { 1 });
        let bottom = TOP + rows * ROW;
        for tick in (0..=self.ticks).step_by(every as usize) {
            let x = self.x(tick);
            self.put(format_args!("<line x1=\"{x}\" y1=\"{TOP}\" x2=\"{x}\" y2=\"{bottom}\" stroke=\"#e3e6e9\"/>"));
            let y = bottom + 15;
            self.put(format_args!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#555\">{tick}</text>"));
        }
    }

    fn names(&mut self, free: &str) {
        for row in 0..=self.set.len() as u64 {
            let name = self.set.in_file().get(row as usize).map_or(free, |&task| self.set.id(task)).to_owned();
            let short: String = name.chars().take(11).collect();
            let (x, y) = (LEFT - 8, Self::y(row) + 14);
            let shown = escaped(&short);
            self.put(format_args!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\" fill=\"#222\">{shown}</text>"));
        }
    }

    fn boxes(&mut self) {
        let drawn = &self.output.timeline[..self.ticks as usize];
        for (tick, first, length) in runs(drawn) {
            let (row, colour, opacity) = match tick {
                Tick::Regular(task) => (self.row(task), COLOURS[self.row(task) as usize % COLOURS.len()], "1"),
                Tick::Extra(task) => (self.row(task), COLOURS[self.row(task) as usize % COLOURS.len()], "0.4"),
                Tick::Free => (self.set.len() as u64, FREE, "1"),
            };
            let (x, y, width) = (self.x(first), Self::y(row), length * self.step);
            self.put(format_args!(
                "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{BOX}\" fill=\"{colour}\" \
                 fill-opacity=\"{opacity}\" stroke=\"{colour}\"/>"
            ));
        }
    }

    fn misses(&mut self) {
        for miss in &self.output.misses {
            let (x, y) = (self.x(miss.at), Self::y(self.row(miss.task)) + BOX);
            let fill = if miss.violation { MISS } else { "#ffffff" };
            let (left, right, up) = (x.saturating_sub(5), x + 5, y - 9);
            self.put(format_args!("<path d=\"M{left} {y}L{right} {y}L{x} {up}Z\" fill=\"{fill}\" stroke=\"{MISS}\"/>"));
        }
    }

    fn event(&mut self, event: &RaisedEvent, dispatch: Option<Dispatch>) {
        if event.at > self.ticks * PARTS {
            return;
        }
        let row = self.row(event.sink.0 as u32);
        let (x, y) = (LEFT + event.at * self.step / PARTS, Self::y(row));
        let (from, left, right, head) = (y - 13, x.saturating_sub(3), x + 3, y - 5);
        self.put(format_args!(
            "<path d=\"M{x} {from}L{x} {y}M{left} {head}L{x} {y}L{right} {head}\" fill=\"none\" stroke=\"#111\" \
             stroke-width=\"1.5\"/>"
        ));
        if let Some(Dispatch { tick, rule }) = dispatch.filter(|dispatch| dispatch.tick < self.ticks) {
            let (x, y, number) = (self.x(tick) + self.step / 2, y + 14, rule.number());
            self.put(format_args!(
                "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#fff\" stroke=\"#111\" stroke-width=\"2.5\" \
                 paint-order=\"stroke\" font-weight=\"bold\">{number}</text>"
            ));
        }
    }

    fn legend(&mut self, y: u64) {
        self.put(format_args!(
            "<text x=\"{LEFT}\" y=\"{y}\" fill=\"#555\" font-size=\"11\">ticks; full: regular, pale: extra; arrow: \
             event raised, number: rule that dispatched it; triangle: missed period, filled: violation</text>"
        ));
    }
}

fn escaped(text: &str) -> String {
    let safe = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        c if c.is_control() => " ".to_owned(),
        c => c.to_string(),
    };
    text.chars().map(safe).collect()
}
