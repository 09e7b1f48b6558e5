//! The times of the protocol, all derived from the time of a hold.

use qfabric_types::{Nanos, RandomNumbers};

/// The times of a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Time that a hold or a commitment lasts after the last message of the coordinator; within
    /// [`Timing::SHORTEST`] to [`Timing::LONGEST`].
    pub hold: Nanos,
    /// Attempts before a contract is refused; at least 1.
    pub attempts: u32,
}

/// The times that a coordinator waits for the answers of all hosts; see [`Timing::answer_times`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerTimes {
    pub offers: Nanos,
    pub confirmations: Nanos,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { hold: Nanos::from_millis(3_000), attempts: 8 }
    }
}

impl Timing {
    pub const SHORTEST: Nanos = Nanos::from_millis(10);
    /// As the longest loan.
    pub const LONGEST: Nanos = Nanos::from_millis(600_000);

    /// Time to wait for all offers, and then for all confirmations. Both together are less than a hold, so an offer
    /// that came in time is still held when its Accept arrives. Offers that need the consent of an application may take
    /// longer, and confirmations have the rest.
    pub fn answer_times(self, needs_consent: bool) -> AnswerTimes {
        let (offers, confirmations) = if needs_consent { (0.6, 0.2) } else { (0.4, 0.4) };
        let part = |part: f64| Nanos::from_f64(self.hold.as_f64() * part);
        AnswerTimes { offers: part(offers), confirmations: part(confirmations) }
    }

    /// Longest time that a participant gives its application to consent, from the arrival of the request, as a part of
    /// the hold of the request: less than the time for offers, so that the answer reaches the coordinator in time.
    pub fn consent(hold: Nanos) -> Nanos {
        Nanos::new(hold.get() / 2)
    }

    /// A message without an answer is sent again after this time.
    pub fn resend(self) -> Nanos {
        self.part(16.0)
    }

    /// A contract in force is renewed at this interval: three renewals may be lost.
    pub fn renewal(self) -> Nanos {
        self.part(4.0)
    }

    /// The time for which the coordinator relies on a commitment, from the sending of the Accept: the participant's
    /// clock may be 1/64 faster.
    pub fn relied(self) -> Nanos {
        self.hold.saturating_sub(self.part(64.0))
    }

    /// The random time before the next attempt: its range doubles with each attempt, from a sixteenth of a hold up
    /// to a whole one.
    pub fn backoff(self, attempt: u32, random: &mut RandomNumbers) -> Nanos {
        let range = self.hold.as_f64() / 16.0 * f64::from(1u32 << attempt.min(4));
        Nanos::from_f64(range * random.uniform())
    }

    /// The random time before the next attempt of a request that has patience left, at most a quarter of a hold. It
    /// does not grow: the attempt waits for the end of contracts in force, not for other attempts to be over.
    pub fn pause(self, random: &mut RandomNumbers) -> Nanos {
        Nanos::from_f64(self.hold.as_f64() / 4.0 * random.uniform())
    }

    /// The longest time until a contract is in force or refused: all attempts and the pauses between them. The patience
    /// of the request is added to it.
    pub fn longest(self) -> Nanos {
        let AnswerTimes { offers, confirmations } = self.answer_times(false);
        let round = offers + confirmations + self.hold;
        round.saturating_mul(self.attempts.into())
    }

    fn part(self, divisor: f64) -> Nanos {
        Nanos::from_f64(self.hold.as_f64() / divisor)
    }
}
