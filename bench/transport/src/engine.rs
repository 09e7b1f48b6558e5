//! The engines that are compared, their requirements, and how their processes start.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::foreign::Foreign;

/// A way to bring frames to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// METP in QUIC datagrams
    Metp,
    /// METP's second engine: a QUIC stream for each frame, reset at its deadline
    MetpStreams,
    /// TCP with Cubic
    Tcp,
    /// TCP with BBR
    TcpBbr,
    /// QUIC, a stream for each frame, by quinn with its own settings (Cubic)
    Quic,
    /// The same, with quinn's BBR
    QuicBbr,
    /// SRT with a latency of 120 ms
    Srt120,
    /// SRT with a latency of 200 ms
    Srt200,
    /// RIST with a buffer of 120 ms
    Rist120,
    /// RIST with a buffer of 200 ms
    Rist200,
}

impl Engine {
    /// Name in options, tables and JSON.
    pub fn word(self) -> String {
        self.to_possible_value().expect("every engine has a value name").get_name().to_owned()
    }

    /// Whether the engine is Q-Fabric's own.
    pub(crate) fn is_own(self) -> bool {
        matches!(self, Engine::Metp | Engine::MetpStreams)
    }

    /// The rival's library in C, and its latency in milliseconds.
    pub(crate) fn foreign(self) -> Option<(Foreign, u32)> {
        match self {
            Engine::Srt120 => Some((Foreign::Srt, 120)),
            Engine::Srt200 => Some((Foreign::Srt, 200)),
            Engine::Rist120 => Some((Foreign::Rist, 120)),
            Engine::Rist200 => Some((Foreign::Rist, 200)),
            _ => None,
        }
    }
}

/// The programs of all engines.
pub(crate) struct Programs {
    /// This program, and the words before the words of [`crate::play`].
    pub player: (PathBuf, Vec<String>),
    /// Folder of the rivals' programs.
    pub folder: PathBuf,
}

impl Programs {
    /// The reason why the engine cannot run on this machine, with the command that changes it; `None` if it can.
    pub(crate) fn lacks(&self, engine: Engine) -> Option<String> {
        match engine.foreign() {
            Some((foreign, _)) => foreign.compile(&self.folder).err(),
            None if engine == Engine::TcpBbr => lacks_bbr(),
            None => None,
        }
    }

    /// The words of one process of an engine: program, then arguments. `part` is `send` or `receive`.
    pub(crate) fn words(&self, engine: Engine, part: &str, address: SocketAddr, plan: &Path) -> Vec<String> {
        let plan = plan.display().to_string();
        match engine.foreign() {
            Some((foreign, latency_ms)) => {
                let program = foreign.program(&self.folder).display().to_string();
                let (host, port) = (address.ip().to_string(), address.port().to_string());
                vec![program, part.to_owned(), host, port, plan, latency_ms.to_string()]
            }
            None => self.play(&[part, &engine.word(), &address.to_string(), &plan]),
        }
    }

    /// The words of a process of this program.
    pub(crate) fn play(&self, words: &[&str]) -> Vec<String> {
        let (program, before) = &self.player;
        let words = words.iter().map(|word| (*word).to_owned());
        [program.display().to_string()].into_iter().chain(before.iter().cloned()).chain(words).collect()
    }
}

fn lacks_bbr() -> Option<String> {
    let file = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let found = fs::read_to_string(file).is_ok_and(|names| names.split_whitespace().any(|name| name == "bbr"));
    (!found).then(|| "the kernel has not loaded BBR; try: modprobe tcp_bbr".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_a_foreign_engine_gets_its_latency() {
        let programs = Programs { player: ("qfabric".into(), vec!["play".into()]), folder: "/rivals".into() };
        let words = |engine| programs.words(engine, "send", "10.0.0.2:7700".parse().unwrap(), Path::new("plan"));
        assert_eq!(words(Engine::Srt120), ["/rivals/srt", "send", "10.0.0.2", "7700", "plan", "120"]);
        assert_eq!(words(Engine::TcpBbr), ["qfabric", "play", "send", "tcp-bbr", "10.0.0.2:7700", "plan"]);
    }
}
