//! The probing service of QualMan (§3.4): computation times of a program, stored and found by a key.
//!
//! ```no_run
//! use qfabric_client::{Client, Contract, Nanos, ProfileName, Profiles, Session};
//!
//! # fn probed() -> qfabric_client::Profile { Default::default() }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The key: the program and its parameters. The processor and the kernel of this host belong to it, too.
//! let name = ProfileName::new("player")?.with("size", "640x480")?.with("fps", 25)?;
//! let profiles = Profiles::open()?;
//! let profile = match profiles.find(&name)? {
//!     Some(profile) => profile,
//!     None => {
//!         let profile = probed(); // such as `Cpu::probe_off`
//!         profiles.store(&name, &profile)?;
//!         profile
//!     }
//! };
//! let contract = Contract { profile: Some(profile), ..Contract::new("player", Nanos::from_millis(40)) };
//! let session = Session::start(&Client::connect()?, contract)?;
//! # Ok(())
//! # }
//! ```

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use qfabric_types::{Contract, Platform, Profile, ProfileBook, ProfileName};
use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;

use crate::error::ClientError;

/// Largest file that is read; a full book of full profiles is smaller.
const LARGEST: u64 = 16 << 20;
/// Longest model of a processor.
const LONGEST_MODEL: usize = 128;
/// Number of stored keys that an error names.
const NAMED: usize = 4;

/// The stored profiles of the calling user, for this host's processor and kernel. `qfabric probe` stores here, too.
#[derive(Clone, Debug)]
pub struct Profiles {
    folder: PathBuf,
    platform: Platform,
}

/// The content of a file of profiles.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Book(ProfileBook),
    /// Made by hand, or by an earlier version: it holds for every key.
    Unkeyed(Profile),
}

impl Profiles {
    /// The user's profiles, in `$XDG_DATA_HOME/qfabric/profiles`. Fails with [`ClientError::Value`] if neither this
    /// variable nor `$HOME` is an absolute path.
    pub fn open() -> Result<Profiles, ClientError> {
        Ok(Profiles::at(profiles_folder()?, platform()))
    }

    /// Profiles in another folder, or of another host.
    pub fn at(folder: impl Into<PathBuf>, platform: Platform) -> Profiles {
        Profiles { folder: folder.into(), platform }
    }

    /// The file with all profiles of the program.
    pub fn file(&self, name: &ProfileName) -> PathBuf {
        self.folder.join(format!("{}.json", name.program()))
    }

    /// The profile with this key; None if there is none for these parameters on this processor and kernel. Fails with
    /// [`ClientError::Value`] if the file cannot be read.
    pub fn find(&self, name: &ProfileName) -> Result<Option<Profile>, ClientError> {
        Ok(match read(&self.file(name))? {
            None => None,
            Some(Stored::Unkeyed(profile)) => Some(profile),
            Some(Stored::Book(book)) => book.find(name, &self.platform).cloned(),
        })
    }

    /// Like [`Profiles::find`]. A missing profile is an error, which names the key and the stored ones.
    pub fn load(&self, name: &ProfileName) -> Result<Profile, ClientError> {
        self.find(name)?.ok_or_else(|| {
            let Platform { cpu, kernel } = &self.platform;
            let missing = format!("there is no profile {name} for {cpu}, kernel {kernel}");
            ClientError::invalid(missing, format!("{}make one with `qfabric probe`", self.stored_keys(name)))
        })
    }

    /// Stores a profile under this key, in place of an earlier one. At most [`ProfileBook::MOST`] profiles of one program
    /// are kept. Returns the file.
    pub fn store(&self, name: &ProfileName, profile: &Profile) -> Result<PathBuf, ClientError> {
        Contract { profile: Some(profile.clone()), ..Contract::default() }.check()?;
        if profile.costs.is_empty() {
            return Err(ClientError::invalid(format!("the profile {name} has no jobs"), "measure at least one"));
        }
        let file = self.file(name);
        let failed = |error| unusable(&file, error);
        fs::create_dir_all(&self.folder).map_err(failed)?;
        // Two programs store at the same time: each reads what the other one has written.
        let folder = File::open(&self.folder).map_err(failed)?;
        flock(&folder, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        let mut book = match read(&file)? {
            Some(Stored::Book(book)) => book,
            Some(Stored::Unkeyed(_)) | None => ProfileBook::default(),
        };
        book.store(name, &self.platform, profile.clone());
        replace(&file, &serde_json::to_vec(&book).expect("a profile is plain values")).map_err(failed)?;
        Ok(file)
    }

    /// The first keys of this program, as a part of a sentence.
    fn stored_keys(&self, name: &ProfileName) -> String {
        let Ok(Some(Stored::Book(book))) = read(&self.file(name)) else { return String::new() };
        let keys: Vec<String> = book.keys(name.program()).take(NAMED).collect();
        if keys.is_empty() { String::new() } else { format!("stored are {}; ", keys.join(" and ")) }
    }
}

/// The folder of the calling user's profiles: `$XDG_DATA_HOME/qfabric/profiles`, or `~/.local/share/qfabric/profiles`.
pub fn profiles_folder() -> Result<PathBuf, ClientError> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
        .map(|data| data.join("qfabric/profiles"))
        .ok_or_else(|| {
            let why = "profiles need a folder: neither $XDG_DATA_HOME nor $HOME is an absolute path";
            ClientError::invalid(why, "set one of them")
        })
}

/// The processor and the kernel of this host.
pub fn platform() -> Platform {
    let system = rustix::system::uname();
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = model(&text).unwrap_or_else(|| system.machine().to_string_lossy().into_owned());
    Platform { cpu, kernel: system.release().to_string_lossy().into_owned() }
}

/// The model in `/proc/cpuinfo`. ARM names no model there; the number of its core's design stands for it.
fn model(cpuinfo: &str) -> Option<String> {
    let value = |key: &str| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(name, value)| name.trim() == key && !value.trim().is_empty());
        found.map(|(_, value)| value.trim().to_owned())
    };
    let part = || Some(format!("{} part {}", value("CPU implementer")?, value("CPU part")?));
    let model = value("model name").or_else(|| value("cpu model")).or_else(part)?;
    Some(model.chars().filter(|c| !c.is_control()).take(LONGEST_MODEL).collect())
}

fn unusable(file: &Path, error: impl std::fmt::Display) -> ClientError {
    ClientError::invalid(format!("the profiles {}: {error}", file.display()), "make them with `qfabric probe`")
}

/// None: there is no such file.
fn read(file: &Path) -> Result<Option<Stored>, ClientError> {
    let opened = match File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(file, error)),
    };
    let mut text = Vec::new();
    opened.take(LARGEST).read_to_end(&mut text).map_err(|error| unusable(file, error))?;
    let stored = serde_json::from_slice(&text);
    stored.map(Some).map_err(|_| unusable(file, "the file has no profiles; remove it"))
}

/// Replaces a file as a whole, so that no reader finds a part of it.
pub(crate) fn replace(file: &Path, text: &[u8]) -> std::io::Result<()> {
    let aside = file.with_extension(format!("{}.new", std::process::id()));
    File::create(&aside).and_then(|mut new| new.write_all(text))?;
    fs::rename(&aside, file)
}

#[cfg(test)]
mod tests {
    use qfabric_types::Nanos;

    use super::*;

    fn name(text: &str) -> ProfileName {
        text.parse().unwrap()
    }

    fn profile(ms: u64) -> Profile {
        Profile { costs: vec![Nanos::from_millis(ms); 3], hints: vec![1.0; 3] }
    }

    fn host(folder: &Path, cpu: &str) -> Profiles {
        Profiles::at(folder, Platform { cpu: cpu.to_owned(), kernel: "7.3".to_owned() })
    }

    #[test]
    fn an_application_finds_its_profile_by_program_parameters_processor_and_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let [ultra, station] = ["Ultra-1", "SPARCstation-10"].map(|cpu| host(&folder.path().join("deep/er"), cpu));
        let (small, large) = (name("decoder,size=352x240"), name("decoder,size=704x480"));
        assert_eq!(ultra.find(&small).unwrap(), None);
        for (host, key, ms) in [(&ultra, &small, 40), (&ultra, &large, 90), (&station, &small, 80)] {
            host.store(key, &profile(ms)).unwrap();
        }
        assert_eq!((ultra.find(&small).unwrap(), ultra.find(&large).unwrap()), (Some(profile(40)), Some(profile(90))));
        assert_eq!((station.load(&small).unwrap(), station.find(&large).unwrap()), (profile(80), None));
        let missing = station.load(&large).unwrap_err().to_string();
        for named in ["decoder,size=704x480", "SPARCstation-10", "7.3", "stored are decoder,size=352x240", "probe"] {
            assert!(missing.contains(named), "{missing} does not name {named}");
        }
        let files = fs::read_dir(folder.path().join("deep/er")).unwrap().count();
        assert_eq!(files, 1, "one file for each program, and nothing else is left");
    }

    #[test]
    fn a_file_without_keys_holds_for_every_key_until_a_profile_is_stored() {
        let folder = tempfile::tempdir().unwrap();
        let profiles = host(folder.path(), "Ultra-1");
        fs::write(folder.path().join("p.json"), r#"{"costs_ns": [3000000, 5000000]}"#).unwrap();
        assert_eq!(profiles.load(&name("p,fps=25")).unwrap().mean(), Nanos::from_millis(4));
        profiles.store(&name("p"), &profile(7)).unwrap();
        assert_eq!(
            (profiles.find(&name("p")).unwrap(), profiles.find(&name("p,fps=25")).unwrap()),
            (Some(profile(7)), None)
        );
    }

    #[test]
    fn programs_that_store_at_the_same_time_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (path, key) = (folder.path(), |k: usize| name(&format!("p,size={k}")));
        std::thread::scope(|scope| {
            for k in 0..8 {
                scope.spawn(move || host(path, "Ultra-1").store(&key(k), &profile(1)).unwrap());
            }
        });
        assert!((0..8).all(|k| host(path, "Ultra-1").find(&key(k)).unwrap().is_some()));
    }

    #[test]
    fn an_invalid_profile_and_a_file_with_something_else_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let profiles = host(folder.path(), "Ultra-1");
        let store = |profile: Profile| profiles.store(&name("p"), &profile).unwrap_err().to_string();
        assert!(store(Profile::default()).contains("no jobs"));
        assert!(store(Profile { hints: vec![1.0], ..profile(1) }).contains("3 jobs and 1 hints"));
        let long = Profile { costs: vec![Nanos::new(1); Profile::MAX_JOBS + 1], hints: Vec::new() };
        assert!(store(long).contains("4096"));
        fs::write(folder.path().join("p.json"), "[]").unwrap();
        assert!(profiles.load(&name("p")).unwrap_err().to_string().contains("p.json: the file has no profiles"));
    }

    #[test]
    fn the_model_of_a_processor_is_read_on_every_architecture() {
        let intel = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) @ 2.80GHz\nmodel name\t: Other\n";
        assert_eq!(model(intel).unwrap(), "Intel(R) Xeon(R) @ 2.80GHz");
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(model(arm).unwrap(), "0x41 part 0xd0c");
        assert_eq!(model("isa\t: rv64imafdc\n"), None);
        assert!(!platform().cpu.is_empty() && !platform().kernel.is_empty());
    }
}
