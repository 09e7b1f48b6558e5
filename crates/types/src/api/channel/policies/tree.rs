use std::fmt;

use serde::{Deserialize, Serialize};

use super::{PolicyKind, Resource, listed};
use crate::channel::Name;

/// On a host with sources on several channels: divides the capacity for all of them over the tree of streams, roles
/// and connections, and keeps links.
///
/// Sinks state their wanted ranges by registrations in the groups with the channels' names, as for `roles`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TreePolicy {
    /// The policy's name on this host.
    pub name: Name,
    /// Bits per second for all streams together.
    pub capacity: u64,
    /// The channels of the tree.
    pub streams: Vec<TreeStream>,
    /// Links: channels that are degraded equally and stop together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<TreeLink>,
}

/// A channel of a tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TreeStream {
    /// The data channel.
    pub channel: Name,
    /// Size of one event on the network, in bits.
    pub event_bits: u64,
    /// Weight of the stream in the division of the capacity above all minima.
    #[serde(default = "weight")]
    pub weight: f64,
}

fn weight() -> f64 {
    1.0
}

/// A link between channels of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TreeLink {
    /// The linked channels.
    pub channels: Vec<Name>,
    /// Whether the connections are linked at every sink that receives several of the channels, such as lips and
    /// voice; otherwise the streams are linked as a whole.
    #[serde(default)]
    pub at_each_sink: bool,
}

impl PolicyKind for TreePolicy {
    fn given_name(&self) -> Option<&Name> {
        Some(&self.name)
    }

    fn channels(&self) -> Vec<&Name> {
        self.streams.iter().map(|stream| &stream.channel).collect()
    }

    fn decides(&self) -> Vec<Resource> {
        self.streams.iter().map(|stream| Resource::Rates(stream.channel.clone())).collect()
    }
}

impl fmt::Display for TreePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bit/s for {}", self.capacity, listed(self.channels()))?;
        self.links.iter().try_for_each(|link| {
            let place = if link.at_each_sink { " at each sink" } else { "" };
            write!(f, "; linked{place}: {}", listed(&link.channels))
        })
    }
}

/// On the command line, a stream and a link are one word each.
#[cfg(feature = "cli")]
mod options {
    use std::str::FromStr;

    use clap::error::Error;
    use clap::{ArgMatches, Args, Command, FromArgMatches};

    use super::{Name, TreeLink, TreePolicy, TreeStream, weight};

    /// Divides the capacity for several channels over streams (by weight), roles (by importance) and connections.
    ///
    /// Sinks state their wanted ranges as for `roles`, in the group with each channel's name. Linked channels are
    /// degraded equally and stop together.
    #[derive(Args)]
    #[command(after_help = "Example: qfabric policy start tree --name class --capacity 1000000 \
           --stream film:9040 --stream sound:2000 --link-sinks film,sound")]
    struct Options {
        /// Name of the policy
        #[arg(long)]
        name: Name,
        /// Bits per second for all streams together
        #[arg(long, value_name = "BITS")]
        capacity: u64,
        /// A channel with sources on this host, the size of one event in bits, and its weight [default: 1]; may be
        /// repeated
        #[arg(long = "stream", value_name = "CHANNEL:BITS[:WEIGHT]", required = true)]
        streams: Vec<TreeStream>,
        /// Channels that are linked as a whole; may be repeated
        #[arg(long = "link", value_name = "CHANNEL,CHANNEL")]
        links: Vec<Names>,
        /// Channels that are linked at every sink that receives several of them, such as picture and sound; may be
        /// repeated
        #[arg(long = "link-sinks", value_name = "CHANNEL,CHANNEL")]
        link_sinks: Vec<Names>,
    }

    /// `CHANNEL,CHANNEL`.
    #[derive(Clone)]
    struct Names(Vec<Name>);

    impl FromStr for Names {
        type Err = String;

        fn from_str(text: &str) -> Result<Self, String> {
            let names: Result<Vec<Name>, _> = text.split(',').map(str::parse).collect();
            match names.map_err(|error| format!("{error}"))? {
                names if names.len() < 2 => Err("name at least two channels, separated by commas".to_owned()),
                names => Ok(Names(names)),
            }
        }
    }

    impl FromStr for TreeStream {
        type Err = String;

        /// `CHANNEL:BITS[:WEIGHT]`: names have no colons.
        fn from_str(text: &str) -> Result<Self, String> {
            let parts: Vec<&str> = text.split(':').collect();
            let (channel, bits, given) = match parts[..] {
                [channel, bits] => (channel, bits, None),
                [channel, bits, weight] => (channel, bits, Some(weight)),
                _ => return Err("write CHANNEL:BITS, or CHANNEL:BITS:WEIGHT".to_owned()),
            };
            let number =
                |text: &str| text.parse().map_err(|_| format!("{text:?} is not a weight; use a number, such as 2"));
            Ok(TreeStream {
                channel: channel.parse().map_err(|error| format!("{error}"))?,
                event_bits: bits
                    .parse()
                    .map_err(|_| format!("{bits:?} is not a number of bits; use a whole number, such as 40000"))?,
                weight: given.map_or(Ok(weight()), number)?,
            })
        }
    }

    impl From<Options> for TreePolicy {
        fn from(Options { name, capacity, streams, links, link_sinks }: Options) -> TreePolicy {
            let tied = |at_each_sink| move |Names(channels)| TreeLink { channels, at_each_sink };
            let links = links.into_iter().map(tied(false)).chain(link_sinks.into_iter().map(tied(true))).collect();
            TreePolicy { name, capacity, streams, links }
        }
    }

    impl FromArgMatches for TreePolicy {
        fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
            Options::from_arg_matches(matches).map(TreePolicy::from)
        }

        fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
            *self = TreePolicy::from_arg_matches(matches)?;
            Ok(())
        }
    }

    impl Args for TreePolicy {
        fn augment_args(command: Command) -> Command {
            Options::augment_args(command)
        }

        fn augment_args_for_update(command: Command) -> Command {
            Options::augment_args_for_update(command)
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_stream_is_a_channel_with_its_bits() {
            let film: TreeStream = "film:9040".parse().unwrap();
            assert_eq!((film.channel.as_str(), film.event_bits, film.weight), ("film", 9_040, 1.0));
            let sound: TreeStream = "sound:2000:2.5".parse().unwrap();
            assert_eq!((sound.event_bits, sound.weight), (2_000, 2.5));
            for wrong in ["film", "film:much", "film:1:heavy", "film:1:2:3", ":1"] {
                assert!(wrong.parse::<TreeStream>().is_err(), "{wrong}");
            }
        }

        #[test]
        fn a_link_needs_at_least_two_channels() {
            let Names(names) = "film,sound".parse().unwrap();
            assert_eq!(names.iter().map(Name::as_str).collect::<Vec<_>>(), ["film", "sound"]);
            assert!("film".parse::<Names>().is_err() && "film,".parse::<Names>().is_err());
        }
    }
}
