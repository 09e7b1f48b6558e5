//! Reports the begin and the end of an overload to the application.

use qfabric_types::Overload;

/// Change of an application's overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverloadChange {
    /// The jobs are short. The application should lower its quality, to [`Overload::part`] of the present cost of its
    /// jobs.
    Begins(Overload),
    /// All requests are granted. The application may raise its quality one step at a time; with the same demand as
    /// before, the overload would begin again.
    Ends,
}

/// The last reported state, and the callback.
#[derive(Default)]
pub(crate) struct Overloads {
    lasts: bool,
    pub(crate) callback: Option<Box<dyn FnMut(OverloadChange)>>,
}

impl Overloads {
    /// Compares with the last state; returns the change, if there is one.
    pub(crate) fn changed(&mut self, now: Option<Overload>) -> Option<OverloadChange> {
        let before = std::mem::replace(&mut self.lasts, now.is_some());
        match now {
            Some(overload) if !before => Some(OverloadChange::Begins(overload)),
            None if before => Some(OverloadChange::Ends),
            _ => None,
        }
    }

    /// Calls the callback on a change. Without a callback the change stays for [`crate::Session::overload_changed`].
    pub(crate) fn notify(&mut self, now: Option<Overload>) {
        if self.callback.is_none() {
            return;
        }
        let change = self.changed(now);
        if let (Some(change), Some(callback)) = (change, &mut self.callback) {
            callback(change);
        }
    }
}
