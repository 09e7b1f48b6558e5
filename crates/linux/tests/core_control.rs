//! Compares AQuoSA's controller in the kernel with its twin in Rust: both must compute the same numbers, bit for bit.

use std::io;

use qfabric_control::fixed::{FixedController, FixedSpec, Unfit};
use qfabric_linux::abi::*;
use qfabric_linux::bpf::object::Entry;
use qfabric_linux::bpf::{Object, OpenObject, objects};
use qfabric_types::Choice;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

const CHOICES: [Choice; 5] = [Choice::Left, Choice::Middle, Choice::Right, Choice::Zero, Choice::Cost];

struct Kernel {
    _object: Object,
    control: Entry,
}

impl Kernel {
    fn load() -> Kernel {
        let object = OpenObject::open("test/control", objects::TEST_CONTROL).unwrap();
        let object = object.load().unwrap_or_else(|error| panic!("{error}"));
        Kernel { control: object.entry("job").unwrap(), _object: object }
    }

    fn job(&self, spec: &FixedSpec, reset: bool, cost_ns: u64, late: u32) -> io::Result<qf_test_control> {
        let mut step = qf_test_control {
            cost_ns,
            period_ns: spec.period_ns,
            late_periods: late,
            reset: reset.into(),
            config: config(spec),
            ..Default::default()
        };
        self.control.call(&mut step).map(|_| step)
    }
}

fn config(spec: &FixedSpec) -> qf_control_config {
    qf_control_config {
        samples: spec.samples,
        lanes: spec.lanes,
        rho_milli: spec.rho_milli,
        periods_per_job: spec.periods_per_job,
        early: spec.early,
        late: spec.late,
        choice: CHOICES.iter().position(|&choice| choice == spec.choice).unwrap() as u32,
        on: 1,
        min_budget_ns: spec.min_budget_ns,
        max_budget_ns: spec.max_budget_ns,
    }
}

fn spec(rng: &mut ChaCha8Rng) -> FixedSpec {
    let lanes = rng.random_range(1..=12);
    let bits = rng.random_range(17..32);
    let period_ns = rng.random_range(100_000..1u64 << bits);
    let max_budget_ns = rng.random_range(1024..=period_ns);
    FixedSpec {
        samples: rng.random_range(1..=64 / lanes),
        lanes,
        rho_milli: rng.random_range(0..=10_000),
        periods_per_job: rng.random_range(1..40),
        early: rng.random_range(0..12),
        late: rng.random_range(0..8),
        choice: CHOICES[rng.random_range(0..5)],
        period_ns,
        min_budget_ns: rng.random_range(1..=max_budget_ns.min(5_000)),
        max_budget_ns,
    }
}

/// Costs of a pattern with noise; some are far outside it, or larger than all limits.
fn cost(rng: &mut ChaCha8Rng, spec: &FixedSpec) -> u64 {
    let whole = spec.max_budget_ns * u64::from(spec.periods_per_job);
    match rng.random_range(0..50) {
        0 => rng.random(),
        1 => 0,
        2 => rng.random_range(0..1 << 33),
        _ => rng.random_range(whole / 4..=whole / 2),
    }
}

#[test]
fn the_kernels_controller_and_its_twin_give_the_same_budgets_bit_for_bit() {
    let kernel = Kernel::load();
    let sets = std::env::var("QFABRIC_SETS").map_or(500, |text| text.parse().expect("QFABRIC_SETS is a number"));
    for seed in 1..=sets {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let spec = spec(&mut rng);
        let mut twin = FixedController::new(spec).unwrap();
        for job in 0..100 {
            let late = if rng.random_bool(0.2) { rng.random_range(0..60) } else { 0 };
            let cost = cost(&mut rng, &spec);
            let budget = twin.on_job(cost, late.into());
            let step = kernel.job(&spec, job == 0, cost, late).unwrap();
            let kernel = (step.budget_ns, step.low_ns, step.high_ns);
            let (low, high) = twin.prediction().unwrap_or((0, 0));
            assert_eq!(kernel, (budget, low, high), "seed {seed}, job {job}: {spec:?}");
        }
    }
}

#[test]
fn the_kernel_refuses_the_specifications_that_the_twin_refuses() {
    let kernel = Kernel::load();
    let fit = spec(&mut ChaCha8Rng::seed_from_u64(1));
    for (unfit, errno) in [
        (FixedSpec { samples: 0, ..fit }, libc::EDOM),
        (FixedSpec { samples: 65, lanes: 1, ..fit }, libc::EDOM),
        (FixedSpec { samples: 33, lanes: 2, ..fit }, libc::EDOM),
        (FixedSpec { samples: 1 << 31, lanes: 2, ..fit }, libc::EDOM),
        (FixedSpec { lanes: 0, ..fit }, libc::EDOM),
        (FixedSpec { rho_milli: 10_001, ..fit }, libc::EINVAL),
        (FixedSpec { periods_per_job: 0, ..fit }, libc::ERANGE),
        (FixedSpec { periods_per_job: 1 << 16, ..fit }, libc::ERANGE),
        (FixedSpec { early: u32::MAX, ..fit }, libc::ERANGE),
        (FixedSpec { late: u32::MAX, ..fit }, libc::ERANGE),
        (FixedSpec { min_budget_ns: 0, ..fit }, libc::ERANGE),
        (FixedSpec { min_budget_ns: fit.max_budget_ns + 1, ..fit }, libc::ERANGE),
        (FixedSpec { max_budget_ns: 1 << 32, ..fit }, libc::ERANGE),
    ] {
        assert_eq!(FixedController::new(unfit).err(), Some(Unfit), "{unfit:?}");
        assert_eq!(kernel.job(&unfit, true, 1, 0).unwrap_err().raw_os_error(), Some(errno), "{unfit:?}");
    }
}
