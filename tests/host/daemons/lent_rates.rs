//! A loan with a rate: the lender holds the rate on its open link, a stream draws from it, and it ends with the
//! program.

use crate::host::{Answer, Host, Site, eventually};
use crate::player::{self, Player, claim};

/// The rate of the loan, in bit/s.
const RATE: u64 = 4_000_000;

/// Two hosts that lend, with room for one program each. The second one has an open link of 10 Mbit/s.
fn lenders() -> Option<Site> {
    let mut site = Site::new(&[0, 0])?;
    (0..2).for_each(|host| site.start(host, "lend = 'first'\n[limits]\ncapacity = 0.4"));
    site[1].run(&["net", "link", "add", "eth0", "--rate", "10M", "--htb"]).expect(0, &["eth0 in:"]);
    let lends = |host: &Host| {
        let groups = host.run(&["group", "ls", "--json"]).json();
        groups[0]["members"].as_array().is_some_and(|members| members.len() == 2)
    };
    eventually("both lend", || site.hosts().iter().all(lends));
    Some(site)
}

fn promised(host: &Host) -> u64 {
    host.run(&["net", "show", "eth0", "--json"]).json()[0]["link"]["promised_bps"].as_u64().unwrap()
}

/// The refusal of a program that needs the rate, as soon as the lender keeps it: the offer of a busy lender may come too
/// late, and is cancelled.
fn kept(site: &Site) -> Answer {
    let mut answer = None;
    eventually("the lender keeps it", || {
        let refused = player::run(&site[0].folder, &["--loan-rate", "4M"]);
        let is_kept = refused.err.contains("which keeps");
        answer = Some(refused);
        is_kept
    });
    eventually("no other rate is promised", || promised(&site[1]) == RATE);
    answer.unwrap()
}

/// A stream of the lender that needs the whole rate in periods of 40 ms.
fn add(site: &Site, contract: &str) -> Answer {
    let flow = format!("udp,{}:5000,{}:6000", site.lan.address(1), site.lan.address(0));
    let size = (RATE / 25 / 8).to_string();
    let stream = ["net", "stream", "add", "eth0", "--flow", &flow, "--period", "40ms", "--size", &size];
    site[1].run(&[&stream[..], &["--contract", contract]].concat())
}

#[test]
fn the_rate_of_a_refused_program_is_kept_with_its_cpu_time_until_the_program_ends() {
    let Some(site) = lenders() else { return };
    let full = Player::start(&site[0].folder, &[]);
    eventually("the lender has no room", || {
        let too_much = player::run(&site[0].folder, &["--loan-rate", "20M"]);
        too_much.err.contains("no room on the other host either")
    });
    let refused = kept(&site);
    refused.expect(3, &["h1, which keeps 0.3 CPU and 4 Mbit/s out of eth0 for it", "stream add eth0 --contract h0:"]);
    site[1].run(&["status"]).expect(0, &["kept for an application of host h0: 0.3 CPU and 4 Mbit/s out of eth0"]);
    add(&site, "h0:1").expect(3, &[]);
    let program = Player::start(&site[1].folder, &["--loan-rate", "4M", "--claim", &claim(&refused)]);
    add(&site, &claim(&refused)).expect(0, &[]);
    assert_eq!(promised(&site[1]), RATE, "the stream draws, so nothing more is promised");
    drop(program);
    eventually("the rate is free", || promised(&site[1]) == 0);
    drop(full);
}

#[test]
fn the_rate_of_a_loan_is_free_again_when_the_host_that_asked_is_gone() {
    let Some(mut site) = lenders() else { return };
    let _full = Player::start(&site[0].folder, &[]);
    kept(&site).expect(3, &["4 Mbit/s out of eth0"]);
    site.kill(0);
    eventually("the rate is free", || promised(&site[1]) == 0);
}
