//! The scenarios: what strains the hosts or the link, and what adapts.

use std::fmt;

use qfabric_types::api::net::StreamId;
use serde::Serialize;

use super::RATE;
use super::timeline::Strain;
use crate::Options;

/// The first level, and what is given up in turn: quality, then size, then codec.
struct Levels {
    first: &'static str,
    ladder: [&'static str; 3],
}

/// Coding and decoding it costs some tenths of a CPU.
const SPINNING: Levels = Levels {
    first: "jpeg:75:1280x720",
    ladder: ["quality=75,60,45,30,15", "size=1280x720,960x540,640x360,320x180", "codec=jpeg,h264"],
};
/// The paper's level.
const NARROW: Levels =
    Levels { first: "h261:15:352x288", ladder: ["quality=15,12,9,6,3,1", "size=352x288,176x144", "codec=h261,h264"] };
/// Coding it costs more than a CPU has.
const COSTLY: Levels = Levels {
    first: "jpeg:95:1920x1080",
    ladder: ["quality=95,75,60,45,30,15", "size=1920x1080,1280x720,640x360,320x180", "codec=jpeg,h264"],
};

/// Most of a CPU that a policy may reserve for the server, or for the client.
const MOST_CPU: &str = "0.8";

/// What adapts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Adaptation {
    /// Nothing.
    None,
    /// The server's quality, size and codec, by the rate that the client shows.
    Application,
    /// The CPU time of server and client, by the policy `cpu` on both hosts.
    Cpu,
    /// Both, by the policy `integrated` on both hosts.
    Integrated,
    /// The same; the packets of the pictures are a stream under the packet scheduling of the server's host, which
    /// limits the link, and the server's policy reads how many of them are late.
    Feedback,
    /// The SCHED_RR priority of server and client, by the paper's step of one per report.
    Priority,
}

impl fmt::Display for Adaptation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Adaptation::None => "none",
            Adaptation::Application => "application",
            Adaptation::Cpu => "cpu",
            Adaptation::Integrated => "integrated",
            Adaptation::Feedback => "feedback",
            Adaptation::Priority => "priority",
        })
    }
}

/// A run of the conference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scene {
    /// Its letter in the report.
    pub name: &'static str,
    pub adaptation: Adaptation,
    pub strain: Strain,
}

const SCENES: [Scene; 12] = [
    Scene { name: "a", adaptation: Adaptation::None, strain: Strain::Spinning },
    Scene { name: "b", adaptation: Adaptation::Application, strain: Strain::Spinning },
    Scene { name: "c", adaptation: Adaptation::Cpu, strain: Strain::Spinning },
    Scene { name: "d", adaptation: Adaptation::Integrated, strain: Strain::Spinning },
    Scene { name: "d", adaptation: Adaptation::Priority, strain: Strain::Spinning },
    Scene { name: "e", adaptation: Adaptation::Application, strain: Strain::NarrowLink },
    Scene { name: "e", adaptation: Adaptation::Cpu, strain: Strain::NarrowLink },
    Scene { name: "e", adaptation: Adaptation::Integrated, strain: Strain::NarrowLink },
    Scene { name: "e", adaptation: Adaptation::Feedback, strain: Strain::NarrowLink },
    Scene { name: "f", adaptation: Adaptation::Application, strain: Strain::CostlyPictures },
    Scene { name: "f", adaptation: Adaptation::Cpu, strain: Strain::CostlyPictures },
    Scene { name: "f", adaptation: Adaptation::Integrated, strain: Strain::CostlyPictures },
];

/// Frame rates at the client for which the paper's text gives numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Published {
    /// In seconds of the paper's run.
    pub begin: f64,
    pub end: f64,
    /// In pictures per second.
    pub least: f64,
    pub most: f64,
}

impl Published {
    const fn new(begin: f64, end: f64, least: f64, most: f64) -> Published {
        Published { begin, end, least, most }
    }
}

impl fmt::Display for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Published { least, most, .. } = *self;
        if least < most { write!(f, "{least:.0} to {most:.0}") } else { write!(f, "{most:.0}") }
    }
}

/// Figure 37, left, and the text about Figure 38.
const NOTHING_ADAPTS: &[Published] =
    &[Published::new(146.0, 250.0, 4.0, 13.0), Published::new(330.0, 400.0, 0.0, 86.0)];
/// Figure 37, right: the text gives no number for the client's disturbance.
const LEVEL_ADAPTS: &[Published] = &[Published::new(146.0, 250.0, 20.0, 20.0)];
/// Figure 40: «it takes about 10s to stabilize».
const CPU_ADAPTS: &[Published] = &[Published::new(156.0, 250.0, 20.0, 20.0), Published::new(340.0, 400.0, 20.0, 20.0)];
/// Figure 42, left: the paper limits the link all the time.
const NARROW_CPU: &[Published] = &[Published::new(146.0, 400.0, 15.0, 15.0)];
/// Figures 41 and 43, right: «at all times».
const KEPT: &[Published] = &[Published::new(0.0, 420.0, 20.0, 20.0)];

/// What strains the hosts in the scenario of this letter.
pub(super) fn strain(name: &str) -> Option<Strain> {
    SCENES.iter().find(|scene| scene.name == name).map(|scene| scene.strain)
}

impl Scene {
    /// The scenarios whose letter `--only` contains; all if it contains none.
    pub(super) fn chosen(options: &Options) -> Vec<Scene> {
        let is_named = |scene: &&Scene| options.only.iter().any(|word| word.eq_ignore_ascii_case(scene.name));
        let named: Vec<Scene> = SCENES.iter().filter(is_named).copied().collect();
        if named.is_empty() { SCENES.to_vec() } else { named }
    }

    fn levels(&self) -> Levels {
        match self.strain {
            Strain::Spinning => SPINNING,
            Strain::NarrowLink => NARROW,
            Strain::CostlyPictures => COSTLY,
        }
    }

    /// The level at the beginning.
    pub(super) fn level(&self) -> &'static str {
        self.levels().first
    }

    /// Name of the scenario's files.
    pub(super) fn file(&self) -> String {
        format!("conference-{}-{}", self.name, self.adaptation)
    }

    /// Additional options of the program that serves. With a policy, the ladder only counts what a level is worth.
    pub(super) fn server_options(&self) -> Vec<&'static str> {
        let is_adaptive = self.adaptation == Adaptation::Application || self.is_integrated();
        let ladder = self.levels().ladder.into_iter().filter(|_| is_adaptive).flat_map(|one| ["--adapt", one]);
        ladder.chain(self.client_options()).collect()
    }

    /// Additional options of the program that joins.
    pub(super) fn client_options(&self) -> Vec<&'static str> {
        if self.reserves() { vec!["--by-policy", "--cpu", MOST_CPU] } else { Vec::new() }
    }

    /// The words behind `qfabric policy start` on both hosts; none: no policy adapts. `stream`: on this host, the
    /// interface and the number of the stream of packets.
    pub(super) fn policy(&self, stream: Option<(&str, StreamId)>) -> Option<Vec<String>> {
        if !self.reserves() {
            return None;
        }
        let rate = RATE.to_string();
        let kind = if self.is_integrated() { Adaptation::Integrated } else { self.adaptation };
        let fixed = [&kind.to_string(), "--channel", "video", "--rate", &rate, "--most", MOST_CPU];
        let has_levels = self.is_integrated();
        let ladder = self.levels().ladder.into_iter().filter(|_| has_levels);
        let ladder = ladder.flat_map(|one| ["--ladder".to_owned(), in_numbers(one)]);
        let stream = stream.map(|(interface, id)| {
            ["--interface".to_owned(), interface.to_owned(), "--stream".to_owned(), id.to_string()]
        });
        let fixed = fixed.into_iter().map(str::to_owned);
        Some(fixed.chain(ladder).chain(stream.into_iter().flatten()).collect())
    }

    /// What the paper's text says about this run; empty if it gives no number.
    pub(super) fn published(&self) -> &'static [Published] {
        match (self.name, self.adaptation) {
            ("a", Adaptation::None) => NOTHING_ADAPTS,
            ("b", Adaptation::Application) => LEVEL_ADAPTS,
            ("c", Adaptation::Cpu) => CPU_ADAPTS,
            ("e", Adaptation::Cpu) => NARROW_CPU,
            ("d" | "f", Adaptation::Integrated) => KEPT,
            _ => &[],
        }
    }

    /// Whether CPU time is reserved.
    pub(super) fn reserves(&self) -> bool {
        self.adaptation == Adaptation::Cpu || self.is_integrated()
    }

    /// Whether the policy `integrated` adapts.
    fn is_integrated(&self) -> bool {
        matches!(self.adaptation, Adaptation::Integrated | Adaptation::Feedback)
    }

    /// Whether the packets of the pictures are a stream of the server's host.
    pub(super) fn has_stream(&self) -> bool {
        self.adaptation == Adaptation::Feedback
    }
}

/// Levels of policies are numbers: the width of a size, and the number of a codec in events.
fn in_numbers(dimension: &str) -> String {
    let (name, levels) = dimension.split_once('=').unwrap_or((dimension, ""));
    let number = |level: &str| match (name, level) {
        ("size", size) => size.split('x').next().unwrap_or(size).to_owned(),
        (_, "jpeg") => "0".to_owned(),
        (_, "h261") => "1".to_owned(),
        (_, "h264") => "2".to_owned(),
        _ => level.to_owned(),
    };
    format!("{name}={}", levels.split(',').map(number).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_decide_where_cpu_time_is_reserved_with_the_ladder_in_numbers() {
        let narrow = |adaptation| Scene { name: "e", adaptation, strain: Strain::NarrowLink }.policy(None);
        let words = narrow(Adaptation::Integrated).unwrap().join(" ");
        assert_eq!(
            words,
            "integrated --channel video --rate 20 --most 0.8 --ladder quality=15,12,9,6,3,1 --ladder size=352,176 \
             --ladder codec=1,2"
        );
        assert_eq!(narrow(Adaptation::Cpu).unwrap().join(" "), "cpu --channel video --rate 20 --most 0.8");
        let feedback = Scene { name: "e", adaptation: Adaptation::Feedback, strain: Strain::NarrowLink };
        assert_eq!(feedback.policy(None), narrow(Adaptation::Integrated), "on the client's host");
        let at_server = feedback.policy(Some(("lab0", 3))).unwrap().join(" ");
        assert!(at_server.starts_with("integrated "), "{at_server}");
        assert!(at_server.ends_with(" --interface lab0 --stream 3"), "{at_server}");
        let without = [Adaptation::None, Adaptation::Application, Adaptation::Priority];
        assert!(without.into_iter().all(|adaptation| narrow(adaptation).is_none()));
    }

    #[test]
    fn a_letter_of_only_chooses_a_scenario() {
        let chosen = |only: &[&str]| -> String {
            let options = Options { only: only.iter().map(|word| (*word).to_owned()).collect(), ..Options::default() };
            Scene::chosen(&options).iter().map(|scene| scene.name).collect()
        };
        assert_eq!(chosen(&["conference", "B"]), "b");
        assert_eq!(chosen(&["conference"]).chars().next(), Some('a'));
        assert!(chosen(&["conference"]).len() >= SCENES.len());
    }
}
