//! Runs the conformance suite of all networks on the simulated network of [`Fabric`].

use std::cell::RefCell;
use std::rc::Rc;

use qfabric_channel::testing::{Delivered, World};
use qfabric_channel::{Node, Notice, SinkId};
use qfabric_sim::fabric::{App, Fabric, HostContext, HostId, Settings};
use qfabric_types::channel::Name;
use qfabric_types::{Instant, Nanos};

#[derive(Default)]
struct Log {
    delivered: Vec<Delivered>,
    notices: Vec<Notice>,
}

struct Writer(Rc<RefCell<Log>>);

impl App for Writer {
    fn ready(&mut self, sink: SinkId, here: &mut HostContext<'_>) {
        let delivered = here.with(|node, now| Delivered::take_all(node, sink, now));
        self.0.borrow_mut().delivered.extend(delivered);
    }

    fn noticed(&mut self, notice: &Notice, _here: &mut HostContext<'_>) {
        self.0.borrow_mut().notices.push(notice.clone());
    }
}

struct Hosts {
    fabric: Fabric,
    logs: Vec<Rc<RefCell<Log>>>,
}

impl Hosts {
    fn new() -> Hosts {
        let mut fabric = Fabric::new(Settings { lease: Nanos::from_millis(1_200), ..Settings::default() });
        let logs: Vec<Rc<RefCell<Log>>> = (0..5).map(|_| Rc::default()).collect();
        for (number, log) in logs.iter().enumerate() {
            fabric.add(&format!("h{number}"), Box::new(Writer(log.clone())));
        }
        Hosts { fabric, logs }
    }

    fn id(&self, host: &Name) -> HostId {
        (0..self.fabric.len()).find(|id| self.fabric.name(*id) == host).expect("a host of this network")
    }
}

impl World for Hosts {
    fn hosts(&self) -> Vec<Name> {
        (0..self.fabric.len()).map(|id| self.fabric.name(id).clone()).collect()
    }

    fn with<R>(&mut self, host: &Name, act: impl FnOnce(&mut Node, Instant) -> R) -> R {
        self.fabric.on(self.id(host), |here| here.with(act))
    }

    fn run_for(&mut self, time: Nanos) {
        self.fabric.run_for(time);
    }

    fn cut(&mut self, one: &Name, other: &Name) {
        self.fabric.set_cut(self.id(one), self.id(other), true);
    }

    fn heal(&mut self, one: &Name, other: &Name) {
        self.fabric.set_cut(self.id(one), self.id(other), false);
    }

    fn kill(&mut self, host: &Name) {
        self.fabric.kill(self.id(host));
    }

    fn start(&mut self, host: &Name) {
        let id = self.id(host);
        self.fabric.restart(id, Box::new(Writer(self.logs[id].clone())));
    }

    fn delivered(&mut self, host: &Name) -> Vec<Delivered> {
        std::mem::take(&mut self.logs[self.id(host)].borrow_mut().delivered)
    }

    fn notices(&mut self, host: &Name) -> Vec<Notice> {
        std::mem::take(&mut self.logs[self.id(host)].borrow_mut().notices)
    }
}

qfabric_channel::conformance_suite!(Hosts::new());
