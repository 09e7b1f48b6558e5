//! Loans between two real daemons: an application that one daemon refuses gets capacity of the other.

use std::path::Path;

use qfabric_client::{Claim, Client, ClientError, Offer};
use qfabric_linux::sched_attr::{Policy, SchedAttr};
use qfabric_types::api::{ApplicationRequest, ApplicationScope};
use qfabric_types::{Class, Contract, Nanos, Share, ThreadId};

use crate::channels::{Host, eventually, live};
use crate::harness::Answer;
use crate::player::{self, Player, SHARE, applications, claim, keeps, status};

/// Two hosts that lend capacity. Each has 0.4 CPU, enough for one program.
fn lenders(all: &Path, hold: &str) -> [Host; 2] {
    lenders_with(all, hold, "")
}

/// Each host may promise 1 MiB, also to one user.
const MEMORY: &str = "[memory]\nglobal_reserve = '1M'\ndefault_user = '1M'\n";

/// `sections`: further sections of both configurations.
fn lenders_with(all: &Path, hold: &str, sections: &str) -> [Host; 2] {
    let more = format!("lend = 'first'\nlend_hold = '{hold}'\n[limits]\ncapacity = 0.4\n{sections}");
    let hosts =
        [("alpha", "beta"), ("beta", "alpha")].map(|(name, other)| Host::configured(all, name, &[other], &more));
    eventually("both lend", || {
        hosts.iter().all(|host| {
            let groups = host.run(&["group", "ls", "--json"]).json();
            groups[0]["members"].as_array().is_some_and(|members| members.len() == 2)
        })
    });
    hosts
}

/// The refusal of a program, once it says that. A host waits half a second for offers: that of a starving one may come
/// too late, and is cancelled.
fn refused(host: &Host, options: &[&str], says: &str) -> Answer {
    let mut answer = None;
    eventually(says, || answer.insert(player::run(&host.folder, options)).err.contains(says));
    answer.unwrap()
}

#[test]
fn a_refused_program_runs_on_the_host_that_the_refusal_names() {
    let Some((_alone, all)) = live() else { return };
    let [alpha, beta] = lenders(all.path(), "60s");
    let run = |host: &Host, options: &[&str]| player::run(&host.folder, options);
    let full = Player::start(&alpha.folder, &[]);
    let refused = refused(&alpha, &[], "keeps");
    refused.expect(3, &["asked for a guarantee of 0.3 CPU", "host beta", "keeps 0.3 CPU", "60 s", "--claim alpha:"]);
    beta.run(&["status"]).expect(0, &["kept for an application of host alpha: 0.3 CPU", "0.3 CPU guaranteed"]);
    let loans = status(&beta.folder)["loans"].clone();
    assert_eq!((&loans[0]["host"], &loans[0]["share"]), (&"alpha".into(), &0.3.into()), "{loans}");
    assert!(loans[0]["left_ns"].as_u64().unwrap() > 3_000_000_000, "{loans}");
    self::refused(&beta, &[], "no room on the other host either").expect(3, &["for alpha"]);
    run(&beta, &["--claim", "alpha:1"]).expect(3, &["this host has no loan for the claim alpha:0000000000000001"]);
    run(&beta, &["--claim", "alpha"]).expect(2, &["HOST:NUMBER"]);
    let claim = claim(&refused);
    {
        let _player = Player::start(&beta.folder, &["--claim", &claim]);
        assert_eq!(keeps(&beta.folder), 0, "the loan is claimed");
        run(&beta, &["--claim", &claim]).expect(3, &["no loan for the claim"]);
        // A claimed loan does not depend on the host that asked for it.
        drop((full, alpha));
        eventually("the crash is known", || beta.hosts() == ["beta"]);
        assert_eq!(applications(&beta.folder), 1);
    }
    eventually("the program has ended", || applications(&beta.folder) == 0);
    run(&beta, &[]).expect(0, &[]);
}

#[test]
fn the_memory_of_a_refused_program_is_kept_with_its_cpu_time() {
    let Some((_alone, all)) = live() else { return };
    let [alpha, beta] = lenders_with(all.path(), "60s", MEMORY);
    let full = Player::start(&alpha.folder, &[]);
    let refused = refused(&alpha, &["--memory", "1M"], "keeps");
    refused.expect(3, &["asked for a guarantee of 0.3 CPU", "beta, which keeps 0.3 CPU and 1 MiB of memory for it"]);
    beta.run(&["status"]).expect(0, &["kept for an application of host alpha: 0.3 CPU and 1 MiB of memory"]);
    let loan = |key: &str| status(&beta.folder)["loans"][0][key].as_u64();
    let promised = || status(&beta.folder)["memory"]["promised_bytes"].as_u64();
    assert_eq!((loan("memory_bytes"), promised()), (Some(1 << 20), Some(1 << 20)));
    {
        let _player = Player::start(&beta.folder, &["--memory", "1M", "--claim", &claim(&refused)]);
        assert_eq!((keeps(&beta.folder), promised()), (0, Some(1 << 20)), "the application has what was kept");
    }
    eventually("the program has ended", || promised() == Some(0));
    // The memory alone is short here: the guarantee is asked for as well.
    drop(full);
    eventually("alpha has room", || applications(&alpha.folder) == 0);
    let small = Player::start(&alpha.folder, &["--memory", "512K"]);
    let refused = self::refused(&alpha, &["--memory", "1M"], "keeps");
    refused.expect(3, &["of resident memory", "keeps 0.3 CPU and 1 MiB"]);
    drop(small);
}

#[test]
fn a_loan_above_a_lowered_limit_ends_with_its_memory_when_its_claim_is_refused() {
    let Some((_alone, all)) = live() else { return };
    let [alpha, beta] = lenders_with(all.path(), "60s", MEMORY);
    let _full = Player::start(&alpha.folder, &[]);
    let refused = refused(&alpha, &["--memory", "1M"], "keeps");
    refused.expect(3, &["keeps 0.3 CPU and 1 MiB of memory"]);
    let mine = format!("{}=0.1", rustix::process::geteuid().as_raw());
    beta.run(&["limits", "set", "--user", "65534=0.1", "--user", &mine]).expect(0, &[]);
    assert_eq!(keeps(&beta.folder), 1, "limits end no loan");
    player::run(&beta.folder, &["--memory", "1M", "--claim", &claim(&refused)]).expect(3, &["0.1 CPU"]);
    assert_eq!(keeps(&beta.folder), 0);
    eventually("no memory is promised", || status(&beta.folder)["memory"]["promised_bytes"] == 0);
}

fn contract(guaranteed: Share) -> Contract {
    let period = Nanos::from_millis(40);
    let contract = Contract::new("x", period);
    Contract { class: Class::A, guaranteed: Some(guaranteed), max_bandwidth: guaranteed, ..contract }
}

/// A request for this thread.
fn request(guaranteed: Share) -> ApplicationRequest {
    let covers = ApplicationScope::Thread(ThreadId(rustix::thread::gettid().as_raw_nonzero().get()));
    ApplicationRequest { pid: std::process::id() as i32, covers, contract: contract(guaranteed) }
}

/// The offer in a refusal, once there is one.
fn offer_in<T>(ask: impl Fn() -> Result<T, ClientError>) -> Offer {
    let mut offer = None;
    eventually("the other host offers", || {
        let Err(ClientError::Refused(problem)) = ask() else { panic!("not refused") };
        assert_eq!(problem.code, "over_committed");
        offer = problem.offer;
        offer.is_some()
    });
    *offer.unwrap()
}

/// Requests a reservation that this host refuses, and returns the offer of the other host.
fn request_offer(client: &Client) -> Offer {
    offer_in(|| client.admit(&request(SHARE)))
}

#[test]
fn an_application_that_cannot_grow_keeps_its_contract_and_is_offered_all_of_the_larger_one_elsewhere() {
    let Some((_alone, all)) = live() else { return };
    let [alpha, beta] = lenders(all.path(), "60s");
    let client = alpha.client();
    let small = Share::from_ppm(100_000);
    let app = client.admit(&request(small)).unwrap();
    let full = Player::start(&alpha.folder, &[]);
    let grown = || client.change(app.id, &contract(SHARE));
    let offer = offer_in(grown);
    assert_eq!((offer.host.as_str(), offer.share), ("beta", SHARE));
    assert_eq!((keeps(&beta.folder), status(&beta.folder)["loans"][0]["share"].as_f64()), (1, Some(0.3)));
    assert_eq!(client.application(app.id).unwrap().contract.guaranteed, Some(small), "the old contract holds");
    let there = beta.client();
    client.release(app.id).unwrap();
    // Both daemons run on this machine. To beta, a thread that is still under alpha's
    // reservation looks like a thread that has set its own scheduling.
    eventually("the thread has left alpha's reservation", || {
        SchedAttr::of(ThreadId(0)).unwrap().policy != Policy::DEADLINE
    });
    let moved = there.claim(&offer.claim, &request(SHARE)).unwrap();
    assert_eq!(keeps(&beta.folder), 0);
    there.release(moved.id).unwrap();
    drop(full);
}

#[test]
fn a_loan_ends_when_it_is_given_back_when_its_time_is_over_and_when_the_host_that_asked_is_gone() {
    let Some((_alone, all)) = live() else { return };
    let [alpha, beta] = lenders(all.path(), "6s");
    let full = Player::start(&alpha.folder, &[]);
    let client = alpha.client();
    let first = request_offer(&client);
    assert_eq!((first.host.as_str(), first.share, first.held_ns), ("beta", SHARE, Nanos::from_millis(6_000)));
    assert_eq!(keeps(&beta.folder), 1);
    client.give_back(&first.claim).unwrap();
    eventually("the loan is given back", || keeps(&beta.folder) == 0);
    let again = client.give_back(&first.claim).unwrap_err().to_string();
    assert!(again.contains("has no offer"), "{again}");
    let second = request_offer(&client).claim;
    assert_eq!(request_offer(&client).claim, second, "a repeated request has the same claim");
    let foreign = Claim { host: "beta".parse().unwrap(), ..second };
    assert!(client.give_back(&foreign).is_err());
    assert_eq!(keeps(&beta.folder), 1);
    eventually("the time of the loan is over", || keeps(&beta.folder) == 0);
    request_offer(&client);
    assert_eq!(keeps(&beta.folder), 1);
    drop((full, alpha));
    eventually("the host that asked is gone", || keeps(&beta.folder) == 0);
}
