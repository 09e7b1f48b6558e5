//! Hosts that lend to each other: what one has to refuse, the right one of two others keeps, and lets go.

use std::time::Duration;

use qfabric_types::api::{ApplicationRequest, ApplicationScope};
use qfabric_types::{Class, Contract, Nanos, ThreadId};
use serde_json::Value;

use crate::far::Far;
use crate::host::{Answer, Host, Site, eventually};
use crate::player::{self, Player, SHARE, applications, claim, keeps};

/// How long the way to the far lender takes: much longer than an answer of the near one, and with the way back much
/// shorter than offers are waited for.
const DELAY: Duration = Duration::from_millis(100);
/// CPUs of the asker, the far lender and the near one: a program of 0.3 fits into each, and the far one has more left.
const CAPACITY: [f64; 3] = [0.4, 0.8, 0.5];
const FAR: usize = 1;
const NEAR: usize = 2;

/// The hosts, the far one behind a relay for the asker.
struct Lenders {
    site: Site,
    _far: Far,
}

impl Lenders {
    fn new() -> Option<Lenders> {
        let site = Site::new(&[0, 1, 0])?;
        let far = Far::start(&site, FAR, DELAY);
        let mut lenders = Lenders { site, _far: far };
        lenders.start(FAR, "give", "");
        lenders.start_near();
        Some(lenders)
    }

    fn start(&mut self, host: usize, lend: &str, connect: &str) {
        let more = format!("connect = [{connect}]\nlend = '{lend}'\n[limits]\ncapacity = {}", CAPACITY[host]);
        self.site.start_with(host, &more);
    }

    fn start_near(&mut self) {
        let far = format!("'{}:7700'", self.site.lan.address(FAR));
        self.start(NEAR, "give", &far);
    }

    /// The asker, for whom that offer wins. It has just begun, and has not measured how far they are.
    fn ask_by(&mut self, rule: &str) {
        self.site.kill(0);
        let (near, far) = (self.site.lan.address(NEAR), self.site.lan.address(FAR));
        self.start(0, rule, &format!("'{near}:7700', '{far}:7800'"));
        self.all_lend();
    }

    /// What the asker, which has no room any more, is told when the offer of `giver` wins, and the program that fills it.
    /// On a starving machine the near one may answer after the far one, and the far one too late: then it asks again.
    fn asked<T>(
        &mut self,
        rule: &str,
        giver: usize,
        ask: impl Fn(&Host) -> T,
        names: fn(&T, &str) -> bool,
    ) -> (Player, T) {
        for _ in 0..20 {
            self.ask_by(rule);
            let full = Player::start(&self.site[0].folder, &[]);
            let told = ask(&self.site[0]);
            if names(&told, &self.site[giver].name) {
                return (full, told);
            }
            self.site.kill(0);
            eventually("the asker is gone", || self.keep() == [0, 0]);
        }
        panic!("{rule}: the offer of another host wins each time");
    }

    fn all_lend(&self) {
        let lend = |host: &Host| {
            let groups = host.run(&["group", "ls", "--json"]).json();
            groups[0]["members"].as_array().is_some_and(|members| members.len() == 3)
        };
        eventually("all lend", || self.site.hosts().iter().all(lend));
    }

    /// What the far one keeps, and the near one, as a user sees there.
    fn keep(&self) -> [usize; 2] {
        [FAR, NEAR].map(|host| keeps(&self.site[host].folder))
    }
}

/// Asks for this thread, as any program may by HTTP: what is said of who keeps it.
fn asked_by_http(host: &Host) -> Value {
    let contract = Contract {
        class: Class::A,
        guaranteed: Some(SHARE),
        max_bandwidth: SHARE,
        ..Contract::new("x", Nanos::from_millis(40))
    };
    let covers = ApplicationScope::Thread(ThreadId(rustix::thread::gettid().as_raw_nonzero().get()));
    let request = ApplicationRequest { pid: std::process::id() as i32, covers, contract };
    let answer = host.http("POST /v1/applications", &serde_json::to_string(&request).unwrap());
    assert!(answer.starts_with("HTTP/1.1 409"), "{answer}");
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let problem: Value = serde_json::from_str(&body[body.find('{').unwrap()..=body.rfind('}').unwrap()]).unwrap();
    problem["offer"].clone()
}

#[test]
fn the_first_the_best_or_the_nearest_offer_wins_and_who_else_offered_keeps_nothing() {
    let Some(mut lenders) = Lenders::new() else { return };
    for (rule, giver, kept) in [("first", NEAR, [0, 1]), ("best", FAR, [1, 0]), ("nearest", NEAR, [0, 1])] {
        let run = |asker: &Host| player::run(&asker.folder, &[]);
        let names = |refused: &Answer, giver: &str| refused.err.contains(&format!("host {giver}"));
        let (full, refused) = lenders.asked(rule, giver, run, names);
        refused.expect(3, &["keeps 0.3 CPU", "--claim h0:"]);
        eventually("the other one was told", || lenders.keep() == kept);
        let there = lenders.site[giver].folder.clone();
        let player = Player::start(&there, &["--claim", &claim(&refused)]);
        assert_eq!(applications(&there), 1, "{rule}");
        // The other one's offer may come last, and keeps its room until it is told, too.
        eventually("nobody keeps anything", || lenders.keep() == [0, 0]);
        player::run(&there, &["--claim", &claim(&refused)]).expect(3, &["this host has no loan for the claim"]);
        drop((player, full));
        eventually("it has left", || applications(&there) == 0);
    }
}

#[test]
fn what_is_kept_ends_with_who_asked_and_who_kept_it_is_not_named_again_when_it_is_gone() {
    let Some(mut lenders) = Lenders::new() else { return };
    let names = |offer: &Value, giver: &str| offer["host"] == giver;
    let (full, _) = lenders.asked("nearest", NEAR, asked_by_http, names);
    eventually("the other one was told", || lenders.keep() == [0, 1]);
    lenders.site.kill(0);
    eventually("the asker is gone", || lenders.keep() == [0, 0]);
    drop(full);

    let (_full, first) = lenders.asked("nearest", NEAR, asked_by_http, names);
    assert_eq!(asked_by_http(&lenders.site[0])["claim"], first["claim"], "who asks again is told the same");
    lenders.site.kill(NEAR);
    eventually("the lender is gone", || lenders.site[0].sees() == ["h0", "h1"]);
    let mut second = Value::Null;
    eventually("the far one offers", || {
        second = asked_by_http(&lenders.site[0]);
        second["host"] == "h1"
    });
    let there = lenders.site[FAR].folder.clone();
    let _player = Player::start(&there, &["--claim", second["claim"].as_str().unwrap()]);
    assert_eq!((keeps(&there), applications(&there)), (0, 1));
    // The asker hears that it was claimed: who asks again does not get the same once more, and the far one has 0.5 left.
    eventually("another one is kept", || asked_by_http(&lenders.site[0])["claim"] != second["claim"]);
    assert_eq!(keeps(&there), 1);

    // Who comes back keeps nothing of before, and lends again.
    lenders.start_near();
    lenders.all_lend();
    assert_eq!(lenders.keep(), [1, 0]);
    let refused = || player::run(&lenders.site[0].folder, &[]);
    eventually("it offers", || refused().err.contains("host h2"));
}
