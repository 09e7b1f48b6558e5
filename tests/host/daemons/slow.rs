//! A host behind a slow link, and an application that hardly reads.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::host::{Site, eventually};
use crate::talk::{Heard, Reader, Sender, Talk};

/// 1.6 Mbit/s, and what the slow link takes of it.
const SIZE: usize = 1000;
const PERIOD: Duration = Duration::from_millis(5);
const RATE: &str = "400kbit";
/// The link stays slow until the slow reader is this many events behind the healthy one, more than are on their way to a
/// healthy one at any time, and until this many changes of its attribute were known.
const BEHIND: usize = 600;
const CHANGES: i64 = 20;

/// How long events were on their way, the middle one and the one that 99 of 100 are faster than. For people: a disturbed
/// machine has other delays.
fn delays(heard: &[Heard], since: Instant) -> (Duration, Duration) {
    let mut delays: Vec<_> = heard.iter().filter(|heard| heard.at >= since).map(|heard| heard.delay).collect();
    delays.sort();
    let at = |percent: usize| delays.get(delays.len() * percent / 100).copied().unwrap_or_default();
    (at(50), at(99))
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
    // Were the healthy reader held up by the slow one, the sender would be, too, and none would fall behind.
    let sender = Sender::paced(&site[0], "video", SIZE, PERIOD, &readers["h1"]);
    let since = Instant::now();
    let heard = |host: &str| readers[host].heard().len();
    eventually("both hear", || heard("h1") >= 100 && heard("h2") >= 100);
    let before = delays(&readers["h1"].heard(), since);

    site.lan.shape(2, RATE);
    let (since, mut looks) = (Instant::now(), Vec::new());
    for look in 0..CHANGES {
        readers["h2"].set("load", look);
        looks.push(eventually("the attribute is known", || load(&site, "h2") == Some(look)));
        std::thread::sleep(Duration::from_millis(100));
    }
    eventually("the slow one falls behind", || heard("h1") >= heard("h2") + BEHIND);
    looks.sort();
    let (beside, slow) = (delays(&readers["h1"].heard(), since), delays(&readers["h2"].heard(), since));
    println!("the healthy one: p50/p99 {before:?}, beside the slow one {beside:?}; the slow one {slow:?}");
    println!("changes of the slow one known after {:?}, {:?} at most", looks[looks.len() / 2], looks[looks.len() - 1]);
    assert_eq!(known(), 3, "the slow one is still a member");

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
