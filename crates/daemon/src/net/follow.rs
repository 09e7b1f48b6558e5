//! Streams that follow attributes: a handler in E-code, in the kernel or in the daemon, sets attributes of its
//! subscription, and the stream changes accordingly. While a stream follows, a thread checks every 5 ms, because
//! attributes are words in shared memory that change without a notification. The same thread ends streams whose leases
//! are over, tells applications the offers of freed rates, carries out the decisions of policies about streams,
//! holds the rates of loans, and reports what streams count.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use qfabric_types::Owner;
use qfabric_types::api::ecalls::SubscriptionId;
use qfabric_types::api::net::{OFFER_SERVICE, StreamId, StreamSpec};

use super::{Net, State, leases};
use crate::auth::Peer;
use crate::ecalls::Ecalls;
use crate::ending::Ending;

/// Interval of checks while a stream follows: the longest time until a change of attributes reaches the stream.
const EVERY: Duration = Duration::from_millis(5);
/// Interval of checks while no stream follows.
const IDLE: Duration = Duration::from_millis(100);

/// Interval at which the thread checks whose packets the selectors take, and tries to open configured links.
const RECHECK: Duration = Duration::from_secs(1);

/// A stream, by interface and number, and the subscription that it follows.
type Followed = (String, StreamId, SubscriptionId);

/// Refused changes of the streams that follow now. A refused change is not tried again until the attributes differ.
type Refused = BTreeMap<Followed, StreamSpec>;

pub(super) fn start(net: &Arc<Net>, ecalls: &Arc<Ecalls>, ending: &Ending) -> io::Result<()> {
    let (net, ecalls) = (Arc::downgrade(net), Arc::downgrade(ecalls));
    ending.spawn("qf-net", move || follow(&net, &ecalls)).map(drop)
}

/// Ends with the daemon, which owns both.
fn follow(net: &Weak<Net>, ecalls: &Weak<Ecalls>) {
    let (mut refused, mut rechecked) = (Refused::new(), None::<Instant>);
    loop {
        let recheck = rechecked.is_none_or(|last| last.elapsed() >= RECHECK);
        if recheck {
            rechecked = Some(Instant::now());
        }
        let Some(is_followed) = look(net, ecalls, &mut refused, recheck) else { return };
        std::thread::sleep(if is_followed { EVERY } else { IDLE });
    }
}

fn look(net: &Weak<Net>, ecalls: &Weak<Ecalls>, refused: &mut Refused, recheck: bool) -> Option<bool> {
    let (net, ecalls) = (net.upgrade()?, ecalls.upgrade()?);
    let mut state = net.state();
    if recheck {
        state.forget_lost();
        state.open_configured();
    }
    let offers = leases::tick(&mut state, recheck);
    net.steer(&mut state);
    let lent = net.lend(&mut state);
    let readings = net.count(&state);
    let followed = followed(&state);
    refused.retain(|key, _| followed.contains(key));
    for stream in &followed {
        let (interface, id, subscription) = stream;
        let daemon = Peer { pid: std::process::id() as i32, owner: Owner { uid: 0, gid: 0 } };
        match ecalls.subscription(daemon, *subscription) {
            Ok(info) => apply(&mut state, stream, &info.attributes, refused),
            Err(_) => forget(&mut state, interface, *id),
        }
    }
    drop(state);
    if let Some(fabric) = net.fabric.get().and_then(Weak::upgrade) {
        fabric.stream_readings(&readings);
        fabric.rates_answered(lent);
    }
    offers.iter().for_each(|offer| ecalls.announce(OFFER_SERVICE, offer.pid, &offer.bytes()));
    Some(!followed.is_empty())
}

fn followed(state: &State) -> Vec<Followed> {
    let of = |(name, entry): (&String, &super::Interface)| {
        entry.followed.iter().map(|(id, subscription)| (name.clone(), *id, *subscription)).collect::<Vec<_>>()
    };
    state.attached.iter().flat_map(of).collect()
}

fn apply(state: &mut State, stream: &Followed, attributes: &[(String, i64)], refused: &mut Refused) {
    let (interface, id) = (stream.0.as_str(), stream.1);
    let Ok(entry) = state.get(interface) else { return };
    let (Ok(spec), Some(holder)) = (entry.attachment.spec(id), entry.holders.get(&id)) else { return };
    // The size that the user asked for. The granted one may be smaller, and would differ in every look.
    let now = StreamSpec { size: holder.wanted, terms: holder.terms.clone(), ..spec.clone() };
    let wanted = entry.attachment.kept(&now.following(attributes));
    if wanted == now || refused.get(stream) == Some(&wanted) {
        return;
    }
    match entry.set(id, &wanted) {
        Ok(()) => drop(refused.remove(stream)),
        Err(problem) => {
            tracing::warn!(
                interface,
                stream = id,
                "the stream keeps its properties, because the attributes ask for a change that is refused: {}",
                problem.message
            );
            refused.insert(stream.clone(), wanted);
        }
    }
}

/// The subscription has ended: the stream stays as it is.
fn forget(state: &mut State, interface: &str, id: StreamId) {
    if let Ok(entry) = state.get(interface) {
        entry.followed.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use qfabric_types::BitRate;

    use super::super::site::{ROOT, Site, site, stream};
    use super::*;

    #[test]
    fn a_new_stream_with_the_number_of_an_ended_one_gets_the_change_that_was_refused_before() {
        let Some(Site { net, .. }) = &site() else { return };
        let begin = |mark, rate| net.begin(ROOT, "qf5", &stream(mark, BitRate::new(rate))).unwrap().id;
        let (id, other) = (begin(1, 1_000_000), begin(2, 7_000_000));
        let larger = i64::from(stream(1, BitRate::new(5_000_000)).size);
        let (mut refused, attributes) = (Refused::new(), [("size_bytes".to_owned(), larger)]);
        let mut follow = |subscription| {
            apply(&mut net.state(), &("qf5".to_owned(), id, subscription), &attributes, &mut refused);
            net.show("qf5").unwrap().streams[0].promise.rate_bps
        };
        assert_eq!(follow(1), BitRate::new(1_000_000), "8 of 10 Mbit/s are promised");
        net.end(ROOT, "qf5", other).unwrap();
        net.end(ROOT, "qf5", id).unwrap();
        assert_eq!(begin(1, 1_000_000), id);
        assert_eq!(follow(2), BitRate::new(5_000_000));
    }
}
