//! Joint contracts that end with a process, need the consent of an application, or ask before an upgrade.

use std::process::{Child, Command};
use std::time::Duration;

use qfabric_client::{
    ClientError, ConsentHandle, ConsentPolicy, ConsentRequest, JointBuilder, JointHandle, Resource, UpgradePolicy,
};
use serde_json::{Value, json};

use crate::contracts::{Partners, apply, call, end, granted, guaranteed, made, part};
use crate::host::{Host, PATIENCE, eventually};

/// A process that lives until it is killed.
struct Holder(Child);

impl Holder {
    fn new() -> Holder {
        Holder(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.kill();
    }
}

fn leased(parts: &[Value], pid: i32) -> Value {
    json!({"parts": parts, "lease_pid": pid})
}

/// A part of the second host that needs the consent of an application.
fn asking(application: &str) -> Value {
    let mut part = part(1, 0.3, 0.3);
    part["application"] = json!(application);
    part
}

/// Applies a contract that needs consent; returns the status and the text of its answer.
fn ask(host: &Host, application: &str) -> (u16, String) {
    let (code, answer) = apply(host, &[part(0, 0.2, 0.2), asking(application)]);
    (code, answer.to_string())
}

#[test]
fn a_contract_ends_on_both_hosts_when_its_holder_is_killed() {
    let Some(partners) = Partners::new(2) else { return };
    let site = &partners.0;
    let mut holder = Holder::new();
    let parts = [part(0, 0.3, 0.3), part(1, 0.5, 0.5)];
    let (code, contract) = call(&site[0], "POST /v1/contracts", &leased(&parts, holder.pid()));
    assert_eq!((code, granted(&contract)), (201, vec![0.3, 0.5]), "{contract}");
    let without = made(&site[0], &[part(0, 0.1, 0.1), part(1, 0.1, 0.1)]);
    holder.kill();
    eventually("only the contract without a lease is left", || {
        (guaranteed(&site[0]), guaranteed(&site[1])) == (0.1, 0.1)
    });
    assert_eq!(call(&site[0], "GET /v1/contracts", &Value::Null).1, json!([without]));
    let (code, refused) = call(&site[0], "POST /v1/contracts", &leased(&parts, holder.pid()));
    assert_eq!((code, &refused["code"]), (410, &json!("gone")), "{refused}");
    assert_eq!(end(&site[0], &without), 204);
    eventually("all is free", || partners.is_free(&[0, 1]));
}

#[test]
fn a_contract_that_is_being_made_ends_with_its_holder() {
    let Some(partners) = Partners::new(2) else { return };
    let site = &partners.0;
    let mut holder = Holder::new();
    // The second host does not answer, so the contract is not decided.
    site[1].signal("STOP");
    let parts = [part(0, 0.3, 0.3), part(1, 0.3, 0.3)];
    let answer = std::thread::scope(|scope| {
        let asked = scope.spawn(|| call(&site[0], "POST /v1/contracts", &leased(&parts, holder.0.id() as i32)));
        eventually("the first host holds its part", || guaranteed(&site[0]) == 0.3);
        let _ = Command::new("kill").args(["-KILL", &holder.0.id().to_string()]).status();
        asked.join().unwrap()
    });
    assert_eq!((answer.0, &answer.1["code"]), (410, &json!("gone")), "{}", answer.1);
    site[1].signal("CONT");
    holder.kill();
    eventually("all is free", || partners.is_free(&[0, 1]));
}

#[test]
fn a_leased_handle_ends_its_contract_when_its_last_copy_is_dropped() {
    let Some(partners) = Partners::new(2) else { return };
    let site = &partners.0;
    let client = site[0].client();
    let builder = JointBuilder::new().want("h1", Resource::Cpu, 0.3, 0.3).unwrap();
    let kept = builder.clone().apply(&client).unwrap();
    let leased = builder.leased().apply(&client).unwrap();
    let copy = leased.clone();
    drop(leased);
    assert_eq!(guaranteed(&site[1]), 0.6);
    drop(copy);
    eventually("the leased one has ended", || guaranteed(&site[1]) == 0.3);
    let id = kept.id().clone();
    drop(kept);
    assert!(client.joint_contract(&id).is_ok(), "without a lease it survives its handle");
}

#[test]
fn a_standing_answer_decides_and_nobody_and_another_user_do_not() {
    let Some(partners) = Partners::new(2) else { return };
    let site = &partners.0;
    let (code, refusal) = apply(&site[0], &[part(0, 0.2, 0.2), asking("player")]);
    assert_eq!((code, &refusal["refused_by"]), (409, &json!("h1")), "{refusal}");
    assert!(refusal.to_string().contains("no program answers for the application"), "{refusal}");
    site[1].run(&["contract", "consent", "player", "--decline"]).expect(0, &["declines every contract"]);
    let (code, text) = ask(&site[0], "player");
    assert!(code == 409 && text.contains("the application did not consent"), "{text}");
    assert!(partners.is_free(&[0]));
    site[1].run(&["contract", "consent", "player", "--accept"]).expect(0, &["consents to every contract"]);
    site[1].run(&["contract", "consent"]).expect(0, &["player", "accept"]);
    let (code, text) = ask(&site[0], "player");
    assert_eq!(code, 201, "{text}");
    site[1].run(&["contract", "consent", "player", "--forget"]).expect(0, &["nobody answers"]);
    site[1].run(&["contract", "consent", "player", "--forget"]).expect(3, &["nobody answers", "try: "]);
    assert_eq!(ask(&site[0], "player").0, 409);
}

#[test]
fn a_program_is_asked_and_its_answer_decides() {
    let Some(partners) = Partners::new(2) else { return };
    let site = &partners.0;
    let client = site[1].client();
    let answers = ConsentHandle::begin(&client, "player").unwrap();
    let asked_and_answered = |is_accepted| {
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&site[0], "player"));
            let question = answers.next(PATIENCE).unwrap().expect("a question");
            assert_eq!((question.contract.host.as_str(), question.resources.cpu.as_f64()), ("h0", 0.3));
            // Not by the command, which takes longer to start than the program has time to answer.
            let held = client.status().unwrap().guaranteed.as_f64();
            let is_answered = answers.answer(&question, is_accepted).is_ok();
            let (code, text) = asked.join().unwrap();
            (code, text, is_answered && held >= 0.3)
        })
    };
    for (is_accepted, code, said) in [(true, 201, ""), (false, 409, "the application did not consent")] {
        let mut all = Vec::new();
        let is_met = (0..10).any(|_| {
            all.push(asked_and_answered(is_accepted));
            all.last().is_some_and(|(got, text, is_held)| *got == code && text.contains(said) && *is_held)
        });
        // On a starving machine, an answer may come too late.
        let others = &all[..all.len() - 1];
        assert!(is_met && others.iter().all(|(_, text, _)| text.contains("did not answer in time")), "{all:?}");
    }
    eventually("the declined one holds nothing", || guaranteed(&site[1]) == 0.3);
    drop(answers);
    assert!(ask(&site[0], "player").1.contains("no program answers"));
}

#[test]
fn a_program_that_is_silent_or_dies_while_it_is_asked_refuses() {
    let Some(partners) = Partners::new(2) else { return };
    let site = &partners.0;
    let client = site[1].client();
    let answers = ConsentHandle::begin(&client, "player").unwrap();
    let (code, text) = ask(&site[0], "player");
    assert!(code == 409 && text.contains("did not answer in time") && text.contains("\"h1\""), "{text}");
    let late = answers.next(Duration::ZERO).unwrap();
    assert!(late.is_none(), "its time is over: {late:?}");
    let dies = |_| {
        let mut holder = Holder::new();
        client.consent("camera", ConsentRequest { policy: ConsentPolicy::Ask, pid: Some(holder.pid()) }).unwrap();
        let (code, text) = std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&site[0], "camera"));
            while client.consents().unwrap()[0].open == 0 && !asked.is_finished() {}
            holder.kill();
            asked.join().unwrap()
        });
        assert_eq!(code, 409, "{text}");
        eventually("it is forgotten", || client.consents().unwrap().len() == 1);
        text.contains("no program answers")
    };
    // On a starving machine, its time may be over before its death is known.
    assert!((0..10).any(dies), "its death refuses nothing");
    eventually("nothing is held", || partners.is_free(&[0, 1]));
}

/// A contract that has 0.2 of the 0.5 CPU that it wants on the second host, and one that has the rest.
fn partly(partners: &Partners, upgrades: UpgradePolicy) -> (JointHandle, Value) {
    let site = &partners.0;
    let other = made(&site[1], &[part(1, 0.6, 0.6)]);
    let builder = JointBuilder::new().want("h1", Resource::Cpu, 0.5, 0.1).unwrap().upgrades(upgrades);
    let contract = builder.apply(&site[0].client()).unwrap();
    assert!(contract.is_partial());
    (contract, other)
}

#[test]
fn an_upgrade_that_asks_is_accepted_or_declined_by_the_program() {
    let Some(partners) = Partners::new(2) else { return };
    let site = &partners.0;
    let (mut contract, other) = partly(&partners, UpgradePolicy::Ask);
    assert!(contract.next_offer(Duration::ZERO).unwrap().is_none());
    assert_eq!(end(&site[1], &other), 204);
    let offer = contract.next_offer(PATIENCE).unwrap().expect("an offer");
    assert_eq!((offer.host.as_str(), offer.resources[0].granted), ("h1", 0.5));
    contract.answer_offer(&offer, true).unwrap();
    eventually("it is upgraded", || {
        contract.refresh().unwrap();
        !contract.is_partial()
    });
    contract.end().unwrap();
    eventually("all is free", || partners.is_free(&[0, 1]));

    let (mut contract, other) = partly(&partners, UpgradePolicy::Ask);
    assert_eq!(end(&site[1], &other), 204);
    let offer = contract.next_offer(PATIENCE).unwrap().expect("an offer");
    contract.answer_offer(&offer, false).unwrap();
    let again = contract.answer_offer(&offer, true).unwrap_err();
    assert!(matches!(&again, ClientError::Refused(problem) if problem.code == "no_such_offer"), "{again}");
    eventually("the declined part is free again", || guaranteed(&site[1]) == 0.2);
    contract.refresh().unwrap();
    assert!(contract.is_partial());
}

#[test]
fn a_contract_without_upgrades_stays_as_it_is() {
    let Some(partners) = Partners::new(2) else { return };
    let site = &partners.0;
    let (contract, other) = partly(&partners, UpgradePolicy::Never);
    assert_eq!(end(&site[1], &other), 204);
    eventually("the other one has ended", || guaranteed(&site[1]) == 0.2);
    // Longer than the interval at which partly satisfied contracts are tried again.
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(guaranteed(&site[1]), 0.2);
    let asked = contract.next_offer(PATIENCE).unwrap_err().to_string();
    assert!(asked.contains("--upgrades ask"), "{asked}");
}
