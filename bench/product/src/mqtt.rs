//! MQTT 3.1.1 with hand-written packets, quality of service 0: less work than any client library does.

use std::collections::HashMap;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::field::{Each, Peer, Publish};

type Wants = Mutex<HashMap<String, Each>>;

const CONNECT: u8 = 0x10;
const PUBLISH: u8 = 0x30;
const SUBSCRIBE: u8 = 0x82;

pub(crate) struct Mqtt {
    stream: Arc<Mutex<TcpStream>>,
    wants: Arc<Wants>,
}

impl Mqtt {
    pub(crate) fn open(net: &str) -> Mqtt {
        let mut stream = TcpStream::connect(format!("{net}.1:7700")).expect("a broker");
        stream.set_nodelay(true).expect("nodelay");
        // A new session without keep-alive; the broker chooses the client's name.
        stream.write_all(&packet(CONNECT, &[b"\0\x04MQTT\x04\x02\0\0", b"\0\0"])).expect("sent");
        let (reading, wants) = (stream.try_clone().expect("a handle"), Arc::<Wants>::default());
        let mqtt = Mqtt { stream: Arc::new(Mutex::new(stream)), wants: Arc::clone(&wants) };
        thread::spawn(move || {
            let mut reading = BufReader::new(reading);
            while read(&mut reading, &wants).is_some() {}
        });
        mqtt
    }
}

/// Encodes a packet: its kind, the length of the rest in groups of seven bits, the rest.
fn packet(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let (mut whole, mut length) = (vec![kind], parts.iter().map(|part| part.len()).sum::<usize>());
    while length > 0x7f {
        whole.push(length as u8 | 0x80);
        length >>= 7;
    }
    whole.push(length as u8);
    parts.iter().for_each(|part| whole.extend_from_slice(part));
    whole
}

fn read(stream: &mut impl Read, wants: &Wants) -> Option<()> {
    let (mut byte, mut length, mut shift) = ([0], 0, 0);
    stream.read_exact(&mut byte).ok()?;
    let kind = byte[0];
    loop {
        stream.read_exact(&mut byte).ok()?;
        length |= usize::from(byte[0] & 0x7f) << shift;
        shift += 7;
        if byte[0] & 0x80 == 0 {
            break;
        }
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).ok()?;
    if kind & 0xf0 == PUBLISH {
        let (size, rest) = rest.split_first_chunk::<2>()?;
        let (topic, payload) = rest.split_at_checked(u16::from_be_bytes(*size).into())?;
        let mut wants = wants.lock().expect("no panic");
        wants.get_mut(std::str::from_utf8(topic).ok()?).into_iter().for_each(|each| each(payload));
    }
    Some(())
}

impl Peer for Mqtt {
    fn subscribe(&self, topic: &'static str, each: Each) {
        let mut wants = self.wants.lock().expect("no panic");
        wants.insert(topic.to_owned(), each);
        let (number, size) = ((wants.len() as u16).to_be_bytes(), (topic.len() as u16).to_be_bytes());
        let subscribe = packet(SUBSCRIBE, &[&number, &size, topic.as_bytes(), &[0]]);
        self.stream.lock().expect("no panic").write_all(&subscribe).expect("sent");
    }

    fn publish(&self, topic: &'static str) -> Publish {
        let (stream, size) = (Arc::clone(&self.stream), (topic.len() as u16).to_be_bytes());
        Box::new(move |bytes| {
            let publish = packet(PUBLISH, &[&size, topic.as_bytes(), bytes]);
            stream.lock().expect("no panic").write_all(&publish).expect("sent");
        })
    }

    fn echo(&self) {
        let mut back = self.publish("pong");
        self.subscribe("ping", Box::new(move |bytes| back(bytes)));
    }

    fn wait_for(&self, _topic: &'static str, _sinks: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_read() {
        let (wants, seen) = (Wants::default(), Arc::<Mutex<Vec<u8>>>::default());
        let keep = Arc::clone(&seen);
        wants.lock().unwrap().insert("pong".into(), Box::new(move |bytes| keep.lock().unwrap().extend(bytes)));
        let whole = packet(PUBLISH, &[b"\0\x04pong", &[7; 200]]);
        assert_eq!(whole[1..3], [0xce, 1], "206 in groups of seven bits");
        assert_eq!(read(&mut &whole[..], &wants), Some(()));
        assert_eq!(*seen.lock().unwrap(), [7; 200]);
    }
}
