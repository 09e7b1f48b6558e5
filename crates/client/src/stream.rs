//! Streams in the application's language (QualMan §2.3): from the text of a `stream.toml` to a joint contract.
//!
//! ```no_run
//! use qfabric_client::{Client, JointBuilder};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let film = std::fs::read_to_string("film.toml")?;
//! for step in qfabric_client::explain(&film)?.steps {
//!     println!("{} = {} {}: {}", step.name, step.value, step.unit, step.formula);
//! }
//! let contract = JointBuilder::new().stream(&film)?.leased().apply(&Client::connect()?)?;
//! # Ok(())
//! # }
//! ```

use qfabric_translate::{Explanation, Host, Stream};
use qfabric_types::{InvalidProfileName, Nanos, ProfileName};

use crate::error::ClientError;
use crate::joint::JointBuilder;
use crate::profiles::Profiles;

/// The steps from a stream to its amounts of resources, each with its formula, as `qfabric contract explain` prints
/// them. `stream` is the text of a stream file. A profile that it names is one of the user's [`Profiles`]. Needs no
/// daemon. Fails with [`ClientError::Value`], which names line and column of a mistake.
pub fn explain(stream: &str) -> Result<Explanation, ClientError> {
    let (stream, means) = read(stream)?;
    qfabric_translate::explain(&stream, &means).map_err(|error| ClientError::value(error.problem()))
}

impl JointBuilder {
    /// Asks for the amounts of a stream, of which those of its worst accepted quality are enough. `stream` is the text
    /// of a stream file: see [`explain`]. The amounts replace earlier ones of the same resources.
    pub fn stream(mut self, stream: &str) -> Result<Self, ClientError> {
        let (stream, means) = read(stream)?;
        let amounts = qfabric_translate::resources_by_level(&stream, &means);
        for (host, minimum, wanted) in amounts.map_err(|error| ClientError::value(error.problem()))? {
            let name = match &host {
                Host::Local => "",
                Host::Peer(name) => name.as_str(),
            };
            for (resource, amount) in wanted.iter() {
                let least = resource.amount(minimum.units(&resource)).value();
                self = self.want(name, resource, amount.value(), least)?;
            }
        }
        Ok(self)
    }
}

/// A stream, and the mean of each profile that it names.
fn read(text: &str) -> Result<(Stream, qfabric_translate::Profiles), ClientError> {
    let stream = Stream::parse(text).map_err(|error| ClientError::value(error.problem()))?;
    let means = stream.profiles().map(mean).collect::<Result<_, _>>()?;
    Ok((stream, means))
}

fn mean(name: &str) -> Result<(String, Nanos), ClientError> {
    let key: ProfileName = name.parse().map_err(|error: InvalidProfileName| ClientError::value(error.problem()))?;
    match Profiles::open()?.load(&key)?.mean() {
        Nanos::ZERO => {
            Err(ClientError::invalid(format!("the profile {name:?} has no jobs"), "make one with `qfabric probe`"))
        }
        mean => Ok((name.to_owned(), mean)),
    }
}

#[cfg(test)]
mod tests {
    use qfabric_types::{Resource, Share};

    use super::*;

    /// 0.25 CPU at 25 frames per second, 0.1 CPU at 10.
    const FILM: &str = "[video]\nframe_rate = { min = 10, max = 25 }\nframe_size = \"8kB\"\n\
                        [local]\ninterface = \"eth0\"\ncomputation = \"10ms\"\n\
                        [peer]\nhost = \"bob\"\ninterface = \"eth1\"\ncomputation = \"4ms\"\n";

    #[test]
    fn a_stream_becomes_amounts_of_both_hosts_between_its_qualities() {
        let request = JointBuilder::new().stream(FILM).unwrap().request(&"alpha".parse().unwrap()).unwrap();
        let [alpha, bob] = request.parts() else { panic!("{request:?}") };
        assert_eq!((alpha.host.as_str(), bob.host.as_str()), ("alpha", "bob"));
        assert_eq!((alpha.wanted.cpu, alpha.minimum().cpu), (Share::from_ppm(250_000), Share::from_ppm(100_000)));
        assert_eq!((bob.wanted.cpu, bob.minimum().cpu), (Share::from_ppm(100_000), Share::from_ppm(40_000)));
        let out: Resource = "network eth0 out".parse().unwrap();
        let into: Resource = "network eth1 in".parse().unwrap();
        assert!(alpha.wanted.units(&out) > alpha.minimum().units(&out));
        assert_eq!(alpha.wanted.units(&out), bob.wanted.units(&into));
    }

    #[test]
    fn the_amounts_of_a_contract_are_those_of_the_explanation() {
        let request = JointBuilder::new().stream(FILM).unwrap().request(&"local".parse().unwrap()).unwrap();
        let mut asked = Vec::new();
        for part in request.parts() {
            asked.extend(part.wanted.iter().map(|(found, amount)| (part.host.to_string(), found, amount.value())));
        }
        let explained = explain(FILM).unwrap().resources.into_iter();
        let explained: Vec<_> = explained.map(|found| (found.host.to_string(), found.resource, found.amount)).collect();
        assert_eq!(asked.len(), explained.len());
        assert!(asked.iter().all(|found| explained.contains(found)), "{asked:?} {explained:?}");
    }

    #[test]
    fn mistakes_name_line_and_column_and_profiles_their_maker() {
        let wrong = FILM.replacen("frame_rate", "frame_raet", 1);
        for refused in [explain(&wrong).unwrap_err(), JointBuilder::new().stream(&wrong).unwrap_err()] {
            assert!(refused.to_string().contains("line 2, column 1"), "{refused}");
        }
        let unnamed = FILM.replacen("computation = \"10ms\"", "profile = \"a/b\"", 1);
        assert!(explain(&unnamed).unwrap_err().to_string().contains("a/b"));
    }
}
