//! `cpu.*` from /proc/stat.
//!
//! Times in the file are in ticks of 10 ms (USER_HZ = 100 on every architecture). Over 100 ms the utilization of n CPUs
//! therefore has steps of 10/n %. No time is lost: a remainder counts in the next reading.

use qfabric_types::monitor::Attribute;

use super::text::{OpenFile, Scratch, lines, number, raw, words};
use super::{Finder, Meter, Total, attributes};

const METRICS: [&str; 7] =
    ["cpu.utilization", "cpu.stolen", "cpu.busiest", "cpu.switches", "cpu.forks", "cpu.run_queue", "cpu.blocked"];
const TICK_NS: u64 = 10_000_000;
/// Largest number of CPUs among which the busiest is found.
const MAX_CPUS: usize = 1_024;

pub(super) fn find(finder: &mut Finder) {
    match OpenFile::open(&finder.proc("stat")) {
        Ok(file) => finder.found(Cpu::new(file)),
        Err(error) => finder.missing("cpu.*", error),
    }
}

struct Cpu {
    file: OpenFile,
    /// Busy ticks of each CPU at the last look, by CPU number.
    busy: Vec<Option<u64>>,
    used_ns: Total,
    stolen_ns: Total,
    busiest_ns: Total,
}

/// Values of one CPU's line, in ticks since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    busy: u64,
    stolen: u64,
}

/// Values of one look.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    cpus: u64,
    busy: u64,
    stolen: u64,
    busiest: u64,
}

impl Cpu {
    fn new(file: OpenFile) -> Cpu {
        let total = Total::default();
        Cpu { file, busy: vec![None; MAX_CPUS], used_ns: total, stolen_ns: total, busiest_ns: total }
    }
}

impl Meter for Cpu {
    fn attributes(&self) -> Vec<Option<Attribute>> {
        attributes(&METRICS)
    }

    fn look(&mut self, scratch: &mut Scratch, values: &mut [Option<i64>]) {
        let Some(text) = self.file.read(scratch) else { return };
        let mut look = Look::default();
        for line in lines(text) {
            let mut words = words(line);
            let name = words.next().unwrap_or_default();
            match name {
                b"cpu" => (look.busy, look.stolen) = times(words).map_or((0, 0), |times| (times.busy, times.stolen)),
                b"ctxt" => values[3] = words.next().and_then(number).and_then(raw),
                b"processes" => values[4] = words.next().and_then(number).and_then(raw),
                // Subtract the thread that makes this look.
                b"procs_running" => {
                    values[5] = words.next().and_then(number).and_then(|count| raw(count.saturating_sub(1)))
                }
                b"procs_blocked" => values[6] = words.next().and_then(number).and_then(raw),
                _ => {
                    if let Some(cpu) = name.strip_prefix(b"cpu").and_then(number) {
                        look.cpus += 1;
                        let increase = times(words).map_or(0, |times| self.increase(cpu, times.busy));
                        look.busiest = look.busiest.max(increase);
                    }
                }
            }
        }
        self.add(look, values);
    }
}

impl Cpu {
    /// Busy ticks of a CPU since the last look; zero for a CPU that was off or whose number is too large.
    fn increase(&mut self, cpu: u64, busy: u64) -> u64 {
        let place = usize::try_from(cpu).ok().and_then(|cpu| self.busy.get_mut(cpu));
        let before = place.and_then(|place| place.replace(busy));
        before.map_or(0, |before| busy.saturating_sub(before))
    }

    /// Divides by the number of CPUs that are online at this look, so that a CPU that goes offline does not change past
    /// values.
    fn add(&mut self, look: Look, values: &mut [Option<i64>]) {
        if look.cpus == 0 {
            return;
        }
        let share = |total: &mut Total, ticks: u64| {
            let increase = total.before.replace(ticks).map_or(0, |before| ticks.saturating_sub(before));
            Some(total.add(increase.saturating_mul(TICK_NS) / look.cpus))
        };
        values[0] = share(&mut self.used_ns, look.busy);
        values[1] = share(&mut self.stolen_ns, look.stolen);
        values[2] = Some(self.busiest_ns.add(look.busiest.saturating_mul(TICK_NS)));
    }
}

/// `user nice system idle iowait irq softirq steal …`: busy time is all time except idle, iowait and steal. `user`
/// includes the time of guests.
fn times<'a>(words: impl Iterator<Item = &'a [u8]>) -> Option<Times> {
    let mut fields = [0; 8];
    let mut count = 0;
    for (field, word) in fields.iter_mut().zip(words) {
        *field = number(word)?;
        count += 1;
    }
    let [user, nice, system, _idle, _iowait, irq, softirq, stolen] = fields;
    let busy = [nice, system, irq, softirq].into_iter().fold(user, u64::saturating_add);
    (count >= 4).then_some(Times { busy, stolen })
}
