//! Telling an application that its requests exceed what it is granted, and when that ends.

use qfabric_types::Overload;

/// What changed for an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverloadChange {
    /// Its jobs are short: it should lower its quality, to [`Overload::part`] of what its jobs cost now.
    Begins(Overload),
    /// It is granted what it asks for. It may try a higher quality, one step at a time: the same demand as before would be
    /// the same overload.
    Ends,
}

/// What the application was told last.
#[derive(Default)]
pub(crate) struct Overloads {
    lasts: bool,
    pub(crate) tell: Option<Box<dyn FnMut(OverloadChange)>>,
}

impl Overloads {
    /// What is new of it.
    pub(crate) fn changed(&mut self, now: Option<Overload>) -> Option<OverloadChange> {
        let before = std::mem::replace(&mut self.lasts, now.is_some());
        match now {
            Some(overload) if !before => Some(OverloadChange::Begins(overload)),
            None if before => Some(OverloadChange::Ends),
            _ => None,
        }
    }

    /// Tells whoever asked to be told. Without that, it is left for the application to ask.
    pub(crate) fn tell(&mut self, now: Option<Overload>) {
        if self.tell.is_none() {
            return;
        }
        let change = self.changed(now);
        if let (Some(change), Some(tell)) = (change, &mut self.tell) {
            tell(change);
        }
    }
}
