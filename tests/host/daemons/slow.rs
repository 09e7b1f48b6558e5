//! A host behind a slow link, and an application that hardly reads.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::host::{Site, eventually};
use crate::talk::{Heard, Reader, Sender, Talk};

/// 1.6 Mbit/s, and what the slow link takes of it.
const SIZE: usize = 1000;
const PERIOD: Duration = Duration::from_millis(5);
const RATE: &str = "400kbit";
/// How long the link is slow.
const LONG: Duration = Duration::from_secs(4);

/// How long events were on their way, the middle one and the one that 99 of 100 are faster than.
fn delays(heard: &[Heard], since: Instant) -> (Duration, Duration) {
    let mut delays: Vec<_> = heard.iter().filter(|heard| heard.at >= since).map(|heard| heard.delay).collect();
    delays.sort();
    (delays[delays.len() / 2], delays[delays.len() * 99 / 100])
}

/// Attributes of the host's sinks, as another one knows them.
fn load(site: &Site, of: &str) -> Option<i64> {
    let info = site[0].show("video")?;
    let holding = info.hosts.iter().find(|holding| holding.host.as_str() == of)?;
    holding.sinks.iter().find_map(|sink| sink.attributes.get("load").copied())
}

#[test]
fn a_host_behind_a_slow_link_costs_the_others_nothing_and_stays_a_member() {
    let Some(site) = Site::started(&[0, 1, 1]) else { return };
    let readers = [("h1", Reader::start(&site[1], "video")), ("h2", Reader::start(&site[2], "video"))];
    let readers: BTreeMap<_, _> = readers.into_iter().map(|(name, reader)| (name.to_owned(), reader)).collect();
    let _sleepy = Reader::slow(&site[1], "video", Duration::from_secs(1));
    let known = || site[0].show("video").map_or(0, |info| info.hosts.iter().map(|host| host.sinks.len()).sum());
    eventually("the readers are known", || known() == 3);
    let sender = Sender::start(&site[0], "video", SIZE, PERIOD);
    let since = Instant::now();
    std::thread::sleep(Duration::from_secs(1));
    let before = delays(&readers["h1"].heard(), since);

    site.lan.shape(2, RATE);
    let (since, mut looks) = (Instant::now(), Vec::new());
    while since.elapsed() < LONG {
        let look = looks.len() as i64;
        readers["h2"].set("load", look);
        looks.push(eventually("the attribute is known", || load(&site, "h2") == Some(look)));
        std::thread::sleep(Duration::from_millis(100));
    }
    looks.sort();
    let (beside, slow) = (delays(&readers["h1"].heard(), since), delays(&readers["h2"].heard(), since));
    println!("the healthy one: p50/p99 {before:?}, beside the slow one {beside:?}; the slow one {slow:?}");
    println!("changes of the slow one known after {:?}, {:?} at most", looks[looks.len() / 2], looks[looks.len() - 1]);
    assert!(beside.0 <= before.0 + Duration::from_millis(1), "{before:?} {beside:?}");

    site.lan.unshape(2);
    let mut talk = Talk::of("video");
    talk.senders.insert("h0".into(), sender);
    talk.readers = readers;
    let lost = talk.balances(site.hosts());
    let sent = talk.senders["h0"].sent.load(std::sync::atomic::Ordering::Relaxed);
    let heard = ["h1", "h2"].map(|host| talk.readers[host].heard().len() as u64);
    println!("of {sent} events the two got {heard:?}; {lost} were lost or dropped, and counted");
    assert_eq!(heard[0], sent, "the healthy one got all");
    assert!(heard[1] < sent, "the link was slow");
}
