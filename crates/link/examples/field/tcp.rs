//! The lower bound: one connection to each sink, a length before each event, no broker.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::{Each, Peer, Publish, until};

/// The numbers of topics on the wire.
const TOPICS: [&str; 5] = ["ping", "pong", "events", "bulk", "control"];
type Wants = Mutex<Vec<(u8, Each)>>;

pub(crate) struct Tcp {
    streams: Arc<Mutex<Vec<TcpStream>>>,
    wants: Arc<Wants>,
}

fn number(topic: &str) -> u8 {
    TOPICS.iter().position(|known| *known == topic).expect("a topic") as u8
}

impl Tcp {
    pub(crate) fn open(net: &str, host: usize) -> Tcp {
        let tcp = Tcp { streams: Arc::default(), wants: Arc::default() };
        let address = format!("{net}.1:7700");
        let (streams, wants) = (Arc::clone(&tcp.streams), Arc::clone(&tcp.wants));
        let add = move |stream: TcpStream| {
            stream.set_nodelay(true).expect("nodelay");
            streams.lock().expect("no panic").push(stream.try_clone().expect("a handle"));
            let wants = Arc::clone(&wants);
            thread::spawn(move || read(stream, &wants));
        };
        if host == 0 {
            let listener = TcpListener::bind(address).expect("an address");
            thread::spawn(move || listener.incoming().flatten().for_each(add));
        } else {
            add(TcpStream::connect(address).expect("somebody listens"));
        }
        tcp
    }

    fn count(&self) -> usize {
        self.streams.lock().expect("no panic").len()
    }
}

fn read(mut stream: TcpStream, wants: &Wants) {
    let (mut head, mut bytes) = ([0; 5], vec![0; 64 << 10]);
    loop {
        if stream.read_exact(&mut head).is_err() {
            return;
        }
        let length = u32::from_le_bytes(*head.first_chunk().expect("four bytes")) as usize;
        if stream.read_exact(&mut bytes[..length]).is_err() {
            return;
        }
        let mut wants = wants.lock().expect("no panic");
        wants.iter_mut().filter(|(topic, _)| *topic == head[4]).for_each(|(_, each)| each(&bytes[..length]));
    }
}

fn frame(topic: u8, bytes: &[u8], into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    into.push(topic);
    into.extend_from_slice(bytes);
}

impl Peer for Tcp {
    fn subscribe(&self, topic: &'static str, each: Each) {
        self.wants.lock().expect("no panic").push((number(topic), each));
    }

    fn publish(&self, topic: &'static str) -> Publish {
        let (streams, topic, mut whole) = (Arc::clone(&self.streams), number(topic), Vec::new());
        Box::new(move |bytes| {
            frame(topic, bytes, &mut whole);
            streams.lock().expect("no panic").iter_mut().for_each(|stream| _ = stream.write_all(&whole));
        })
    }

    fn echo(&self) {
        let mut back = self.publish("pong");
        self.subscribe("ping", Box::new(move |bytes| back(bytes)));
    }

    fn wait_for(&self, _topic: &'static str, sinks: usize) {
        until(|| self.count() >= sinks);
    }
}
