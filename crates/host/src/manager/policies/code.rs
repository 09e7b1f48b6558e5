//! A policy in E-code: it is called for events on a Q-channel, and for hosts that fall silent. It answers with numbers;
//! their names say what they decide.

use std::collections::BTreeMap;

use qfabric_channel::{Direction, Engines, FilterId};
use qfabric_ecode::{
    CallContext, Diagnostics, Engine, Environment, Fault, Limits, Program, Warnings, compile_with_warnings,
    declares_input,
};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::CodePolicy;
use qfabric_types::channel::{ChannelId, Name, Plane};
use qfabric_types::format::{Field, Format, Kind, Scalar};
use qfabric_types::monitor::{AttributeId, HOST, QualityEvent, QualityKind, Reading, constants};
use qfabric_types::{AppId, Instant, Nanos};

use super::super::{Change, ChangeKind, Controller, Decision, Decisions, Interest, Recipient, Topic, View};
use super::{CPU_MOST, CPU_WEIGHT, RATE, member_of, stream_of, told};

/// Why a text is no policy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCode {
    /// The compiler's errors.
    #[error("{0}")]
    Errors(Diagnostics),
    /// It is valid E-code, but decides nothing, or names what there is not.
    #[error("{0}")]
    Meaning(String),
    /// The engine refuses the program.
    #[error("{0}")]
    Engine(String),
    /// The text's length, in bytes.
    #[error("the text's length is {0}, allowed: at most 65536 bytes")]
    Length(usize),
    #[error("silence is {0}, allowed: 10 ms to 1 h")]
    Silence(Nanos),
    /// A text that names no filter.
    #[error("{0:?} names no filter")]
    Filter(String),
}

impl InvalidCode {
    /// The refusal with its next step.
    pub fn problem(&self) -> Problem {
        let (code, next_step) = match self {
            Self::Errors(_) | Self::Meaning(_) | Self::Engine(_) => {
                ("code", "see `qfabric ecode check`, and the guide's chapter on policies")
            }
            Self::Length(_) | Self::Silence(_) => ("channel_invalid", "choose an allowed value"),
            Self::Filter(_) => ("channel_invalid", "write out/NAME or in/NAME"),
        };
        Problem::new(code, self.to_string(), next_step)
    }
}

/// Receives the faults of calls.
pub type OnFault = Box<dyn FnMut(&Fault) + Send>;

/// Largest length of a text, in bytes.
const MOST_TEXT: usize = 64 * 1024;
/// Largest number of hosts and applications whose last decision is stored, so that an unchanged decision is not sent
/// again.
const MOST_REMEMBERED: usize = 4_096;
/// Accepted times of silence.
const SILENCES: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(10)..=Nanos::from_millis(3_600_000);

/// Numbers that a text can read about an event, or about a silence.
const WORDS: [&str; 12] = [
    "value",
    "attribute",
    "application",
    "host",
    "here",
    "over_ns",
    "cause",
    "is_control",
    "kind",
    "other",
    "request",
    "silent_ns",
];

/// A number for each of [`WORDS`].
type Words = [i64; WORDS.len()];

/// Numbers that a text can decide, besides parameters of its filter.
const ACTS: [&str; 5] = ["rate_milli", "level", "delay_ns", "cpu_most", "cpu_weight"];

/// The subject of a call. Decisions go to this host, and are about this application and this attribute's reports.
struct Subject<'a> {
    host: &'a Name,
    /// An application of this host; none: it is on another host, or the call is about none.
    application: Option<AppId>,
    attribute: AttributeId,
}

/// Time of a host's last event, and the time at which its silence causes a call.
struct LastEvent {
    host: Name,
    at: Instant,
    due: Instant,
}

/// A number in a structure.
#[derive(Clone, Copy, Debug)]
struct At {
    offset: usize,
    ty: Scalar,
}

/// A policy in E-code.
pub struct Code {
    channel: ChannelId,
    interests: Vec<Interest>,
    filter: Option<FilterId>,
    engine: Box<dyn Engine + Send>,
    /// By position in [`WORDS`].
    words: Vec<(usize, At)>,
    decides: Vec<(String, At)>,
    input: Vec<u8>,
    last: BTreeMap<(AppId, usize), i64>,
    /// Names of the attributes whose reports cause a call.
    attributes: Vec<String>,
    /// A host that is silent for this time causes a call.
    silence: Option<Nanos>,
    /// Hosts that have sent events, by their numbers; used only if `silence` is set.
    last_events: BTreeMap<AppId, LastEvent>,
    on_fault: OnFault,
}

impl Code {
    /// Compiles a text for one of the `engines`. A call that faults decides nothing; the fault goes to `on_fault`.
    pub fn new(policy: &CodePolicy, engines: &Engines, on_fault: OnFault) -> Result<Code, InvalidCode> {
        let CodePolicy { channel, attributes, control, filter, silence_ns, .. } = policy;
        if let Some(silence) = silence_ns.filter(|silence| !SILENCES.contains(silence)) {
            return Err(InvalidCode::Silence(silence));
        }
        let (program, _) = compile_policy(&policy.code)?;
        let filter = filter.as_deref().map(|filter| filter_id(channel, filter)).transpose()?;
        let words = program.input.fields.iter().map(word).collect::<Result<_, _>>()?;
        let decides = decisions(&program, filter.is_some())?;
        let limits = Limits { emissions: 0, ..Limits::default() };
        let engine = engines(&program, limits).map_err(InvalidCode::Engine)?;
        let channel = ChannelId { plane: Plane::Quality, name: channel.clone() };
        let attributes = if attributes.is_empty() { vec![RATE.to_owned()] } else { attributes.clone() };
        let interests = interests(&channel, &attributes, *control);
        let input = vec![0; program.input.size as usize];
        let (last, last_events, silence) = (BTreeMap::new(), BTreeMap::new(), *silence_ns);
        let code = Code {
            channel,
            interests,
            filter,
            engine,
            words,
            decides,
            input,
            last,
            attributes,
            silence,
            last_events,
            on_fault,
        };
        Ok(code)
    }

    /// Records that the host has sent an event.
    fn note_event(&mut self, host: &Name, now: Instant) {
        let Some(silence) = self.silence else { return };
        if self.last_events.len() < MOST_REMEMBERED || self.last_events.contains_key(&stream_of(host)) {
            self.last_events.insert(stream_of(host), LastEvent { host: host.clone(), at: now, due: now + silence });
        }
    }

    fn call(&mut self, words: Words, view: &View<'_>) -> bool {
        for (word, at) in &self.words {
            let bytes = at.ty.bytes() as usize;
            self.input[at.offset..][..bytes].copy_from_slice(&words[*word].to_le_bytes()[..bytes]);
        }
        let context = CallContext { now: view.now.get(), ..CallContext::default() };
        match self.engine.call(&self.input, &context, &mut |_| {}) {
            Ok(verdict) => verdict != 0,
            Err(fault) => {
                (self.on_fault)(&fault);
                false
            }
        }
    }

    /// Adds the decisions that differ from the previous ones for the same host or application.
    fn decide(&mut self, about: &Subject<'_>, view: &View<'_>, decisions: &mut Decisions) {
        for (number, (name, at)) in self.decides.iter().enumerate() {
            let value = read(self.engine.output(), *at);
            let subject = if name.starts_with("cpu_") { about.application } else { Some(stream_of(about.host)) };
            let Some(subject) = subject else { continue };
            if self.last.len() >= MOST_REMEMBERED {
                self.last.clear();
            }
            if self.last.insert((subject, number), value) != Some(value) {
                decisions.extend(self.decision(name, value, subject, about, view));
            }
        }
    }

    fn decision(
        &self,
        name: &str,
        value: i64,
        subject: AppId,
        about: &Subject<'_>,
        view: &View<'_>,
    ) -> Option<Decision> {
        let apply = |attribute: &str| {
            let (application, attribute) = (subject, AttributeId::of(attribute));
            Some(Decision::Apply { application, attribute, amount: value })
        };
        let tell = |kind, attribute: &str| {
            let event = told("code", kind, attribute, value, view.now);
            Some(Decision::Tell { channel: self.channel.clone(), to: Recipient::Host(about.host.clone()), event })
        };
        match name {
            "rate_milli" => apply(RATE),
            "cpu_most" => apply(CPU_MOST),
            "cpu_weight" => apply(CPU_WEIGHT),
            "level" => tell(QualityKind::Level, "app.level"),
            "delay_ns" => {
                let reported = self.attributes.iter().find(|name| AttributeId::of(name) == about.attribute);
                reported.filter(|_| value > 0).and_then(|reported| tell(QualityKind::Delay, reported))
            }
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
        let is_here = change.host == *view.host;
        let (host, here, number) = (stream.0.cast_signed(), i64::from(is_here), u64::cast_signed);
        let (application, attribute, words) = match &change.what {
            ChangeKind::Reading(reading) => {
                let Reading { value, attribute, application, over, cause, .. } = reading;
                let (id, of, over, cause) = (attribute.0.into(), application.0, over.get(), *cause as i64);
                // Other hosts have their own numbers of applications.
                let own = Some(*application).filter(|_| is_here);
                (own, *attribute, [*value, id, number(of), host, here, number(over), cause, 0, 0, 0, 0, 0])
            }
            ChangeKind::Control(event) => {
                let QualityEvent { value, attribute, application, kind, other, request, .. } = *event;
                let (id, of, kind) = (attribute.0.into(), application.0, kind as i64);
                // The application is one of the receiver's, no matter which host sends the event.
                let words = [value, id, number(of), host, here, 0, 0, 1, kind, other, number(request), 0];
                (Some(application), attribute, words)
            }
            ChangeKind::HostGone => {
                self.last_events.remove(&stream);
                return self.last.retain(|(subject, _), _| *subject != stream);
            }
            // A program of this name that starts later, there or here, knows no earlier decision.
            ChangeKind::Left(left) if left.group == self.channel.name => {
                let own = is_here.then(|| member_of(&left.group, &left.application));
                return self.last.retain(|(subject, _), _| *subject != stream && Some(*subject) != own);
            }
            _ => return,
        };
        self.note_event(&change.host, view.now);
        if self.call(words, view) {
            let application = application.filter(|application| *application != HOST);
            self.decide(&Subject { host: &change.host, application, attribute }, view, decisions);
        }
    }

    fn woken(&mut self, view: &View<'_>, decisions: &mut Decisions) {
        let Some(silence) = self.silence else { return };
        let due = self.last_events.iter().filter(|(_, event)| event.due <= view.now);
        let due: Vec<AppId> = due.map(|(stream, _)| *stream).collect();
        for stream in due {
            let Some(event) = self.last_events.get_mut(&stream) else { continue };
            event.due = view.now + silence;
            let (host, silent) = (event.host.clone(), view.now.since(event.at).get().cast_signed());
            let here = i64::from(host == *view.host);
            if self.call([0, 0, 0, stream.0.cast_signed(), here, 0, 0, 0, 0, 0, 0, silent], view) {
                let about = Subject { host: &host, application: None, attribute: AttributeId(0) };
                self.decide(&about, view, decisions);
            }
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.last_events.values().map(|event| event.due).min()
    }
}

/// Whether a text decides the rates at which events go to each host.
pub fn paces(policy: &CodePolicy) -> Result<bool, InvalidCode> {
    Ok(compile_policy(&policy.code)?.0.uses.outputs.contains("rate_milli"))
}

/// Compiles the text of a policy, with the constants and the `struct input` that policies have.
pub fn compile_policy(code: &str) -> Result<(Program, Warnings), InvalidCode> {
    if code.len() > MOST_TEXT {
        return Err(InvalidCode::Length(code.len()));
    }
    let mut constants: BTreeMap<String, i64> = constants().collect();
    constants.insert("APP_RATE_MILLI".to_owned(), AttributeId::of(RATE).0.into());
    let input = (!declares_input(code)).then(all_words);
    let environment = Environment { input, constants, ..Environment::default() };
    compile_with_warnings(code, &environment).map_err(InvalidCode::Errors)
}

/// The members of the output that the program sets. A program without any decides nothing.
fn decisions(program: &Program, with_filter: bool) -> Result<Vec<(String, At)>, InvalidCode> {
    let output = program.output.as_ref().map_or(&[][..], |output| &output.fields);
    let mut decides = output.iter().map(|field| decided(field, with_filter)).collect::<Result<Vec<_>, _>>()?;
    decides.retain(|(name, _)| program.uses.outputs.contains(name));
    if decides.is_empty() {
        let nothing = "the text sets no member of its `struct output`, so it decides nothing";
        return Err(InvalidCode::Meaning(nothing.to_owned()));
    }
    Ok(decides)
}

fn interests(channel: &ChannelId, attributes: &[String], control: bool) -> Vec<Interest> {
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

fn word(field: &Field) -> Result<(usize, At), InvalidCode> {
    let known = WORDS.iter().position(|word| *word == field.name);
    let unknown = || InvalidCode::Meaning(format!("input.{}: there is {}", field.name, WORDS.join(", ")));
    Ok((known.ok_or_else(unknown)?, number("input", field)?))
}

fn decided(field: &Field, with_filter: bool) -> Result<(String, At), InvalidCode> {
    if !with_filter && !ACTS.contains(&field.name.as_str()) {
        let known = ACTS.join(", ");
        let what = format!("output.{} decides nothing: there is {known}, and parameters of a filter", field.name);
        return Err(InvalidCode::Meaning(what));
    }
    Ok((field.name.clone(), number("output", field)?))
}

fn number(structure: &str, field: &Field) -> Result<At, InvalidCode> {
    match (&field.kind, &field.dims[..]) {
        (Kind::Scalar(ty), []) if !ty.float => Ok(At { offset: field.offset as usize, ty: *ty }),
        _ => Err(InvalidCode::Meaning(format!(
            "{structure}.{} is {}; it has to be one number",
            field.name,
            field.type_text()
        ))),
    }
}

fn read(output: &[u8], at: At) -> i64 {
    let mut word = [0; 8];
    let bytes = at.ty.bytes() as usize;
    word[..bytes].copy_from_slice(&output[at.offset..][..bytes]);
    at.ty.wrap(i64::from_le_bytes(word))
}

/// `out/NAME` or `in/NAME`, on the data channel.
pub fn filter_id(channel: &Name, text: &str) -> Result<FilterId, InvalidCode> {
    let parsed = text.split_once('/').and_then(|(direction, name)| {
        let direction = Direction::named(direction)?;
        Some(FilterId { channel: ChannelId::data(channel.clone()), direction, name: name.parse().ok()? })
    });
    parsed.ok_or_else(|| InvalidCode::Filter(text.chars().take(80).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    use qfabric_channel::interpreter;

    use super::super::super::{Effect, Input, Manager, Output};
    use qfabric_types::monitor::{Cause, Unit};

    const SILENCE: Nanos = Nanos::from_millis(1_000);

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
            silence_ns: Some(SILENCE),
        }
    }

    /// An output of the manager, as text.
    fn said(output: Output) -> String {
        match output {
            Output::Tell(_, _, event) => {
                let is_delay = event.kind == QualityKind::Delay;
                let of = if is_delay { format!(" of {}", event.subject) } else { String::new() };
                format!("tell {:?} {}{of}", event.kind, event.value)
            }
            Output::Parameter(filter, parameter, value) => format!("{} {parameter} = {value}", filter.name),
            Output::Effect(Effect::Apply(application, attribute, amount)) => {
                let is_most = attribute == AttributeId::of(CPU_MOST);
                let of = if is_most { format!(" to {application}") } else { String::new() };
                format!("apply {amount}{of}")
            }
            other => format!("{other:?}"),
        }
    }

    fn queue(value: i64) -> Reading {
        let (attribute, at, over) = (AttributeId::of("cpu.run_queue"), Instant::ZERO, Nanos::ZERO);
        Reading { attribute, application: HOST, value, at, over, cause: Cause::Poll, unit: Unit::Count }
    }

    type Faults = Arc<Mutex<Vec<String>>>;

    fn new(policy: &CodePolicy, faults: &Faults) -> Result<Code, InvalidCode> {
        let faults = faults.clone();
        Code::new(policy, &interpreter(), Box::new(move |fault| faults.lock().unwrap().push(fault.to_string())))
    }

    /// The host `a` with a policy.
    struct Host {
        manager: Manager,
        faults: Faults,
    }

    impl Host {
        fn with(code: &str) -> Host {
            let (mut manager, faults) = (Manager::new("a".parse().unwrap()), Faults::default());
            manager.add(Box::new(new(&policy(code), &faults).unwrap()));
            Host { manager, faults }
        }

        fn hears(&mut self, host: &str, reading: Reading) {
            let channel = "quality:video".parse().unwrap();
            let input = Input::Reading(Some(channel), host.parse().unwrap(), reading);
            self.manager.handle(input, reading.at);
        }

        fn said(&mut self) -> Vec<String> {
            std::iter::from_fn(|| self.manager.poll()).map(said).collect()
        }

        /// Outputs while time passes until `end`.
        fn until(&mut self, end: Nanos) -> Vec<String> {
            let end = Instant::ZERO + end;
            while let Some(due) = self.manager.next_wakeup().filter(|due| *due <= end) {
                self.manager.handle(Input::Wake, due);
            }
            self.said()
        }
    }

    fn run(code: &str, values: &[i64]) -> (Vec<String>, Faults) {
        let mut host = Host::with(code);
        values.iter().for_each(|value| host.hears("b", queue(*value)));
        (host.said(), host.faults)
    }

    #[test]
    fn cpu_time_is_decided_for_applications_of_this_host_only() {
        let mut host = Host::with("struct output { long cpu_most; }; output.cpu_most = input.value; return 1;");
        let used = |value| Reading { application: AppId(7), ..queue(value) };
        host.hears("b", used(100_000));
        assert!(host.said().is_empty(), "7 is another application there");
        host.hears("a", used(100_000));
        assert_eq!(host.said(), [format!("apply 100000 to {}", AppId(7))]);
    }

    #[test]
    fn a_host_that_falls_silent_is_an_event_and_again_until_it_speaks() {
        let text = "struct output { long level; }; output.level = input.silent_ns / 1000000; return 1;";
        let mut host = Host::with(text);
        host.hears("b", queue(1));
        assert_eq!(host.until(Nanos::from_millis(999)), ["tell Level 0"]);
        assert_eq!(host.until(Nanos::from_millis(2_500)), ["tell Level 1000", "tell Level 2000"]);
        let again = Reading { at: Instant::ZERO + Nanos::from_millis(2_500), ..queue(1) };
        host.hears("b", again);
        assert_eq!(host.until(Nanos::from_millis(3_499)), ["tell Level 0"]);
        host.manager.handle(Input::HostGone("b".parse().unwrap()), again.at);
        assert_eq!((host.until(Nanos::from_millis(9_000)).len(), host.manager.next_wakeup()), (0, None));
    }

    #[test]
    fn a_program_that_starts_again_gets_its_decisions_again() {
        let text = "struct output { long cpu_most, level; }; output.cpu_most = 9; output.level = 9; return 1;";
        let mut host = Host::with(text);
        let (application, group): (Name, Name) = ("player".parse().unwrap(), "video".parse().unwrap());
        let number = member_of(&group, &application);
        let registration =
            qfabric_channel::Registration { application, group, parent: None, level: 2, qos: Vec::new() };
        let report = Reading { application: number, ..queue(1) };
        let decided = [format!("apply 9 to {number}"), "tell Level 9".to_owned()];
        host.hears("a", report);
        host.hears("a", report);
        assert_eq!(host.said(), decided);
        host.manager.handle(Input::Left("a".parse().unwrap(), registration), Instant::ZERO);
        host.hears("a", report);
        assert_eq!(host.said(), decided);
    }

    #[test]
    fn a_delay_is_of_the_reports_that_it_was_decided_for() {
        let mut host = Host::with("struct output { long delay_ns; }; output.delay_ns = 5; return 1;");
        host.hears("b", queue(1));
        assert_eq!(host.said(), ["tell Delay 5 of cpu.run_queue"]);
    }

    #[test]
    fn ten_lines_decide_on_a_filter_and_a_rate_and_only_changes_are_said() {
        let (said, _) = run(CALM, &[9, 0, 0, 0]);
        assert_eq!(said, ["pick most = 20", "apply 8333", "apply 25000", "pick most = 100"]);
    }

    #[test]
    fn a_rate_that_only_a_comment_names_is_not_decided() {
        let paces = |code: &str| paces(&policy(code)).unwrap();
        assert!(paces("struct output { long rate_milli; }; output.rate_milli = 5; return 1;"));
        assert!(!paces("/* rate_milli */ struct output { long level; }; output.level = 5; return 1; // rate_milli"));
        let declared = "struct output { long rate_milli, level; }; output.level = 5; return 1;";
        assert!(!paces(declared));
        assert_eq!(run(declared, &[1]).0, ["tell Level 5"], "a member that is never set decides nothing");
    }

    #[test]
    fn only_a_declared_input_replaces_the_one_with_all_words() {
        let says = "struct output { long level; }; output.level = input.value; return 1;";
        assert_eq!(run(&format!("// no struct input here\n{says}"), &[4]).0, ["tell Level 4"]);
        assert_eq!(run(&format!("struct  input\n{{ int value; }}; {says}"), &[4]).0, ["tell Level 4"]);
    }

    #[test]
    fn a_fault_is_counted_and_decides_nothing() {
        let text = "struct output { long level; }; output.level = 100 / input.value; return 1;";
        let (said, faults) = run(text, &[0, 50]);
        assert_eq!(said, ["tell Level 2"]);
        let faults = faults.lock().unwrap();
        assert!(faults.len() == 1 && faults[0].contains("zero"), "{faults:?}");
    }

    #[test]
    fn a_text_that_cannot_be_meant_is_refused_with_what_there_is() {
        let refusal = |code: &str, filter: Option<&str>| {
            let policy = CodePolicy { filter: filter.map(str::to_owned), ..policy(code) };
            new(&policy, &Faults::default()).map(drop).unwrap_err().to_string()
        };
        assert!(refusal("return 1;", None).contains("struct output"));
        assert!(refusal("struct output { long most; }; return 1;", None).contains("rate_milli, level"));
        let text = "struct input { long load; }; struct output { long level; }; return 1;";
        assert!(refusal(text, None).contains("value, attribute"));
        assert!(refusal("struct output { long level; }; output.levl = 1;", None).contains("levl"));
        assert!(refusal("struct output { long level; };", Some("pick")).contains("pick"));
    }
}
