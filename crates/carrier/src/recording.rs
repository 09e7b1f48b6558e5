//! Keeps a stored profile of delays fresh by the messages of a connection (QualMan §5.1.2).
//!
//! ```text
//!   Session --outcome of a message--> Recording --bounded queue--> thread `metp-delays` --every 100 messages--> file
//! ```
//! Only messages that were sent completely at one granted rate count, because a point of a profile stands for a rate. The
//! file is written in a thread of its own, so that a slow disk delays no frame.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use qfabric_client::{ClientError, DelayRecorder};
use qfabric_metp::Outcome;
use qfabric_types::{BitRate, Bytes, Instant, Nanos};

use crate::Error;

/// Sizes of messages that one connection records; each takes at most 16 kB.
const MOST_SIZES: usize = 16;
/// Messages that wait for the thread. A further one is not recorded.
const MOST_WAITING: usize = 256;

/// A message that this side sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) size: Bytes,
    pub(crate) first_sent: Option<Instant>,
    pub(crate) outcome: Outcome,
}

/// A message that counts.
struct Sample {
    size: Bytes,
    rate: BitRate,
    /// From the first byte sent to the acknowledgment; `None`: lost.
    round_trip: Option<Nanos>,
    min_rtt: Nanos,
}

#[derive(Debug, Default)]
struct Written {
    renewals: u64,
    failure: Option<String>,
}

/// The recording of one connection.
#[derive(Debug)]
pub(crate) struct Recording {
    samples: SyncSender<Sample>,
    thread: JoinHandle<()>,
    written: Arc<Mutex<Written>>,
    granted: Option<BitRate>,
    /// The first message that was sent completely at the granted rate.
    from: u64,
}

impl Recording {
    /// Records messages for the profile in `file`, each for the smallest of the `sizes` that holds it.
    pub(crate) fn start(file: &Path, sizes: &[Bytes]) -> Result<Recording, Error> {
        let recorders = Recorders::open(file, sizes)?;
        let (samples, waiting) = sync_channel(MOST_WAITING);
        let written = Arc::<Mutex<Written>>::default();
        let run = {
            let written = written.clone();
            move || recorders.run(&waiting, &written)
        };
        let thread = thread::Builder::new().name("metp-delays".to_owned()).spawn(run);
        let thread = thread.map_err(Error::io("cannot start the thread that records delays"))?;
        Ok(Recording { samples, thread, written, granted: None, from: 0 })
    }

    /// The rate that is granted now, if any, and the number of the next message.
    pub(crate) fn follow(&mut self, granted: Option<BitRate>, next: u64) {
        if granted != self.granted {
            (self.granted, self.from) = (granted, next);
        }
    }

    /// A message has its outcome. One without a first byte on the network says nothing about the network.
    pub(crate) fn note(&self, now: Instant, sent: Sent, min_rtt: Nanos) {
        let Some((rate, first)) = self.granted.zip(sent.first_sent).filter(|_| sent.number >= self.from) else {
            return;
        };
        let round_trip = match sent.outcome {
            Outcome::Delivered => Some(now.since(first)),
            Outcome::Expired | Outcome::Partly { .. } => None,
            Outcome::Dropped(_) | Outcome::Unknown => return,
        };
        // The queue is full, or the thread has ended because the file could not be written: the sample is not needed.
        let _ = self.samples.try_send(Sample { size: sent.size, rate, round_trip, min_rtt });
    }

    /// How often the profile was written, and why it is not written any more.
    pub(crate) fn written(&self) -> (u64, Option<String>) {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        (written.renewals, written.failure.clone())
    }

    /// Waits until everything that was noted is in the file.
    pub(crate) fn finish(self) -> (u64, Option<String>) {
        let Recording { samples, thread, written, .. } = self;
        drop(samples);
        // Fails only if the thread panicked.
        let _ = thread.join();
        let written = written.lock().unwrap_or_else(PoisonError::into_inner);
        (written.renewals, written.failure.clone())
    }
}

/// One recorder for each size, in ascending order.
struct Recorders(Vec<(Bytes, DelayRecorder)>);

impl Recorders {
    fn open(file: &Path, sizes: &[Bytes]) -> Result<Recorders, Error> {
        let mut sizes: Vec<Bytes> = sizes.iter().copied().filter(|size| size.get() > 0).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if !(1..=MOST_SIZES).contains(&sizes.len()) {
            let value = format!("{} different sizes", sizes.len());
            return Err(Error::Option { option: "sizes", value, allowed: "1 to 16 sizes above 0" });
        }
        let file = PathBuf::from(file);
        let open = |size| -> Result<_, ClientError> { Ok((size, DelayRecorder::open(&file, size, BitRate::ZERO)?)) };
        let recorders = sizes.into_iter().map(open).collect::<Result<_, _>>();
        Ok(Recorders(recorders.map_err(|error| Error::Profile(Box::new(error)))?))
    }

    fn run(mut self, waiting: &Receiver<Sample>, written: &Mutex<Written>) {
        for sample in waiting {
            let result = self.record(&sample);
            let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(is_written) => written.renewals += u64::from(is_written),
                Err(error) => {
                    tracing::warn!(%error, "the delays of this connection are not recorded any more");
                    written.failure = Some(error.to_string());
                    return;
                }
            }
        }
    }

    fn record(&mut self, sample: &Sample) -> Result<bool, ClientError> {
        let Some((_, recorder)) = self.0.iter_mut().find(|(size, _)| *size >= sample.size) else { return Ok(false) };
        recorder.change_rate(sample.rate);
        recorder.shortest_round_trip(sample.min_rtt);
        match sample.round_trip {
            Some(round_trip) => recorder.acknowledged(sample.size, round_trip),
            None => recorder.lost(sample.size),
        }
    }
}
