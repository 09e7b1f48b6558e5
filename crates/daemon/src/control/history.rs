//! Events of the host as records of the timeline.

use qfabric_host::HostEvent;
use qfabric_types::AppId;
use qfabric_types::api::timeline::TimelineEvent;
use qfabric_types::channel::Name;

use super::command::Adjustment;

/// The record of an event; `None` for events that are not about one application, or happen too often.
pub(super) fn recorded(event: HostEvent) -> Option<TimelineEvent> {
    let decision = |app, text| Some(TimelineEvent::Decision { app, text });
    match event {
        HostEvent::Saturated { app, wanted, granted } => Some(TimelineEvent::Granted { app, wanted, granted }),
        HostEvent::Satisfied { app, granted } => Some(TimelineEvent::Granted { app, wanted: granted, granted }),
        HostEvent::Left { app } => Some(TimelineEvent::Left { app }),
        HostEvent::Rescue { app, thread } => decision(app, format!("rescue: thread {thread} gets the largest budget")),
        HostEvent::RhythmFound { app, period, .. } => decision(app, format!("period {period} found")),
        HostEvent::RhythmLost { app, period } => decision(app, format!("period {period} lost")),
        HostEvent::Suspended { app, what } => decision(app, format!("suspended: {what}")),
        HostEvent::Denied { app, thread, errno } => decision(app, format!("thread {thread} refused, errno {errno}")),
        HostEvent::TooManyThreads { .. }
        | HostEvent::Busy { .. }
        | HostEvent::Empty { .. }
        | HostEvent::GuaranteesCut { .. }
        | HostEvent::Ignored { .. } => None,
    }
}

/// The record of a policy's decision about an application; `refused` has the reason if it was refused.
pub(super) fn adjusted(app: AppId, adjustment: Adjustment, refused: Option<&str>) -> TimelineEvent {
    let change = match adjustment {
        Adjustment::Most(most) => format!("policy: largest bandwidth {most}"),
        Adjustment::Weight(weight) => format!("policy: weight {weight}"),
        Adjustment::Guaranteed(share) => format!("policy: guaranteed {share}"),
        Adjustment::Service(service) => format!("policy: service {service}"),
        Adjustment::Window(window) => format!("policy: window {window}"),
    };
    decision(app, change, refused)
}

/// The record of the end of a policy's decisions about an application.
pub(super) fn restored(app: AppId, policy: &Name, refused: Option<&str>) -> TimelineEvent {
    decision(app, format!("the decisions of policy {policy} end"), refused)
}

fn decision(app: AppId, change: String, refused: Option<&str>) -> TimelineEvent {
    let text = refused.map_or(change.clone(), |why| format!("{change} refused: {why}"));
    TimelineEvent::Decision { app, text }
}
