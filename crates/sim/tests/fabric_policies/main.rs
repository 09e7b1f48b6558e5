//! Policies of the daemon on simulated hosts, in virtual time.

mod conference;
mod roles;
