//! Turns the syntax tree into the checked program: resolves names, types, C's conversions, constants and limits.
//!
//! Each error is reported and returns [`Failed`]. The checker then omits the statement with the error and checks
//! the next one, so that one run shows several errors. Only a text without errors becomes a program.

mod builtin;
mod calls;
mod declare;
mod entry;
mod environment;
mod expr;
mod findings;
mod float;
mod fold;
mod init;
mod layout;
mod limits;
mod loops;
mod place;
mod print;
mod queues;
mod random;
mod record;
mod renumber;
mod scope;
mod statics;
mod stmt;
mod strings;
mod switch;
mod turns;
pub(crate) mod types;
mod warn;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use qfabric_types::format::Scalar;

use crate::ast::Ident;
use crate::diagnostics::{Diagnostic, Span};
use crate::environment::Environment;
use crate::hir::{Base, FunctionId, Place, Repetition, Uses};
use crate::parser::Failed;
use findings::Findings;
pub use queues::WHICH;
use scope::{Scopes, Symbol};
use statics::Statics;
use types::{Struct, Type};

pub(crate) use entry::program;
pub(crate) use layout::formats;

pub(crate) type Checked<T> = Result<T, Failed>;

/// Largest number of bytes of all locals of a call together with the input and the output: they share one map value.
pub(crate) const MAX_FRAME: u32 = 32 << 10;
/// Largest number of bytes of all persistent variables.
pub(crate) const MAX_STATICS: u32 = 32 << 10;
/// Largest number of attributes of one subscription.
pub(crate) const MAX_ATTRIBUTES: usize = 64;

/// Largest number of names that a message lists.
const SHOWN_NAMES: usize = 8;

#[derive(Clone, Debug)]
struct Signature {
    id: FunctionId,
    /// `None` for `void`. A structure is at the start of the function's frame.
    result: Option<Type>,
    parameters: Vec<Parameter>,
}

/// A parameter of a function.
#[derive(Clone, Debug)]
struct Parameter {
    name: String,
    ty: Type,
    /// Bytes from the start of the function's frame.
    offset: u32,
}

/// A function of the text.
struct Known {
    id: FunctionId,
    head: Rc<calls::Head>,
    /// Computed at the first use, because its types may be declared in any statement before.
    signature: Option<Signature>,
}

/// The kind of statement that a `break` would leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Around {
    Loop,
    Switch,
}

/// The state of the function being checked.
#[derive(Debug, Default)]
struct Frame {
    /// Empty for the statements of the text.
    name: String,
    is_entry: bool,
    result: Option<Type>,
    /// Bytes of the live variables, and their maximum so far.
    used: u32,
    most: u32,
    around: Vec<Around>,
    /// The `break`s that end a `case`. They generate no code.
    ending_breaks: HashSet<Span>,
}

impl Frame {
    /// Allocates space for a variable.
    fn allocate(&mut self, size: u32, align: u32, what: &str, span: Span, findings: &mut Findings<'_>) -> Checked<u32> {
        let offset = types::round_up(self.used, align);
        let end = offset.saturating_add(size);
        if end > MAX_FRAME {
            let message = format!("{what} needs {size} bytes, but {} of {MAX_FRAME} are already in use", self.used);
            let error = Diagnostic::new(span, message, "too large for the local variables of one call");
            return findings.fail(
                error.help("make arrays smaller or `static`: static variables persist and have another 32768 bytes"),
            );
        }
        self.used = end;
        self.most = self.most.max(end);
        Ok(offset)
    }

    /// Allocates an unnamed local.
    fn temporary(&mut self, ty: Scalar, span: Span, findings: &mut Findings<'_>) -> Checked<Place> {
        let offset = self.allocate(ty.bytes(), ty.bytes(), "an intermediate value", span, findings)?;
        Ok(Place { base: Base::Local, offset, indices: Vec::new(), ty })
    }
}

struct Checker<'a> {
    env: &'a Environment,
    findings: Findings<'a>,
    scopes: Scopes,
    input: Option<Rc<Struct>>,
    /// `None`: the output has the input's layout.
    output: Option<Rc<Struct>>,
    output_is_used: bool,
    statics: Statics,
    /// Characters that the calls of the functions of strings look at.
    characters: u32,
    attributes: Vec<String>,
    functions: HashMap<String, Known>,
    /// Structures and functions whose declarations have an error. Their uses are not reported.
    broken: HashSet<String>,
    /// Local variables of the text's statements, which functions cannot access.
    text_locals: HashSet<String>,
    /// The queues in use, by the numbers of their structures.
    queues: BTreeMap<usize, queues::Queue>,
    /// The loops of all functions.
    loops: Vec<Repetition>,
    uses: Uses,
    frame: Frame,
}

impl<'a> Checker<'a> {
    fn new(text: &'a str, env: &'a Environment) -> Checker<'a> {
        let mut checker = Checker {
            env,
            findings: Findings::new(text),
            scopes: Scopes::new(),
            input: None,
            output: None,
            output_is_used: false,
            statics: Statics::default(),
            characters: 0,
            attributes: env.attributes.clone(),
            functions: HashMap::new(),
            broken: HashSet::new(),
            text_locals: HashSet::new(),
            queues: BTreeMap::new(),
            loops: Vec::new(),
            uses: Uses::default(),
            frame: Frame::default(),
        };
        checker.take_environment();
        checker
    }

    fn take_environment(&mut self) {
        for (name, value) in &self.env.constants {
            let ty = if i32::try_from(*value).is_ok() { Scalar::I32 } else { Scalar::I64 };
            self.scopes.declare(true, name, Symbol::Constant(*value, ty), Span::default());
        }
        self.input = self.env_format("input", self.env.input.as_ref());
        self.output = self.env_format("output", self.env.output.as_ref());
    }

    /// Whether a declaration at this point is visible in the whole text.
    fn at_top(&self) -> bool {
        self.frame.name.is_empty() && self.scopes.depth() <= 2
    }

    /// Declares a name once. The text may repeat a constant of the environment with the same value.
    fn declare(&mut self, global: bool, name: &Ident, symbol: Symbol) {
        let known = self.env.constants.get(&name.name);
        let again = matches!(&symbol, Symbol::Constant(value, _) if known == Some(value));
        let before = self.scopes.declare(global, &name.name, symbol, name.span);
        let Some(before) = before.filter(|before| !(again && before.end == 0)) else { return };
        let message = format!("`{}` is declared twice", name.name);
        self.findings.report(match before {
            Span { end: 0, .. } => {
                Diagnostic::new(name.span, message, "the service or channel defines a constant with this name")
                    .help("use that constant, or choose another name")
            }
            before => Diagnostic::new(name.span, message, "second declaration")
                .related(before, "first declaration")
                .help("choose another name"),
        });
    }
}

/// Returns `did you mean …`, or else the list of known names, or else `nothing`.
fn suggestion<'a>(wrong: &str, known: impl Iterator<Item = &'a str>, nothing: &str) -> String {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    known.dedup();
    match (crate::suggest::nearest(wrong, known.iter().copied()), &known[..]) {
        (Some(near), _) => format!("did you mean `{near}`?"),
        (None, []) => nothing.to_owned(),
        (None, few) if few.len() <= SHOWN_NAMES => format!("known names: {}", few.join(", ")),
        (None, many) => format!("known names: {}, …", many[..SHOWN_NAMES].join(", ")),
    }
}
