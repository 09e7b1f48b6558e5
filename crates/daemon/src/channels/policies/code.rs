//! A policy in E-code: called for what is said on a Q-channel, it answers with numbers, and their names say what they
//! decide.

use std::collections::BTreeMap;

use qfabric_ecode::{Engine, Environment, Limits, World, compile};
use qfabric_host::manager::policies::{DELAY, RATE, stream_of};
use qfabric_host::manager::{Change, Controller, Decision, Decisions, Interest, Topic, View, What, Whom};
use qfabric_types::AppId;
use qfabric_types::api::Problem;
use qfabric_types::api::channel::CodePolicy;
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::format::{Field, Format, Kind, Scalar};
use qfabric_types::monitor::{AttributeId, HOST, QualityEvent, QualityKind, QualityText, constants};

use super::super::{lock, node};
use super::cpu::{CPU_MOST, CPU_WEIGHT};
use super::refused;
use super::supervised::Shared;

/// Longest text.
const MOST_TEXT: usize = 64 * 1024;
/// Hosts and applications of which the last decision is remembered, so that it is not told again.
const MOST_REMEMBERED: usize = 4_096;

/// What a text can know of an event.
const WORDS: [&str; 11] =
    ["value", "attribute", "application", "host", "here", "over_ns", "cause", "is_control", "kind", "other", "request"];

/// What a text can decide, beside parameters of its filter.
const ACTS: [&str; 5] = ["rate_milli", "level", "delay_ns", "cpu_most", "cpu_weight"];

/// A number in a structure.
#[derive(Clone, Copy, Debug)]
struct At {
    offset: usize,
    ty: Scalar,
}

/// The controller.
pub(super) struct Code {
    channel: ChannelId,
    interests: Vec<Interest>,
    filter: Option<qfabric_channel::Spot>,
    engine: Box<dyn Engine + Send>,
    /// By place in [`WORDS`].
    words: Vec<(usize, At)>,
    decides: Vec<(String, At)>,
    input: Vec<u8>,
    last: BTreeMap<(AppId, usize), i64>,
    record: Shared,
}

impl Code {
    /// Compiles a text, or says what is wrong with it.
    pub fn new(policy: &CodePolicy, record: Shared) -> Result<Code, Problem> {
        let CodePolicy { channel, code, attributes, control, filter, .. } = policy;
        if code.len() > MOST_TEXT {
            return Err(refused::out_of_range("the text's length", code.len(), "at most 65536 bytes"));
        }
        if !code.contains("struct output") {
            return Err(refused::code("the text declares no `struct output`, so it decides nothing".to_owned()));
        }
        let mut constants: BTreeMap<String, i64> = constants().collect();
        constants.insert("APP_RATE_MILLI".to_owned(), AttributeId::of(RATE).0.into());
        let input = (!code.contains("struct input")).then(all_words);
        let environment = Environment { input, constants, ..Environment::default() };
        let program = compile(code, &environment).map_err(|wrong| refused::code(wrong.to_string()))?;
        let filter = filter.as_deref().map(|filter| spot(channel, filter)).transpose()?;
        let words = program.input.fields.iter().map(word).collect::<Result<_, _>>()?;
        let output = program.output.as_ref().map_or(&[][..], |output| &output.fields);
        let decides = output.iter().map(|field| decided(field, filter.is_some())).collect::<Result<_, _>>()?;
        let limits = Limits { emissions: 0, ..Limits::default() };
        let engine = (node::engines())(&program, limits).map_err(refused::code)?;
        let channel = ChannelId { plane: Plane::Quality, name: channel.clone() };
        let interests = interests(&channel, attributes, *control);
        let (input, last) = (vec![0; program.input.size as usize], BTreeMap::new());
        Ok(Code { channel, interests, filter, engine, words, decides, input, last, record })
    }

    fn call(&mut self, words: [i64; WORDS.len()], view: &View<'_>) -> bool {
        for (word, at) in &self.words {
            let bytes = at.ty.bytes() as usize;
            self.input[at.offset..][..bytes].copy_from_slice(&words[*word].to_le_bytes()[..bytes]);
        }
        let world = World { now: view.now.get(), ..World::default() };
        match self.engine.call(&self.input, &world, &mut |_| {}) {
            Ok(verdict) => verdict != 0,
            Err(fault) => {
                let mut record = lock(&self.record);
                record.faults += 1;
                record.fault = Some(fault.to_string());
                false
            }
        }
    }

    /// Pushes what differs from what was decided before for the same host or application.
    fn decide(&mut self, host: &Name, about: AppId, view: &View<'_>, decisions: &mut Decisions) {
        for (number, (name, at)) in self.decides.iter().enumerate() {
            let value = read(self.engine.output(), *at);
            let subject = if name.starts_with("cpu_") { about } else { stream_of(host) };
            if self.last.len() >= MOST_REMEMBERED {
                self.last.clear();
            }
            if self.last.insert((subject, number), value) != Some(value) {
                decisions.extend(self.decision(name, value, subject, host, view));
            }
        }
    }

    fn decision(&self, name: &str, value: i64, subject: AppId, host: &Name, view: &View<'_>) -> Option<Decision> {
        let apply = |attribute: &str| {
            let (application, attribute) = (subject, AttributeId::of(attribute));
            Some(Decision::Apply { application, attribute, amount: value })
        };
        let tell = |kind, attribute: &str| {
            let (controller, attribute) = (AttributeId::of("code"), AttributeId::of(attribute));
            let (at, application, subject) = (view.now, HOST, QualityText::NONE);
            let event =
                QualityEvent { controller, kind, value, other: 0, request: 0, at, application, attribute, subject };
            Some(Decision::Tell { channel: self.channel.clone(), to: Whom::Host(host.clone()), event })
        };
        match name {
            "rate_milli" => apply(RATE),
            // The amount belongs to an application that there is.
            "cpu_most" => apply(CPU_MOST).filter(|_| subject != HOST),
            "cpu_weight" => apply(CPU_WEIGHT).filter(|_| subject != HOST),
            "level" => tell(QualityKind::Level, "app.level"),
            "delay_ns" if value > 0 => tell(QualityKind::Delay, DELAY),
            "delay_ns" => None,
            parameter => {
                let filter = self.filter.clone()?;
                Some(Decision::Parameter { filter, parameter: parameter.to_owned(), value })
            }
        }
    }
}

impl Controller for Code {
    fn name(&self) -> &str {
        "code"
    }

    fn interests(&self) -> Vec<Interest> {
        self.interests.clone()
    }

    fn changed(&mut self, change: &Change, view: &View<'_>, decisions: &mut Decisions) {
        let stream = stream_of(&change.host);
        let here = i64::from(change.host == *view.host);
        let number = |id: u64| id.cast_signed();
        let (about, words) = match &change.what {
            What::Reading(reading) => {
                let (attribute, application) = (reading.attribute.0.into(), number(reading.application.0));
                let (over, cause) = (number(reading.over.get()), reading.cause as i64);
                let words = [reading.value, attribute, application, number(stream.0), here, over, cause, 0, 0, 0, 0];
                (reading.application, words)
            }
            What::Control(event) => {
                let (attribute, application) = (event.attribute.0.into(), number(event.application.0));
                let (kind, request) = (event.kind as i64, number(event.request));
                let host = number(stream.0);
                (
                    event.application,
                    [event.value, attribute, application, host, here, 0, 0, 1, kind, event.other, request],
                )
            }
            What::HostGone => return self.last.retain(|(subject, _), _| *subject != stream),
            _ => return,
        };
        if self.call(words, view) {
            self.decide(&change.host, about, view, decisions);
        }
    }
}

fn interests(channel: &ChannelId, attributes: &[String], control: bool) -> Vec<Interest> {
    let default = [RATE.to_owned()];
    let attributes = if attributes.is_empty() { &default[..] } else { attributes };
    let readings = attributes.iter().map(|name| Topic::Reading(AttributeId::of(name)));
    let topics = readings.chain(control.then_some(Topic::Control));
    let gone = Interest::anywhere(Topic::Members);
    topics.map(|topic| Interest::on(channel, topic)).chain([gone]).collect()
}

/// `struct input` of a text that declares none.
fn all_words() -> Format {
    let field = |(place, name): (usize, &&str)| Field {
        name: (*name).into(),
        offset: place as u32 * 8,
        kind: Kind::Scalar(Scalar::I64),
        dims: Vec::new(),
    };
    let fields = WORDS.iter().enumerate().map(field).collect();
    Format { name: "input".into(), size: WORDS.len() as u32 * 8, align: 8, fields }
}

fn word(field: &Field) -> Result<(usize, At), Problem> {
    let known = WORDS.iter().position(|word| *word == field.name);
    let unknown = || refused::code(format!("input.{}: there is {}", field.name, WORDS.join(", ")));
    Ok((known.ok_or_else(unknown)?, number("input", field)?))
}

fn decided(field: &Field, with_filter: bool) -> Result<(String, At), Problem> {
    if !with_filter && !ACTS.contains(&field.name.as_str()) {
        let known = ACTS.join(", ");
        let what = format!("output.{} decides nothing: there is {known}, and parameters of a filter", field.name);
        return Err(refused::code(what));
    }
    Ok((field.name.clone(), number("output", field)?))
}

fn number(structure: &str, field: &Field) -> Result<At, Problem> {
    match (&field.kind, &field.dims[..]) {
        (Kind::Scalar(ty), []) => Ok(At { offset: field.offset as usize, ty: *ty }),
        _ => {
            Err(refused::code(format!("{structure}.{} is {}; it has to be one number", field.name, field.type_text())))
        }
    }
}

fn read(output: &[u8], at: At) -> i64 {
    let mut word = [0; 8];
    let bytes = at.ty.bytes() as usize;
    word[..bytes].copy_from_slice(&output[at.offset..][..bytes]);
    at.ty.wrap(i64::from_le_bytes(word))
}

/// `out/NAME` or `in/NAME`, on the data channel.
pub(super) fn spot(channel: &Name, text: &str) -> Result<qfabric_channel::Spot, Problem> {
    use qfabric_channel::{Direction, Spot};
    let parsed = text.split_once('/').and_then(|(direction, name)| {
        let direction = match direction {
            "in" => Direction::In,
            "out" => Direction::Out,
            _ => return None,
        };
        Some(Spot { channel: ChannelId::data(channel.clone()), direction, name: name.parse().ok()? })
    });
    parsed.ok_or_else(|| refused::filter(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_host::manager::{Input, Manager, ManagerPort, Outcome};
    use qfabric_types::monitor::{Cause, Reading, Unit};
    use qfabric_types::{Instant, Nanos};

    const CALM: &str = "
        struct input { long value, host; };
        struct output { long most, rate_milli; };
        static int calm;
        if (input.value > 4) calm = 0; else calm++;
        output.most = calm > 1 ? 100 : 20;
        output.rate_milli = 25000 / (1 + input.value / 4);
        return 1;";

    fn policy(code: &str) -> CodePolicy {
        CodePolicy {
            name: None,
            channel: "video".parse().unwrap(),
            code: code.to_owned(),
            file: None,
            attributes: vec!["cpu.run_queue".to_owned()],
            control: false,
            filter: Some("out/pick".to_owned()),
        }
    }

    #[derive(Default)]
    struct Port(Vec<String>);

    impl ManagerPort for Port {
        fn tell(&mut self, _: &ChannelId, _: &Whom, event: &QualityEvent) {
            self.0.push(format!("tell {:?} {}", event.kind, event.value));
        }
        fn parameter(&mut self, filter: &qfabric_host::manager::Filter, parameter: &str, value: i64) {
            self.0.push(format!("{} {parameter} = {value}", filter.name));
        }
        fn apply(&mut self, _: AppId, _: AttributeId, amount: i64) {
            self.0.push(format!("apply {amount}"));
        }
        fn answered(&mut self, _: u64, _: &Outcome) {}
        fn distance(&self, _: &Name) -> Option<Nanos> {
            None
        }
    }

    fn queue(value: i64) -> Reading {
        let (attribute, at, over) = (AttributeId::of("cpu.run_queue"), Instant::ZERO, Nanos::ZERO);
        Reading { attribute, application: HOST, value, at, over, cause: Cause::Poll, unit: Unit::Count }
    }

    fn run(code: &str, values: &[i64]) -> (Vec<String>, Shared) {
        let (record, mut port) = (Shared::default(), Port::default());
        let mut manager = Manager::new("a".parse().unwrap());
        manager.add(Box::new(Code::new(&policy(code), record.clone()).unwrap()));
        for value in values {
            let channel = "quality:video".parse().unwrap();
            let input = Input::Reading(Some(channel), "b".parse().unwrap(), queue(*value));
            manager.handle(input, Instant::ZERO, &mut port);
        }
        (port.0, record)
    }

    #[test]
    fn ten_lines_decide_on_a_filter_and_a_rate_and_only_changes_are_said() {
        let (said, _) = run(CALM, &[9, 0, 0, 0]);
        assert_eq!(said, ["pick most = 20", "apply 8333", "apply 25000", "pick most = 100"]);
    }

    #[test]
    fn a_fault_is_counted_and_decides_nothing() {
        let text = "struct output { long level; }; output.level = 100 / input.value; return 1;";
        let (said, record) = run(text, &[0, 50]);
        assert_eq!(said, ["tell Level 2"]);
        let record = lock(&record);
        assert_eq!(record.faults, 1);
        assert!(record.fault.as_deref().unwrap().contains("zero"), "{record:?}");
    }

    #[test]
    fn a_text_that_cannot_be_meant_is_refused_with_what_there_is() {
        let refusal = |code: &str, filter: Option<&str>| {
            let policy = CodePolicy { filter: filter.map(str::to_owned), ..policy(code) };
            Code::new(&policy, Shared::default()).map(drop).unwrap_err().message
        };
        assert!(refusal("return 1;", None).contains("struct output"));
        assert!(refusal("struct output { long most; }; return 1;", None).contains("rate_milli, level"));
        let text = "struct input { long load; }; struct output { long level; }; return 1;";
        assert!(refusal(text, None).contains("value, attribute"));
        assert!(refusal("struct output { long level; }; output.levl = 1;", None).contains("levl"));
        assert!(refusal("struct output { long level; };", Some("pick")).contains("pick"));
    }
}
