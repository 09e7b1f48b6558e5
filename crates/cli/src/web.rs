//! `qfabric web`: opens the web page of the daemon.
//!
//! The address has the user's token. Other users can read the command lines of programs, so the address is never given
//! to one: the browser opens a file that only its user can read, and this file leads to the address.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::exit::{Done, Failure, Outcome};
use crate::{connect, output};

/// Opens the web page of the daemon in a browser.
///
/// The page shows live what status, top, channel, policy and energy show, as far as this user may see it. Its policy
/// laboratory checks and simulates policies, and starts and stops those of this user; the page changes nothing else.
/// The daemon serves it at a loopback address, or by TLS at the address that its configuration names; without TLS use
/// ssh -L PORT:127.0.0.1:PORT from another machine. Without a browser or a desktop session, prints the address. The
/// address has a token of this user: keep it secret. It is valid until the daemon ends.
/// Ends with 4 if no daemon answers, and with 3 if the configuration forbids the page.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples: qfabric web
          qfabric web --print-url")]
pub(crate) struct Args {
    /// Print the address instead of opening a browser
    #[arg(long)]
    print_url: bool,
    /// Print the address as JSON; opens no browser
    #[arg(long)]
    json: bool,
    /// Path of the daemon's socket [default: $QFABRIC_SOCKET; else $XDG_RUNTIME_DIR/qfabric/qfabric.sock, then
    /// /run/qfabric/qfabric.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let page = connect::daemon(args.socket.as_deref())?.web_page().map_err(connect::failure)?;
    if args.json {
        output::print_json(&page)?;
        return Ok(Done(0));
    }
    if args.print_url {
        output::print(&format!("{}\n", page.url))?;
        return Ok(Done(0));
    }
    match own_folder().map(|folder| open(&folder, &page.url)) {
        Some(Ok(())) => output::print("the web page opens in the browser\n")?,
        Some(Err(error)) => fall_back(&page.url, &error.to_string())?,
        None => fall_back(&page.url, "this session has no desktop, or no XDG_RUNTIME_DIR")?,
    }
    Ok(Done(0))
}

/// Prints the address, with the reason on standard error.
fn fall_back(url: &str, why: &str) -> Result<(), Failure> {
    output::note(format_args!("no browser was opened ({why}); open this address:"));
    output::print(&format!("{url}\n"))
}

/// The folder for the file, if this session has a desktop. The folder must belong to this user alone.
fn own_folder() -> Option<PathBuf> {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY") {
        return None;
    }
    let folder = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    let found = fs::metadata(&folder).ok()?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
    is_own.then_some(folder)
}

/// Writes the file and opens it with the browser of the desktop.
fn open(folder: &Path, url: &str) -> io::Result<()> {
    let file = write_page(folder, url)?;
    let opener = Command::new("xdg-open").arg(file).stdin(Stdio::null()).stdout(Stdio::null()).status();
    let outcome = opener.map_err(|error| io::Error::new(error.kind(), format!("xdg-open: {error}")))?;
    if outcome.success() { Ok(()) } else { Err(io::Error::other(format!("xdg-open: {outcome}"))) }
}

/// Replaces the file of an earlier call.
fn write_page(folder: &Path, url: &str) -> io::Result<PathBuf> {
    let file = folder.join("qfabric-web.html");
    fs::remove_file(&file)
        .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    let text = format!(
        "<!doctype html><meta charset=\"utf-8\"><title>Q-Fabric</title>\n\
         <meta http-equiv=\"refresh\" content=\"0; url={url}\">\n<a href=\"{url}\">Q-Fabric</a>\n"
    );
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file)?.write_all(text.as_bytes())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_leads_to_the_page_is_private_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        write_page(folder.path(), "http://127.0.0.1:1/#token=old").unwrap();
        let file = write_page(folder.path(), "http://127.0.0.1:1/#token=new").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        let text = fs::read_to_string(file).unwrap();
        assert!(text.contains("url=http://127.0.0.1:1/#token=new\"") && !text.contains("old"), "{text}");
    }
}
