//! Zenoh without Q-Fabric, between peers: express, with Zenoh's priorities, and with the number of threads that the
//! environment sets.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use zenoh::qos::{CongestionControl, Priority};
use zenoh::sample::Sample;
use zenoh::{Session, Wait};

use super::{Each, Peer, Publish, until};

pub(crate) struct Bare {
    pub session: Session,
    /// Number of sinks that have announced themselves.
    there: Arc<AtomicUsize>,
    kept: Mutex<Vec<zenoh::pubsub::Subscriber<()>>>,
}

impl Bare {
    pub(crate) fn open(net: &str, host: usize) -> Bare {
        Bare::open_with(&format!("tcp/{net}.1:7700"), host, &[])
    }

    /// At another endpoint, with additional settings.
    pub(crate) fn open_with(endpoint: &str, host: usize, more: &[(&str, String)]) -> Bare {
        let mut config = zenoh::Config::default();
        let address = format!("[\"{endpoint}\"]");
        let (listen, connect) = if host == 0 { (&*address, "[]") } else { ("[]", &*address) };
        let settings = [
            ("listen/endpoints", listen),
            ("connect/endpoints", connect),
            ("scouting/multicast/enabled", "false"),
            ("scouting/gossip/enabled", "false"),
        ];
        let settings = settings.into_iter().chain(more.iter().map(|(key, value)| (*key, &**value)));
        settings.for_each(|(key, value)| config.insert_json5(key, value).expect("a setting"));
        let session = zenoh::open(config).wait().expect("a session");
        let bare = Bare { session, there: Arc::default(), kept: Mutex::default() };
        if host == 0 {
            let there = Arc::clone(&bare.there);
            bare.subscribe("here", Box::new(move |_| _ = there.fetch_add(1, Ordering::Relaxed)));
        }
        bare
    }

    fn publisher(&self, topic: &'static str) -> zenoh::pubsub::Publisher<'static> {
        let (priority, congestion) = match topic {
            "bulk" => (Priority::Data, CongestionControl::Drop),
            "stream" => (Priority::Data, CongestionControl::Block),
            "control" => (Priority::RealTime, CongestionControl::Block),
            _ => (Priority::RealTime, CongestionControl::Drop),
        };
        let publisher =
            self.session.declare_publisher(topic).express(!matches!(topic, "bulk" | "stream")).priority(priority);
        publisher.congestion_control(congestion).wait().expect("a publisher")
    }
}

impl Peer for Bare {
    fn subscribe(&self, topic: &'static str, each: Each) {
        let each = Mutex::new(each);
        let call = move |sample: Sample| each.lock().expect("no panic")(&sample.payload().to_bytes());
        let subscriber = self.session.declare_subscriber(topic).callback(call).wait().expect("a subscriber");
        // A subscription lasts as long as the session.
        self.kept.lock().expect("no panic").push(subscriber);
    }

    fn publish(&self, topic: &'static str) -> Publish {
        let publisher = self.publisher(topic);
        Box::new(move |bytes| publisher.put(bytes).wait().expect("sent"))
    }

    fn echo(&self) {
        let back = self.publisher("pong");
        let echo = move |sample: Sample| _ = back.put(sample.payload().clone()).wait();
        let subscriber = self.session.declare_subscriber("ping").callback(echo).wait().expect("a subscriber");
        self.kept.lock().expect("no panic").push(subscriber);
    }

    fn wait_for(&self, topic: &'static str, sinks: usize) {
        if topic != "ping" {
            until(|| self.there.load(Ordering::Relaxed) >= sinks);
        }
    }

    fn here(&self, _topic: &'static str) {
        self.session.put("here", "").wait().expect("sent");
    }
}
