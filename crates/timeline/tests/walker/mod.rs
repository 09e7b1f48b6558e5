//! Reads protobuf as its specification describes the bytes, without the library that wrote them and without its
//! messages: an independent check of what a trace contains.
#![allow(dead_code)]

/// One field of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message in their order.
///
/// # Panics
/// If the bytes are not a message.
pub(crate) fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => Field::Number(u64::from_le_bytes(cut(&mut bytes, 8).try_into().unwrap())),
            2 => {
                let length = varint(&mut bytes) as usize;
                Field::Bytes(cut(&mut bytes, length))
            }
            kind => panic!("wire type {kind} does not occur in a trace"),
        };
        all.push((key >> 3, field));
    }
    all
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let length = bytes.iter().position(|byte| byte & 0x80 == 0).expect("a number ends") + 1;
    assert!(length <= 10);
    cut(bytes, length).iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f))
}

fn cut<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (first, rest) = bytes.split_at(length);
    *bytes = rest;
    first
}

/// A message and its fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message<'a>(Vec<(u64, Field<'a>)>);

impl<'a> Message<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Message<'a> {
        Message(fields(bytes))
    }

    pub(crate) fn all(&self, number: u64) -> impl Iterator<Item = Field<'a>> + '_ {
        self.0.iter().filter(move |(own, _)| *own == number).map(|(_, field)| *field)
    }

    pub(crate) fn number(&self, number: u64) -> Option<u64> {
        self.all(number).find_map(|field| if let Field::Number(value) = field { Some(value) } else { None })
    }

    pub(crate) fn text(&self, number: u64) -> Option<&'a str> {
        let bytes = self.all(number).find_map(|field| if let Field::Bytes(value) = field { Some(value) } else { None });
        bytes.map(|bytes| std::str::from_utf8(bytes).expect("a text is UTF-8"))
    }

    pub(crate) fn message(&self, number: u64) -> Option<Message<'a>> {
        self.messages(number).next()
    }

    pub(crate) fn messages(&self, number: u64) -> impl Iterator<Item = Message<'a>> + '_ {
        self.all(number)
            .filter_map(|field| if let Field::Bytes(value) = field { Some(Message::of(value)) } else { None })
    }
}

/// One event of a trace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub at: u64,
    /// 1 begin, 2 end, 3 instant, 4 counter.
    pub kind: u64,
    /// The names of its track and of the tracks around it, the outermost first.
    pub track: String,
    pub name: String,
    pub counter: Option<f64>,
    pub flows: Vec<u64>,
}

/// All events of a trace, in the order of the file.
pub(crate) fn events(trace: &[u8]) -> Vec<Event> {
    let packets: Vec<Message<'_>> = Message::of(trace).messages(1).collect();
    let tracks: Vec<Message<'_>> = packets.iter().filter_map(|packet| packet.message(60)).collect();
    let find = |uuid| tracks.iter().find(|track| track.number(1) == Some(uuid)).expect("every track is described");
    let path = |uuid: u64| {
        let (mut names, mut next) = (Vec::new(), Some(uuid));
        while let Some(uuid) = next {
            let track = find(uuid);
            names.insert(0, track.text(2).unwrap_or_default());
            next = track.number(5);
        }
        names.join("/")
    };
    let event = |packet: &Message<'_>| {
        let event = packet.message(11)?;
        let flow = |field| if let Field::Number(value) = field { Some(value) } else { None };
        Some(Event {
            at: packet.number(8).expect("every event has its time"),
            kind: event.number(9).expect("every event has its kind"),
            track: path(event.number(11).expect("every event is on a track")),
            name: event.text(23).unwrap_or_default().to_owned(),
            counter: event.number(44).map(f64::from_bits),
            flows: event.all(47).filter_map(flow).collect(),
        })
    };
    packets.iter().filter_map(event).collect()
}
