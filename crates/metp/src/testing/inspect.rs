//! Reads datagrams of a session, for checks of the protocol.

use qfabric_types::Nanos;

use crate::FrameKind;
use crate::wire::{self, Datagram};

/// A data TPDU, with the numbers as they travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentTpdu {
    /// Low 16 bits.
    pub number: u16,
    pub kind: FrameKind,
    /// Bytes of the message before this TPDU.
    pub offset: u32,
    pub bytes: usize,
    pub is_retransmission: bool,
    /// Time to the deadline.
    pub remaining: Option<Nanos>,
}

/// A report, with the numbers as they travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentReport {
    /// All messages below this number are settled.
    pub settled: u32,
    /// The first missing block.
    pub base: u32,
    pub window_end: u32,
    /// Missing ranges of blocks (GNACK) above `base`, and received ones (GPACK).
    pub missing: Vec<std::ops::Range<u32>>,
    pub received: Vec<std::ops::Range<u32>>,
}

/// The data TPDU in a datagram of a session with this tag.
pub fn tpdu(bytes: &[u8], tag: u16) -> Option<SentTpdu> {
    let Ok(Datagram::Data(data, part)) = wire::read(bytes, tag) else { return None };
    Some(SentTpdu {
        number: data.extent.number,
        kind: data.extent.kind,
        offset: data.offset * crate::blocks::BLOCK,
        bytes: part.len(),
        is_retransmission: data.is_retransmission,
        remaining: data.remaining_ms.map(|ms| Nanos::from_millis(u64::from(ms))),
    })
}

/// The report in a datagram of a session with this tag.
pub fn report(bytes: &[u8], tag: u16) -> Option<SentReport> {
    let Ok(Datagram::Report(report)) = wire::read(bytes, tag) else { return None };
    let mut sent = SentReport {
        settled: report.settled,
        base: report.base,
        window_end: report.window_end,
        missing: Vec::new(),
        received: Vec::new(),
    };
    let mut at = report.base;
    for run in report.runs() {
        let middle = at + run.missing;
        sent.missing.push(at..middle);
        at = middle + run.received;
        sent.received.push(middle..at);
    }
    Some(sent)
}
