//! Where a mandatory transcoder runs: the energy directives of 000 §7.3 and §7.4.1.
//!
//! Two printed rules are inconsistent. MIN-SEC compares TEQ_s + TEQ_r with +E_rcvr, although the saving of the receiver
//! that does not run the transcoder is +E_rcvr, so that the sender is right from −E_rcvr on. MAX-AOT compares charges,
//! although hosts with equal charges empty at different times. [`Rules::Corrected`] is the default;
//! [`Rules::Printed`] keeps the text. `docs/design/0045-energy-models.md` has an example of each.

use std::fmt;
use std::str::FromStr;

/// The goal over sender and receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directive {
    /// Maximise the sender's operational time.
    MaxSot,
    /// Maximise the receiver's operational time.
    MaxRot,
    /// Maximise the application's operational time: both hosts empty at the same time.
    MaxAot,
    /// Minimise the system's energy consumption.
    MinSec,
}

const NAMES: [(Directive, &str); 4] = [
    (Directive::MaxSot, "max-sot"),
    (Directive::MaxRot, "max-rot"),
    (Directive::MaxAot, "max-aot"),
    (Directive::MinSec, "min-sec"),
];

impl fmt::Display for Directive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(NAMES.into_iter().find(|(known, _)| known == self).map_or("", |(_, name)| name))
    }
}

/// The text is no directive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no energy directive; choose max-sot, max-rot, max-aot or min-sec")]
pub struct UnknownDirective(String);

impl FromStr for Directive {
    type Err = UnknownDirective;
    fn from_str(text: &str) -> Result<Self, UnknownDirective> {
        let known = NAMES.into_iter().find(|(_, name)| *name == text).map(|(directive, _)| directive);
        known.ok_or_else(|| UnknownDirective(text.chars().take(40).collect()))
    }
}

/// Which of the rules apply where the text contradicts itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    #[default]
    Corrected,
    Printed,
}

/// The host that runs the transcoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Sender,
    Receiver,
}

/// Energies of one image, in joules. A gain is relative to sending and receiving the original without a transcoder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gains {
    /// TEQ_s: gain of the sender if it runs the transcoder.
    pub teq_s: f64,
    /// TEQ_r: gain of the receiver if the sender runs it.
    pub teq_r: f64,
    /// E_rcvr: cost of the receiver if it runs the transcoder itself.
    pub e_rcvr: f64,
}

impl Gains {
    /// The gains of sender and receiver if the transcoder runs at `place`.
    pub fn at(&self, place: Place) -> (f64, f64) {
        match place {
            Place::Sender => (self.teq_s, self.teq_r),
            Place::Receiver => (0.0, -self.e_rcvr),
        }
    }
}

/// A battery and its mean load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Battery {
    /// Energy left, J.
    pub joules: f64,
    /// Mean power of late, W.
    pub load_w: f64,
    /// Charge left, mAh; only [`Rules::Printed`] compares it.
    pub charge_mah: f64,
}

impl Battery {
    /// Time until it is empty at the present load, s. An impossible value (not finite, negative) counts as empty, so that
    /// a host that lies about its battery gains at most the care for an empty one.
    pub fn time_to_empty(&self) -> f64 {
        let time = self.joules / self.load_w.max(1e-6);
        // max() returns the other number for one that is none.
        if self.load_w >= 0.0 && time.is_finite() && time > 0.0 { time } else { 0.0 }
    }
}

/// Times to empty that differ by less than this part count as equal.
const EQUAL: f64 = 0.01;

/// The place of a mandatory transcoder under `directive`.
pub fn place(directive: Directive, gains: &Gains, batteries: [Battery; 2], rules: Rules) -> Place {
    let Gains { teq_s, teq_r, e_rcvr } = *gains;
    let sender_if = |condition: bool| if condition { Place::Sender } else { Place::Receiver };
    match (directive, rules) {
        (Directive::MaxSot, _) => sender_if(teq_s > 0.0),
        (Directive::MaxRot, _) => sender_if(teq_r > 0.0 || e_rcvr > teq_r.abs()),
        (Directive::MinSec, Rules::Corrected) => sender_if(teq_s + teq_r + e_rcvr > 0.0),
        (Directive::MinSec, Rules::Printed) => sender_if(teq_s + teq_r > e_rcvr),
        (Directive::MaxAot, _) => place(weaker(batteries, rules), gains, batteries, rules),
    }
}

/// The directive that spares the host with the weaker battery.
fn weaker([sender, receiver]: [Battery; 2], rules: Rules) -> Directive {
    let of = |battery: Battery| match rules {
        Rules::Corrected => battery.time_to_empty(),
        Rules::Printed => battery.charge_mah,
    };
    let (sender, receiver) = (of(sender), of(receiver));
    let equal = match rules {
        Rules::Corrected => (sender - receiver).abs() <= EQUAL * sender.max(receiver),
        Rules::Printed => sender == receiver,
    };
    match (equal, sender > receiver) {
        (true, _) => Directive::MinSec,
        (false, true) => Directive::MaxRot,
        (false, false) => Directive::MaxSot,
    }
}

#[cfg(test)]
mod tests;
