//! The inputs of a service of channels: `channel:A`, `channel:A/TYPE`, or several of these, `channel:A+B/TYPE`.
//!
//! Several inputs have one format, with which a handler has queues: `int which;`, the number of the input that an event
//! comes from, and a structure for each input. It has the name of the type if the service names one, else that of the
//! channel. An event fills one structure; the others are zeros.

use qfabric_ecode::WHICH;
use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::CHANNEL_SERVICE;
use qfabric_types::channel::{ChannelId, Name};
use qfabric_types::format::{Field, Format, Kind, Scalar};
use qfabric_types::memory::Stamp;

use super::problems;
use crate::channels::{Arrivals, Inlet};

/// Largest number of inputs of a service. Each is a member of its channel, and counts as one of the user.
const MOST: usize = 8;

/// The bytes and the times of an event.
type Arrival = (Vec<u8>, Stamp);

/// A channel, and the type of its events if the service names one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Input<'a> {
    pub channel: ChannelId,
    pub event_type: Option<&'a str>,
}

/// The sinks of a service.
pub(crate) struct Inputs {
    inlets: Vec<Inlet>,
    /// The format of the service's events.
    pub format: Format,
}

/// The inputs that a service's name lists.
pub(super) fn named(service: &str) -> Result<Vec<Input<'_>>, Problem> {
    let text = service.strip_prefix(CHANNEL_SERVICE).unwrap_or(service);
    let count = text.split('+').count();
    if count > MOST {
        let message = format!("the service has {count} channels, {MOST} is the limit");
        return Err(problems::chain(message, "name fewer, or bring some of them together in another channel"));
    }
    text.split('+').map(one).collect()
}

fn one(text: &str) -> Result<Input<'_>, Problem> {
    let (name, event_type) = text.split_once('/').map_or((text, None), |(name, event_type)| (name, Some(event_type)));
    let next_step = "name the service channel:NAME or channel:NAME/TYPE, or several channels as channel:A+B";
    let name = name.parse::<Name>().map_err(|error| problems::chain(error.to_string(), next_step))?;
    Ok(Input { channel: ChannelId::data(name), event_type })
}

impl Input<'_> {
    /// The name of its structure: each other character of a channel's name becomes `_`.
    fn member(&self) -> String {
        let name = self.event_type.unwrap_or(self.channel.name.as_str());
        name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
    }
}

impl Inputs {
    /// `inlets` are those of `inputs`, in the same order.
    pub(super) fn new(inputs: &[Input<'_>], inlets: Vec<Inlet>) -> Result<Inputs, Problem> {
        let format = match &inlets[..] {
            [only] => only.format.clone(),
            all => joined(inputs.iter().map(Input::member).zip(all.iter().map(|inlet| inlet.format.clone())))?,
        };
        Ok(Inputs { inlets, format })
    }

    /// Lets the dispatcher look for events.
    pub(super) fn ring(&self) {
        self.inlets.iter().for_each(Inlet::ring);
    }

    /// Takes the events that arrived, some dozens of each channel, by the times at which they were sent. It is over
    /// when one of the channels is.
    pub(super) fn take(&self) -> Arrivals {
        if let [only] = &self.inlets[..] {
            return only.take().unwrap_or_default();
        }
        let (mut channels, mut is_over) = (Vec::new(), false);
        for (number, inlet) in self.inlets.iter().enumerate() {
            let Some(arrivals) = inlet.take() else { continue };
            is_over |= arrivals.is_over;
            let event = |(data, stamp): Arrival| (placed(&self.format, number, &data), stamp);
            channels.push(arrivals.events.into_iter().map(event).collect());
        }
        Arrivals { events: by_time(channels), is_over }
    }

    /// Leaves the channels.
    pub(super) fn leave(&self) {
        self.inlets.iter().for_each(Inlet::leave);
    }
}

/// The events of several channels by the times at which they were sent. Those of one channel keep their order, which
/// may be that of their priorities.
fn by_time(channels: Vec<Vec<Arrival>>) -> Vec<Arrival> {
    let mut channels: Vec<_> = channels.into_iter().map(|events| events.into_iter().peekable()).collect();
    let mut all = Vec::new();
    loop {
        let heads = channels.iter_mut().filter_map(|events| Some((events.peek()?.1.time_ns, events)));
        let Some((_, events)) = heads.min_by_key(|(time_ns, _)| *time_ns) else { return all };
        all.extend(events.next());
    }
}

/// The format of events of several inputs.
fn joined(inputs: impl Iterator<Item = (String, Format)>) -> Result<Format, Problem> {
    let which = Field { name: WHICH.to_owned(), offset: 0, kind: Kind::Scalar(Scalar::I32), dims: Vec::new() };
    let (mut end, mut align, mut fields) = (Scalar::I32.bytes(), Scalar::I32.bytes(), vec![which]);
    for (name, format) in inputs {
        let offset = end.next_multiple_of(format.align);
        end = offset + format.size;
        align = align.max(format.align);
        fields.push(Field { name, offset, kind: Kind::Struct(format), dims: Vec::new() });
    }
    let joined = Format { name: "inputs".to_owned(), size: end.next_multiple_of(align), align, fields };
    let next_step = "channel:A has its channel's name, channel:A/TYPE its type's: choose different ones, or fewer";
    joined.validate().map_err(|error| problems::chain(format!("several channels: {error}"), next_step))?;
    Ok(joined)
}

/// The event of a service with this joined format, for an event of one input.
fn placed(format: &Format, number: usize, data: &[u8]) -> Vec<u8> {
    let mut event = vec![0; format.size as usize];
    let which = (number as i32).to_le_bytes();
    event[..which.len()].copy_from_slice(&which);
    let at = format.fields[number + 1].offset as usize;
    event[at..at + data.len()].copy_from_slice(data);
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(text: &str) -> Format {
        qfabric_ecode::parse_formats(text).unwrap().pop().unwrap()
    }

    fn both(names: [&str; 2]) -> Result<Format, Problem> {
        let formats = [format("struct load { char low; };"), format("struct size { long bytes; };")];
        joined(names.map(str::to_owned).into_iter().zip(formats))
    }

    #[test]
    fn a_service_of_channels_may_name_a_type_of_each() {
        let inputs = named("channel:loads/load+cam-1").unwrap();
        let shown: Vec<_> = inputs.iter().map(|input| (input.channel.to_string(), input.member())).collect();
        let expected = [("loads", "load"), ("cam-1", "cam_1")];
        assert_eq!(shown, expected.map(|(channel, member)| (channel.to_owned(), member.to_owned())));
        assert_eq!(inputs[0].event_type, Some("load"));
        assert_eq!(named("channel:loads").unwrap()[0].event_type, None);
        for wrong in ["channel:quality:loads", "channel:", "channel:a+", "channel:a b"] {
            assert_eq!(named(wrong).unwrap_err().code, "chain", "{wrong}");
        }
        assert!(named("channel:a+b+c+d+e+f+g+h").is_ok());
        assert!(named("channel:a+b+c+d+e+f+g+h+i").unwrap_err().message.contains("9 channels, 8 is the limit"));
    }

    #[test]
    fn an_event_of_several_inputs_tells_its_input_and_fills_its_structure() {
        let joined = both(["a", "b"]).unwrap();
        let expected = "struct inputs { int which; struct { char low; } a; struct { long bytes; } b; };";
        assert_eq!((joined.first_difference(&format(expected)), joined.size), (None, 16));
        assert_eq!(placed(&joined, 0, &[7]), [0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(placed(&joined, 1, &[8; 8]), [1, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8]);
    }

    // Else the queue of one input would overflow before the first event of another came.
    #[test]
    fn events_that_wait_come_in_the_order_of_their_times_and_a_channel_keeps_its_own() {
        let event = |time_ns: &u64| (Vec::new(), Stamp { time_ns: *time_ns, deadline_ns: 0 });
        let channels = [&[1, 5, 4][..], &[], &[2, 4, 6]].map(|times| times.iter().map(event).collect::<Vec<Arrival>>());
        let times: Vec<u64> = by_time(channels.into()).iter().map(|(_, stamp)| stamp.time_ns).collect();
        assert_eq!(times, [1, 2, 4, 5, 4, 6]);
    }

    #[test]
    fn inputs_without_different_names_of_c_are_refused() {
        for names in [["a", "a"], ["which", "b"], ["1", "b"]] {
            let refused = both(names).unwrap_err();
            assert!(refused.message.contains("member") && refused.next_step.contains("/TYPE"), "{refused:?}");
        }
    }

    #[test]
    fn a_handler_has_queues_of_its_inputs() {
        let environment = qfabric_ecode::Environment { input: both(["a", "b"]).ok(), ..Default::default() };
        let text = "if (EVcount_a() && EVcount_b()) return EVdata_a(0).low + EVdata_b(0).bytes; return 0;";
        let program = qfabric_ecode::compile(text, &environment).unwrap();
        assert_eq!(program.uses.queues, 24 + 16 + 24 + 16 * 8);
    }
}
