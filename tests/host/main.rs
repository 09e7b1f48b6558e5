//! Hosts that are network namespaces of their own, with a process each: what crashes, silence, cut cables and
//! partitions do to the others. Needs root and `ip`; elsewhere it says so and passes.

mod member;
mod net;

use std::time::Duration;

use member::Member;
use net::Net;

/// Started by [`Member`], with what it needs in its environment: one host.
#[test]
fn member_process() {
    if let Ok(settings) = std::env::var(member::SETTINGS) {
        qfabric_link::one_receive_thread();
        member::run(&settings);
    }
}

#[test]
fn crashes_silence_cut_cables_and_partitions_are_known_to_all_and_heal() {
    let Some(net) = Net::new(4) else { return };
    let mut members: Vec<Member> = (0..4).map(|host| Member::start(&net, host)).collect();
    all_meet(&members);
    crash(&net, &mut members);
    silence(&members);
    cut_cable(&net, &members);
    partition(&net, &members);
}

fn all_meet(members: &[Member]) {
    for member in members {
        for other in members.iter().filter(|other| other.name != member.name) {
            member.until(0, &format!("appeared {}", other.name));
        }
    }
    events_flow(members);
}

/// Every member hears an event of every other one that was submitted from now on.
fn events_flow(members: &[Member]) {
    let now = net::now_us();
    for member in members {
        for other in members.iter().filter(|other| other.name != member.name) {
            member.until(now, &format!("event {}", other.name));
        }
    }
}

/// Until all but one know that it is gone. How long that took is printed for people: a disturbed machine is slower.
fn known(what: &str, since: u64, rest: &[&Member], gone: &str) {
    let times: Vec<u64> = rest.iter().map(|member| member.until(since, &format!("vanished {gone}")) - since).collect();
    println!("{what}: known to the others after {:?} ms", times.iter().map(|us| us / 1000).collect::<Vec<_>>());
}

fn rest<'a>(members: &'a [Member], of: &Member) -> Vec<&'a Member> {
    members.iter().filter(|member| member.name != of.name).collect()
}

fn crash(net: &Net, members: &mut Vec<Member>) {
    let mut crashed = members.remove(0);
    let since = net::now_us();
    crashed.kill();
    known("kill -9 of the channel's creator", since, &members.iter().collect::<Vec<_>>(), &crashed.name);
    events_flow(members);
    members.insert(0, Member::start(net, 0));
    all_meet(members);
}

fn silence(members: &[Member]) {
    let silent = &members[1];
    let since = net::now_us();
    silent.signal("STOP");
    known("SIGSTOP", since, &rest(members, silent), &silent.name);
    silent.signal("CONT");
    back(members, silent);
}

fn back(members: &[Member], member: &Member) {
    let since = net::now_us();
    for other in rest(members, member) {
        other.until(since, &format!("appeared {}", member.name));
    }
    println!("and back after {} ms", (net::now_us() - since) / 1000);
    events_flow(members);
}

fn cut_cable(net: &Net, members: &[Member]) {
    let cut = &members[2];
    let since = net::now_us();
    net.cable(2, false);
    known("cable cut", since, &rest(members, cut), &cut.name);
    net.cable(2, true);
    back(members, cut);
}

/// Hosts 0 and 1 on one side of the cut, 2 and 3 on the other; each side goes on by itself.
fn partition(net: &Net, members: &[Member]) {
    let since = net::now_us();
    net.trunk(false);
    let (here, there) = members.split_at(2);
    for (side, others) in [(here, there), (there, here)] {
        for other in others {
            known("partition", since, &side.iter().collect::<Vec<_>>(), &other.name);
        }
    }
    events_flow(here);
    events_flow(there);
    let left = 10_000_000_u64.saturating_sub(net::now_us() - since);
    std::thread::sleep(Duration::from_micros(left));
    net.trunk(true);
    let healed = net::now_us();
    events_flow(members);
    println!("partition of 10 s: events between all again after {} ms", (net::now_us() - healed) / 1000);
}
