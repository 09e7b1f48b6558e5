//! One device with a processor under DWCS, a clock, a shaper and a card, from event to event in virtual time.
//!
//! A job computes, then makes one packet. A packet takes CPU time (before all tasks, as in a kernel), then time on the
//! air, during which tasks compute. The card is awake from the begin of a burst to its end and for the timeout after it.
//! The joules are time in each state × the power of the state in the model.

use qfabric_energy::{ClockRule, Coordination, Demand, Energy, Model, Packet, Shaper};
use qfabric_sched::dwcs::{BadTask, Choice, Machine, Network, Policy, Task, TaskIndex, Utilization};
use qfabric_types::Window;

/// Most packets in the queue of the card.
const QUEUE: usize = 256;

/// A periodic task that makes a packet at the end of each job. Times in nanoseconds.
#[derive(Clone, Debug)]
pub struct Source {
    pub period: u64,
    /// Begin of its first period.
    pub arrival: u64,
    /// C at the highest clock.
    pub work: u64,
    /// Size of its packets.
    pub bytes: u64,
    pub window: Window,
    /// Time after the end of the job's period by which its packet must begin to be sent.
    pub slack: u64,
    /// Probability, in per cent, that the task uses the network (Table 5).
    pub network: u8,
}

/// The technique of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardRule {
    /// Never dozes.
    Awake,
    /// Dozes this many nanoseconds after the last packet; 0 is at once.
    Doze(u64),
}

/// The techniques that a device uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Techniques {
    pub clock: ClockRule,
    pub card: CardRule,
    /// Packets are delayed into bursts.
    pub shapes: bool,
    /// The shaper predicts with the clock at which packets are sent, and the processor prefers tasks by the state of the
    /// queue (Table 5).
    pub coordinates: bool,
}

impl Techniques {
    /// The same with each packet at its ready time.
    pub(super) const fn without_bursts(self) -> Techniques {
        Techniques { shapes: false, ..self }
    }

    /// No technique: highest clock, card awake, no delay.
    pub const NONE: Techniques =
        Techniques { clock: ClockRule::Highest, card: CardRule::Awake, shapes: false, coordinates: false };
}

/// What a run used and achieved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    pub energy: Energy,
    /// Lost periods of tasks.
    pub misses: u64,
    /// Packets whose transmission began after their deadline, or for which the queue had no place.
    pub late: u64,
    /// Changes of the card from doze to awake.
    pub wakeups: f64,
    /// Time with the card awake, ns.
    pub awake: f64,
    /// Mean clock over time, MHz.
    pub mean_mhz: f64,
}

impl Usage {
    /// An energy without a run.
    pub(super) fn of(energy: Energy) -> Self {
        Usage { energy, misses: 0, late: 0, wakeups: 0.0, awake: 0.0, mean_mhz: 0.0 }
    }

    /// The mean of `parts` equal parts of the run. Misses and late packets stay those of the whole run.
    pub(super) fn mean_of(self, parts: u64) -> Self {
        let parts = parts as f64;
        let energy = self.energy.divided(parts);
        Usage { energy, wakeups: self.wakeups / parts, awake: self.awake / parts, ..self }
    }
}

/// Runs `sources` on the device of `model` for `duration` nanoseconds.
///
/// # Errors
/// [`BadTask`] if a source is no task.
pub fn run(model: &Model, sources: &[Source], techniques: Techniques, duration: u64) -> Result<Usage, BadTask> {
    let mut device = Device::new(model, sources, techniques)?;
    while device.now < duration {
        device.advance(duration);
    }
    device.machine.bring_to(duration);
    Ok(device.usage())
}

/// The transmission in progress.
#[derive(Clone, Copy, Debug)]
enum Sending {
    /// CPU time left, at the highest clock.
    Cpu {
        left: u64,
        air: u64,
    },
    Air {
        until: u64,
    },
}

struct Device<'a> {
    model: &'a Model,
    sources: &'a [Source],
    techniques: Techniques,
    now: u64,
    machine: Machine,
    /// Served jobs of each task so far.
    served: Vec<u64>,
    clock: Coordination,
    shaper: Shaper,
    sending: Option<Sending>,
    is_awake: bool,
    /// End of the last burst.
    quiet_since: u64,
    joules: f64,
    mhz_ns: f64,
    packets: u64,
    refused: u64,
    wakeups: u64,
    awake: u64,
}

impl<'a> Device<'a> {
    fn new(model: &'a Model, sources: &'a [Source], techniques: Techniques) -> Result<Self, BadTask> {
        let task = |source: &Source| {
            Task::new(source.period, source.work, source.window)?.arriving(source.arrival)?.network(source.network)
        };
        let tasks: Vec<Task> = sources.iter().map(task).collect::<Result<_, _>>()?;
        let network = |source: &Source| model.radio.cpu_ns(source.bytes) as f64 / source.period as f64;
        let demand =
            Demand { windows: Utilization::of_windows(&tasks).as_f64(), network: sources.iter().map(network).sum() };
        let windows: Vec<Window> = sources.iter().map(|source| source.window).collect();
        let shaper = Shaper::new(&windows, QUEUE);
        Ok(Device {
            model,
            sources,
            techniques,
            now: 0,
            machine: Machine::new(&tasks, Policy::Dwcs),
            served: vec![0; sources.len()],
            clock: Coordination::new(techniques.clock, model, demand),
            shaper: if techniques.shapes { shaper } else { shaper.without_delay() },
            sending: None,
            is_awake: techniques.card == CardRule::Awake,
            quiet_since: 0,
            joules: 0.0,
            mhz_ns: 0.0,
            packets: 0,
            refused: 0,
            wakeups: 0,
            awake: 0,
        })
    }

    /// One event: decides, then lets time pass to the next event.
    fn advance(&mut self, end: u64) {
        self.send();
        self.doze();
        let level = self.clock.level(matches!(self.sending, Some(Sending::Cpu { .. })));
        let stretch = self.model.cpu.stretch(level);
        let decision = self.machine.decide(self.now);
        let running = match (self.sending, decision.run) {
            (Some(Sending::Cpu { .. }), _) => None,
            (_, Choice::Regular(task)) => Some(task),
            _ => None,
        };
        let next = self.next_event(end, running, stretch);
        let time = next - self.now;
        let is_busy = running.is_some() || matches!(self.sending, Some(Sending::Cpu { .. }));
        self.charge(time, level, is_busy);
        self.now = next;
        if let Some(task) = running {
            let work = worked(time, stretch, self.machine.left(task));
            self.machine.account(&decision, work);
            self.finish_job(task);
        }
        self.pass(time, stretch);
    }

    /// Begins the next transmission if the card is free and a packet is due.
    fn send(&mut self) {
        if self.sending.is_some() {
            return;
        }
        let before = self.shaper.burst();
        match self.shaper.next(self.now) {
            Some(packet) => {
                self.wake();
                self.clock.on_transmission(self.now);
                let (left, air) = (self.model.radio.cpu_ns(packet.bytes), self.model.radio.air_ns(packet.bytes));
                self.sending = Some(Sending::Cpu { left, air });
                self.packets += 1;
            }
            None => {
                if let Some(burst) = before {
                    self.clock.on_burst_end(burst.packets, self.now);
                    self.quiet_since = self.now;
                }
            }
        }
        self.tell_queue();
    }

    fn wake(&mut self) {
        if !self.is_awake {
            self.is_awake = true;
            self.wakeups += 1;
            self.joules += self.model.radio.wake_j;
        }
    }

    fn doze(&mut self) {
        if self.sending.is_none() && self.doze_at().is_some_and(|at| at <= self.now) {
            self.is_awake = false;
        }
    }

    /// The time at which the card would doze without a packet.
    fn doze_at(&self) -> Option<u64> {
        match self.techniques.card {
            CardRule::Doze(timeout) if self.is_awake => Some(self.quiet_since + timeout),
            _ => None,
        }
    }

    /// Tells the processor's scheduler the state of the queue (Table 5).
    fn tell_queue(&mut self) {
        if self.techniques.coordinates {
            let is_busy = self.shaper.waiting() > 0 || self.sending.is_some();
            self.machine.set_network(if is_busy { Network::Busy } else { Network::Idle });
        }
    }

    /// The first time after `now` at which something happens; at most `end`.
    fn next_event(&self, end: u64, running: Option<TaskIndex>, stretch: f64) -> u64 {
        let release = |source: &Source| match self.now.checked_sub(source.arrival) {
            None => source.arrival,
            Some(since) => source.arrival + (since / source.period + 1) * source.period,
        };
        let mut next = self.sources.iter().map(release).min().unwrap_or(end).min(end);
        if let Some(task) = running {
            next = next.min(self.now + stretched(self.machine.left(task), stretch));
        }
        match self.sending {
            Some(Sending::Cpu { left, .. }) => next = next.min(self.now + stretched(left, stretch)),
            Some(Sending::Air { until }) => next = next.min(until),
            None => {
                let wakeup = self.shaper.next_wakeup().unwrap_or(end);
                next = next.min(wakeup).min(self.doze_at().unwrap_or(end));
            }
        }
        next.max(self.now + 1).min(end)
    }

    fn charge(&mut self, time: u64, level: usize, is_busy: bool) {
        let (cpu, radio) = (&self.model.cpu, &self.model.radio);
        let card = match (self.sending, self.is_awake) {
            (Some(Sending::Air { .. }), _) => radio.transmit_w,
            (_, true) => radio.idle_w,
            (_, false) => radio.doze_w,
        };
        let processor = if is_busy { cpu.levels[level].active_w } else { cpu.idle_w };
        self.joules += (cpu.rest_w + processor + card) * time as f64 / 1e9;
        self.mhz_ns += cpu.levels[level].mhz * time as f64;
        self.awake += if self.is_awake { time } else { 0 };
    }

    /// The packet of a job that was served.
    fn finish_job(&mut self, task: TaskIndex) {
        let served = self.machine.statistics(task).served;
        if served == self.served[task.0] {
            return;
        }
        self.served[task.0] = served;
        let source = &self.sources[task.0];
        if source.bytes == 0 {
            return;
        }
        // The deadline of a served task is that of its next period.
        let deadline = self.machine.deadline(task) - source.period + source.slack;
        let packet = Packet {
            id: self.packets,
            stream: Some(task.0),
            bytes: source.bytes,
            ready: self.now,
            deadline,
            transmission: self.transmission(source.bytes),
            urgent: false,
        };
        match self.shaper.arrive(packet, self.now) {
            Ok(()) => self.clock.on_arrival(self.now),
            Err(_) => self.refused += 1,
        }
        self.tell_queue();
    }

    /// t_x as the shaper predicts it. Without coordination it does not know that the clock is lower.
    fn transmission(&self, bytes: u64) -> u64 {
        let level = if self.techniques.coordinates { self.clock.sending_level() } else { self.model.cpu.highest() };
        let radio = &self.model.radio;
        radio.air_ns(bytes) + stretched(radio.cpu_ns(bytes), self.model.cpu.stretch(level))
    }

    /// `time` passed for the transmission.
    fn pass(&mut self, time: u64, stretch: f64) {
        self.sending = match self.sending {
            Some(Sending::Cpu { left, air }) => match left - worked(time, stretch, left) {
                0 => Some(Sending::Air { until: self.now + air }),
                left => Some(Sending::Cpu { left, air }),
            },
            Some(Sending::Air { until }) if until <= self.now => None,
            other => other,
        };
    }

    fn usage(&self) -> Usage {
        let misses = (0..self.sources.len()).map(|task| self.machine.statistics(TaskIndex(task)).missed).sum();
        Usage {
            energy: Energy::modelled(self.joules),
            misses,
            late: self.shaper.late() + self.refused,
            wakeups: self.wakeups as f64,
            awake: self.awake as f64,
            mean_mhz: self.mhz_ns / self.now.max(1) as f64,
        }
    }
}

/// The time of `work` at a stretch k, rounded up.
fn stretched(work: u64, stretch: f64) -> u64 {
    (work as f64 * stretch).ceil() as u64
}

/// The work done in `time` at a stretch k: all that is left if the time suffices, rounded down otherwise.
fn worked(time: u64, stretch: f64, left: u64) -> u64 {
    if time >= stretched(left, stretch) { left } else { ((time as f64 / stretch) as u64).min(left) }
}
