//! Policies by which several do one thing: `sync`, `media`, `balance`, `tree`.

use std::str::FromStr;

use qfabric_client::channel::{BalancePolicy, MediaPolicy, Name, Policy, SyncPolicy, TreeLink, TreePolicy, TreeStream};
use qfabric_types::Nanos;

use super::{Asked, Common};

/// Makes all sinks of a channel show an event at the same time, as soon as the latest of them can.
///
/// Applications with a sink register in the group of the channel's name and report app.show_need: nanoseconds from an
/// event's sending to the earliest moment at which they can show it. They are told app.show_delay, and show each event so
/// long after it was sent; that their clocks differ is seen to.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric policy start sync --channel video --margin 10ms")]
pub(super) struct SyncArgs {
    /// Added to what the latest sink needs
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    margin: Nanos,
    /// No more delay than this: who needs more is late
    #[arg(long, value_name = "TIME", default_value = "1s")]
    bound: Nanos,
    #[command(flatten)]
    common: Common,
}

/// Keeps one player of this host in step with another: the picture with its sound.
///
/// Both are applications of the group and report app.position, in nanoseconds of media time. The follower is told
/// app.speed_ppm (millionths that it is to play faster) and app.skip (nanoseconds to leave out once; negative: to stand
/// still for so long).
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric policy start media --group lips --leader sound --follower picture")]
pub(super) struct MediaArgs {
    /// The group
    #[arg(long, value_name = "NAME")]
    group: Name,
    /// The application that plays as it likes
    #[arg(long, value_name = "APPLICATION")]
    leader: Name,
    /// The application that keeps in step with it
    #[arg(long, value_name = "APPLICATION")]
    follower: Name,
    /// A difference up to this is not seen
    #[arg(long, value_name = "TIME", default_value = "80ms")]
    tolerance: Nanos,
    /// Beyond this the follower skips or waits, where otherwise it plays faster or slower
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    jump: Nanos,
    /// Its name [default: media.GROUP]
    #[arg(long)]
    name: Option<Name>,
    #[command(flatten)]
    asked: Asked,
}

/// Forwards requests that have waited too long to the least loaded servers; to be started on each server's host.
///
/// A server registers in the group of the channel's name and reports the numbers of requests: app.request (waits),
/// app.copy (another server's waits here), app.begun (waits no more). It is told app.forward (submit that request to all:
/// it goes to those sinks of other hosts whose attribute load is smallest) and app.drop (somebody else has begun that copy).
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric policy start balance --channel requests --patience 2.5s --copies 2 --cancel")]
pub(super) struct BalanceArgs {
    /// What has waited for so long is forwarded
    #[arg(long, value_name = "TIME", default_value = "2500ms")]
    patience: Nanos,
    /// To how many others
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    copies: u32,
    /// Who begins a copy cancels the others
    #[arg(long)]
    cancel: bool,
    /// The type of events that requests travel as
    #[arg(long = "type", value_name = "NAME", default_value = "request")]
    event_type: String,
    #[command(flatten)]
    common: Common,
}

/// Divides what there is for several channels over streams (by weight), roles (by importance) and connections.
///
/// Sinks say what they want as for roles, in the group of each channel's name. What is linked is degraded alike, and
/// stops together.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: qfabric policy start tree --name class --capacity 1000000 \
           --stream film:9040 --stream sound:2000 --link-sinks film,sound")]
pub(super) struct TreeArgs {
    /// Its name
    #[arg(long)]
    name: Name,
    /// Bits per second for all streams together
    #[arg(long, value_name = "BITS")]
    capacity: u64,
    /// A channel that is fed here, the bits of one of its events, and its weight [default: 1]; one for each
    #[arg(long = "stream", value_name = "CHANNEL:BITS[:WEIGHT]", required = true)]
    streams: Vec<Stream>,
    /// Channels that are linked as wholes; may be said more than once
    #[arg(long = "link", value_name = "CHANNEL,CHANNEL")]
    links: Vec<Names>,
    /// Channels that are linked at every sink that has several of them, such as picture and sound; may be said more than once
    #[arg(long = "link-sinks", value_name = "CHANNEL,CHANNEL")]
    link_sinks: Vec<Names>,
    #[command(flatten)]
    asked: Asked,
}

/// `CHANNEL:BITS[:WEIGHT]`: names have no colons.
#[derive(Clone, Debug, PartialEq)]
struct Stream(TreeStream);

impl FromStr for Stream {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let (channel, bits, weight) = match parts[..] {
            [channel, bits] => (channel, bits, "1"),
            [channel, bits, weight] => (channel, bits, weight),
            _ => return Err("write CHANNEL:BITS, or CHANNEL:BITS:WEIGHT".to_owned()),
        };
        Ok(Stream(TreeStream {
            channel: channel.parse().map_err(|error| format!("{error}"))?,
            event_bits: bits.parse().map_err(|_| format!("{bits:?} is no number of bits"))?,
            weight: weight.parse().map_err(|_| format!("{weight:?} is no weight"))?,
        }))
    }
}

/// `CHANNEL,CHANNEL`.
#[derive(Clone, Debug, PartialEq)]
struct Names(Vec<Name>);

impl FromStr for Names {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Result<Vec<Name>, _> = text.split(',').map(str::parse).collect();
        match names.map_err(|error| format!("{error}"))? {
            names if names.len() < 2 => Err("name two channels or more, with commas between them".to_owned()),
            names => Ok(Names(names)),
        }
    }
}

impl SyncArgs {
    pub fn asked(self) -> (Asked, Policy) {
        let SyncArgs { margin: margin_ns, bound: bound_ns, common: Common { channel, name, asked } } = self;
        (asked, Policy::Sync(SyncPolicy { name, channel, margin_ns, bound_ns }))
    }
}

impl MediaArgs {
    pub fn asked(self) -> (Asked, Policy) {
        let MediaArgs { group, leader, follower, tolerance, jump, name, asked } = self;
        let (tolerance_ns, jump_ns) = (tolerance, jump);
        (asked, Policy::Media(MediaPolicy { name, group, leader, follower, tolerance_ns, jump_ns }))
    }
}

impl BalanceArgs {
    pub fn asked(self) -> (Asked, Policy) {
        let BalanceArgs { patience: patience_ns, copies, cancel, event_type, common } = self;
        let Common { channel, name, asked } = common;
        (asked, Policy::Balance(BalancePolicy { name, channel, patience_ns, copies, cancel, event_type }))
    }
}

impl TreeArgs {
    pub fn asked(self) -> (Asked, Policy) {
        let TreeArgs { name, capacity, streams, links, link_sinks, asked } = self;
        let tied = |at_each_sink| move |Names(channels)| TreeLink { channels, at_each_sink };
        let links = links.into_iter().map(tied(false)).chain(link_sinks.into_iter().map(tied(true))).collect();
        let streams = streams.into_iter().map(|Stream(stream)| stream).collect();
        (asked, Policy::Tree(TreePolicy { name, capacity, streams, links }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_a_channel_with_its_bits() {
        let Stream(film) = "film:9040".parse().unwrap();
        assert_eq!((film.channel.as_str(), film.event_bits, film.weight), ("film", 9_040, 1.0));
        let Stream(sound) = "sound:2000:2.5".parse().unwrap();
        assert_eq!((sound.event_bits, sound.weight), (2_000, 2.5));
        for wrong in ["film", "film:much", "film:1:heavy", "film:1:2:3", ":1"] {
            assert!(wrong.parse::<Stream>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_link_has_two_ends() {
        let Names(names) = "film,sound".parse().unwrap();
        assert_eq!(names.iter().map(Name::as_str).collect::<Vec<_>>(), ["film", "sound"]);
        assert!("film".parse::<Names>().is_err() && "film,".parse::<Names>().is_err());
    }
}
