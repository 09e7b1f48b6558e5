//! The ordinary user: its operations, and their duration.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use qfabric_client::channel::{Channel, Channels, Sink, SinkOptions, Source, SourceOptions, Spec, Submission};
use qfabric_client::ecalls::{Ecalls, MemoryUp, OwnService, Subscription, SubscriptionBuilder};
use qfabric_client::{ApplicationRequest, ApplicationScope, Client, Contract, Nanos, Share};
use serde::{Deserialize, Serialize};

use crate::Outcome;

pub(crate) const SERVICE: &str = "ordinary.sample";
pub(crate) const SAMPLE: &str = "struct sample { long value; };";
pub(crate) const CHANNEL: &str = "talk";
pub(crate) const FRAME: &str = "struct frame { int number; int size; };";
/// A longer wait counts as a failure.
const PATIENCE: Duration = Duration::from_secs(5);

/// The samples of one operation: latencies in nanoseconds, and the number of failures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Samples {
    pub ns: Vec<u64>,
    pub failed: usize,
}

/// The samples of each operation.
pub(crate) type Batch = BTreeMap<String, Samples>;

struct User {
    client: Client,
    /// A program to put under contract.
    pid: i32,
    /// Kept open for the source and the sink.
    _channels: [Channel; 2],
    source: Source,
    sink: Sink,
    service: OwnService,
    events: Subscription,
}

type Operation = fn(&mut User, u64) -> Outcome<()>;

const OPERATIONS: [(&str, Operation); 4] = [
    ("request on a new connection", |user, _| Ok(user.client.limits().map(drop)?)),
    ("admit and release", User::admit_and_release),
    ("event over a channel", User::channel_event),
    ("event, handler, wake-up", User::handled_event),
];

/// Each line of input requests a batch; the answer is one line of output.
pub(crate) fn be(socket: &Path, samples: usize) -> Outcome<()> {
    let mut child = Command::new("sleep").arg("100000").stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let outcome = serve(User::new(socket, child.id() as i32)?, samples);
    // Fails if the process has ended already.
    let _ = child.kill();
    let _ = child.wait();
    outcome
}

fn serve(mut user: User, samples: usize) -> Outcome<()> {
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        line?;
        let batch: Batch =
            OPERATIONS.into_iter().map(|(name, act)| (name.to_owned(), user.time(act, samples))).collect();
        writeln!(std::io::stdout(), "{}", serde_json::to_string(&batch)?)?;
    }
    Ok(())
}

impl User {
    fn new(socket: &Path, pid: i32) -> Outcome<User> {
        let client = Client::connect_to(socket)?.with_patience(PATIENCE);
        let (sending, reading) = (Channels::connect(&client)?, Channels::connect(&client)?);
        let channels = [sending.create(CHANNEL, &Spec::of(FRAME))?, reading.open(CHANNEL)?];
        let source = channels[0].source_subscribe(&SourceOptions::default())?;
        let sink = channels[1].sink(&SinkOptions::default())?;
        let ecalls = Ecalls::connect(&client)?;
        let service = ecalls.register_service(SERVICE, "", SAMPLE, false)?;
        let wanted = SubscriptionBuilder::to(SERVICE).code("return input.value > 0;").memory_up(MemoryUp::default());
        let events = ecalls.subscribe(&wanted)?;
        Ok(User { client, pid, _channels: channels, source, sink, service, events })
    }

    fn time(&mut self, act: Operation, samples: usize) -> Samples {
        let mut all = Samples::default();
        for number in 1..=samples as u64 {
            let since = Instant::now();
            match act(self, number) {
                Ok(()) => all.ns.push(since.elapsed().as_nanos() as u64),
                Err(error) => {
                    eprintln!("ordinary: {error}");
                    all.failed += 1;
                }
            }
            // An event that comes too late for its sample arrives in this pause and is not counted for the next.
            std::thread::sleep(Duration::from_millis(1));
        }
        all
    }

    fn admit_and_release(&mut self, _: u64) -> Outcome<()> {
        let most = Share::from_f64(0.02);
        let contract = Contract { max_bandwidth: most, ..Contract::new("ordinary", Nanos::from_millis(40)) };
        let admitted =
            self.client.admit(&ApplicationRequest { pid: self.pid, covers: ApplicationScope::Program, contract })?;
        Ok(self.client.release(admitted.id)?)
    }

    fn channel_event(&mut self, number: u64) -> Outcome<()> {
        let payload = number.to_le_bytes();
        self.source.submit(&Submission { payload: &payload, ..Submission::default() })?;
        loop {
            let event = self.sink.next(PATIENCE)?.ok_or("no event came")?;
            if event.event().payload == payload {
                return Ok(());
            }
        }
    }

    fn handled_event(&mut self, number: u64) -> Outcome<()> {
        let data = number.to_le_bytes();
        self.service.raise_event(-1, &data, Nanos::ZERO, false)?;
        loop {
            let event = self.events.next(PATIENCE)?.ok_or("no event came")?;
            if event.data == data {
                return Ok(());
            }
        }
    }
}
