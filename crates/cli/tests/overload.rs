//! The overload controller, run by the interpreter in front of a modelled server, keeps the server productive at loads
//! above its capacity.
//!
//! Model: one server with a fixed cost for each request, and requests at random times (Poisson, seeded). A client gives
//! up after one second. The server does not notice this, as real servers do not, and wastes the cost of the request.
//! Two kinds of servers: one accepts all waiting connections at each turn of its loop (as most servers do), the other
//! accepts one per turn (nginx).

use std::collections::VecDeque;

use proptest::prelude::*;
use qfabric_ecode::{CallContext, Engine, Environment, Interpreter, Limits, compile, parse_formats};

const SECOND: u64 = 1_000_000_000;
const RUN: u64 = 10 * SECOND;
const BACKLOG: usize = 511;
const REQUEST: &str = "struct tcp_accept { unsigned long time; unsigned int accept_queue; };";
const STATE: &str = "struct tcp_state { int old_state; int state; };";

/// A handler with its attributes by name.
struct Handler {
    engine: Interpreter,
    names: Vec<String>,
}

impl Handler {
    fn new(text: &str, format: &str) -> Handler {
        let input = parse_formats(format).unwrap().pop();
        let env = Environment { input, ..Environment::default() };
        let program = compile(text, &env).unwrap_or_else(|errors| panic!("{}", errors.render("text", text, false)));
        Handler { engine: Interpreter::new(&program, Limits::default()), names: program.attributes }
    }

    fn attribute(&mut self, name: &str) -> &mut i64 {
        let at = self.names.iter().position(|known| known == name).unwrap_or_else(|| panic!("no attribute {name}"));
        &mut self.engine.attributes()[at]
    }

    fn call(&mut self, input: &[u8]) -> i64 {
        self.engine.call(input, &CallContext::default(), &mut |_| {}).unwrap()
    }
}

fn controller() -> Handler {
    let mut handler = Handler::new(include_str!("../handlers/overload.ec"), REQUEST);
    *handler.attribute("patience_ns") = 100_000_000;
    *handler.attribute("with_waiting") = 1;
    handler
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Accepts {
    All,
    OnePerTurn,
}

/// A server under load, and its results.
struct Model {
    controller: Option<Handler>,
    arrivals: Arrivals,
    queue: VecDeque<u64>,
    accepted: VecDeque<u64>,
    completed: u64,
    good: u64,
    waited: Vec<u64>,
}

/// Times of requests: exponential gaps from a linear congruential generator.
struct Arrivals {
    state: u64,
    mean_gap: f64,
    next: u64,
}

impl Arrivals {
    fn step(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = ((self.state >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
        let now = self.next;
        self.next += (-uniform.ln() * self.mean_gap) as u64;
        now
    }
}

impl Model {
    /// Requests of `cost` nanoseconds at `load` times the capacity.
    fn run(accepts: Accepts, cost: u64, load: f64, controller: Option<Handler>) -> Model {
        let arrivals = Arrivals { state: 42, mean_gap: cost as f64 / load, next: 1 };
        let (queue, accepted, waited) = (VecDeque::new(), VecDeque::new(), Vec::new());
        let mut model = Model { controller, arrivals, queue, accepted, completed: 0, good: 0, waited };
        let mut now = 0;
        while now < RUN {
            now = model.turn(accepts, cost, now);
        }
        model.waited.sort_unstable();
        model
    }

    fn turn(&mut self, accepts: Accepts, cost: u64, mut now: u64) -> u64 {
        if self.queue.is_empty() && self.accepted.is_empty() {
            now = now.max(self.arrivals.next);
        }
        self.arrive_until(now);
        let take = if accepts == Accepts::All { self.queue.len() } else { self.queue.len().min(1) };
        self.accepted.extend(self.queue.drain(..take));
        for _ in 0..self.accepted.len() {
            now += cost;
            self.arrive_until(now);
            let asked = self.accepted.pop_front().expect("counted");
            self.completed += 1;
            self.good += u64::from(now - asked <= SECOND);
            self.waited.push(now - asked);
        }
        now
    }

    fn arrive_until(&mut self, now: u64) {
        while self.arrivals.next <= now {
            let at = self.arrivals.step();
            if self.queue.len() < BACKLOG && self.admits(at) {
                self.queue.push_back(at);
            }
        }
    }

    fn admits(&mut self, at: u64) -> bool {
        let Some(controller) = &mut self.controller else { return true };
        let waiting = if *controller.attribute("with_waiting") == 1 { self.queue.len() } else { 0 };
        *controller.attribute("numconnects") = (waiting + self.accepted.len()) as i64;
        *controller.attribute("completed") = self.completed as i64;
        let mut event = at.to_le_bytes().to_vec();
        event.extend_from_slice(&(self.queue.len() as u32).to_le_bytes());
        event.resize(16, 0);
        controller.call(&event) != 0
    }

    /// Replies in time, as a share of the capacity of the server.
    fn goodput(&self, cost: u64) -> f64 {
        (self.good * cost) as f64 / RUN as f64
    }

    fn median_wait(&self) -> u64 {
        self.waited[self.waited.len() / 2]
    }
}

#[test]
fn under_overload_the_goodput_stays_near_capacity_at_every_cost_of_a_request() {
    for accepts in [Accepts::All, Accepts::OnePerTurn] {
        for cost in [SECOND / 2_000, SECOND / 200, SECOND / 50, SECOND / 20] {
            for load in [1.5, 2.0, 3.0] {
                let model = Model::run(accepts, cost, load, Some(controller()));
                let (goodput, wait) = (model.goodput(cost), model.median_wait());
                assert!(goodput > 0.9, "{accepts:?}, {cost} ns, {load}x: {goodput:.2} of the capacity");
                assert!(wait < SECOND / 4, "{accepts:?}, {cost} ns, {load}x: half wait {wait} ns");
            }
        }
    }
}

#[test]
fn a_count_without_waiting_connections_works_as_well() {
    let mut own = controller();
    *own.attribute("with_waiting") = 0;
    let cost = SECOND / 200;
    let model = Model::run(Accepts::All, cost, 3.0, Some(own));
    assert!(model.goodput(cost) > 0.9 && model.median_wait() < SECOND / 4, "{:.2}", model.goodput(cost));
}

#[test]
fn without_the_controller_the_same_server_collapses() {
    for accepts in [Accepts::All, Accepts::OnePerTurn] {
        let model = Model::run(accepts, SECOND / 200, 3.0, None);
        assert!(model.goodput(SECOND / 200) < 0.25, "{accepts:?}: {:.2}", model.goodput(SECOND / 200));
    }
}

#[test]
fn below_capacity_almost_no_request_is_dropped() {
    for accepts in [Accepts::All, Accepts::OnePerTurn] {
        let mut model = Model::run(accepts, SECOND / 1_000, 0.9, Some(controller()));
        let controller = model.controller.as_mut().unwrap();
        let (seen, dropped) = (*controller.attribute("syns"), *controller.attribute("dropped"));
        assert!(seen > 8_000 && dropped * 200 < seen, "{accepts:?}: {dropped} of {seen}");
    }
}

/// One request at `time`, with `queue` waiting connections. Returns the verdict.
fn request(controller: &mut Handler, time: u64, queue: u32) -> i64 {
    let mut event = time.to_le_bytes().to_vec();
    event.extend_from_slice(&queue.to_le_bytes());
    event.resize(16, 0);
    controller.call(&event)
}

#[test]
fn a_request_is_dropped_only_if_both_criteria_hold() {
    let mut controller = controller();
    (*controller.attribute("fixed_connections"), *controller.attribute("fixed_queue")) = (100, 10);
    for (numconnects, queue, verdict) in [(101, 11, 0), (100, 11, 1), (101, 10, 1), (0, 511, 1), (5_000, 0, 1)] {
        *controller.attribute("numconnects") = numconnects;
        assert_eq!(request(&mut controller, 1, queue), verdict, "{numconnects} open, {queue} waiting");
    }
    assert_eq!((*controller.attribute("syns"), *controller.attribute("dropped")), (5, 1));
}

#[test]
fn a_burst_at_an_idle_server_is_admitted() {
    let mut controller = controller();
    for queue in 0..16 {
        *controller.attribute("numconnects") = 500;
        assert_eq!(request(&mut controller, SECOND + u64::from(queue), queue), 1, "at {queue} waiting");
    }
}

#[test]
fn connections_are_counted_from_the_handshake_to_the_servers_close() {
    const ESTABLISHED: i32 = 1;
    const FIN_WAIT1: i32 = 4;
    const FIN_WAIT2: i32 = 5;
    const CLOSE: i32 = 7;
    const CLOSE_WAIT: i32 = 8;
    const LAST_ACK: i32 = 9;
    let mut counting = Handler::new(include_str!("../handlers/connections.ec"), STATE);
    for (path, open) in [
        (vec![3, ESTABLISHED], 1),
        (vec![3, ESTABLISHED, CLOSE_WAIT], 1),
        (vec![3, ESTABLISHED, CLOSE_WAIT, LAST_ACK, CLOSE], 0),
        (vec![3, ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE], 0),
        (vec![3, ESTABLISHED, CLOSE], 0),
        (vec![3, CLOSE], 0),
        (vec![7, 2, ESTABLISHED], 0), // the server as the client of another server
    ] {
        (*counting.attribute("numconnects"), *counting.attribute("completed")) = (0, 0);
        for step in path.windows(2) {
            let event = [step[0].to_le_bytes(), step[1].to_le_bytes()].concat();
            assert_eq!(counting.call(&event), 1);
        }
        let handled = path[0] == 3 && path.contains(&ESTABLISHED);
        let ended = i64::from(handled) - open;
        assert_eq!((*counting.attribute("numconnects"), *counting.attribute("completed")), (open, ended), "{path:?}");
    }
}

proptest! {
    /// With arbitrary attribute values the handler neither faults nor returns another verdict than 0 or 1.
    #[test]
    fn arbitrary_attribute_values_never_fault(values in proptest::collection::vec(any::<i64>(), 16), time: u64, queue: u32) {
        let mut controller = controller();
        for (attribute, value) in controller.engine.attributes().iter_mut().zip(values) {
            *attribute = value;
        }
        for turn in 0..3 {
            let verdict = request(&mut controller, time.wrapping_add(turn * SECOND), queue);
            prop_assert!(verdict == 0 || verdict == 1);
        }
    }
}
