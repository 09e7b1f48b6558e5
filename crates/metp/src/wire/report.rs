//! A report: the group acknowledgments (§5.2.1), as one datagram of at most 256 bytes.
//!
//! All blocks below `base` are received, or the receiver no longer wants them. From `base`, the *first missing* block,
//! runs of missing and of received blocks alternate: a missing run is a group negative acknowledgment (GNACK), a
//! received run a group positive acknowledgment (GPACK). Ranges are therefore always ascending.

use super::{Flags, NotReadable, REPORT, Reader, begin, put_u24};

/// A run of missing blocks, and the run of received blocks behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) missing: u32,
    pub(crate) received: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// What the receiver knows of the last data TPDU; `None` before the first one.
    pub(crate) echo: Option<Echo>,
    /// The sender's last status that arrived.
    pub(crate) status: u32,
    /// All messages below this number are settled, low 32 bits.
    pub(crate) settled: u32,
    /// Bit i: message `settled` − 1 − i was not delivered completely.
    pub(crate) incomplete: u32,
    /// Low 32 bits.
    pub(crate) base: u32,
    /// The receiver has memory for the blocks below this position, low 32 bits.
    pub(crate) window_end: u32,
    /// The largest datagram that the receiver accepts.
    pub(crate) tpdu_size: u16,
    /// The largest message that the receiver accepts; zero if it receives no messages.
    pub(crate) largest_message: u32,
    /// Duplicates that arrived, low 16 bits.
    pub(crate) duplicates: u16,
    pub(crate) runs: Runs,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Echo {
    /// The sender's time in the last data TPDU.
    pub(crate) sent_us: u32,
    /// Time since its arrival, in units of 4 µs.
    pub(crate) held: u16,
    /// Missing transmissions up to this number are lost, not only late; low 24 bits.
    pub(crate) lost_up_to: u32,
}

/// The runs; a fixed array, because reports are built on the steady path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Runs {
    runs: [Run; Report::MOST_RUNS],
    count: usize,
}

impl Default for Runs {
    fn default() -> Runs {
        Runs { runs: [Run::default(); Report::MOST_RUNS], count: 0 }
    }
}

impl Report {
    /// The report then has 256 bytes, which every carrier takes.
    pub(crate) const MOST_RUNS: usize = 36;
    /// A length travels as 24 bits.
    pub(crate) const MOST_RUN: u64 = (1 << 24) - 1;

    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs.runs[..self.runs.count]
    }

    /// Adds a run; returns whether another one fits.
    pub(crate) fn push(&mut self, run: Run) -> bool {
        let Runs { runs, count } = &mut self.runs;
        runs[*count] = run;
        *count += 1;
        *count < Report::MOST_RUNS
    }

    pub(crate) fn write(&self, tag: u16, out: &mut Vec<u8>) {
        begin(REPORT, Flags::of([self.echo.is_some(), false, false]), tag, out);
        let echo = self.echo.unwrap_or_default();
        put_u24(out, echo.lost_up_to);
        out.extend_from_slice(&echo.sent_us.to_be_bytes());
        out.extend_from_slice(&echo.held.to_be_bytes());
        for word in [self.status, self.settled, self.incomplete, self.base, self.window_end] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(&self.tpdu_size.to_be_bytes());
        put_u24(out, self.largest_message);
        out.extend_from_slice(&self.duplicates.to_be_bytes());
        out.push(self.runs.count as u8);
        for run in self.runs() {
            put_u24(out, run.missing);
            put_u24(out, run.received);
        }
    }

    pub(super) fn read(flags: Flags, reader: &mut Reader<'_>) -> Result<Report, NotReadable> {
        let lost_up_to = reader.u24()?;
        let (sent_us, held) = (reader.u32()?, reader.u16()?);
        let mut report = Report {
            echo: flags.has(0).then_some(Echo { sent_us, held, lost_up_to }),
            status: reader.u32()?,
            settled: reader.u32()?,
            incomplete: reader.u32()?,
            base: reader.u32()?,
            window_end: reader.u32()?,
            tpdu_size: reader.u16()?,
            largest_message: reader.u24()?,
            duplicates: reader.u16()?,
            runs: Runs::default(),
        };
        let count = usize::from(reader.take::<1>()?[0]);
        if count > Report::MOST_RUNS || reader.bytes.len() != count * 6 {
            return Err(NotReadable);
        }
        for _ in 0..count {
            report.push(Run { missing: reader.u24()?, received: reader.u24()? });
        }
        Ok(report)
    }
}
