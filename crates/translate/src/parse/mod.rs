//! Reads `stream.toml`. Each refusal names line and column, the value, the limit, and the next step.

mod end;
mod media;
mod section;

use qfabric_types::api::Problem;
use qfabric_types::channel::Name;
use qfabric_types::{Direction, Nanos};
use toml::de::DeTable;

use crate::rate::Fraction;
use crate::stream::{Host, Network, Reliability, Stream};
use section::{Item, Section};

/// Largest size of a stream file.
pub const MAX_BYTES: usize = 64 << 10;

/// Keys outside all tables, and the names of the tables.
const KEYS: [&str; 13] = [
    "name",
    "direction",
    "duplex",
    "reliability",
    "timeout",
    "delay",
    "jitter",
    "skew",
    "video",
    "sound",
    "local",
    "peer",
    "network",
];

/// Longest delay, jitter, skew and timeout.
const MAX_TIME: Nanos = Nanos::from_millis(60_000);
/// M_N: 64 KiB is the limit of §5.2.1 and of UDP.
const PACKET_RANGE: (u64, u64) = (64, 64 << 10);
/// An Ethernet frame of 1500 bytes without the headers of IPv6, UDP and the transport.
const DEFAULT_PACKET: u64 = 1500 - 40 - 8 - 24;
const DEFAULT_TIMEOUT: Nanos = Nanos::from_millis(200);

/// A text is not a stream file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {mistake}")]
pub struct InvalidStream {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub mistake: Mistake,
}

/// The reason why a text is not a stream file. Texts are cut to 40 characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    #[error("the file is larger than {MAX_BYTES} bytes")]
    TooLong,
    #[error("not TOML: {reason}")]
    Syntax { reason: String },
    #[error("unknown key {key:?} in {place}")]
    UnknownKey { key: String, place: String, nearest: Option<String>, known: String },
    #[error("{place} lacks {key}")]
    Missing { key: String, place: String, example: &'static str },
    #[error("{key} = {value} is not {expected}")]
    Value { key: String, value: String, expected: String },
    #[error("{key} = {value} is outside {limits}")]
    Limit { key: String, value: String, limits: String },
    #[error("{key} makes no sense here: {reason}")]
    Conflict { key: String, reason: &'static str, next_step: &'static str },
}

impl InvalidStream {
    pub fn problem(&self) -> Problem {
        Problem::new("invalid_stream", self.to_string(), self.mistake.next_step())
    }
}

impl Mistake {
    fn next_step(&self) -> String {
        match self {
            Mistake::TooLong => "describe one stream per file".to_owned(),
            Mistake::Syntax { .. } => "correct the line; texts stand in quotes".to_owned(),
            Mistake::UnknownKey { nearest: Some(nearest), .. } => format!("write {nearest}"),
            Mistake::UnknownKey { known, .. } => format!("use one of {known}"),
            Mistake::Missing { example, .. } => format!("add {example}"),
            Mistake::Value { expected, .. } => format!("write {expected}"),
            Mistake::Limit { limits, .. } => format!("choose a value within {limits}"),
            Mistake::Conflict { next_step, .. } => (*next_step).to_owned(),
        }
    }
}

impl Stream {
    /// Reads the text of a stream file.
    ///
    /// # Errors
    /// The text is too long or no TOML, or a key or a value is wrong.
    pub fn parse(text: &str) -> Result<Stream, InvalidStream> {
        if text.len() > MAX_BYTES {
            return Err(InvalidStream { line: 1, column: 1, mistake: Mistake::TooLong });
        }
        let document = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(text.len(), |span| span.start);
            section::invalid(
                text,
                at,
                Mistake::Syntax { reason: error.message().lines().collect::<Vec<_>>().join("; ") },
            )
        })?;
        let root = Section::root(text, document.get_ref());
        root.check_keys(&KEYS)?;
        let stream = read(&root)?;
        check(&root, &stream)?;
        Ok(stream)
    }
}

fn read(root: &Section) -> Result<Stream, InvalidStream> {
    let local = root.section("local")?;
    let peer = root.section("peer")?;
    let time = |key| root.get(key).map(|item| item.time_up_to(MAX_TIME)).transpose();
    Ok(Stream {
        name: root.get("name").map_or_else(|| Ok(default_name()), |item| item.name())?,
        direction: root.get("direction").map_or(Ok(Direction::Out), direction)?,
        is_duplex: root.get("duplex").map_or(Ok(false), |item| item.truth())?,
        reliability: root.get("reliability").map_or(Ok(Reliability::Partial), reliability)?,
        timeout: time("timeout")?.unwrap_or(DEFAULT_TIMEOUT),
        delay: time("delay")?,
        jitter: time("jitter")?,
        skew: time("skew")?,
        video: root.section("video")?.map(|section| media::video(&section)).transpose()?,
        sound: root.section("sound")?.map(|section| media::sound(&section)).transpose()?,
        local: local.map(|section| end::local(&section)).transpose()?.unwrap_or_default(),
        peer: peer.map(|section| end::peer(&section)).transpose()?,
        network: root.section("network")?.map_or_else(|| Ok(default_network()), |section| network(&section))?,
    })
}

fn default_name() -> Name {
    "stream".parse().expect("a valid name")
}

fn default_network() -> Network {
    Network { packet: qfabric_types::Bytes::new(DEFAULT_PACKET), overhead: None, delay: None, is_metp: false }
}

fn direction(item: Item) -> Result<Direction, InvalidStream> {
    item.word(&[("out", Direction::Out), ("in", Direction::In)])
}

fn reliability(item: Item) -> Result<Reliability, InvalidStream> {
    item.word(&[("total", Reliability::Total), ("partial", Reliability::Partial)])
}

fn network(section: &Section) -> Result<Network, InvalidStream> {
    section.check_keys(&["packet", "overhead", "delay", "transport"])?;
    let default = default_network();
    Ok(Network {
        packet: section.get("packet").map_or(Ok(default.packet), |item| item.size_within(PACKET_RANGE))?,
        overhead: section.get("overhead").map(|item| item.fraction()).transpose()?,
        delay: section.get("delay").map(|item| item.time_up_to(MAX_TIME)).transpose()?,
        is_metp: section.get("transport").map_or(Ok(false), |item| item.word(&[("metp", true), ("other", false)]))?,
    })
}

/// Keys that fit only together.
fn check(root: &Section, stream: &Stream) -> Result<(), InvalidStream> {
    if stream.media().next().is_none() {
        return Err(root.missing("video", "[video] or [sound]"));
    }
    let needs_two_media = stream.skew.is_some() && stream.media().count() < 2;
    conflict(
        root,
        needs_two_media,
        "skew",
        "the stream has one medium",
        "remove skew, or describe [video] and [sound]",
    )?;
    let is_local = stream.peer.is_none();
    for key in ["direction", "duplex", "reliability", "timeout", "network"] {
        conflict(root, is_local, key, "the stream has no peer", "remove it, or add [peer] with host and interface")?;
    }
    if let (Some(_), None) = (&stream.peer, &stream.local.interface) {
        let local = root.section("local")?;
        return Err(local.as_ref().unwrap_or(root).missing("interface", "interface = \"eth0\" under [local]"));
    }
    if stream.peer.as_ref().is_some_and(|peer| peer.host.as_str() == Host::LOCAL) {
        let reason = "\"local\" means the host that asks";
        conflict(root, true, "peer", reason, "write the name of the other host")?;
    }
    end::check_media(root, stream)
}

fn conflict(
    section: &Section,
    is_wrong: bool,
    key: &str,
    reason: &'static str,
    next_step: &'static str,
) -> Result<(), InvalidStream> {
    match section.get(key).filter(|_| is_wrong) {
        Some(item) => Err(item.conflict(reason, next_step)),
        None => Ok(()),
    }
}

/// The largest part of a GOP that may be dropped: less than everything.
pub(crate) const MAX_DEGRADATION: f64 = 0.95;

fn degradation(item: Item) -> Result<Fraction, InvalidStream> {
    let value = item.number_within(0.0, MAX_DEGRADATION)?;
    Fraction::from_f64(value).ok_or_else(|| item.value("a part from 0 to 0.95"))
}
