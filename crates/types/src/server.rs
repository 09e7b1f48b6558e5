//! Properties of a server beyond budget and period (window, group, favour), the features of mechanisms, and the
//! counts of servers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::api::Problem;
use crate::{AppId, Choice, DispatchRules, Nanos, PredictorSpec, Share};

/// `x/y`: at most `x` of every `y` periods may pass without their service (the thesis, §2.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    x: u8,
    y: u8,
}

/// The pair is not a valid window.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.problem())]
pub enum InvalidWindow {
    /// A window of zero periods.
    Empty {
        x: u64,
    },
    /// A window that would allow every period to be missed.
    Everything {
        x: u64,
        y: u64,
    },
    /// A window longer than [`Window::MAX`].
    TooLong {
        x: u64,
        y: u64,
    },
    Text {
        text: String,
    },
}

impl InvalidWindow {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        let most = Window::MAX;
        let (message, next_step) = match self {
            Self::Empty { x } => {
                (format!("window {x}/0 counts over no period"), format!("use x/y with y from 1 to {most}, such as 1/5"))
            }
            Self::Everything { x, y } => {
                (format!("window {x}/{y} lets every period be missed"), "use x below y, such as 1/5".to_owned())
            }
            Self::TooLong { x, y } => {
                (format!("window {x}/{y} is longer than {most} periods"), "shorten both, such as 1/5".to_owned())
            }
            Self::Text { text } => (
                format!("window {text:?} is not x/y"),
                "write two whole numbers, such as 1/5: at most 1 of every 5 periods missed".to_owned(),
            ),
        };
        Problem::new("invalid_window", message, next_step)
    }
}

impl Window {
    /// The longest window, in periods.
    pub const MAX: u64 = 255;
    /// No period may be missed.
    pub const NONE: Window = Window { x: 0, y: 1 };

    /// At most `x` of every `y` periods may be missed.
    pub fn new(x: u64, y: u64) -> Result<Self, InvalidWindow> {
        match (x, y) {
            (_, 0) => Err(InvalidWindow::Empty { x }),
            _ if x >= y => Err(InvalidWindow::Everything { x, y }),
            _ if y > Window::MAX => Err(InvalidWindow::TooLong { x, y }),
            _ => Ok(Window { x: x as u8, y: y as u8 }),
        }
    }

    /// x: the number of periods that may be missed.
    pub fn x(self) -> u8 {
        self.x
    }
    /// y: the length of the window, in periods.
    pub fn y(self) -> u8 {
        self.y
    }
    /// `(1 − x/y)` of `share`, rounded up: the promise under this window.
    pub fn of_share(self, share: Share) -> Share {
        let (x, y) = (u64::from(self.x), u64::from(self.y));
        Share::from_ppm((u64::from(share.ppm()) * (y - x)).div_ceil(y) as u32)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.x, self.y))
    }
}

impl FromStr for Window {
    type Err = InvalidWindow;
    fn from_str(text: &str) -> Result<Self, InvalidWindow> {
        let refused = || InvalidWindow::Text { text: text.to_owned() };
        let (x, y) = text.split_once('/').ok_or_else(refused)?;
        let number = |part: &str| part.trim().parse().map_err(|_| refused());
        Window::new(number(x)?, number(y)?)
    }
}

/// In JSON `[x, y]`: two numbers, as in task files.
impl Serialize for Window {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.x, self.y).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (x, y) = <(u64, u64)>::deserialize(deserializer)?;
        Window::new(x, y).map_err(serde::de::Error::custom)
    }
}

/// The place at which the budget of the next job is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ControlPlace {
    /// In the daemon, from observed or marked jobs.
    #[default]
    User,
    /// In the kernel, at the end of the job (AQuoSA §5: the kernel-space configuration).
    Kernel,
}

impl FromStr for ControlPlace {
    type Err = crate::InvalidSpec;
    fn from_str(text: &str) -> Result<Self, crate::InvalidSpec> {
        match text {
            "user" => Ok(ControlPlace::User),
            "kernel" => Ok(ControlPlace::Kernel),
            _ => Err(crate::InvalidSpec { what: "controller", text: text.to_owned(), expected: "user or kernel" }),
        }
    }
}

impl fmt::Display for ControlPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ControlPlace::User => "user",
            ControlPlace::Kernel => "kernel",
        })
    }
}

/// The controller of a server in the kernel. All values are whole numbers, because the kernel computes with whole
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelController {
    /// The predictor of the next computation time; a mechanism may support only some.
    pub predictor: PredictorSpec,
    /// The point of Theorem 2's interval that the law takes.
    pub choice: Choice,
    /// L = T/P.
    pub periods_per_job: u64,
    /// ρ in thousandths.
    pub rho_milli: u32,
    /// e/T.
    pub early: Share,
    /// E/T.
    pub late: Share,
    /// Q̄: the largest budget in a server period.
    pub max_budget: Nanos,
}

/// Requests of a setting beyond budget and period. The default contains only features that SCHED_DEADLINE has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerTerms {
    /// Threads with the same group share one server; `None`: the thread has its own server.
    pub group: Option<AppId>,
    /// The CPU on which the server was admitted; `None`: the mechanism chooses.
    pub cpu: Option<u32>,
    /// The periods that may be missed under overload; `None`: no period.
    pub window: Option<Window>,
    /// Whether the server gets time beyond its service before best effort does.
    pub work_conserving: bool,
    /// Whether pending events, and wake-ups of its threads, favour the server.
    pub events: bool,
    /// Whether its periods begin at whole multiples of their length, on a grid common to all servers, even after an
    /// idle time. If the promises on its CPU fit only because of windows, they hold only for such releases.
    pub aligned: bool,
    /// The controller of the server in the kernel.
    pub control: Option<KernelController>,
}

impl ServerTerms {
    /// The first feature that a mechanism with only a budget per thread lacks for these terms, by name; `None` if
    /// it lacks none.
    pub fn beyond_budgets(&self) -> Option<&'static str> {
        [
            (self.window.is_some(), "a window"),
            (self.group.is_some(), "a server for several threads"),
            (self.work_conserving, "extra service before best effort"),
            (self.events, "favour for pending events"),
            (self.control.is_some(), "a controller in the kernel"),
        ]
        .into_iter()
        .find_map(|(asked, what)| asked.then_some(what))
    }
}

/// The features of a mechanism beyond one budget per thread. The default is that of SCHED_DEADLINE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MechanismFeatures {
    /// It supports [`ServerTerms`]: windows, groups, extra service, favour for events.
    pub terms: bool,
    /// A larger budget already helps the job that is running.
    pub rescues: bool,
    /// It can run a controller in the kernel.
    pub kernel_control: bool,
    /// It supports every kind of [`crate::Reclaiming`], not only hard and GRUB.
    pub all_reclaiming: bool,
    /// It can tell whether a thread sleeps, and the bandwidth that it takes from a sleeping thread is free at once.
    pub gives_back: bool,
    /// The CPUs on which servers are admitted separately; empty: only the sum over all CPUs counts.
    pub cpus: Vec<u32>,
    /// It gives threads the slots of a dispatch table with these rules: one server for all threads of an application,
    /// with a fixed service and no feedback.
    pub slots: Option<DispatchRules>,
}

impl MechanismFeatures {
    /// True if all threads of an application with a fixed share have one server.
    pub fn joins_threads(&self) -> bool {
        self.terms || self.slots.is_some()
    }
}

/// Counts of a server since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct ServerCounts {
    /// Periods that got their service.
    pub served: u64,
    /// Periods without their service, within the window or beyond it.
    pub missed: u64,
    /// Missed periods beyond the window.
    pub violations: u64,
    /// Number of times that a pending event put the server before others.
    pub boosts: u64,
    /// Events raised for the server.
    pub events: u64,
    /// Number of times that its budget was used up while it wanted to run on.
    pub throttles: u64,
    /// CPU time used, in nanoseconds.
    pub used_ns: u64,
    /// Periods in which it used less than its service. Counted by the mechanism dispatcher.
    pub underruns: u64,
    /// CPU time used in the current and in the previous period, in nanoseconds. Counted by the mechanism dispatcher.
    pub current_ns: u64,
    pub previous_ns: u64,
    /// Slots of a dispatch table that it was given in time. Counted by the mechanism dispatcher.
    pub slots: u64,
}

impl std::ops::AddAssign for ServerCounts {
    fn add_assign(&mut self, other: ServerCounts) {
        self.served += other.served;
        self.missed += other.missed;
        self.violations += other.violations;
        self.boosts += other.boosts;
        self.events += other.events;
        self.throttles += other.throttles;
        self.used_ns += other.used_ns;
        self.underruns += other.underruns;
        self.current_ns += other.current_ns;
        self.previous_ns += other.previous_ns;
        self.slots += other.slots;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_window_parses_to_itself_as_text_and_json() {
        let window: Window = "1/5".parse().unwrap();
        assert_eq!((window.x(), window.y(), window.to_string().as_str()), (1, 5, "1/5"));
        assert_eq!(serde_json::to_string(&window).unwrap(), "[1,5]");
        assert_eq!(serde_json::from_str::<Window>("[1,5]").unwrap(), window);
    }

    #[test]
    fn impossible_windows_are_refused_with_their_numbers() {
        for (text, named) in [
            ("5/5", "5/5 lets every period"),
            ("6/5", "use x below y"),
            ("0/0", "0/0 counts over no period"),
            ("1/0", "y from 1 to 255"),
            ("1/256", "1/256 is longer than 255"),
            ("5", "1/5"),
            ("-1/5", "1/5"),
            ("1/5/6", "1/5/6"),
            ("1.5/2", "whole numbers"),
        ] {
            let refusal = text.parse::<Window>().unwrap_err().to_string();
            assert!(refusal.contains(named), "{text}: {refusal} does not name {named}");
        }
        assert!(serde_json::from_str::<Window>("[5,5]").unwrap_err().to_string().contains("use x below y"));
    }

    #[test]
    fn the_promise_under_a_window_is_rounded_up() {
        let window = Window::new(1, 3).unwrap();
        assert_eq!(window.of_share(Share::from_ppm(250_000)), Share::from_ppm(166_667));
        assert_eq!(Window::NONE.of_share(Share::ONE), Share::ONE);
    }

    #[test]
    fn default_terms_need_no_special_mechanism() {
        assert_eq!(ServerTerms { cpu: Some(1), ..ServerTerms::default() }.beyond_budgets(), None);
        let windowed = ServerTerms { window: Some(Window::NONE), ..ServerTerms::default() };
        assert_eq!(windowed.beyond_budgets(), Some("a window"));
    }
}
