//! The coordinated pair of a processor and a link (000 §2.4.2, Figure 10). Each task makes one packet per period,
//! and the link's period of that packet follows the processor's period by Θ. A packet made in [jT, (j+1)T) is sent
//! in [jT + Θ, (j+1)T + Θ), so at most Θ + T passes from its creation to the begin of its sending.

use super::machine::{Choice, Machine};
use super::order::Policy;
use super::packets::{Next, Packets, Rate, Sending, Stream};
use super::task::{BadTask, Statistics, Task, TaskIndex};

/// A task and the stream of its packets.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Makes one packet at the end of each service.
    pub task: Task,
    /// Θ, the delay of the link's periods.
    pub phase: u64,
    /// Length of a packet, in bytes.
    pub bytes: u64,
}

/// A processor and a link with the same periods.
#[derive(Debug)]
pub struct Pair {
    machine: Machine,
    packets: Packets,
    sources: Vec<Source>,
    link_free: u64,
}

impl Pair {
    /// A pair at time 0.
    ///
    /// # Errors
    /// [`BadTask`] if the stream of a source is invalid.
    pub fn new(sources: &[Source], rate: Rate) -> Result<Self, BadTask> {
        let tasks: Vec<Task> = sources.iter().map(|source| source.task).collect();
        let streams: Vec<Stream> = sources.iter().map(Source::stream).collect();
        let machine = Machine::new(&tasks, Policy::Dwcs);
        Ok(Pair { machine, packets: Packets::new(&streams, rate)?, sources: sources.to_vec(), link_free: 0 })
    }

    /// Advances by one unit of time. Returns the packet that the link begins to send at its beginning, if any.
    pub fn step(&mut self) -> Option<Sending> {
        let now = self.machine.now();
        let sending = self.send(now);
        let decision = self.machine.step();
        if let Choice::Regular(task) = decision.run {
            // The task was served, so its deadline is that of the next period.
            let source = &self.sources[task.0];
            let made = self.machine.left(task) == source.task.service() && self.machine.deadline(task) > now + 1;
            if made {
                self.packets.arrive(Some(task.0), source.bytes, now + 1);
            }
        }
        sending
    }

    pub fn task(&self, source: usize) -> Statistics {
        self.machine.statistics(TaskIndex(source))
    }

    pub fn link(&self) -> &Packets {
        &self.packets
    }

    fn send(&mut self, now: u64) -> Option<Sending> {
        if now < self.link_free {
            return None;
        }
        match self.packets.next(now) {
            Next::Send(sending) => {
                self.link_free = sending.until;
                Some(sending)
            }
            Next::Wait(_) | Next::Idle => None,
        }
    }
}

impl Source {
    /// The stream of the task's packets: its periods follow the task's by Θ. Two packets may wait, that of the
    /// period and that of the period before.
    fn stream(&self) -> Stream {
        let (x, y) = self.task.window();
        Stream {
            period: self.task.period(),
            phase: self.phase,
            bytes: self.bytes,
            window: qfabric_types::Window::new(x.into(), y.into()).expect("the window of a task is valid"),
            work_conserving: false,
            start: Some(self.task.arrival()),
            limit: 64,
        }
    }
}
