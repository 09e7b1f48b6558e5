//! The tests that every network has to pass. `qfabric_channel::conformance_suite!(make)` generates them; `make` is an
//! expression that returns a [`World`].

mod events;
mod faults;
mod filters;
mod large;
mod members;

pub use events::*;
pub use faults::*;
pub use filters::*;
pub use large::*;
pub use members::*;

use qfabric_ecode::parse_formats;
use qfabric_types::channel::{ChannelId, Name, Plane};

use super::{EAGER, World};
use crate::{EventType, Pressure, Sent, SinkId, SinkSpec, SourceId, SourceSpec, Spec, Submission, SubmitError};

/// Calls a macro with its arguments and the names of all parts of the suite: `macro! { given; name, name, … }`.
#[macro_export]
macro_rules! conformance_parts {
    ($($callback:ident)::+ ! $($given:tt)*) => {
        $($callback)::+! {
            $($given)*;
            what_one_host_creates_all_know_and_can_open,
            refusals_change_nothing,
            a_data_channel_brings_its_q_channel_and_takes_it_along,
            groups_are_known_to_all,
            attributes_are_known_to_all,
            members_leave_and_the_others_go_on,
            events_reach_all_sinks_of_all_hosts_in_order,
            sinks_get_the_types_they_want,
            an_event_can_be_for_one_host_or_one_sink,
            what_cannot_be_an_event_is_refused,
            late_events_are_dropped_and_counted,
            events_that_their_reader_comes_to_too_late_are_late,
            priorities_come_first_and_deadlines_in_order,
            a_sink_that_never_reads_holds_up_nobody,
            a_full_queue_keeps_what_its_policy_says,
            a_blocked_source_goes_on_when_the_sink_has_read,
            a_blocking_channel_loses_nothing_of_large_events,
            a_blocked_source_waits_no_longer_than_its_patience,
            what_is_lost_is_counted,
            what_waits_in_a_queue_of_the_sources_host_is_dropped_when_its_sink_leaves,
            a_sink_that_leaves_says_what_became_of_its_events,
            what_was_under_way_to_a_host_that_is_gone_is_lost,
            a_crashed_host_is_gone_and_its_channel_stays,
            a_restarted_host_is_another_member,
            what_was_changed_during_a_partition_is_known_after_it,
            a_disappearance_that_one_host_notices_is_one_on_both,
            of_two_creations_the_earlier_stands,
            of_two_creations_that_differ_the_later_ends,
            joins_and_leaves_without_end_leave_nothing_behind,
            an_out_filter_chooses_by_what_sinks_say_of_themselves,
            an_in_filter_chooses_among_the_sinks_of_its_host,
            a_filter_that_blocks_sends_nothing,
            a_filter_is_replaced_between_two_events,
            events_of_one_channel_turn_a_filter_of_another,
            filters_are_shipped_where_the_policy_lets_them,
            a_filter_that_faults_lets_nothing_pass_and_says_so,
            a_filter_for_one_sink_changes_the_event_for_that_sink_alone,
            an_out_filter_for_one_sink_changes_what_that_sink_is_sent_alone,
            a_filter_changes_how_long_an_event_is,
            a_users_filter_acts_on_the_events_of_own_sources_alone,
            large_events_arrive_whole_and_in_order,
            an_event_above_the_limit_is_refused_with_both_numbers,
            a_blocking_channel_loses_nothing_of_events_of_1_mib,
            a_large_event_whose_time_passes_while_it_waits_is_late,
            filters_see_the_whole_of_a_large_event,
            a_sink_that_joins_while_a_large_event_is_under_way_costs_nobody_an_event,
        }
    };
}

/// Makes a test of each part of the suite.
#[macro_export]
macro_rules! conformance_suite {
    ($make:expr) => {
        $crate::conformance_parts! { qfabric_channel::conformance_suite! $make }
    };
    ($make:expr; $($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            $crate::conformance::$name(&mut $make);
        })*
    };
}

/// `struct frame { int kind; int size; };` and `struct mark { long at; };`
pub(crate) fn spec() -> Spec {
    let formats =
        parse_formats("struct frame { int kind; int size; }; struct mark { long at; };").expect("it compiles");
    let types = formats.into_iter().map(|format| EventType { format }).collect();
    Spec { types, ..Spec::default() }
}

pub(crate) fn spec_with(pressure: Pressure) -> Spec {
    Spec { pressure, ..spec() }
}

pub(crate) fn data(name: &str) -> ChannelId {
    ChannelId { plane: Plane::Data, name: name.parse().expect("a name") }
}

pub(crate) fn quality(name: &str) -> ChannelId {
    ChannelId { plane: Plane::Quality, ..data(name) }
}

/// The payload of a `frame`.
pub(crate) fn frame(kind: i32, size: i32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&kind.to_le_bytes());
    bytes[4..].copy_from_slice(&size.to_le_bytes());
    bytes
}

/// Creates a channel on the first host, and opens it on the others.
pub(crate) fn everywhere<W: World>(world: &mut W, channel: &ChannelId, spec: &Spec) -> Vec<Name> {
    let hosts = world.hosts();
    world.with(&hosts[0], |node, now| node.create(channel, spec.clone(), now)).expect("created");
    world.settle();
    for host in &hosts[1..] {
        world.with(host, |node, now| node.open(channel, now)).expect("opened");
    }
    world.settle();
    hosts
}

pub(crate) fn source<W: World>(world: &mut W, host: &Name, channel: &ChannelId) -> SourceId {
    let id = world.with(host, |node, now| node.source_subscribe(channel, SourceSpec::default(), now));
    world.settle();
    id.expect("a source")
}

pub(crate) fn sink<W: World>(world: &mut W, host: &Name, channel: &ChannelId, sink: SinkSpec) -> SinkId {
    let id = world.with(host, |node, now| node.sink_subscribe(channel, sink, now)).expect("a sink");
    world.settle();
    id
}

/// A sink whose events the test takes at once.
pub(crate) fn called() -> SinkSpec {
    SinkSpec { capacity: EAGER, ..SinkSpec::default() }
}

pub(crate) fn queued(capacity: u32) -> SinkSpec {
    SinkSpec { capacity, ..SinkSpec::default() }
}

pub(crate) fn with_attributes(sink: SinkSpec, attributes: &[(&str, i64)]) -> SinkSpec {
    let attributes = attributes.iter().map(|(key, value)| (key.parse().expect("a key"), *value)).collect();
    SinkSpec { attributes, ..sink }
}

pub(crate) fn submit<W: World>(
    world: &mut W,
    host: &Name,
    source: SourceId,
    event: &Submission<'_>,
) -> Result<Sent, SubmitError> {
    world.with(host, |node, now| node.submit(source, event, now))
}

/// Submits a `frame`.
pub(crate) fn submit_frame<W: World>(world: &mut W, host: &Name, source: SourceId, kind: i32, size: i32) -> Sent {
    let payload = frame(kind, size);
    submit(world, host, source, &Submission { payload: &payload, ..Submission::default() }).expect("submitted")
}

/// Takes all events of a queue; returns the payloads.
pub(crate) fn take_all<W: World>(world: &mut W, host: &Name, sink: SinkId) -> Vec<Vec<u8>> {
    let (mut taken, mut all) = (crate::Taken::default(), Vec::new());
    while world.with(host, |node, now| node.take(sink, &mut taken, now)).expect("the sink is there") {
        all.extend(taken.event().map(|event| event.payload.to_vec()));
    }
    all
}

/// The numbers of the events that a sink of a host received.
pub(crate) fn numbers<W: World>(world: &mut W, host: &Name, sink: SinkId) -> Vec<u64> {
    let delivered = world.delivered(host).into_iter();
    delivered.filter(|event| event.sink == sink).map(|event| event.number).collect()
}

/// Checks that the directories of the hosts are equal.
pub(crate) fn agree<W: World>(world: &mut W, hosts: &[Name]) {
    let records = |node: &crate::Node| {
        let hosts = node.directory().hosts();
        hosts.map(|(name, record)| (name.clone(), record.clone())).collect::<Vec<_>>()
    };
    let first = world.with(&hosts[0], |node, _| records(node));
    for host in &hosts[1..] {
        let other = world.with(host, |node, _| records(node));
        assert_eq!(first, other, "the directories of {} and {host}", hosts[0]);
    }
}

/// Checks that the accounts of a sink are complete: every sent event has an outcome.
pub(crate) fn balanced<W: World>(world: &mut W, host: &Name, sink: SinkId) -> crate::SinkCounts {
    let counts = world.with(host, |node, _| node.sink_counts(sink)).expect("the sink is there");
    let crate::SinkCounts { sent, delivered, filtered, dropped, late, lost, queued } = counts;
    assert_eq!(sent, delivered + filtered + dropped + late + lost + queued, "{counts:?}");
    counts
}
