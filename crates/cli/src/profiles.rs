//! Stores and reads profiles, of trial executions and of delays: `$XDG_DATA_HOME/qfabric/profiles/NAME.json`.

use std::fs;
use std::path::{Path, PathBuf};

use qfabric_client::{ClientError, Profiles, profiles_folder};
use qfabric_demo::clips::write_whole;
use qfabric_types::{InvalidProfileName, Profile, ProfileName};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::exit::{Advice, Failure};
use crate::output;

/// Where a profile of a trial execution is stored.
pub(crate) enum Place {
    /// A file that the user names, with this profile alone.
    File(PathBuf),
    /// Among the user's profiles, by its key.
    Key(Profiles, ProfileName),
}

impl Place {
    /// A name that contains `/` or ends in `.json` is the path of the file.
    pub(crate) fn of(name: &str) -> Result<Place, Failure> {
        if name.contains('/') || name.ends_with(".json") {
            return Ok(Place::File(PathBuf::from(name)));
        }
        let key = name.parse().map_err(|error: InvalidProfileName| Failure::usage(Advice(&error.problem())))?;
        Ok(Place::Key(Profiles::open().map_err(refused)?, key))
    }

    pub(crate) fn file(&self) -> PathBuf {
        match self {
            Place::File(file) => file.clone(),
            Place::Key(profiles, name) => profiles.file(name),
        }
    }

    pub(crate) fn store(&self, profile: &Profile) -> Result<(), Failure> {
        match self {
            Place::File(file) => store(file, profile),
            Place::Key(profiles, name) => profiles.store(name, profile).map(drop).map_err(refused),
        }
    }
}

/// The errors of [`Profiles`] name the file or the key.
fn refused(error: ClientError) -> Failure {
    Failure::usage(Advice(&error.problem()))
}

/// Writes `profile` to `file`, and creates the folder if it is missing. A file is replaced as a whole: if the disk is
/// full, the former profile stays. A device, a pipe or a link is written to.
pub(crate) fn store(file: &Path, profile: &impl Serialize) -> Result<(), Failure> {
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)
            .map_err(|error| Failure::fault(format!("cannot create the folder {}: {error}", folder.display())))?;
    }
    let text = output::json(profile)?;
    write_whole(file, text.as_bytes()).map_err(|error| Failure::fault(format!("{error:#}")))
}

pub(crate) fn load(name: &str) -> Result<Profile, Failure> {
    match Place::of(name)? {
        Place::File(file) => read(&file, "qfabric probe"),
        Place::Key(profiles, name) => profiles.load(&name).map_err(refused),
    }
}

/// Reads the profile that the command `maker` stored in `file`.
pub(crate) fn read<P: DeserializeOwned>(file: &Path, maker: &str) -> Result<P, Failure> {
    let shown = file.display();
    let text = fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("cannot read the profile {shown}: {error}; make one with {maker}")))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("{shown} is no profile: {error}; make one with {maker}")))
}

/// The file of a profile of delays.
pub(crate) fn delays(name: &str) -> Result<PathBuf, Failure> {
    Ok(profiles_folder().map_err(refused)?.join(format!("{name}.json")))
}

#[cfg(test)]
mod tests {
    use qfabric_types::Nanos;

    use super::*;

    #[test]
    fn a_stored_profile_is_read_back_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("deep/er/p.json");
        let profile = Profile { costs: vec![Nanos::from_millis(3)], hints: vec![2.0] };
        store(&name, &profile).unwrap();
        assert_eq!(load(name.to_str().unwrap()).unwrap(), profile);
    }

    #[test]
    fn a_profile_replaces_the_former_one_as_a_whole_and_no_device() {
        let folder = tempfile::tempdir().unwrap();
        let (name, other, link) = (folder.path().join("p.json"), folder.path().join("q"), folder.path().join("link"));
        let profile = |ms| Profile { costs: vec![Nanos::from_millis(ms)], hints: vec![] };
        store(&name, &profile(3)).unwrap();
        // A second name of the file shows whether the file itself was overwritten.
        fs::hard_link(&name, &other).unwrap();
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        store(&name, &profile(4)).unwrap();
        store(&link, &profile(4)).unwrap();
        let stored = |file: &Path| read::<Profile>(file, "").unwrap();
        assert_eq!((stored(&name), stored(&other)), (profile(4), profile(3)));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "a temporary file remains");
    }

    #[test]
    fn the_error_for_a_missing_profile_names_qfabric_probe() {
        assert!(format!("{:?}", load("/nowhere/x.json").unwrap_err()).contains("qfabric probe"));
    }
}
