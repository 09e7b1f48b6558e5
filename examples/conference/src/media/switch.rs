//! The level that is wanted: one call changes it, and the server takes it before its next picture.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Error, Result, bail, ensure};

use crate::{Codec, Level};

/// Shared by the server and those who change the level. The codecs are those that the server may use.
#[derive(Debug)]
pub struct LevelSwitch {
    codecs: Vec<Codec>,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    level: Level,
    changes: u32,
    wants_key: bool,
    /// Codecs that most receivers' hosts cannot decode: a sum of [`Codec::bit`].
    missing: u32,
}

/// What the server does with its next picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub level: Level,
    /// How often the level has changed.
    pub changes: u32,
    /// The picture has to be decodable by itself.
    pub key: bool,
}

impl LevelSwitch {
    /// Fails if `level` needs a codec that is not among `codecs`.
    pub fn new(level: Level, codecs: &[Codec]) -> Result<LevelSwitch> {
        let state = State { level, changes: 0, wants_key: false, missing: 0 };
        let switch = LevelSwitch { codecs: codecs.to_vec(), state: Mutex::new(state) };
        switch.check(level, 0)?;
        Ok(switch)
    }

    /// The level in force.
    pub fn level(&self) -> Level {
        self.state().level
    }

    /// How often the level has changed.
    pub fn changes(&self) -> u32 {
        self.state().changes
    }

    /// Changes the level, from the next picture on. Returns how often the level has changed.
    ///
    /// # Errors
    /// The server, or most receivers' hosts, do not have the codec. The level stays.
    pub fn set(&self, level: Level) -> Result<u32> {
        let mut state = self.state();
        self.check(level, state.missing)?;
        state.change(level);
        Ok(state.changes)
    }

    /// Sets a level that a ladder or a policy decided. Returns why JPEG of about the same quality was set instead, if a
    /// codec is missing: otherwise the level would stay while the ladder moves.
    pub(super) fn decide(&self, level: Level) -> Option<Error> {
        let mut state = self.state();
        let refused = self.check(level, state.missing).err();
        state.change(if refused.is_some() { level.as_jpeg() } else { level });
        refused
    }

    /// Makes the next picture decodable by itself.
    pub fn want_key(&self) {
        self.state().wants_key = true;
    }

    /// Sets what receivers cannot decode, a sum of [`Codec::bit`]. If that contains the codec in force, the conference
    /// goes on with JPEG, of about the same quality: that level is returned.
    pub fn set_missing(&self, missing: u32) -> Option<Level> {
        let mut state = self.state();
        // All can decode JPEG; a claim of the contrary changes nothing.
        state.missing = missing & !Codec::Jpeg.bit();
        (state.missing & state.level.codec().bit() != 0).then(|| state.fall_back())
    }

    /// The codec in force cannot be used here: goes on with JPEG.
    pub(super) fn fall_back(&self) -> Level {
        self.state().fall_back()
    }

    /// What to do with the next picture. The wish for a key picture is fulfilled by it.
    pub(super) fn take(&self) -> Order {
        let mut state = self.state();
        let key = std::mem::take(&mut state.wants_key);
        Order { level: state.level, changes: state.changes, key }
    }

    fn check(&self, level: Level, missing: u32) -> Result<()> {
        let codec = level.codec();
        if missing & codec.bit() != 0 {
            bail!("most hosts of receivers cannot decode {codec}; use jpeg until they have left");
        }
        let names: Vec<&str> = self.codecs.iter().map(|codec| codec.name()).collect();
        ensure!(
            self.codecs.contains(&codec),
            "{codec} cannot be used here; there is {}: choose one of them, or name more with --codecs",
            names.join(", ")
        );
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn change(&mut self, level: Level) {
        if level != self.level {
            self.changes = self.changes.wrapping_add(1);
            self.level = level;
        }
    }

    fn fall_back(&mut self) -> Level {
        self.change(self.level.as_jpeg());
        self.level
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(text: &str) -> Level {
        text.parse().unwrap()
    }

    #[test]
    fn one_call_changes_the_level_of_the_next_picture() {
        let switch = LevelSwitch::new(level("jpeg:60:small"), &Codec::ALL).unwrap();
        assert_eq!(switch.set(level("h264:20:large")).unwrap(), 1);
        assert_eq!(switch.set(level("h264:20:large")).unwrap(), 1, "nothing has changed");
        switch.want_key();
        assert_eq!(switch.take(), Order { level: level("h264:20:large"), changes: 1, key: true });
        assert!(!switch.take().key);
    }

    #[test]
    fn a_codec_that_is_missing_somewhere_is_refused_and_the_conference_goes_on_with_jpeg() {
        let switch = LevelSwitch::new(level("h261:15:medium"), &[Codec::Jpeg, Codec::H261]).unwrap();
        assert!(switch.set(level("h264:1:small")).unwrap_err().to_string().contains("jpeg, h261"));
        assert_eq!(switch.set_missing(Codec::H261.bit() | Codec::Jpeg.bit()), Some(level("jpeg:47:medium")));
        assert!(switch.set(level("h261:15:medium")).unwrap_err().to_string().contains("receivers"));
        assert!(switch.decide(level("h261:5:small")).unwrap().to_string().contains("receivers"));
        assert_eq!(switch.level(), level("jpeg:15:small"), "a decision takes effect as JPEG");
        switch.set(level("jpeg:47:medium")).unwrap();
        assert_eq!(switch.set_missing(0), None);
        switch.set(level("h261:15:medium")).unwrap();
        assert!(LevelSwitch::new(level("h261:15:medium"), &[Codec::Jpeg]).is_err());
    }
}
