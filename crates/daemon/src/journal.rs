//! Log lines in the journal's own form: a priority, the message, and each value as a field of its own.
//!
//! The layer of `tracing-journald` sends in the thread that logs, which would wait while the journal does not read. Here
//! a line goes through the same queue as text, and only the queue's thread sends.
//!
//! Source: «Native Journal Protocol» of systemd. Departure: a line break in a value is written as `\n`, because the
//! queue carries text and not the binary form of such values.

use std::fmt::{self, Write as _};
use std::io;
use std::os::linux::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The socket of the journal.
const SOCKET: &str = "/run/systemd/journal/socket";
/// systemd sets it to the device and the inode of the stream that it connected to the journal.
const STREAM: &str = "JOURNAL_STREAM";
/// Longest value of a field, in characters. A datagram has room for many of them.
const VALUE: usize = 4_096;

/// A connection to the journal; each write is one entry.
pub(crate) struct Journal(UnixDatagram);

impl Journal {
    /// The journal, if standard error is connected to it.
    pub(crate) fn of_stderr() -> Option<Journal> {
        let stderr = std::fs::metadata("/proc/self/fd/2").ok()?;
        let stream = std::env::var(STREAM).ok()?;
        if stream != format!("{}:{}", stderr.st_dev(), stderr.st_ino()) {
            return None;
        }
        Journal::at(Path::new(SOCKET)).ok()
    }

    fn at(socket: &Path) -> io::Result<Journal> {
        let datagrams = UnixDatagram::unbound()?;
        datagrams.connect(socket)?;
        Ok(Journal(datagrams))
    }
}

impl io::Write for Journal {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        self.0.send(entry)?;
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formats an event as an entry of the journal.
pub(crate) struct JournalFormat;

impl<S, N> FormatEvent<S, N> for JournalFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut entry = Entry::default();
        event.record(&mut entry);
        let meta = event.metadata();
        let Entry { message, values, fields } = entry;
        writeln!(writer, "PRIORITY={}\nSYSLOG_IDENTIFIER=qfabric", priority(meta.level()))?;
        writeln!(writer, "MESSAGE={message}{values}\nQFABRIC_MODULE={}", meta.target())?;
        writer.write_str(&fields)
    }
}

/// The priorities of syslog.
fn priority(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// The parts of an entry.
#[derive(Default)]
struct Entry {
    message: String,
    /// ` name=value` for each value, for people.
    values: String,
    /// A line `QFABRIC_NAME=value` for each value, for programs.
    fields: String,
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        let value = one_line(value);
        if field.name() == "message" {
            self.message = value;
            return;
        }
        let name: String = field.name().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        // Writing into a string does not fail.
        let _ = write!(self.values, " {}={value}", field.name());
        let _ = writeln!(self.fields, "QFABRIC_{}={value}", name.to_ascii_uppercase());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.record_str(field, &value.to_string());
    }
}

/// A value that cannot end its line: names of applications are input of others.
fn one_line(value: &str) -> String {
    value.chars().take(VALUE).collect::<String>().replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tracing_subscriber::prelude::*;

    #[test]
    fn an_entry_has_a_priority_a_message_and_a_field_for_each_value() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let journal = UnixDatagram::bind(&socket).unwrap();
        let writer = Mutex::new(Journal::at(&socket).unwrap());
        let layer = tracing_subscriber::fmt::layer().event_format(JournalFormat).with_writer(writer);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::warn!(app = 3, name = "a\nPRIORITY=0", "not granted");
        });
        let mut entry = [0; 4_096];
        let length = journal.recv(&mut entry).unwrap();
        let text = std::str::from_utf8(&entry[..length]).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let module = format!("QFABRIC_MODULE={}", module_path!());
        let expected = [
            "PRIORITY=4",
            "SYSLOG_IDENTIFIER=qfabric",
            "MESSAGE=not granted app=3 name=a\\nPRIORITY=0",
            &module,
            "QFABRIC_APP=3",
            "QFABRIC_NAME=a\\nPRIORITY=0",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn without_a_journal_there_is_no_connection() {
        assert!(Journal::at(Path::new("/nowhere/socket")).is_err());
        if std::env::var_os(STREAM).is_none() {
            assert!(Journal::of_stderr().is_none());
        }
    }
}
