//! The scenarios: what strains the hosts or the link, and what adapts.

use std::fmt;

use serde::Serialize;

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

/// Most of a CPU that the server, or the client, may reserve.
const MOST_CPU: &str = "0.8";

/// What adapts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Adaptation {
    /// Nothing.
    None,
    /// The server's quality, size and codec, by the rate that the client shows.
    Application,
    /// The CPU time of server and client, by the rates.
    Cpu,
    /// Both.
    Integrated,
}

impl fmt::Display for Adaptation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Adaptation::None => "none",
            Adaptation::Application => "application",
            Adaptation::Cpu => "cpu",
            Adaptation::Integrated => "integrated",
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

const SCENES: [Scene; 8] = [
    Scene { name: "a", adaptation: Adaptation::None, strain: Strain::Spinning },
    Scene { name: "b", adaptation: Adaptation::Application, strain: Strain::Spinning },
    Scene { name: "c", adaptation: Adaptation::Cpu, strain: Strain::Spinning },
    Scene { name: "d", adaptation: Adaptation::Integrated, strain: Strain::Spinning },
    Scene { name: "e", adaptation: Adaptation::Cpu, strain: Strain::NarrowLink },
    Scene { name: "e", adaptation: Adaptation::Integrated, strain: Strain::NarrowLink },
    Scene { name: "f", adaptation: Adaptation::Cpu, strain: Strain::CostlyPictures },
    Scene { name: "f", adaptation: Adaptation::Integrated, strain: Strain::CostlyPictures },
];

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

    /// Additional options of the program that serves.
    pub(super) fn server_options(&self) -> Vec<&'static str> {
        let is_adaptive = matches!(self.adaptation, Adaptation::Application | Adaptation::Integrated);
        let ladder = self.levels().ladder.into_iter().filter(|_| is_adaptive).flat_map(|one| ["--adapt", one]);
        ladder.chain(self.client_options()).collect()
    }

    /// Additional options of the program that joins.
    pub(super) fn client_options(&self) -> Vec<&'static str> {
        if self.reserves() { vec!["--cpu", MOST_CPU] } else { Vec::new() }
    }

    /// Whether CPU time is reserved.
    pub(super) fn reserves(&self) -> bool {
        matches!(self.adaptation, Adaptation::Cpu | Adaptation::Integrated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
