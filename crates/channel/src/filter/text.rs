//! Filters in E-code.

use std::fmt;

use qfabric_ecode::{Bound, CallContext, Engine, Environment, Fault, Program, bpf, compile, declares_input};
use qfabric_types::channel::Name;
use qfabric_types::format::Format;

use super::Draft;
use super::followed::{Followed, Word};
use super::plan::{BadTail, Plan, Shape, Table};
use crate::member::Seat;
use crate::{Config, FilterError, Limits, Spec};

/// A compiled filter and its memory.
pub(crate) struct TextFilter {
    engine: Box<dyn Engine + Send>,
    pub parameters: Vec<String>,
    shape: Shape,
    /// By type; `None`: the filter is not called for this type.
    plans: Vec<Option<Plan>>,
    /// `struct input` of the last call: its table stays valid until the sinks change.
    input: Vec<u8>,
    /// The seats in the table, in order, and the generation of their roster.
    rows: Vec<u32>,
    generation: Option<u64>,
    next_rows: Vec<u32>,
    followed: Vec<Followed>,
    /// Instructions of a call, at worst, without those of its loops.
    straight: u64,
}

/// Why a call chose no sink.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum Failed {
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error(transparent)]
    Tail(#[from] BadTail),
}

impl TextFilter {
    /// Compiles a text for these types of the channel.
    pub(crate) fn new(text: &str, spec: &Spec, types: u64, config: &Config) -> Result<TextFilter, FilterError> {
        let (program, bound) = bounded(text, spec, types, config.filter_instructions)?;
        let first = formats(spec, types).next();
        let output = program.output.as_ref();
        let misfit = |name: &str| {
            let event_type = name.to_owned();
            move |(structure, what)| FilterError::Layout { structure, event_type, what }
        };
        let mut plans = Vec::new();
        for (number, known) in spec.types.iter().enumerate() {
            let plan = || Plan::new(&program.input, output, &known.format).map_err(misfit(known.name()));
            plans.push(if is_wanted(types, number) { Some(plan()?) } else { None });
        }
        let name = first.map_or("", |format| format.name.as_str());
        let shape = Shape::new(&program.input, output, first).map_err(misfit(name))?;
        let straight = bpf::measure(&program).instructions;
        let engine = (config.engines)(&program, bound.limits(0)).map_err(FilterError::Engine)?;
        let input = vec![0; program.input.size as usize];
        let (rows, next_rows, generation, followed) = (Vec::new(), Vec::new(), None, Vec::new());
        let parameters = program.attributes;
        Ok(TextFilter { engine, parameters, shape, plans, input, rows, generation, next_rows, followed, straight })
    }

    /// Instructions of the last call: those of its code, at worst, and those that its loops executed.
    pub(crate) fn executed(&self) -> u64 {
        self.straight + u64::from(self.engine.looped())
    }

    /// Returns how many sinks did not fit in the table.
    pub(crate) fn run(
        &mut self,
        draft: &mut Draft<'_, '_>,
        generation: u64,
        seats: &[Seat],
        chosen: &mut [bool],
    ) -> Result<u64, Failed> {
        self.absorb();
        let Some(Some(plan)) = self.plans.get(usize::from(draft.event.event_type)) else { return Ok(0) };
        let event = draft.event();
        for copy in &plan.copies {
            let from = &event.payload[copy.from as usize..][..copy.bytes as usize];
            self.input[copy.to as usize..][..copy.bytes as usize].copy_from_slice(from);
        }
        for (word, at) in &plan.words {
            at.put(word.of_event(&event), &mut self.input);
        }
        plan.tail.read(event.payload, &mut self.input);
        let beyond = self.seat(generation, seats, chosen);
        let context = CallContext { now: draft.now.get(), ..CallContext::default() };
        let verdict = self.engine.call(&self.input, &context, &mut |_| {})?;
        if verdict == 0 {
            chosen.fill(false);
            return Ok(beyond);
        }
        self.pick(chosen);
        self.change(draft)?;
        Ok(beyond)
    }

    /// Fills the table with the sinks that are still chosen. Returns how many do not fit.
    fn seat(&mut self, generation: u64, seats: &[Seat], chosen: &[bool]) -> u64 {
        let Shape { sinks, table, chosen: places } = &self.shape;
        if sinks.is_none() && table.is_none() && places.is_none() {
            return 0;
        }
        self.next_rows.clear();
        let open = chosen.iter().enumerate().filter(|(_, chosen)| **chosen);
        self.next_rows.extend(open.map(|(at, _)| at as u32));
        let room = [table.as_ref().map(|table| table.rows), places.map(|(_, count)| count)];
        let room = room.into_iter().flatten().min().map_or(usize::MAX, |room| room as usize);
        let beyond = self.next_rows.len().saturating_sub(room);
        self.next_rows.truncate(room);
        if self.generation == Some(generation) && self.rows == self.next_rows {
            return beyond as u64;
        }
        self.generation = Some(generation);
        std::mem::swap(&mut self.rows, &mut self.next_rows);
        if let Some(at) = sinks {
            at.put(self.rows.len() as i64, &mut self.input);
        }
        if let Some(table) = table {
            fill(table, &self.rows, seats, &mut self.input);
        }
        beyond as u64
    }

    /// Keeps the sinks that the output chooses; keeps all if the output has no `chosen`.
    fn pick(&self, chosen: &mut [bool]) {
        let Some((offset, _)) = self.shape.chosen else { return };
        let output = &self.engine.output()[offset as usize..];
        chosen.fill(false);
        for (row, at) in self.rows.iter().enumerate() {
            chosen[*at as usize] = output[row] != 0;
        }
    }

    /// Copies the output's members of the event into the payload.
    fn change(&self, draft: &mut Draft<'_, '_>) -> Result<(), BadTail> {
        let Some(Some(plan)) = self.plans.get(usize::from(draft.event.event_type)) else { return Ok(()) };
        let output = self.engine.output();
        for copy in &plan.writes {
            let from = &output[copy.from as usize..][..copy.bytes as usize];
            draft.edit()[copy.to as usize..][..copy.bytes as usize].copy_from_slice(from);
        }
        plan.tail.write(output, draft)
    }

    /// Takes over what has changed in the words that parameters follow.
    fn absorb(&mut self) {
        for followed in &mut self.followed {
            let place = self.engine.attributes().get_mut(followed.at);
            if let (Some(value), Some(place)) = (followed.news(), place) {
                *place = value;
            }
        }
    }

    /// From now on the parameter also takes the values of the word, which `host` changes. False: there is no such
    /// parameter, or it follows another host.
    pub(crate) fn follow(&mut self, name: &str, host: &Name, word: Box<dyn Word>) -> bool {
        self.absorb();
        let Some(at) = self.parameters.iter().position(|known| known == name) else { return false };
        let is_free = self.followed.iter().all(|followed| followed.at != at || followed.host == *host);
        if is_free {
            self.followed.retain(|followed| followed.at != at);
            self.followed.push(Followed::new(at, host.clone(), word));
        }
        is_free
    }

    /// Parameters no longer follow the hosts for which `is_over` is true; their values stay.
    pub(crate) fn unfollow(&mut self, is_over: impl Fn(&Name) -> bool) {
        self.absorb();
        self.followed.retain(|followed| !is_over(&followed.host));
    }

    /// The parameters that follow words, each with the host that changes it.
    pub(crate) fn followed(&self) -> impl Iterator<Item = (&str, &Name)> {
        self.followed.iter().map(|followed| (self.parameters[followed.at].as_str(), &followed.host))
    }

    /// A parameter's storage, by its name.
    pub(crate) fn parameter(&mut self, name: &str) -> Result<&mut i64, FilterError> {
        self.absorb();
        let at = self.parameters.iter().position(|known| known == name);
        at.and_then(|at| self.engine.attributes().get_mut(at)).ok_or_else(|| {
            let known = if self.parameters.is_empty() { "none".to_owned() } else { self.parameters.join(", ") };
            FilterError::NoParameter { name: name.to_owned(), known }
        })
    }
}

/// Compiles a text for these types of the channel, and bounds the instructions of one call.
pub(crate) fn bounded(text: &str, spec: &Spec, types: u64, most: u32) -> Result<(Program, Bound), FilterError> {
    let (what, asked, limit) = ("bytes of text", text.len(), Limits::TEXT);
    if asked > limit {
        let remedy = "shorten the filter";
        return Err(crate::Error::TooMany { what, asked, limit, remedy }.into());
    }
    let mut formats = formats(spec, types);
    let (first, others) = (formats.next(), formats.next().is_some());
    // A text without `struct input` gets the event itself, if the filter has only one type.
    let gets_event = |format: &&Format| !others && format.size > 0 && !declares_input(text);
    let input = first.filter(gets_event).cloned();
    let environment = Environment { input, ..Environment::default() };
    let program = compile(text, &environment).map_err(|errors| FilterError::Text(errors.to_string()))?;
    let bound = Bound::of([&program], None, most);
    match bound.fits(most) {
        true => Ok((program, bound)),
        false => Err(FilterError::TooLong { instructions: bound.instructions, limit: most }),
    }
}

fn is_wanted(types: u64, number: usize) -> bool {
    types & 1 << number != 0
}

/// The formats of these types of the channel.
fn formats(spec: &Spec, types: u64) -> impl Iterator<Item = &Format> {
    let wanted = spec.types.iter().enumerate().filter(move |(number, _)| is_wanted(types, *number));
    wanted.map(|(_, known)| &known.format)
}

fn fill(table: &Table, rows: &[u32], seats: &[Seat], input: &mut [u8]) {
    for (row, at) in rows.iter().enumerate() {
        let base = (table.at + row as u32 * table.stride) as usize;
        for (name, at_column) in &table.columns {
            let value = seats[*at as usize].info.attributes.get(name).unwrap_or(0);
            at_column.put(value, &mut input[base..]);
        }
    }
}

impl fmt::Debug for TextFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TextFilter { parameters, shape, plans, .. } = self;
        f.debug_struct("TextFilter")
            .field("parameters", parameters)
            .field("shape", shape)
            .field("plans", plans)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use qfabric_ecode::parse_formats;

    use super::*;
    use crate::{EventType, Incarnation};

    #[test]
    fn a_filter_gets_the_event_unless_it_declares_an_input() {
        let types = parse_formats("struct frame { int kind; };").unwrap();
        let types = types.into_iter().map(|format| EventType { format }).collect();
        let spec = Spec { types, ..Spec::default() };
        let config = Config::new("h".parse().unwrap(), Incarnation::new(1, 1));
        let input_bytes = |text: &str| TextFilter::new(text, &spec, 1, &config).unwrap().input.len();
        assert_eq!(input_bytes("// without a struct input\nreturn input.kind == 7;"), 4);
        assert_eq!(input_bytes("struct  input\n{ int sinks; int kind; }; return input.kind == 8;"), 8);
    }
}
