//! How a connection ended.

use std::fmt;

use qfabric_metp::EndReason;

/// The named end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Both sides finished, and each message has an outcome.
    Finished,
    /// This side closed it.
    Closed,
    ClosedByPeer,
    /// Nothing arrived from the other side for the idle limit.
    PeerSilent,
    /// This side failed.
    Failed(String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            End::Finished => "both sides finished",
            End::Closed => "this side closed it",
            End::ClosedByPeer => "the other side closed it",
            End::PeerSilent => "the other side is silent",
            End::Failed(why) => why,
        })
    }
}

impl From<EndReason> for End {
    fn from(reason: EndReason) -> End {
        match reason {
            EndReason::Finished => End::Finished,
            EndReason::Closed => End::Closed,
            EndReason::ClosedByPeer => End::ClosedByPeer,
            EndReason::PeerSilent => End::PeerSilent,
        }
    }
}
