//! The five sockets: created with the configured mode and group, removed when the service ends.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::config::{Api, Config};
use crate::startup::DaemonError;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// The folder in which sockets are prepared. Only the service's user may enter it.
const CLOSED: &str = ".new";
/// Names of the sockets.
const NAMES: [&str; 5] = ["qfabric.sock", "ring.sock", "ecalls.sock", "channels.sock", "memory.sock"];

/// The listening sockets, non-blocking. Their files are removed when this is dropped.
pub(crate) struct Sockets {
    pub http: Option<UnixListener>,
    pub rings: Option<OwnedFd>,
    pub ecalls: Option<OwnedFd>,
    pub channels: Option<OwnedFd>,
    pub memory: Option<OwnedFd>,
    pub http_path: PathBuf,
    rings_path: PathBuf,
    ecalls_path: PathBuf,
    channels_path: PathBuf,
    memory_path: PathBuf,
}

impl Sockets {
    /// Removes the files of the sockets, so that no client finds them.
    pub(crate) fn remove(&self) {
        let Sockets { http_path, rings_path, ecalls_path, channels_path, memory_path, .. } = self;
        for path in [http_path, rings_path, ecalls_path, channels_path, memory_path] {
            // Fails if the file is gone already, which is fine.
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Binds the sockets in `directory`. This service holds the folder's lock, so existing sockets are remains of a
/// former service.
///
/// Each socket is created in a folder that only the service's user may enter, gets its mode and group there, and is
/// then moved to its place. So no client ever sees the socket with another mode.
pub(crate) fn bind(config: &Config, directory: &Path) -> Result<Sockets, DaemonError> {
    let group = config.api.group.as_deref().map(find_group).transpose()?;
    let closed = directory.join(CLOSED);
    let failed = |source| DaemonError::Path { path: closed.clone(), source };
    let removed = || fs::remove_dir_all(&closed).or_else(|error| if_not_found(error, ()));
    removed().map_err(failed)?;
    fs::DirBuilder::new().mode(0o700).create(&closed).map_err(failed)?;
    let sockets = bind_through(&closed, config, group, directory);
    removed().map_err(failed)?;
    sockets
}

fn if_not_found<T>(error: io::Error, otherwise: T) -> io::Result<T> {
    if error.kind() == io::ErrorKind::NotFound { Ok(otherwise) } else { Err(error) }
}

fn bind_through(closed: &Path, config: &Config, group: Option<u32>, directory: &Path) -> Result<Sockets, DaemonError> {
    let [http_path, rings_path, ecalls_path, channels_path, memory_path] = NAMES.map(|name| directory.join(name));
    let packets = |path: &Path| {
        prepared(closed, path, config.api.mode, group, |fresh| {
            let socket = qfabric_shm::fds::listen(fresh, BACKLOG)?;
            rustix::io::ioctl_fionbio(&socket, true)?;
            Ok(socket)
        })
    };
    let (rings, ecalls) = (Some(packets(&rings_path)?), Some(packets(&ecalls_path)?));
    let channels = config.channels.enabled.then(|| packets(&channels_path)).transpose()?;
    let memory = Some(packets(&memory_path)?);
    // `ecalls.sock` is an exception: clients send sockets through it whose events they subscribe to.
    rings.iter().chain(&channels).chain(&memory).for_each(refuse_descriptors);
    let http = prepared(closed, &http_path, config.api.mode, group, |fresh| {
        let listener = UnixListener::bind(fresh)?;
        listener.set_nonblocking(true)?;
        refuse_descriptors(&listener);
        Ok(listener)
    })?;
    let http = Some(http);
    Ok(Sockets {
        http,
        rings,
        ecalls,
        channels,
        memory,
        http_path,
        rings_path,
        ecalls_path,
        channels_path,
        memory_path,
    })
}

/// Calls `bind` in the folder `closed`, sets mode and group, and moves the socket to `path`.
fn prepared<T>(
    closed: &Path,
    path: &Path,
    mode: u32,
    group: Option<u32>,
    bind: impl FnOnce(&Path) -> io::Result<T>,
) -> Result<T, DaemonError> {
    let make = || {
        let fresh = closed.join(path.file_name().unwrap_or_default());
        let socket = bind(&fresh)?;
        std::os::unix::fs::chown(&fresh, None, group)?;
        fs::set_permissions(&fresh, fs::Permissions::from_mode(mode))?;
        fs::rename(&fresh, path)?;
        Ok(socket)
    };
    make().map_err(|source| DaemonError::Path { path: path.to_owned(), source })
}

/// Gives the sockets in `directory` another mode and group. While a group changes, nobody has rights that only one of the
/// two settings gives. Connections in force stay. A group that this service may not use changes nothing.
pub(crate) fn permit(api: &Api, directory: &Path) -> Result<(), DaemonError> {
    let group = api.group.as_deref().map(find_group).transpose()?;
    let group = group.unwrap_or_else(|| rustix::process::getegid().as_raw());
    for path in NAMES.map(|name| directory.join(name)) {
        let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode));
        let change = || {
            let before = fs::metadata(&path)?.permissions().mode();
            set(api.mode & before)?;
            std::os::unix::fs::chown(&path, None, Some(group)).or_else(|error| set(before).and(Err(error)))?;
            set(api.mode)
        };
        // `channels.sock` exists only with channels.
        change().or_else(|error| if_not_found(error, ())).map_err(|source| DaemonError::Path { path, source })?;
    }
    Ok(())
}

/// Clients have no reason to send descriptors through this socket; [`crate::closer`] describes the harm.
fn refuse_descriptors(socket: impl AsFd) {
    match qfabric_linux::rights::refuse_descriptors(socket) {
        Ok(true) => {}
        Ok(false) => {
            tracing::debug!("this kernel (before Linux 6.16) lets clients send descriptors through every socket")
        }
        Err(error) => {
            tracing::warn!(%error, "cannot refuse descriptors on a socket; clients may send some, which costs a thread \
                                    to close them")
        }
    }
}

/// A group by its number, or by its name in `/etc/group`.
fn find_group(group: &str) -> Result<u32, DaemonError> {
    if let Ok(gid) = group.parse() {
        return Ok(gid);
    }
    let text = fs::read_to_string("/etc/group").unwrap_or_default();
    group_in(&text, group).ok_or_else(|| DaemonError::NoGroup { group: group.to_owned() })
}

fn group_in(text: &str, group: &str) -> Option<u32> {
    let mut lines = text.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| if fields.next() == Some(group) { fields.nth(1)?.parse().ok() } else { None })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn sockets_have_the_configured_mode_and_are_removed_with_the_service() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("qfabric.sock"), "left over").unwrap();
        let config = Config { api: Api { mode: 0o640, ..Api::default() }, ..Config::default() };
        let sockets = bind(&config, dir.path()).unwrap();
        for name in ["qfabric.sock", "ring.sock", "ecalls.sock"] {
            let mode = fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o640, "{name}");
        }
        drop(sockets);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn sockets_get_another_mode_and_group_and_a_missing_group_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { api: Api { mode: 0o640, ..Api::default() }, ..Config::default() };
        let _sockets = bind(&config, dir.path()).unwrap();
        let found = || {
            let metadata = fs::metadata(dir.path().join("ring.sock")).unwrap();
            (metadata.permissions().mode() & 0o777, metadata.gid())
        };
        let own = rustix::process::getegid().as_raw();
        permit(&Api { mode: 0o606, group: Some(own.to_string()), ..Api::default() }, dir.path()).unwrap();
        assert_eq!(found(), (0o606, own));
        let missing = Api { mode: 0o666, group: Some("no-such-group-here".into()), ..Api::default() };
        assert!(permit(&missing, dir.path()).is_err());
        assert_eq!(found(), (0o606, own));
    }

    /// A user who connects while the service starts finds no socket, or one with its final mode; never «permission
    /// denied».
    #[test]
    fn a_socket_is_never_seen_with_another_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("qfabric.sock");
        let config = Config { api: Api { mode: 0o666, ..Api::default() }, ..Config::default() };
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let mut seen = std::collections::BTreeSet::new();
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    seen.extend(fs::metadata(&path).map(|found| found.permissions().mode() & 0o777));
                }
                seen
            });
            (0..300).for_each(|_| drop(bind(&config, dir.path()).unwrap()));
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            looking.join().unwrap()
        });
        assert!(seen.is_subset(&[0o666].into()), "{seen:?}");
    }

    #[test]
    fn groups_are_found_by_name_or_number() {
        assert_eq!(group_in("root:x:0:\nqfabric:x:990:a,b\n", "qfabric"), Some(990));
        assert_eq!(group_in("root:x:0:\nbroken\n", "qfabric"), None);
        assert_eq!(find_group("44").unwrap(), 44);
        assert!(find_group("no-such-group-here").unwrap_err().to_string().contains("groupadd"));
    }
}
