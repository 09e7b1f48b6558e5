//! Frames that are announced at their display times (000 §3.5.2), instead of a timer of the player.
//!
//! ```text
//!  player: «frame k is here» ─> daemon: handler computes the display time ─> held until then ─> player decodes, shows,
//!          (an event)                    from the words                       (with all others, by display time)    │
//!          words in shared memory: rate, number and display time of the last frame <──────────────────────────────┘
//! ```
//! The player writes the words and raises the next frame from one thread, so a handler never sees one word without the
//! other. The display time of the last frame is the time at which it was due, so that delays do not add up.

use std::time::Duration;

use anyhow::{Context, Result};
use qfabric_client::Client;
use qfabric_client::ecalls::{Attribute, Ecalls, MemoryUp, OwnService, Subscription, SubscriptionBuilder};
use qfabric_types::{Instant, Nanos};

use crate::pace;

/// The frame that has come.
const FRAME: &str = "struct frame { long number; };";

/// Computes the display time of a frame from the words of the player; `rate` is in frames per 1000 s.
const HANDLER: &str = "
struct output { long display; long number; };
{
    output.number = input.number;
    output.display = attr.shown + (input.number - attr.frame) * 1000000000000 / attr.rate;
    return 1;
}";

/// Longest wait for the notification of a frame. It comes within a period, unless the daemon has ended.
const PATIENCE: Duration = Duration::from_secs(30);

/// The player's end of the notifications.
pub(crate) struct Displays {
    frames: OwnService,
    notified: Subscription,
    frame: Attribute,
    shown: Attribute,
    period: Nanos,
}

impl Displays {
    /// Announces frames of this `period` to the daemon. `name` is that of the player.
    pub(crate) fn start(client: &Client, name: &str, period: Nanos) -> Result<Displays> {
        let ecalls = Ecalls::connect(client)?;
        let service = format!("frames.{name}-{}", std::process::id());
        let frames = ecalls.register_service(&service, "a frame has come", FRAME, false)?;
        let rate = 1_000_000_000_000 / period.get().max(1);
        let wanted = SubscriptionBuilder::to(&service)
            .code(HANDLER)
            .hold_until("display")
            .memory_up(MemoryUp::default())
            .attribute("rate", rate as i64)
            .attribute("frame", -1)
            .favour();
        let notified = ecalls.subscribe(&wanted).context("the daemon holds no events")?;
        let (frame, shown) = (ecalls.attribute("frame")?, ecalls.attribute("shown")?);
        Ok(Displays { frames, notified, frame, shown, period })
    }

    /// Frame `number` is here: sleeps until its display time, and returns it. Frame 0 is displayed at `start`.
    pub(crate) fn wait(&mut self, number: u64, start: Instant) -> Result<Instant> {
        if number == 0 {
            let before = Instant::new(start.get().saturating_sub(self.period.get()));
            self.shown.set(before.get() as i64);
            // The daemon holds events for a limited time.
            pace::sleep_until(before);
        }
        self.frames.raise_event(-1, &(number as i64).to_le_bytes(), Nanos::ZERO, false)?;
        let event = self.notified.next(PATIENCE)?;
        let event = event.with_context(|| format!("frame {number} was not announced within {PATIENCE:?}"))?;
        Ok(Instant::new(event.time_ns))
    }

    /// Frame `number`, due at `display`, was shown.
    pub(crate) fn shown(&self, number: u64, display: Instant) {
        self.frame.set(number as i64);
        self.shown.set(display.get() as i64);
    }
}
