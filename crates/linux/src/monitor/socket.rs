//! `socket.*`: counters of sockets from /proc/net/sockstat, snmp and netstat.

use qfabric_types::monitor::Attribute;

use super::text::{OpenFile, Scratch, lines, number, raw, scaled, words};
use super::{Finder, Meter, attributes};

const USED: [&str; 4] = ["socket.used", "socket.tcp", "socket.tcp_memory", "socket.udp"];
/// Attribute, protocol of the line, name of the column.
const SNMP: &[(&str, &str, &str)] = &[
    ("socket.opened", "Tcp", "ActiveOpens"),
    ("socket.accepted", "Tcp", "PassiveOpens"),
    ("socket.connected", "Tcp", "CurrEstab"),
    ("socket.retransmitted", "Tcp", "RetransSegs"),
    ("socket.udp_received", "Udp", "InDatagrams"),
    ("socket.udp_dropped", "Udp", "InErrors"),
];
const NETSTAT: &[(&str, &str, &str)] = &[("socket.refused", "TcpExt", "ListenOverflows")];

pub(super) fn find(finder: &mut Finder) {
    match OpenFile::open(&finder.proc("net/sockstat")) {
        Ok(file) => finder.found(Used { file, page: rustix::param::page_size() as u64 }),
        Err(error) => finder.missing("socket.used", error),
    }
    for (path, columns) in [("net/snmp", SNMP), ("net/netstat", NETSTAT)] {
        match OpenFile::open(&finder.proc(path)) {
            Ok(file) => finder.found(Table { file, columns }),
            Err(error) => finder.missing(columns[0].0, error),
        }
    }
}

struct Used {
    file: OpenFile,
    page: u64,
}

impl Meter for Used {
    fn attributes(&self) -> Vec<Option<Attribute>> {
        attributes(&USED)
    }

    fn look(&mut self, scratch: &mut Scratch, values: &mut [Option<i64>]) {
        let Some(text) = self.file.read(scratch) else { return };
        for line in lines(text) {
            match words(line).next() {
                Some(b"sockets:") => values[0] = number_after(line, b"used").and_then(raw),
                Some(b"TCP:") => {
                    values[1] = number_after(line, b"inuse").and_then(raw);
                    values[2] = number_after(line, b"mem").and_then(|pages| scaled(pages, self.page));
                }
                Some(b"UDP:") => values[3] = number_after(line, b"inuse").and_then(raw),
                _ => (),
            }
        }
    }
}

/// The number after a word, as in `TCP: inuse 1 orphan 0`.
fn number_after(line: &[u8], name: &[u8]) -> Option<u64> {
    words(line).skip_while(|word| *word != name).nth(1).and_then(number)
}

/// A file with pairs of lines: the names of the columns, and their numbers.
struct Table {
    file: OpenFile,
    columns: &'static [(&'static str, &'static str, &'static str)],
}

impl Meter for Table {
    fn attributes(&self) -> Vec<Option<Attribute>> {
        self.columns.iter().map(|(metric, ..)| super::attribute(metric, "")).collect()
    }

    fn look(&mut self, scratch: &mut Scratch, values: &mut [Option<i64>]) {
        let Some(text) = self.file.read(scratch) else { return };
        let mut lines = lines(text);
        while let (Some(names), Some(numbers)) = (lines.next(), lines.next()) {
            let protocol = words(names).next().and_then(|word| word.strip_suffix(b":")).unwrap_or_default();
            if !self.columns.iter().any(|(_, of, _)| of.as_bytes() == protocol) {
                continue;
            }
            for (name, count) in words(names).zip(words(numbers)).skip(1) {
                let wanted =
                    |(_, of, column): &(&str, &str, &str)| of.as_bytes() == protocol && column.as_bytes() == name;
                if let Some(slot) = self.columns.iter().position(wanted) {
                    values[slot] = number(count).and_then(raw);
                }
            }
        }
    }
}
