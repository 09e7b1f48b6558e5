//! Random lives of a host that lends: a kept share is available to its claim, whatever happens in between.

mod common;

use common::*;
use proptest::prelude::*;
use qfabric_host::{HostConfig, Input, Limits};
use qfabric_types::{AppId, Class, Contract, MechanismFeatures, Owner, Share};

#[derive(Clone, Copy, Debug)]
enum Step {
    Keep(u32),
    Join(u32),
    /// An application shows the claim of a kept share.
    Claim(usize),
    EndLoan(usize),
    Leave(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let percent = 1..60_u32;
    prop_oneof![
        percent.clone().prop_map(Step::Keep),
        percent.prop_map(Step::Join),
        any::<usize>().prop_map(Step::Claim),
        any::<usize>().prop_map(Step::EndLoan),
        any::<usize>().prop_map(Step::Leave),
    ]
}

struct Life {
    bench: Bench,
    kept: Vec<(AppId, u32)>,
    apps: Vec<(AppId, u32)>,
    threads: i32,
}

impl Life {
    fn join(&mut self, percent: u32) -> bool {
        self.threads += 1;
        let (guaranteed, max_bandwidth) = (Some(share(percent)), share(percent));
        let contract = Contract { class: Class::A, guaranteed, max_bandwidth, ..marked() };
        let joined = self.bench.join_thread(&contract, self.threads);
        self.apps.extend(joined.iter().map(|app| (*app, percent)));
        joined.is_ok()
    }

    fn take(&mut self, which: usize) -> Option<u32> {
        let at = which.checked_rem(self.kept.len())?;
        let (app, percent) = self.kept.remove(at);
        self.bench.input(Input::Leave { app });
        Some(percent)
    }

    fn live(&mut self, step: Step) {
        match step {
            Step::Keep(percent) => {
                let input = Input::Keep {
                    request: 1,
                    name: "for alpha".to_owned(),
                    owner: Owner::NOBODY,
                    share: share(percent),
                };
                let kept = self.bench.input(input).expect("every request is answered");
                self.kept.extend(kept.iter().map(|app| (*app, percent)));
            }
            Step::Join(percent) => {
                self.join(percent);
            }
            Step::Claim(which) => {
                if let Some(percent) = self.take(which) {
                    assert!(self.join(percent), "{percent} % were kept");
                }
            }
            Step::EndLoan(which) => {
                self.take(which);
            }
            Step::Leave(which) => {
                if let Some(at) = which.checked_rem(self.apps.len()) {
                    let (app, _) = self.apps.remove(at);
                    self.bench.input(Input::Leave { app });
                }
            }
        }
    }

    fn check(&self, capacity: Share) {
        let promised: u32 = self.kept.iter().chain(&self.apps).map(|(_, percent)| percent).sum();
        assert_eq!(self.bench.host.guaranteed(), share(promised));
        assert!(self.bench.host.guaranteed() <= capacity);
        assert_eq!(self.bench.host.status().applications.len(), self.apps.len(), "a kept share is not an application");
    }
}

fn two_cpus() -> HostConfig {
    let features = MechanismFeatures {
        terms: true,
        rescues: true,
        kernel_control: true,
        cpus: vec![0, 1],
        ..MechanismFeatures::default()
    };
    HostConfig { features, cpu_capacity: share(90), mechanism: "ext".to_owned(), ..HostConfig::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn a_claim_always_gets_its_kept_share(
        steps in prop::collection::vec(step(), 1..60),
        on_cpus in any::<bool>(),
    ) {
        let config = if on_cpus { two_cpus() } else { HostConfig::default() };
        let bench = Bench::with_config(HostConfig { limits: Limits::of_capacity(share(180)), ..config });
        let mut life = Life { bench, kept: Vec::new(), apps: Vec::new(), threads: 0 };
        for step in steps {
            life.live(step);
            life.check(share(180));
        }
    }
}
