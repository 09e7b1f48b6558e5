//! Power checkpoints: the clock is chosen again while a job runs (000 §6.4.2.1).
//!
//! At a *code checkpoint* the job says which part of its work is done, and may ask for higher levels (its argument). At a
//! *scheduler checkpoint* the job gets the processor again after a preemption; its progress is then the time it used.

use crate::clock::slowest_level;
use crate::model::Cpu;

/// The largest argument of a checkpoint, as printed.
pub const MAX_ARGUMENT: u8 = 10;

/// The level at a checkpoint: the slowest at which `left_work` seconds of computation (at the highest clock) fit into
/// `left_time` seconds, and `argument` levels above it. An argument above 10 counts as 10. Without time left, the highest
/// level.
pub fn checkpoint_level(cpu: &Cpu, left_work: f64, left_time: f64, argument: u8) -> usize {
    if left_work <= 0.0 {
        return usize::from(argument.min(MAX_ARGUMENT)).min(cpu.highest());
    }
    let level = slowest_level(cpu, (left_time / left_work).max(0.0));
    (level + usize::from(argument.min(MAX_ARGUMENT))).min(cpu.highest())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    #[test]
    fn a_checkpoint_raises_the_clock_of_a_late_job_and_lowers_that_of_an_early_one() {
        let cpu = Model::shipped("ipaq-h3870-orinoco").unwrap().cpu;
        let mhz = |work, time, argument| cpu.levels[checkpoint_level(&cpu, work, time, argument)].mhz;
        assert_eq!(mhz(0.010, 0.036, 0), 59.0);
        assert_eq!(mhz(0.010, 0.021, 0), 103.2);
        assert_eq!(mhz(0.010, 0.021, 2), 132.7);
        assert_eq!((mhz(0.010, 0.009, 0), mhz(0.010, -0.001, 0)), (206.4, 206.4));
        assert_eq!(mhz(0.010, 0.036, 200), 206.4);
        assert_eq!((mhz(0.0, 1.0, 0), mhz(0.0, 1.0, 3)), (59.0, 103.2));
    }
}
