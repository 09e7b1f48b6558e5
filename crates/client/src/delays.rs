//! Keeps a profile of delays fresh by the messages of a running program (QualMan §5.1.2).
//!
//! ```no_run
//! use qfabric_client::{BitRate, Bytes, DelayRecorder, Nanos};
//!
//! # fn main() -> Result<(), qfabric_client::ClientError> {
//! // The file that `qfabric net profile` names, the largest message, and the granted rate of the stream.
//! let file = "/home/me/.local/share/qfabric/profiles/net-beta-eth0-7.3.4.json";
//! let mut recorder = DelayRecorder::open(file, Bytes::new(60_000), BitRate::new(5_000_000))?;
//! // For each message, the time from its first byte sent to its acknowledgment:
//! recorder.acknowledged(Bytes::new(58_000), Nanos::from_millis(21))?;
//! # Ok(())
//! # }
//! ```

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use qfabric_types::{BitRate, Bytes, DelayProfile, DelayRenewal, Nanos};

use crate::error::ClientError;
use crate::profiles::replace;

/// Largest file that is read; a full profile is far smaller.
const LARGEST: u64 = 1 << 20;

/// Records the delays of one stream's messages, and writes them into the stored profile after every
/// [`DelayRenewal::LEAST`] messages. Then `qfabric net stream add --measured` uses them.
#[derive(Debug)]
pub struct DelayRecorder {
    file: PathBuf,
    min_rtt: Nanos,
    /// `min_rtt` is a measurement of this program, which belongs into the profile.
    is_min_rtt_new: bool,
    renewal: DelayRenewal,
    /// Messages since the profile was written.
    new: usize,
}

impl DelayRecorder {
    /// Reads the profile in `file`. `message`: the size of the stream's largest message. `rate`: its granted rate, with
    /// headers. Fails with [`ClientError::Value`] if there is no profile.
    pub fn open(file: impl AsRef<Path>, message: Bytes, rate: BitRate) -> Result<DelayRecorder, ClientError> {
        let file = file.as_ref().to_owned();
        let min_rtt = read(&file)?.min_rtt;
        Ok(DelayRecorder { file, min_rtt, is_min_rtt_new: false, renewal: DelayRenewal::new(message, rate), new: 0 })
    }

    /// The shortest recent round trip of the program's own small packets: the network's part. It stands for the one of the
    /// profile from now on, and is written into it. Zero, a round trip that was not measured yet, changes nothing.
    pub fn shortest_round_trip(&mut self, min_rtt: Nanos) {
        if min_rtt > Nanos::ZERO {
            (self.min_rtt, self.is_min_rtt_new) = (min_rtt, true);
        }
    }

    /// A message of `bytes` was acknowledged as a whole after `round_trip`. The delay is E = `round_trip` − RTT/2, with the
    /// shortest round trip of the profile, or a newer one of [`DelayRecorder::shortest_round_trip`]. Messages below three
    /// quarters of the largest size do not count. Returns whether the profile was written.
    pub fn acknowledged(&mut self, bytes: Bytes, round_trip: Nanos) -> Result<bool, ClientError> {
        let delay = round_trip.saturating_sub(Nanos::new(self.min_rtt.get() / 2));
        let counts = self.renewal.arrived(bytes, delay);
        self.counted(counts)
    }

    /// A message of `bytes` was not acknowledged in time. Returns whether the profile was written.
    pub fn lost(&mut self, bytes: Bytes) -> Result<bool, ClientError> {
        let counts = self.renewal.lost(bytes);
        self.counted(counts)
    }

    /// The link grants the stream another rate now: earlier delays do not hold for it.
    pub fn change_rate(&mut self, rate: BitRate) {
        self.renewal.change_rate(rate);
    }

    fn counted(&mut self, counts: bool) -> Result<bool, ClientError> {
        self.new += usize::from(counts);
        let Some(point) = self.renewal.point().filter(|_| self.new >= DelayRenewal::LEAST) else { return Ok(false) };
        // Read again: other programs renew other points.
        let mut profile = read(&self.file)?;
        if self.is_min_rtt_new {
            profile.min_rtt = self.min_rtt;
        }
        profile.renew(point).map_err(|error| failed(&self.file, error))?;
        write(&self.file, &profile)?;
        self.new = 0;
        Ok(true)
    }
}

fn failed(file: &Path, error: impl std::fmt::Display) -> ClientError {
    let message = format!("the profile {}: {error}", file.display());
    ClientError::invalid(message, "make one with `qfabric net profile HOST`")
}

fn read(file: &Path) -> Result<DelayProfile, ClientError> {
    let opened = fs::File::open(file).map_err(|error| failed(file, error))?;
    let mut text = Vec::new();
    opened.take(LARGEST).read_to_end(&mut text).map_err(|error| failed(file, error))?;
    serde_json::from_slice(&text).map_err(|error| failed(file, error))
}

fn write(file: &Path, profile: &DelayProfile) -> Result<(), ClientError> {
    let text = serde_json::to_vec_pretty(profile).expect("a profile is plain values");
    replace(file, &text).map_err(|error| failed(file, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_a_program_renew_the_stored_profile() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("net-beta-eth0.json");
        let (message, rate) = (Bytes::new(60_000), BitRate::new(5_000_000));
        let missing = DelayRecorder::open(&file, message, rate).unwrap_err().to_string();
        assert!(missing.contains("net-beta-eth0.json") && missing.contains("qfabric net profile"), "{missing}");
        let (host, kernel) = ("beta".to_owned(), "7.3".to_owned());
        let (interface, min_rtt) = ("eth0".parse().unwrap(), Nanos::from_millis(2));
        write(&file, &DelayProfile { host, interface, kernel, min_rtt, points: Vec::new() }).unwrap();
        let mut recorder = DelayRecorder::open(&file, message, rate).unwrap();
        let mut written = 0;
        for _ in 0..250 {
            written += usize::from(recorder.acknowledged(message, Nanos::from_millis(21)).unwrap());
            assert!(!recorder.acknowledged(Bytes::new(100), Nanos::ZERO).unwrap());
        }
        let profile = read(&file).unwrap();
        let point = profile.delay_of(Bytes::new(50_000), rate).unwrap();
        assert_eq!((written, point.p99, point.arrived), (2, Nanos::from_millis(20), 200));
        assert_eq!(profile.min_rtt, Nanos::from_millis(2));
        recorder.shortest_round_trip(Nanos::ZERO);
        recorder.shortest_round_trip(Nanos::from_millis(4));
        assert_eq!((0..100).filter(|_| recorder.acknowledged(message, Nanos::from_millis(32)).unwrap()).count(), 1);
        let profile = read(&file).unwrap();
        assert_eq!((profile.min_rtt, profile.points[0].p99), (Nanos::from_millis(4), Nanos::from_millis(30)));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left in the folder");
        fs::write(&file, "{}").unwrap();
        assert!(DelayRecorder::open(&file, message, rate).unwrap_err().to_string().contains("missing field"));
    }
}
