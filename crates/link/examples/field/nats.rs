//! NATS by its own protocol (a line and the bytes), with less work than any client library does.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::{Each, Peer, Publish, until};

type Wants = Mutex<HashMap<String, Each>>;

pub(crate) struct Nats {
    stream: Arc<Mutex<TcpStream>>,
    wants: Arc<Wants>,
    there: Arc<AtomicUsize>,
}

impl Nats {
    pub(crate) fn open(net: &str) -> Nats {
        let stream = TcpStream::connect(format!("{net}.1:7700")).expect("a broker");
        stream.set_nodelay(true).expect("nodelay");
        let reading = stream.try_clone().expect("a handle");
        let nats = Nats { stream: Arc::new(Mutex::new(stream)), wants: Arc::default(), there: Arc::default() };
        nats.say("CONNECT {\"verbose\":false,\"pedantic\":false}\r\n");
        let (wants, answering) = (Arc::clone(&nats.wants), Arc::clone(&nats.stream));
        thread::spawn(move || read(reading, &wants, &answering));
        let there = Arc::clone(&nats.there);
        nats.subscribe("here", Box::new(move |_| _ = there.fetch_add(1, Ordering::Relaxed)));
        nats
    }

    fn say(&self, line: &str) {
        self.stream.lock().expect("no panic").write_all(line.as_bytes()).expect("sent");
    }
}

fn read(stream: TcpStream, wants: &Wants, answering: &Mutex<TcpStream>) {
    let (mut stream, mut line, mut bytes) = (BufReader::new(stream), String::new(), Vec::new());
    while stream.read_line(&mut line).is_ok_and(|count| count > 0) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["PING"] => answering.lock().expect("no panic").write_all(b"PONG\r\n").expect("sent"),
            ["MSG", topic, _, length] => {
                bytes.resize(length.parse::<usize>().expect("a length") + 2, 0);
                stream.read_exact(&mut bytes).expect("the rest");
                let mut wants = wants.lock().expect("no panic");
                wants.get_mut(topic).into_iter().for_each(|each| each(&bytes[..bytes.len() - 2]));
            }
            _ => {}
        }
        line.clear();
    }
}

impl Peer for Nats {
    fn subscribe(&self, topic: &'static str, each: Each) {
        let mut wants = self.wants.lock().expect("no panic");
        wants.insert(topic.to_owned(), each);
        self.say(&format!("SUB {topic} {}\r\n", wants.len()));
    }

    fn publish(&self, topic: &'static str) -> Publish {
        let (stream, mut whole) = (Arc::clone(&self.stream), Vec::new());
        Box::new(move |bytes| {
            whole.clear();
            whole.extend_from_slice(format!("PUB {topic} {}\r\n", bytes.len()).as_bytes());
            whole.extend_from_slice(bytes);
            whole.extend_from_slice(b"\r\n");
            stream.lock().expect("no panic").write_all(&whole).expect("sent");
        })
    }

    fn echo(&self) {
        let mut back = self.publish("pong");
        self.subscribe("ping", Box::new(move |bytes| back(bytes)));
    }

    fn wait_for(&self, topic: &'static str, sinks: usize) {
        if topic != "ping" {
            until(|| self.there.load(Ordering::Relaxed) >= sinks);
        }
    }

    fn here(&self, _topic: &'static str) {
        self.publish("here")(&[]);
    }
}
