//! Checks that no other user can change a folder. The files in such a folder decide which service programs talk to,
//! and what a privileged service writes to the scheduler at its next start.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// In a folder with this bit, users may add files but not rename or remove files of others.
const STICKY: u32 = 0o1000;

/// Refuses a folder that a user other than root and the service's own user could change or replace. The folder and
/// all its parents must belong to one of these two users, and no other user may write to them. Parents may be
/// sticky folders in which others have files, such as `/tmp`.
///
/// # Errors
/// The message names the folder and the user or group that may write to it, or the error that reading it gave.
pub(crate) fn check(folder: &Path) -> io::Result<()> {
    let real = fs::canonicalize(folder)?;
    for (depth, place) in real.ancestors().enumerate() {
        let found = fs::metadata(place)?;
        let shared = depth > 0 && found.mode() & STICKY != 0;
        if let Some(who) = others(&found).filter(|_| !shared || !is_trusted(found.uid())) {
            let why = format!("{who} may write to {}", place.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
    }
    Ok(())
}

/// The other user or group that may write there, if there is one.
fn others(found: &Metadata) -> Option<String> {
    let (mode, uid, gid) = (found.mode(), found.uid(), found.gid());
    if !is_trusted(uid) {
        return Some(format!("user {uid}"));
    }
    if mode & 0o002 != 0 {
        return Some("everybody".to_owned());
    }
    let own = [0, rustix::process::getegid().as_raw()];
    (mode & 0o020 != 0 && !own.contains(&gid)).then(|| format!("group {gid}"))
}

fn is_trusted(uid: u32) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn refusal(path: &Path) -> String {
        check(path).unwrap_err().to_string()
    }

    #[test]
    fn a_folder_that_others_may_write_to_or_replace_is_refused_with_its_path() {
        let top = tempfile::tempdir().unwrap();
        let (between, folder) = (top.path().join("between"), top.path().join("between/folder"));
        fs::create_dir_all(&folder).unwrap();
        [&between, &folder].into_iter().for_each(|path| set(path, 0o755));
        check(&folder).unwrap();
        set(&folder, 0o1777);
        assert!(refusal(&folder).contains("everybody may write to") && refusal(&folder).ends_with("folder"));
        set(&folder, 0o755);
        set(&between, 0o777);
        assert!(refusal(&folder).ends_with("between"), "others may replace it: {}", refusal(&folder));
        set(&between, 0o1777);
        check(&folder).unwrap();
        set(&between, 0o755);
        let link = top.path().join("link");
        symlink(&folder, &link).unwrap();
        check(&link).unwrap();
    }

    #[test]
    fn a_folder_of_another_user_or_group_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return qfabric_linux::testing::skip("only root can give folders away");
        }
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("folder");
        fs::create_dir(&folder).unwrap();
        chown(&folder, Some(54_321), None).unwrap();
        assert!(refusal(&folder).starts_with("user 54321 may write to"));
        chown(&folder, Some(0), Some(54_321)).unwrap();
        set(&folder, 0o775);
        assert!(refusal(&folder).starts_with("group 54321 may write to"));
        set(&folder, 0o755);
        check(&folder).unwrap();
        chown(top.path(), Some(54_321), None).unwrap();
        set(top.path(), 0o1755);
        assert!(refusal(&folder).starts_with("user 54321"), "the owner of a folder may rename its entries");
    }
}
