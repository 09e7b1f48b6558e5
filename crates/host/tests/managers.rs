//! Managers of several hosts, connected by a queue instead of channels.

use std::collections::VecDeque;

use qfabric_channel::Registration;
use qfabric_host::manager::{
    Ask, Change, ChangeKind, Controller, Decision, Decisions, Effect, GroupController, Input, Interest, Manager,
    Outcome, Output, Recipient, ResourceRequest, Rule, Topic, View,
};
use qfabric_types::api::LoanRate;
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::monitor::{AttributeId, Cause, HOST, QualityEvent, QualityKind, QualityText, Reading, Unit};
use qfabric_types::{AppId, BitRate, Bytes, Instant, Nanos};

const CPU: AttributeId = AttributeId::of("cpu.share");
const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn channel(text: &str) -> ChannelId {
    ChannelId { plane: Plane::Quality, name: name(text) }
}

/// The lender keeps no memory.
fn met(host: &str) -> Outcome {
    Outcome::Met { host: name(host), memory: Bytes::ZERO, rate: None }
}

/// The amount of a loan that a broker was asked to keep, with its end; `None`: to end the loan.
type Keeping = Option<(i64, Instant)>;

#[derive(Default)]
struct Wires {
    queue: VecDeque<(usize, ChannelId, Recipient, QualityEvent)>,
    applied: Vec<(usize, AppId, i64)>,
    answered: Vec<(usize, u64, Outcome)>,
    kept: Vec<(usize, u64, Keeping)>,
    /// The memory of each loan that a broker was asked to keep or to extend.
    memory: Vec<Bytes>,
    /// The rate of each of them.
    rates: Vec<BitRate>,
    /// Hosts that were informed that their loan was claimed.
    taken: Vec<(usize, Name, u64)>,
    /// No distance of a host has been measured.
    unmeasured: bool,
}

impl Wires {
    /// Carries out an output of a manager.
    fn carry_out(&mut self, host: usize, output: Output) {
        match output {
            Output::Tell(channel, to, event) => self.queue.push_back((host, channel, to, event)),
            Output::Parameter(..) => {}
            Output::Effect(effect) => match effect {
                Effect::Apply(application, _, amount) => self.applied.push((host, application, amount)),
                Effect::Answered(request, outcome) => self.answered.push((host, request, outcome)),
                Effect::Keep { request, amount, memory, rate, until, .. } => {
                    self.kept.push((host, request, Some((amount, until))));
                    self.memory.push(memory);
                    self.rates.push(rate);
                }
                Effect::LetGo { request, .. } => self.kept.push((host, request, None)),
                Effect::Taken { giver, request } => self.taken.push((host, giver, request)),
            },
        }
    }

    /// Host 0 asks; the last host is the nearest.
    fn distance(&self, host: &Name) -> Option<Nanos> {
        let number: u64 = host.as_str()[1..].parse().unwrap();
        (!self.unmeasured).then_some(MS(100 - number))
    }
}

struct Net {
    managers: Vec<Manager>,
    dead: Vec<usize>,
    wires: Wires,
    now: Instant,
}

impl Net {
    fn new(hosts: usize) -> Net {
        let managers = (0..hosts).map(|host| Manager::new(name(&format!("h{host}")))).collect();
        Net { managers, dead: Vec::new(), wires: Wires::default(), now: Instant::ZERO }
    }

    fn on<R>(&mut self, host: usize, act: impl FnOnce(&mut Manager, Instant) -> R) -> R {
        let manager = &mut self.managers[host];
        manager.measure(|other| self.wires.distance(other));
        let result = act(manager, self.now);
        while let Some(output) = manager.poll() {
            self.wires.carry_out(host, output);
        }
        result
    }

    fn handle(&mut self, host: usize, input: Input) {
        self.on(host, |manager, now| manager.handle(input, now));
    }

    fn alive(&self) -> Vec<usize> {
        (0..self.managers.len()).filter(|host| !self.dead.contains(host)).collect()
    }

    fn deliver(&mut self) {
        while let Some((from, channel, to, event)) = self.wires.queue.pop_front() {
            for host in self.alive() {
                let meant = match &to {
                    Recipient::All | Recipient::Sources => true,
                    Recipient::Host(only) => *only == name(&format!("h{host}")),
                };
                if meant {
                    self.handle(host, Input::Control(channel.clone(), name(&format!("h{from}")), event));
                }
            }
        }
    }

    fn run_for(&mut self, time: Nanos) {
        let end = self.now + time;
        while self.now < end {
            self.now = self.now + MS(50);
            self.deliver();
            for host in self.alive() {
                self.handle(host, Input::Wake);
            }
            self.deliver();
        }
    }

    fn kill(&mut self, dead: usize) {
        self.dead.push(dead);
        for host in self.alive() {
            self.handle(host, Input::HostGone(name(&format!("h{dead}"))));
        }
    }

    /// Host 0 asks the others, which have 50, 60, 70 … of the resource.
    fn asking(hosts: usize, rule: Rule) -> Net {
        let mut net = Net::new(hosts);
        for host in 1..hosts {
            let capacity = 40 + 10 * host as i64;
            net.on(host, |manager, now| manager.capacity(CPU, capacity, now));
        }
        let ask = Ask {
            request: 7,
            channel: channel("pool"),
            attribute: CPU,
            amount: 30,
            memory: Bytes::ZERO,
            rate: BitRate::ZERO,
            rule,
            patience: MS(400),
            hold: Nanos::ZERO,
        };
        net.on(0, |manager, now| manager.ask(ask, now));
        net
    }

    fn lent(&self) -> Vec<i64> {
        (1..self.managers.len()).map(|host| 40 + 10 * host as i64 - self.managers[host].free(CPU)).collect()
    }

    fn outcome(&self) -> &Outcome {
        let (host, request, outcome) = self.wires.answered.last().expect("an answer");
        assert_eq!((*host, *request, self.wires.answered.len()), (0, 7, 1));
        outcome
    }
}

#[test]
fn the_first_offer_wins_and_the_others_are_cancelled() {
    let mut net = Net::asking(4, Rule::First);
    net.run_for(MS(200));
    assert_eq!(*net.outcome(), met("h1"));
    assert_eq!(net.lent(), [30, 0, 0]);
}

#[test]
fn the_largest_of_n_offers_wins() {
    let mut net = Net::asking(4, Rule::BestOf(2));
    net.run_for(MS(200));
    assert_eq!((net.outcome(), net.lent()), (&met("h2"), vec![0, 30, 0]));
}

#[test]
fn the_nearest_offer_wins_when_patience_ends() {
    let mut net = Net::asking(4, Rule::Nearest);
    net.run_for(MS(300));
    assert!(net.wires.answered.is_empty(), "it waits for nearer hosts");
    net.run_for(MS(300));
    assert_eq!((net.outcome(), net.lent()), (&met("h3"), vec![0, 0, 30]));
}

#[test]
fn the_distance_of_a_host_may_be_measured_after_its_offer() {
    let mut net = Net::asking(4, Rule::Nearest);
    net.wires.unmeasured = true;
    net.run_for(MS(200));
    net.wires.unmeasured = false;
    net.run_for(MS(400));
    assert_eq!(*net.outcome(), met("h3"));
}

#[test]
fn a_chosen_host_that_is_silent_is_replaced_by_the_next() {
    let mut net = Net::asking(4, Rule::Nearest);
    net.deliver();
    net.dead.push(3);
    net.run_for(MS(2_000));
    assert_eq!(*net.outcome(), met("h2"));
}

#[test]
fn a_request_that_no_host_can_meet_is_unmet_and_leaves_no_holds() {
    let mut net = Net::asking(3, Rule::First);
    net.run_for(MS(100));
    let ask = Ask {
        request: 8,
        channel: channel("pool"),
        attribute: CPU,
        amount: 500,
        memory: Bytes::ZERO,
        rate: BitRate::ZERO,
        rule: Rule::First,
        patience: MS(400),
        hold: Nanos::ZERO,
    };
    net.on(0, |manager, now| manager.ask(ask, now));
    net.run_for(MS(600));
    assert_eq!(net.wires.answered.last(), Some(&(0, 8, Outcome::Unmet { offers: 0 })));
    assert_eq!(net.lent(), [30, 0]);
}

#[test]
fn the_amount_of_an_asker_that_is_gone_is_free() {
    let mut net = Net::asking(3, Rule::First);
    net.run_for(MS(200));
    net.kill(0);
    assert_eq!(net.lent(), [0, 0]);
}

#[test]
fn an_offer_without_an_answer_expires() {
    let mut net = Net::asking(3, Rule::Nearest);
    net.deliver();
    assert_eq!(net.lent(), [30, 30]);
    net.dead.push(0);
    net.run_for(MS(3_500));
    assert_eq!(net.lent(), [0, 0]);
}

#[test]
fn a_new_application_adjusts_the_others_and_one_that_does_not_fit_is_refused() {
    let mut net = Net::new(1);
    let request = |application, least, most| ResourceRequest {
        application: AppId(application),
        attribute: CPU,
        least,
        most,
        importance: 0,
    };
    net.on(0, |manager, now| manager.capacity(CPU, 100, now));
    net.on(0, |manager, now| manager.admit(&request(1, 20, 100), now)).unwrap();
    net.on(0, |manager, now| manager.admit(&request(2, 50, 50), now)).unwrap();
    assert_eq!(net.wires.applied, [(0, AppId(1), 100), (0, AppId(1), 50), (0, AppId(2), 50)]);
    let refused = net.on(0, |manager, now| manager.admit(&request(3, 31, 40), now)).unwrap_err();
    assert_eq!((refused.asked, refused.free), (31, 30));
    net.on(0, |manager, now| manager.leave(AppId(2), now));
    assert_eq!(net.wires.applied.last(), Some(&(0, AppId(1), 100)));
}

/// Answers every control event with a request for the same event.
struct Echo(Vec<Interest>);

impl Controller for Echo {
    fn name(&self) -> &str {
        "echo"
    }
    fn interests(&self) -> Vec<Interest> {
        self.0.clone()
    }
    fn changed(&mut self, change: &Change, _: &View<'_>, decisions: &mut Decisions) {
        if let ChangeKind::Answer { request, .. } = change.what {
            let (channel, rule) = (channel("pool"), Rule::First);
            decisions.push(Decision::Ask(Ask {
                request,
                channel,
                attribute: CPU,
                amount: 1,
                memory: Bytes::ZERO,
                rate: BitRate::ZERO,
                rule,
                patience: Nanos::ZERO,
                hold: Nanos::ZERO,
            }));
            decisions.push(Decision::Ask(Ask {
                request,
                channel: self::channel("pool"),
                attribute: CPU,
                amount: 1,
                memory: Bytes::ZERO,
                rate: BitRate::ZERO,
                rule,
                patience: Nanos::ZERO,
                hold: Nanos::ZERO,
            }));
        }
        decisions.push(Decision::Apply { application: AppId(1), attribute: CPU, amount: 1 });
    }
}

fn reading(attribute: AttributeId) -> Reading {
    let (application, cause, unit) = (HOST, Cause::Poll, Unit::Count);
    Reading { attribute, application, value: 1, at: Instant::ZERO, over: Nanos::ZERO, cause, unit }
}

#[test]
fn a_controller_is_called_for_its_interests_and_for_nothing_else() {
    let mut net = Net::new(1);
    let interest = Interest::on(&channel("film"), Topic::Reading(CPU));
    net.on(0, |manager, _| manager.add(Box::new(Echo(vec![interest]))));
    let said = |on: &str, attribute| Input::Reading(Some(channel(on)), name("h9"), reading(attribute));
    net.handle(0, said("other", CPU));
    net.handle(0, said("film", AttributeId::of("cpu.blocked")));
    assert_eq!(net.managers[0].counts().calls, 0);
    net.handle(0, said("film", CPU));
    assert_eq!((net.managers[0].counts().calls, net.wires.applied.len()), (1, 1));
}

#[test]
fn controllers_that_answer_each_other_without_end_are_stopped_and_counted() {
    let mut net = Net::new(1);
    net.on(0, |manager, _| manager.add(Box::new(Echo(vec![Interest::anywhere(Topic::Answers)]))));
    for _ in 0..2 {
        let (channel, rule) = (channel("pool"), Rule::First);
        let (memory, rate, patience, hold) = (Bytes::ZERO, BitRate::ZERO, MS(10_000), Nanos::ZERO);
        let ask = Ask { request: 1, channel, attribute: CPU, amount: 1, memory, rate, rule, patience, hold };
        net.on(0, |manager, now| manager.ask(ask, now));
    }
    let counts = *net.managers[0].counts();
    assert!(counts.runaway > 0 && counts.calls < 1_000_000, "{counts:?}");
}

fn joined(host: usize) -> Input {
    let (application, group) = (name("player"), name("class"));
    let registration = Registration { application, group, parent: None, level: 3, qos: Vec::new() };
    Input::Joined(name(&format!("h{host}")), registration)
}

/// Three hosts in a group at the level of streams, with 50 in total; each wants 10 to 30, the last is the most
/// important.
fn class() -> Net {
    let mut net = Net::new(3);
    for host in 0..3 {
        let group = GroupController::new(&name("class"), None, 3, CPU, 50).unwrap();
        let group = group.with_local(AppId(1), 10, 30, host as u32);
        net.on(host, |manager, _| manager.add(Box::new(group)));
        (0..3).for_each(|member| net.handle(host, joined(member)));
    }
    net
}

fn last_applied(net: &Net, host: usize) -> i64 {
    net.wires.applied.iter().rev().find(|(at, ..)| *at == host).map_or(-1, |(.., amount)| *amount)
}

#[test]
fn a_group_divides_its_amount_among_applications_of_many_hosts() {
    let mut net = class();
    net.run_for(MS(3_000));
    assert_eq!([0, 1, 2].map(|host| last_applied(&net, host)), [10, 10, 30]);
}

#[test]
fn the_next_host_leads_when_the_leader_of_a_group_is_gone() {
    let mut net = class();
    net.run_for(MS(3_000));
    net.kill(0);
    net.run_for(MS(6_000));
    assert_eq!([1, 2].map(|host| last_applied(&net, host)), [10, 30], "it may be behind a partition");
    net.run_for(MS(6_000));
    assert_eq!([1, 2].map(|host| last_applied(&net, host)), [20, 30]);
}

/// Host 0 asks two others for 30 for a minute; their brokers have not answered yet.
fn asking_brokers(rule: Rule) -> Net {
    asking_brokers_with(rule, Bytes::ZERO)
}

fn asking_brokers_with(rule: Rule, memory: Bytes) -> Net {
    asking_brokers_for(rule, memory, BitRate::ZERO)
}

fn asking_brokers_for(rule: Rule, memory: Bytes, rate: BitRate) -> Net {
    let mut net = Net::new(3);
    for host in 1..3 {
        net.on(host, |manager, _| manager.broker(CPU, channel("pool")));
    }
    let (channel, hold) = (channel("pool"), MS(60_000));
    let ask = Ask { request: 7, channel, attribute: CPU, amount: 30, memory, rate, rule, patience: MS(400), hold };
    net.on(0, |manager, now| manager.ask(ask, now));
    net.deliver();
    net
}

fn broker_says(net: &mut Net, host: usize, left: Option<i64>) {
    net.on(host, |manager, now| manager.kept((&name("h0"), 7), left, now));
    net.deliver();
}

#[test]
fn an_amount_is_offered_only_when_the_broker_keeps_it_and_kept_for_the_agreed_time() {
    let mut net = asking_brokers(Rule::First);
    let asked = |net: &Net| net.wires.kept.iter().map(|(host, ..)| *host).collect::<Vec<_>>();
    assert_eq!((asked(&net), net.wires.answered.len()), (vec![1, 2], 0));
    broker_says(&mut net, 1, None);
    assert!(net.wires.answered.is_empty(), "the broker refused, so nothing is offered");
    broker_says(&mut net, 2, Some(20));
    assert_eq!(*net.outcome(), met("h2"));
    assert_eq!(net.wires.kept.last(), Some(&(2, 7, Some((30, net.now + MS(60_000))))));
    net.run_for(MS(59_000));
    assert_eq!(asked(&net), [1, 2, 2], "the amount is kept");
    net.run_for(MS(2_000));
    assert_eq!(net.wires.kept[3..], [(2, 7, None)], "the loan ends when its time is over");
}

#[test]
fn memory_is_kept_beside_the_amount_and_hosts_that_do_not_know_it_lend_the_amount_alone() {
    let memory = Bytes::from_mib(64);
    let mut net = asking_brokers_with(Rule::First, memory);
    assert_eq!(net.wires.memory, [memory, memory]);
    broker_says(&mut net, 2, Some(20));
    assert_eq!(*net.outcome(), Outcome::Met { host: name("h2"), memory, rate: None });
    // Messages of an older lender have zero in the field.
    let mut net = asking_brokers_with(Rule::First, memory);
    for (kind, value) in [(QualityKind::Offer, 20), (QualityKind::Confirm, 30)] {
        net.handle(0, Input::Control(channel("pool"), name("h1"), said(kind, 7, value)));
    }
    assert_eq!(*net.outcome(), met("h1"));
    // So has the request of an older asker. A lender that claims more than was asked keeps what was asked.
    let mut net = asking_brokers_with(Rule::First, memory);
    net.handle(1, Input::Control(channel("pool"), name("h5"), said(QualityKind::Request, 8, 30)));
    assert_eq!(net.wires.memory.last(), Some(&Bytes::ZERO));
    let more = QualityEvent { other: i64::MAX, ..said(QualityKind::Offer, 7, 20) };
    for event in [more, said(QualityKind::Confirm, 7, 30)] {
        net.handle(0, Input::Control(channel("pool"), name("h1"), event));
    }
    assert_eq!(*net.outcome(), Outcome::Met { host: name("h1"), memory, rate: None });
}

#[test]
fn a_rate_is_kept_beside_the_amount_on_the_link_that_the_offer_names() {
    let (memory, rate) = (Bytes::ZERO, BitRate::new(2_000_000));
    let kept = |rate| LoanRate { interface: "eth0".parse().unwrap(), rate };
    let mut net = asking_brokers_for(Rule::First, memory, rate);
    assert_eq!(net.wires.rates, [rate, rate]);
    net.on(2, |manager, now| {
        manager.kept_rate((&name("h0"), 7), kept(rate));
        manager.kept((&name("h0"), 7), Some(20), now);
    });
    net.deliver();
    assert_eq!(*net.outcome(), Outcome::Met { host: name("h2"), memory, rate: Some(kept(rate)) });
    assert_eq!(net.wires.rates.last(), Some(&rate), "the accepted loan has its rate");
    // An older lender says nothing about a rate. One that keeps another rate than was asked for keeps none of use.
    let less = QualityEvent { subject: QualityText::new("1000000 eth0"), ..said(QualityKind::Offer, 7, 20) };
    for offer in [said(QualityKind::Offer, 7, 20), less] {
        let mut net = asking_brokers_for(Rule::First, memory, rate);
        for event in [offer, said(QualityKind::Confirm, 7, 30)] {
            net.handle(0, Input::Control(channel("pool"), name("h1"), event));
        }
        assert_eq!(*net.outcome(), met("h1"));
    }
}

#[test]
fn a_loan_ends_when_another_offer_wins_the_asker_is_gone_or_gives_it_back() {
    let won = |net: &mut Net| {
        broker_says(net, 1, Some(20));
        broker_says(net, 2, Some(20));
    };
    let mut net = asking_brokers(Rule::First);
    won(&mut net);
    assert_eq!((net.outcome(), net.wires.kept.last()), (&met("h1"), Some(&(2, 7, None))));
    net.on(0, |manager, now| manager.give_back((&channel("pool"), &name("h1")), CPU, 7, now));
    net.deliver();
    assert_eq!(net.wires.kept.last(), Some(&(1, 7, None)));
    let mut net = asking_brokers(Rule::First);
    won(&mut net);
    net.kill(0);
    assert_eq!(net.wires.kept.last(), Some(&(1, 7, None)));
    let mut net = asking_brokers(Rule::First);
    won(&mut net);
    let before = net.wires.kept.len();
    net.on(1, |manager, now| manager.used(&name("h0"), 7, now));
    net.deliver();
    assert!(net.wires.taken.contains(&(0, name("h1"), 7)), "{:?}", net.wires.taken);
    net.kill(0);
    assert_eq!(net.wires.kept.len(), before, "an application claimed it, so it is not the asker's any more");
}

#[test]
fn without_a_measured_distance_the_fastest_offer_counts_as_the_nearest() {
    let mut net = asking_brokers(Rule::Nearest);
    net.wires.unmeasured = true;
    broker_says(&mut net, 2, Some(20));
    net.run_for(MS(100));
    broker_says(&mut net, 1, Some(20));
    net.run_for(MS(400));
    assert_eq!(*net.outcome(), met("h2"));
}

#[test]
fn a_broker_is_asked_on_its_channel_only() {
    let mut net = asking_brokers(Rule::First);
    let ask = Ask {
        request: 8,
        channel: channel("video"),
        attribute: CPU,
        amount: 30,
        memory: Bytes::ZERO,
        rate: BitRate::ZERO,
        rule: Rule::First,
        patience: MS(400),
        hold: Nanos::ZERO,
    };
    net.on(0, |manager, now| manager.ask(ask, now));
    net.deliver();
    assert!(net.wires.kept.iter().all(|(_, request, _)| *request == 7));
}

#[test]
fn a_request_of_zero_or_a_foreign_cancel_changes_nothing() {
    let mut net = Net::asking(2, Rule::First);
    net.run_for(MS(200));
    let event = |kind, value| QualityEvent {
        controller: AttributeId::of("manager"),
        kind,
        value,
        other: 0,
        request: 7,
        at: Instant::ZERO,
        application: HOST,
        attribute: CPU,
        subject: QualityText::NONE,
    };
    net.handle(1, Input::Control(channel("pool"), name("h5"), event(QualityKind::Cancel, 0)));
    net.handle(1, Input::Control(channel("pool"), name("h5"), event(QualityKind::Request, -5)));
    assert_eq!(net.lent(), [30]);
}

fn said(kind: QualityKind, request: u64, value: i64) -> QualityEvent {
    let (controller, subject, at) = (AttributeId::of("manager"), QualityText::NONE, Instant::ZERO);
    QualityEvent { controller, kind, value, other: 0, request, at, application: HOST, attribute: CPU, subject }
}

#[test]
fn repeated_offers_of_one_host_count_once() {
    let mut net = Net::asking(1, Rule::BestOf(2));
    net.wires.queue.clear();
    for amount in 0..1_000 {
        net.handle(0, Input::Control(channel("pool"), name("h1"), said(QualityKind::Offer, 7, amount)));
    }
    assert!(net.wires.queue.is_empty(), "the rule waits for two hosts");
    net.handle(0, Input::Control(channel("pool"), name("h2"), said(QualityKind::Offer, 7, 7)));
    let (_, _, to, accepted) = net.wires.queue.pop_front().expect("the larger offer is accepted");
    assert_eq!((to, accepted.kind), (Recipient::Host(name("h1")), QualityKind::Accept));
}

#[test]
fn at_most_256_requests_of_other_hosts_are_held() {
    let mut net = Net::new(1);
    net.on(0, |manager, now| manager.capacity(CPU, 1_000_000, now));
    for request in 0..1_000 {
        net.handle(0, Input::Control(channel("v"), name("h1"), said(QualityKind::Request, request, 1)));
        net.handle(0, Input::Control(channel("v"), name("h1"), said(QualityKind::Accept, request, 1)));
    }
    assert_eq!(net.managers[0].lent(CPU), 256);
    net.handle(0, Input::HostGone(name("h1")));
    assert_eq!(net.managers[0].lent(CPU), 0);
}

/// A policy that computes elsewhere; this controller only passes on changes.
struct Absent;

impl Controller for Absent {
    fn name(&self) -> &str {
        "absent"
    }

    fn interests(&self) -> Vec<Interest> {
        Vec::new()
    }

    fn changed(&mut self, _change: &Change, _view: &View<'_>, _decisions: &mut Decisions) {}
}

#[test]
fn decisions_computed_elsewhere_are_carried_out_until_the_policy_is_removed() {
    let (mut manager, now) = (Manager::new(name("a")), Instant::ZERO);
    let number = manager.add(Box::new(Absent));
    let decided = || vec![Decision::Apply { application: AppId(1), attribute: CPU, amount: 5 }];
    manager.decided(number, decided(), now);
    assert_eq!(manager.poll(), Some(Output::Effect(Effect::Apply(AppId(1), CPU, 5))));
    manager.remove(number);
    manager.decided(number, decided(), now);
    assert_eq!((manager.poll(), manager.counts().decisions), (None, 1));
}
