//! The daemon's timeline as a trace in Perfetto's own format, for <https://ui.perfetto.dev> and `trace_processor`.
//!
//! Give every page of the timeline to [`TraceWriter::add`], take the bytes from [`TraceWriter::take`], and append
//! them to a file: a trace is a sequence of packets, so the bytes of several calls and of several hosts may follow
//! each other. The writer reads no clock and does no I/O; its memory grows with the number of applications,
//! channels and CPUs, not with the number of records.
//!
//! ```text
//! host ─┬─ application ─┬─ jobs       slices from release (or the end of the job before) to finish
//!       │               ├─ misses     instants at the deadline
//!       │               ├─ budget     counter, percent of one CPU, all threads together
//!       │               ├─ error      counter, ms
//!       │               └─ decisions  instants
//!       ├─ ECalls                     instants
//!       ├─ channel …                  instants, with arrows from source to sink
//!       ├─ CPUs ─ CPU n               slices: which thread ran
//!       └─ policies                   instants
//! ```
//! Source of the format: the field numbers of `perfetto_trace.proto`, which Perfetto promises to keep.
#![forbid(unsafe_code)]

mod proto;
mod tracks;
mod writer;

pub use writer::{ClockReading, CpuSlice, TraceCounts, TraceWriter};
