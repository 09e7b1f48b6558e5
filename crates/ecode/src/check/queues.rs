//! Queues of a handler with several inputs: EVPath's `EVcount_NAME()`, `EVdata_NAME(i)`, `EVdiscard_NAME(i)` and
//! `EVsubmit(0, event)`, and `EVdropped_NAME()`, because these queues have a bound.
//!
//! The input has a member `which` with the number of the structure that the event is in, counted from 0. The first use
//! of a queue adds it to the statics. From then on each call begins with a copy of its event into the queue of its
//! structure. So the engines have only loads, stores and copies, and all give the same results.
//!
//! ```text
//! statics: | order | count | dropped | place 0 | place 1 | … |
//! ```
//! The order is a word with the numbers of the places in the order of their events, four bits each. So no event moves
//! when an earlier one leaves, and no function has a loop.

use qfabric_types::format::Scalar;

use super::expr::{Value, arity};
use super::fold::{self, cast, constant};
use super::place::Location;
use super::types::{Member, Struct, Type};
use super::{Checked, Checker, suggestion};
use crate::ast::{Expr, ExprKind, Ident};
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::{self, Base, BinaryOp, Builtin, CompareOp, Index, Place};
use crate::parser::Failed;

/// Largest number of events in a queue: the numbers of their places fill one word.
const MOST_EVENTS: u32 = 16;
/// Largest number of bytes of the events in a queue.
const MOST_BYTES: u32 = 8 << 10;
/// The number of a place has four bits; a shift by 2 multiplies by this number.
const BITS: u32 = 4;
/// The places in their own order.
const IN_ORDER: u64 = 0xfedc_ba98_7654_3210;
/// Bytes from the start of a queue to its words and its places.
const ORDER: u32 = 0;
const COUNT: u32 = 8;
const DROPPED: u32 = 16;
const PLACES: u32 = 24;

/// The member of the input with the number of the structure that the event is in, counted from 0.
pub const WHICH: &str = "which";
const SUBMIT: &str = "EVsubmit";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Count,
    Data,
    Discard,
    Dropped,
}

/// The start of a function's name, and its parameters.
const CALLS: [(&str, Call, &[&str]); 4] = [
    ("EVcount_", Call::Count, &[]),
    ("EVdata_", Call::Data, &["number"]),
    ("EVdiscard_", Call::Discard, &["number"]),
    ("EVdropped_", Call::Dropped, &[]),
];
/// Not a queue: EVPath's function that does both.
const BOTH: &str = "EVdiscard_and_submit_";

/// The queue of one structure of the input.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    member: Member,
    /// Bytes from the start of the statics.
    offset: u32,
    /// Largest number of events.
    most: u32,
}

/// An event of a queue by its number.
struct Numbered {
    /// Evaluated first: keeps the number and the place.
    before: hir::Expr,
    number: hir::Expr,
    /// The number of its place; −1, which is a fault, if the queue has no such event.
    place: hir::Expr,
}

impl Checker<'_> {
    /// A call of a function of queues; `None` if it is another function.
    pub(super) fn queue_call(&mut self, name: &Ident, arguments: &[Expr], span: Span) -> Checked<Option<Value>> {
        if name.name == SUBMIT {
            return self.submit(name, arguments, span).map(Some);
        }
        let named = CALLS.iter().find_map(|(start, call, taken)| {
            let queue = name.name.strip_prefix(*start)?;
            Some((*call, *taken, queue))
        });
        let Some((call, taken, queue)) = named.filter(|_| !name.name.starts_with(BOTH)) else { return Ok(None) };
        if taken.len() != arguments.len() {
            let message = arity(&name.name, taken, arguments.len());
            return self.findings.fail(Diagnostic::new(span, message, "wrong number of arguments"));
        }
        let queue = self.queue(queue, name.span)?;
        Ok(Some(match (call, arguments) {
            (Call::Data, [number]) => Value::Whole(self.queued(&queue, number)?),
            (Call::Discard, [number]) => Value::Nothing(self.discard(&queue, number)?),
            (Call::Dropped, _) => Value::Number(cast(queue.word(DROPPED), Scalar::I64)),
            _ => Value::Number(cast(queue.word(COUNT), Scalar::I32)),
        }))
    }

    /// The queue of the input's structure with this name, added at its first use.
    fn queue(&mut self, name: &str, span: Span) -> Checked<Queue> {
        let input = self.input.clone();
        let records: Vec<&Member> = input.iter().flat_map(|input| records(input)).collect();
        let is_numbered = input.as_deref().is_some_and(|input| which(input).is_some());
        let found = records.iter().position(|member| member.name == name).filter(|_| is_numbered);
        let Some(number) = found else { return self.fail_no_queue(name, span, is_numbered, &records) };
        if let Some(known) = self.queues.get(&number) {
            return Ok(known.clone());
        }
        let member = records[number].clone();
        let bytes = member.ty.size();
        let most = (MOST_BYTES / bytes.max(1)).min(MOST_EVENTS);
        if most == 0 {
            let message = format!("an event of `{name}` has {bytes} bytes, a queue holds {MOST_BYTES}");
            let error = Diagnostic::new(span, message, "too large for a queue");
            return self.findings.fail(error.help(format!("read `input.{name}`, and keep what you need in statics")));
        }
        let what = format!("the queue `{name}`");
        let offset = self.statics.allocate(PLACES + most * bytes, 8, &what, span, &mut self.findings)?;
        self.statics.write(offset, &IN_ORDER.to_le_bytes());
        self.uses.inputs.extend([WHICH.to_owned(), name.to_owned()]);
        self.uses.queues += PLACES + most * bytes;
        let queue = Queue { member, offset, most };
        self.queues.insert(number, queue.clone());
        Ok(queue)
    }

    fn fail_no_queue<T>(&mut self, name: &str, span: Span, is_numbered: bool, records: &[&Member]) -> Checked<T> {
        if self.findings.errors.is_full() {
            return Err(Failed);
        }
        let help = match is_numbered {
            true => suggestion(name, records.iter().map(|member| member.name.as_str()), "the input has no structure"),
            false => "subscribe to `channel:A+B`, or declare an `input` with `int which;` and structures".to_owned(),
        };
        let error = Diagnostic::new(span, format!("there is no queue `{name}`"), "no structure of the input");
        self.findings.fail(error.help(help))
    }

    fn numbered(&mut self, queue: &Queue, number: &Expr) -> Checked<Numbered> {
        let (span, line) = (number.span, self.findings.line(number.span));
        let number = cast(self.integer(number)?, Scalar::U64);
        let (first, number) = self.kept(number, span)?;
        let is_there = fold::compare(CompareOp::Lt, number.clone(), queue.word(COUNT));
        let place = cast(queue.place_of(number.clone(), line), Scalar::I64);
        let (second, place) = self.kept(fold::select(is_there, place, constant(-1, Scalar::I64)), span)?;
        let before = first.into_iter().chain(second).fold(constant(0, Scalar::I32), fold::comma);
        Ok(Numbered { before, number, place })
    }

    /// `EVdata_NAME(number)`: the event itself, which cannot be assigned to.
    fn queued(&mut self, queue: &Queue, number: &Expr) -> Checked<Location> {
        let line = self.findings.line(number.span);
        let Numbered { before, place, .. } = self.numbered(queue, number)?;
        let indices = vec![queue.index(place, line)];
        let first = Location::at(Base::Static, queue.offset + PLACES, queue.member.ty.clone(), true);
        Ok(Location { indices, before: Some(Box::new(before)), ..first })
    }

    /// `EVdiscard_NAME(number)`: later events have smaller numbers afterwards.
    fn discard(&mut self, queue: &Queue, number: &Expr) -> Checked<hir::Expr> {
        let (span, line) = (number.span, self.findings.line(number.span));
        let Numbered { before, number, place } = self.numbered(queue, number)?;
        let shift = fold::binary(BinaryOp::Shl, number, constant(2, Scalar::I32), line);
        let earlier = fold::binary(BinaryOp::Shl, word(1), shift, line);
        let (keep, earlier) = self.kept(fold::binary(BinaryOp::Sub, earlier, word(1), line), span)?;
        // Reads a byte of the event: a fault if there is no such event.
        let index = queue.index(place.clone(), line);
        let byte = Place { base: Base::Static, offset: queue.offset + PLACES, indices: vec![index], ty: Scalar::U8 };
        let steps = [
            Some(before),
            Some(load(byte)),
            keep,
            Some(queue.set(ORDER, queue.without(earlier, place, line))),
            Some(queue.set(COUNT, fold::binary(BinaryOp::Sub, queue.word(COUNT), word(1), line))),
        ];
        let steps = steps.into_iter().flatten().rev();
        Ok(steps.fold(constant(0, Scalar::I32), |after, step| fold::comma(step, after)))
    }

    /// `EVsubmit(0, event)`: emits the event as the output.
    fn submit(&mut self, name: &Ident, arguments: &[Expr], span: Span) -> Checked<Value> {
        let [port, event] = arguments else {
            let message = arity(SUBMIT, &["port", "event"], arguments.len());
            return self.findings.fail(Diagnostic::new(span, message, "wrong number of arguments"));
        };
        let number = self.constant(port)?;
        if number != 0 {
            let error = Diagnostic::new(port.span, format!("there is no port {number}"), "must be 0");
            return self.findings.fail(error.help("a handler has one output, port 0: use a handler for each output"));
        }
        if self.scopes.find("output").is_some() {
            let error = Diagnostic::new(name.span, "`output` has another meaning here", "emits the handler's output");
            return self.findings.fail(error.help("rename the variable or the type `output`"));
        }
        let is_output = matches!(&event.kind, ExprKind::Name(name) if name == "output");
        let output = Expr::new(ExprKind::Name("output".to_owned()), name.span);
        let stored = match is_output {
            true => self.value(event).map(|_| constant(0, Scalar::I32))?,
            false => {
                let event = Box::new(event.clone());
                self.effect(&Expr::new(ExprKind::Assign(None, span, Box::new(output), event), span))?
            }
        };
        Ok(Value::Number(fold::comma(stored, self.host(Builtin::Emit, Scalar::I32))))
    }

    /// The statements at the start of a call, which copy its event into the queue of its structure.
    pub(super) fn arrivals(&self) -> Vec<hir::Stmt> {
        let Some(which) = self.input.as_deref().and_then(which) else { return Vec::new() };
        let arrival = |(number, queue): (&usize, &Queue)| {
            let number = constant(*number as i64, Scalar::I32);
            hir::Stmt::If(fold::compare(CompareOp::Eq, load(which.clone()), number), queue.put(), Vec::new())
        };
        self.queues.iter().map(arrival).collect()
    }
}

impl Queue {
    /// Copies the event of the call to the end of the queue. A full queue first drops its oldest event.
    fn put(&self) -> Vec<hir::Stmt> {
        let sum = |word_at, by| fold::binary(BinaryOp::Add, self.word(word_at), word(by), 0);
        let is_full = fold::compare(CompareOp::Eq, self.word(COUNT), word(self.most.into()));
        let oldest = self.place_of(word(0), 0);
        let drop_oldest = [self.set(DROPPED, sum(DROPPED, 1)), self.set(ORDER, self.without(word(0), oldest, 0))];
        let drop_oldest = drop_oldest.into_iter().map(hir::Stmt::Expr).collect();
        let room = hir::Stmt::If(is_full, drop_oldest, vec![hir::Stmt::Expr(self.set(COUNT, sum(COUNT, 1)))]);
        let last = cast(self.place_of(sum(COUNT, -1), 0), Scalar::I64);
        let at = |base, offset, indices| Box::new(Place { base, offset, indices, ty: Scalar::U8 });
        let to = at(Base::Static, self.offset + PLACES, vec![self.index(last, 0)]);
        let from = at(Base::Input, self.member.offset, Vec::new());
        let copy = hir::ExprKind::Copy { to, from, bytes: self.member.ty.size() };
        vec![room, hir::Stmt::Expr(hir::Expr { kind: copy, ty: Scalar::I32 })]
    }

    /// The order without one place, whose number goes behind all others. `earlier`: the bits of the events before it.
    fn without(&self, earlier: hir::Expr, place: hir::Expr, line: u32) -> hir::Expr {
        let binary = |op, left, right| fold::binary(op, left, right, line);
        let behind = i64::from(BITS * (self.most - 1));
        let before = binary(BinaryOp::And, self.word(ORDER), earlier.clone());
        let moved = binary(BinaryOp::Shr, self.word(ORDER), word(BITS.into()));
        let moved = binary(BinaryOp::And, moved, word((1i64 << behind) - 1));
        let moved = binary(BinaryOp::And, moved, fold::complement(earlier));
        let last = binary(BinaryOp::Shl, cast(place, Scalar::U64), word(behind));
        binary(BinaryOp::Or, binary(BinaryOp::Or, before, moved), last)
    }

    /// The number of the place of an event, which the queue has.
    fn place_of(&self, number: hir::Expr, line: u32) -> hir::Expr {
        let shift = fold::binary(BinaryOp::Shl, number, constant(2, Scalar::I32), line);
        let from_here = fold::binary(BinaryOp::Shr, self.word(ORDER), shift, line);
        fold::binary(BinaryOp::And, from_here, word((1 << BITS) - 1), line)
    }

    fn index(&self, value: hir::Expr, line: u32) -> Index {
        Index { value, count: self.most, stride: self.member.ty.size(), line }
    }

    fn at(&self, word: u32) -> Place {
        Place { base: Base::Static, offset: self.offset + word, indices: Vec::new(), ty: Scalar::U64 }
    }

    fn word(&self, word: u32) -> hir::Expr {
        load(self.at(word))
    }

    fn set(&self, word: u32, value: hir::Expr) -> hir::Expr {
        hir::Expr { kind: hir::ExprKind::Store(self.at(word), Box::new(value)), ty: Scalar::U64 }
    }
}

/// The structures of an input, in order.
fn records(input: &Struct) -> impl Iterator<Item = &Member> {
    input.members.iter().filter(|member| matches!(member.ty, Type::Struct(_)))
}

/// The place of the number of the structure that the event is in.
fn which(input: &Struct) -> Option<Place> {
    let member = input.member(WHICH)?;
    match member.ty {
        Type::Scalar(ty) if !ty.float => {
            Some(Place { base: Base::Input, offset: member.offset, indices: Vec::new(), ty })
        }
        _ => None,
    }
}

fn word(value: i64) -> hir::Expr {
    constant(value, Scalar::U64)
}

fn load(place: Place) -> hir::Expr {
    let ty = place.ty;
    hir::Expr { kind: hir::ExprKind::Load(place), ty }
}
