//! Stores and reads profiles, of trial executions and of delays: `$XDG_DATA_HOME/qfabric/profiles/NAME.json`.

use std::fs;
use std::path::{Path, PathBuf};

use qfabric_types::Profile;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::exit::Failure;
use crate::output;

/// The file of the profile `name`. A name that contains `/` or ends in `.json` is the path of the file.
pub(crate) fn file(name: &str) -> Result<PathBuf, Failure> {
    if name.contains('/') || name.ends_with(".json") {
        return Ok(PathBuf::from(name));
    }
    Ok(folder()?.join(format!("{name}.json")))
}

/// Writes `profile` to `file`, and creates the folder if it is missing.
pub(crate) fn store(file: &Path, profile: &impl Serialize) -> Result<(), Failure> {
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)
            .map_err(|error| Failure::fault(format!("cannot create the folder {}: {error}", folder.display())))?;
    }
    output::write_json(file, profile)
}

pub(crate) fn load(name: &str) -> Result<Profile, Failure> {
    read(&file(name)?, "qfabric probe")
}

/// Reads the profile that the command `maker` stored in `file`.
pub(crate) fn read<P: DeserializeOwned>(file: &Path, maker: &str) -> Result<P, Failure> {
    let shown = file.display();
    let text = fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("cannot read the profile {shown}: {error}; make one with {maker}")))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("{shown} is no profile: {error}; make one with {maker}")))
}

fn folder() -> Result<PathBuf, Failure> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
        .map(|data| data.join("qfabric/profiles"))
        .ok_or_else(|| {
            Failure::usage(
                "profiles need a folder: neither $XDG_DATA_HOME nor $HOME is an absolute path; set one of them",
            )
        })
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
    fn the_error_for_a_missing_profile_names_qfabric_probe() {
        assert!(format!("{:?}", load("/nowhere/x.json").unwrap_err()).contains("qfabric probe"));
    }
}
