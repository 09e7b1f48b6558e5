//! `qfabric top`: shows the table of `status` live. Keys: q quits, s sorts by the next column, r reverses the order, ?
//! explains keys and columns.
//!
//! Approach: a [`View`] is a value that receives statuses and keys; [`draw`] draws it. Only [`run`] uses a terminal, a
//! clock and a daemon.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use qfabric_client::Client;
use qfabric_types::api::{Application, HostStatus};
use qfabric_types::{Nanos, ServerCounts};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Gauge, Paragraph, Row, Table};

use crate::exit::{Done, Failure, Outcome};
use crate::interrupt::interrupted_or_ended;
use crate::status;
use crate::{connect, output};

const WIDTHS: [u16; 16] = [4, 18, 8, 6, 10, 8, 8, 8, 8, 8, 10, 5, 8, 15, 11, 13];

/// Longest time without a check whether a signal asks to end.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// What `?` shows.
const HELP: &str = "\
q, Esc   quit
s        sort by the next column; the column is marked
r        reverse the order
?        show or hide this help

period     time from the release of a job to the next
wanted     bandwidth that the controller asks for
granted    bandwidth that it has; less than wanted: overload
used       CPU time of the jobs divided by their time
missed     jobs that ended after their deadline
in target  jobs with a scheduling error in the target interval
A red line: more than 1 % of the jobs are late, or a window is violated.
Percent are of one CPU. A trace of the last minute: qfabric trace --last 60s -o FILE";

/// Shows the table of `status` live.
///
/// Keys: q quits, s sorts by the next column, r reverses the order, ? explains the keys and the columns.
/// Ends with 4 if no daemon answers, and with 2 if the output is no terminal: use --json or `qfabric status` then.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric top --every 250ms
          qfabric top --json --count 10 --every 1s")]
pub(crate) struct Args {
    /// Time between two updates, from 50ms to 60s
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    every: Nanos,
    /// Print one line of JSON for each update, with the content of `status --json`; needs no terminal
    #[arg(long)]
    json: bool,
    /// With --json: end after this number of updates [default: run until Ctrl-C]
    #[arg(long, value_name = "N", requires = "json")]
    count: Option<u64>,
    /// Path of the daemon's socket [default: $QFABRIC_SOCKET; else $XDG_RUNTIME_DIR/qfabric/qfabric.sock, then
    /// /run/qfabric/qfabric.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let client = connect::daemon(args.socket.as_deref())?;
    let pause = Duration::from_nanos(args.every.get()).clamp(Duration::from_millis(50), Duration::from_secs(60));
    if args.json {
        return lines(&client, pause, args.count.unwrap_or(u64::MAX));
    }
    let mut view = View::new(client.status().map_err(connect::failure)?);
    if !std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        return Err(Failure::usage("top needs a terminal; use qfabric status, or qfabric top --json"));
    }
    // SIGTERM must not leave the terminal without echo and in the alternate screen.
    let stop = interrupted_or_ended()?;
    let mut terminal = ratatui::try_init()?;
    let ended = loop {
        if stop.load(Ordering::Relaxed) {
            break Ok(Done(0));
        }
        if let Err(error) = terminal.draw(|frame| draw(frame, &view)) {
            break Err(error.into());
        }
        match next_key(pause, &stop) {
            Ok(Some(key)) if !view.press(key) => break Ok(Done(0)),
            Ok(Some(_)) => continue,
            Ok(None) => {}
            Err(error) => break Err(error),
        }
        match client.status() {
            Ok(status) => view.status = status,
            Err(error) => break Err(connect::failure(error)),
        }
    };
    ratatui::restore();
    output::print("")?;
    ended
}

/// Prints `count` statuses as lines of JSON.
fn lines(client: &Client, pause: Duration, count: u64) -> Outcome {
    for look in 0..count {
        if look > 0 {
            std::thread::sleep(pause);
        }
        let line = serde_json::to_string(&client.status().map_err(connect::failure)?).map_err(Failure::fault)?;
        if !output::print_next(&(line + "\n"))? {
            break;
        }
    }
    Ok(Done(0))
}

/// The next key within `pause`. None if there is none, and at once if `stop` is set.
fn next_key(pause: Duration, stop: &AtomicBool) -> Result<Option<KeyEvent>, Failure> {
    let until = Instant::now() + pause;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if event::poll(left.min(SIGNAL_CHECK))? {
            return Ok(match event::read()? {
                Event::Key(key) if key.is_press() => Some(key),
                _ => None,
            });
        }
        if left.is_zero() || stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
    }
}

struct View {
    status: HostStatus,
    sort: usize,
    descending: bool,
    shows_help: bool,
}

impl View {
    fn new(status: HostStatus) -> Self {
        View { status, sort: 0, descending: false, shows_help: false }
    }

    /// Handles a key. Returns false if the user quits.
    fn press(&mut self, key: KeyEvent) -> bool {
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('s') => self.sort = (self.sort + 1) % status::columns(&self.status).len(),
            KeyCode::Char('r') => self.descending = !self.descending,
            KeyCode::Char('?' | 'h') => self.shows_help = !self.shows_help,
            _ => {}
        }
        true
    }

    fn sorted(&self) -> Vec<&Application> {
        let mut apps: Vec<_> = self.status.applications.iter().collect();
        apps.sort_by(|a, b| compare(a, b, self.sort));
        if self.descending {
            apps.reverse();
        }
        apps
    }
}

/// Compares the values of a column, not their texts: 9 % comes before 10 %.
fn compare(a: &Application, b: &Application, column: usize) -> std::cmp::Ordering {
    let counted = |count: fn(&ServerCounts) -> u64| {
        let of = |app: &Application| app.server.as_ref().map(count);
        of(a).cmp(&of(b))
    };
    let tightest = |app: &Application| app.contract.window.map(|w| (u32::from(w.x()) << 8) / u32::from(w.y()));
    let missed = |app: &Application| app.quality.misses as f64 / app.quality.jobs.max(1) as f64;
    match column {
        1 => a.contract.name.cmp(&b.contract.name),
        2 => a.pid.cmp(&b.pid),
        3 => a.contract.class.cmp(&b.contract.class),
        4 => a.contract.period.cmp(&b.contract.period),
        5 => a.wanted.cmp(&b.wanted),
        6 => a.granted.cmp(&b.granted),
        7 => a.used.cmp(&b.used),
        8 => a.quality.jobs.cmp(&b.quality.jobs),
        9 => missed(a).total_cmp(&missed(b)),
        10 => a.quality.in_target.total_cmp(&b.quality.in_target),
        11 => a.cpus.cmp(&b.cpus),
        12 => tightest(a).cmp(&tightest(b)),
        13 => counted(|counts| counts.missed),
        14 => counted(|counts| counts.violations),
        15 => counted(|counts| counts.boosts),
        _ => a.id.cmp(&b.id),
    }
}

fn draw(frame: &mut Frame, view: &View) {
    let [top, gauge, table, keys] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Min(2), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Line::from(status::headline(&view.status)), top);
    frame.render_widget(granted_gauge(&view.status), gauge);
    frame.render_widget(applications(view), table);
    let shown = Line::from("q quit   s sort by next column   r reverse   ? help").style(Color::DarkGray);
    frame.render_widget(shown, keys);
    if view.shows_help {
        draw_help(frame);
    }
}

/// The help in front of the table, as large as the screen allows.
fn draw_help(frame: &mut Frame) {
    let longest = HELP.lines().map(|line| line.chars().count()).max().unwrap_or(0) as u16;
    let area = frame.area().centered(Constraint::Max(longest + 2), Constraint::Max(HELP.lines().count() as u16 + 2));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title("help")), area);
}

/// A gauge of the granted part of the capacity.
fn granted_gauge(status: &HostStatus) -> Gauge<'static> {
    let ratio = status.granted.as_f64() / status.capacity.as_f64().max(1e-6);
    Gauge::default().ratio(ratio.clamp(0.0, 1.0)).gauge_style(Color::Blue)
}

fn applications(view: &View) -> Table<'static> {
    let mark = if view.descending { "▾" } else { "▴" };
    let columns = status::columns(&view.status);
    let header = columns.iter().enumerate().map(|(column, name)| match column == view.sort {
        true => format!("{name}{mark}"),
        false => (*name).to_owned(),
    });
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let rows = view.sorted().into_iter().map(|app| {
        let violated = app.server.is_some_and(|counts| counts.violations > 0);
        let late = app.quality.misses * 100 > app.quality.jobs || violated;
        Row::new(status::row(app, status::has_servers(&view.status))).style(if late {
            Style::new().fg(Color::Red)
        } else {
            Style::new()
        })
    });
    Table::new(rows, WIDTHS.into_iter().take(columns.len())).header(Row::new(header).style(bold))
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::status::COLUMNS;
    use crate::status::tests::{application, host, served};

    fn view() -> View {
        View::new(host(vec![application(1, "zoom", 0.09), application(2, "mpv", 0.10)]))
    }

    fn screen(view: &View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(110, 10)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        terminal.backend().to_string()
    }

    fn key(c: char) -> KeyEvent {
        KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)
    }

    #[test]
    fn the_screen_shows_every_column_of_every_application() {
        let screen = screen(&view());
        for part in COLUMNS.iter().copied().chain(["zoom", "mpv", "10.0 %", "90.0 %", "0.19 CPU granted", "q quit"]) {
            assert!(screen.contains(part), "{screen}\nlacks {part}");
        }
    }

    #[test]
    fn s_sorts_by_the_next_column_and_r_reverses_the_order() {
        let mut view = view();
        let order = |view: &View| view.sorted().iter().map(|a| a.contract.name.clone()).collect::<Vec<_>>();
        assert_eq!(order(&view), ["zoom", "mpv"]);
        assert!(view.press(key('s')));
        assert_eq!(order(&view), ["mpv", "zoom"]);
        assert!(screen(&view).contains("name▴"));
        view.press(key('r'));
        assert_eq!(order(&view), ["zoom", "mpv"]);
    }

    #[test]
    fn a_question_mark_shows_the_help_and_hides_it_again() {
        let mut view = view();
        let mut terminal = Terminal::new(TestBackend::new(110, 30)).unwrap();
        let mut shown = |view: &View| {
            terminal.draw(|frame| draw(frame, view)).unwrap();
            terminal.backend().to_string()
        };
        assert!(!shown(&view).contains("reverse the order"));
        assert!(view.press(key('?')));
        let screen = shown(&view);
        assert!(HELP.lines().all(|line| screen.contains(line)), "{screen}");
        view.press(key('?'));
        assert!(!shown(&view).contains("reverse the order"));
    }

    #[test]
    fn every_column_can_be_sorted_by() {
        for (mut view, columns) in [(view(), 11), (View::new(host(vec![served(1, "mpv"), served(2, "zoom")])), 16)] {
            for _ in 0..columns {
                view.press(key('s'));
                assert_eq!(view.sorted().len(), 2);
            }
            assert_eq!(view.sort, 0);
        }
    }

    #[test]
    fn applications_with_servers_have_additional_columns() {
        let mut terminal = Terminal::new(TestBackend::new(180, 10)).unwrap();
        terminal.draw(|frame| draw(frame, &View::new(host(vec![served(1, "mpv")])))).unwrap();
        let screen = terminal.backend().to_string();
        for part in ["window", "periods missed", "violations", "event boosts", "1/5", "12", "45"] {
            assert!(screen.contains(part), "{screen}\nlacks {part}");
        }
    }

    #[test]
    fn q_escape_and_ctrl_c_quit() {
        let mut view = view();
        assert!(!view.press(key('q')));
        assert!(!view.press(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)));
        assert!(!view.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }

    #[test]
    fn a_very_small_terminal_does_not_panic() {
        for (size, shows_help) in [((1, 1), false), ((20, 3), true), ((200, 2), true), ((1, 1), true)] {
            let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
            terminal.draw(|frame| draw(frame, &View { shows_help, ..view() })).unwrap();
        }
    }
}
