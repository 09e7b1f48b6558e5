//! nginx as an unmodified server whose page costs CPU time: nginx compresses a text for each request.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use tempfile::TempDir;

/// The header field that makes nginx compress the page.
pub(crate) const HEADER: &str = "Accept-Encoding: gzip";

/// Approximate CPU time in ns that gzip uses per byte of the text at level 9. It determines the size of the text.
const NANOS_PER_BYTE: u64 = 115;

const WORDS: [&str; 16] = [
    "budget",
    "period",
    "deadline",
    "a",
    "the",
    "kernel",
    "handler",
    "of",
    "events",
    "and",
    "queue",
    "server",
    "in",
    "connection",
    "overload",
    "reply",
];

/// A folder with a configuration and a page. Dropping the value removes the folder.
#[derive(Debug)]
pub(crate) struct Site {
    folder: TempDir,
}

impl Site {
    /// Creates a site at `port` whose page costs about `work_ns` of CPU time.
    pub(crate) fn new(port: u16, work_ns: u64) -> Result<Site> {
        let folder = tempfile::tempdir().context("cannot create a folder for nginx")?;
        let bytes = (work_ns / NANOS_PER_BYTE).clamp(1 << 10, 16 << 20) as usize;
        fs::write(folder.path().join("work"), text(bytes))?;
        fs::write(folder.path().join("nginx.conf"), configuration(folder.path(), port))?;
        Ok(Site { folder })
    }

    /// The arguments that nginx is started with.
    pub(crate) fn arguments(&self) -> [String; 4] {
        let folder = self.folder.path().display();
        ["-p".into(), format!("{folder}"), "-c".into(), format!("{folder}/nginx.conf")]
    }
}

/// One worker, with as many connections as possible. All files that nginx writes are in the folder.
fn configuration(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    format!(
        "daemon off; worker_processes 1; worker_rlimit_nofile 20480; user root; pid {folder}/pid;
error_log {folder}/error.log crit;
events {{ worker_connections 20000; }}
http {{
  access_log off; default_type text/plain; keepalive_timeout 75s; client_header_timeout 75s;
  gzip on; gzip_comp_level 9; gzip_min_length 0; gzip_types text/plain; gzip_proxied any;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{port} backlog=511; root {folder}; }}
}}
"
    )
}

/// A text of words whose order repeats only after a long time, with numbered lines. It compresses like prose.
fn text(bytes: usize) -> String {
    let (mut text, mut state) = (String::with_capacity(bytes + 64), 1_u64);
    let mut number = 0;
    while text.len() < bytes {
        number += 1;
        let _ = write!(text, "{number}:");
        for _ in 0..12 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push(' ');
            text.push_str(WORDS[(state >> 60) as usize]);
        }
        text.push('\n');
    }
    text.truncate(bytes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_the_page_follows_from_its_cost() {
        let site = Site::new(1, 11_500_000).unwrap();
        let page = fs::read_to_string(site.folder.path().join("work")).unwrap();
        assert_eq!(page.len(), 100_000);
        assert!(page.starts_with("1: ") && page.contains("\n1000: "));
    }
}
