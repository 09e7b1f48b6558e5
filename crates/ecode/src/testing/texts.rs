//! Generates random programs as text: nested loops, arrays, structures, functions, statics, every operator and
//! type.
//!
//! A *tame* program means the same in C, so that a C compiler can check it: it has no fault, no side effect whose
//! order C leaves open, and nothing that C lacks. A *wild* program may fault, and uses attributes, emissions and
//! assignments anywhere.

use crate::{Environment, Program, compile};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt::Write;

/// The parts of a program. Each program has its own prefix for names of functions and file-level variables.
#[derive(Clone, Debug)]
pub struct Text {
    /// Declarations of structures.
    pub structures: String,
    /// Members of `struct input`.
    pub input: String,
    /// Members of `struct output`.
    pub output: String,
    /// Declarations of statics and functions.
    pub declarations: String,
    pub body: String,
}

impl Text {
    /// Generates the program of a seed.
    pub fn random(seed: u64, wild: bool) -> Text {
        Writer::new(seed, wild).text()
    }

    /// The program as E-code.
    pub fn ecode(&self) -> String {
        let Text { structures, input, output, declarations, body } = self;
        format!("{structures}struct input {{ {input}}};\nstruct output {{ {output}}};\n{declarations}\n{body}")
    }

    /// The program as the C function `long pN(const void *, void *)`, where N is `number`, with `in_N` and `out_N`
    /// for its events.
    pub fn c(&self, number: usize) -> String {
        let Text { structures, input, output, declarations, body } = self;
        format!(
            "{structures}struct in_{number} {{ {input}}};\nstruct out_{number} {{ {output}}};\n{declarations}\n\
             static long p{number}(const void *from, void *to) {{\n\
             #define input (*(const struct in_{number} *)from)\n#define output (*(struct out_{number} *)to)\n\
             {body}\n#undef input\n#undef output\n}}\n"
        )
    }
}

/// Compiles a random text. Returns `None` if its functions, once inlined, exceed the limit of instructions.
///
/// # Panics
/// If the compiler refuses the text for any other reason.
pub fn compiled(text: &str, seed: u64) -> Option<Program> {
    let refused = match compile(text, &Environment::default()) {
        Ok(program) => return Some(program),
        Err(errors) => errors.render("random.ec", text, false),
    };
    assert!(refused.contains("instructions, the limit is"), "seed {seed}: {refused}\n{text}");
    None
}

const TYPES: [&str; 12] = [
    "char",
    "signed char",
    "unsigned char",
    "short",
    "unsigned short",
    "int",
    "unsigned int",
    "long",
    "unsigned long",
    "int8_t",
    "uint16_t",
    "long long",
];
const CONSTANTS: [&str; 16] = [
    "0",
    "1",
    "2",
    "-1",
    "7",
    "255",
    "256",
    "0x7fff",
    "0x8000",
    "2147483647",
    "0x80000000",
    "4294967295u",
    "100l",
    "0x7fffffffffffffffl",
    "0xfffffffffffffffful",
    "'a'",
];
/// Elements of every array: a power of two, so that a mask yields a valid index.
const LENGTH: u32 = 4;
/// Operations with floating point in one program: each has hundreds of instructions.
const MOST_FLOATS: u32 = 2;

/// A variable; the indices of an array are added when it is used.
#[derive(Clone)]
struct Variable {
    /// The parts of the name; an index goes between two parts.
    parts: Vec<String>,
    writable: bool,
}

struct Function {
    name: String,
    parameters: usize,
}

struct Writer {
    rng: ChaCha8Rng,
    wild: bool,
    prefix: String,
    variables: Vec<Variable>,
    /// Variables of the type `struct` prefix `s`.
    records: Vec<Variable>,
    functions: Vec<Function>,
    /// Functions that take a structure and a number and return a structure.
    makers: Vec<String>,
    /// Whether the current function returns a structure.
    in_maker: bool,
    /// Number of the next name.
    names: u32,
    loops: u32,
    /// Operations with floating point so far.
    floats: u32,
    out: String,
}

impl Writer {
    fn new(seed: u64, wild: bool) -> Self {
        let (rng, prefix) = (ChaCha8Rng::seed_from_u64(seed), format!("q{seed}_"));
        let (variables, records) = (Vec::new(), Vec::new());
        let (functions, makers, out) = (Vec::new(), Vec::new(), String::new());
        Writer {
            rng,
            wild,
            prefix,
            variables,
            records,
            functions,
            makers,
            in_maker: false,
            names: 0,
            loops: 0,
            floats: 0,
            out,
        }
    }

    fn text(mut self) -> Text {
        let tag = format!("{}s", self.prefix);
        let inner = self.members("", "", true, None);
        let ty = self.pick(&TYPES);
        let structures = format!("typedef struct {tag} {{ {inner}}} {tag}_t;\ntypedef {ty} {tag}_n;\n");
        self.variables.clear();
        let input = self.members("input.", "i", false, Some(&tag));
        let events_in = std::mem::take(&mut self.variables);
        let output = self.members("output.", "o", true, Some(&tag));
        let events = [events_in, std::mem::take(&mut self.variables)].concat();
        self.statics();
        let statics = self.variables.clone();
        let mut declarations = std::mem::take(&mut self.out);
        for _ in 0..self.rng.random_range(0..3) {
            self.function();
            declarations += &std::mem::take(&mut self.out);
        }
        if self.chance(60) {
            self.maker();
            declarations += &std::mem::take(&mut self.out);
        }
        self.variables = [events, statics].concat();
        self.block(3);
        let verdict = self.expr(3);
        self.line(format_args!("return {verdict};"));
        Text { structures, input, output, declarations, body: self.out }
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.rng.random_range(0..from.len())]
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn name(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{kind}{}", self.names)
    }

    fn line(&mut self, line: std::fmt::Arguments) {
        let _ = writeln!(self.out, "{line}");
    }

    /// Generates the members of a structure and adds them as variables.
    fn members(&mut self, path: &str, prefix: &str, writable: bool, nested: Option<&str>) -> String {
        let mut text = String::new();
        for number in 0..self.rng.random_range(2..6) {
            let (ty, name) = (self.pick(&TYPES), format!("{prefix}{number}"));
            let name = if prefix.is_empty() { format!("m{number}") } else { name };
            match (self.rng.random_range(0..4), nested) {
                (0, _) => {
                    let _ = write!(text, "{ty} {name}[{LENGTH}]; ");
                    self.variables.push(Variable { parts: vec![format!("{path}{name}"), String::new()], writable });
                }
                (1, Some(tag)) => {
                    let _ = write!(text, "struct {tag} {name}[{LENGTH}]; ");
                    self.records.push(Variable { parts: vec![format!("{path}{name}"), String::new()], writable });
                    self.variables.push(Variable { parts: vec![format!("{path}{name}"), ".m0".into()], writable });
                }
                _ => {
                    let _ = write!(text, "{ty} {name}; ");
                    self.variables.push(Variable { parts: vec![format!("{path}{name}")], writable });
                }
            }
        }
        // The first member of the inner structure is always a number.
        if prefix.is_empty() { format!("{} ", text.replacen(&format!("m0[{LENGTH}]"), "m0", 1).trim()) } else { text }
    }

    fn statics(&mut self) {
        for _ in 0..self.rng.random_range(1..4) {
            let (ty, name) = (self.pick(&TYPES), format!("{}v{}", self.prefix, self.names));
            self.names += 1;
            if self.chance(50) {
                let value = self.pick(&CONSTANTS);
                self.line(format_args!("static {ty} {name} = {value};"));
                self.variables.push(Variable { parts: vec![name], writable: true });
            } else {
                let list = self.pick(&["{ 1, 2 }, { 3 }", "1, 2, 3, 4, 5, 6", "{ 1 }, 2, 3, 4, 5, { 6 }"]);
                self.line(format_args!("static {ty} {name}[{LENGTH}][{LENGTH}] = {{ {list} }};"));
                self.variables.push(Variable { parts: vec![name, String::new(), String::new()], writable: true });
            }
        }
    }

    /// A tame function does not access statics, because C does not define when a call in an expression runs.
    fn function(&mut self) {
        let outer = (std::mem::take(&mut self.variables), std::mem::take(&mut self.records));
        if self.wild {
            (self.variables, self.records) = outer.clone();
        }
        let parameters = self.rng.random_range(0..4);
        let name = self.name(&format!("{}f", self.prefix));
        let mut list = Vec::new();
        for number in 0..parameters {
            list.push(format!("{} p{number}", self.pick(&TYPES)));
            self.variables.push(Variable { parts: vec![format!("p{number}")], writable: true });
        }
        let list = if list.is_empty() { "void".to_owned() } else { list.join(", ") };
        let result = self.pick(&TYPES);
        self.line(format_args!("static {result} {name}({list}) {{"));
        self.block(2);
        let value = self.expr(2);
        self.line(format_args!("return {value};\n}}"));
        self.functions.push(Function { name, parameters });
        (self.variables, self.records) = outer;
    }

    /// A function with a structure as parameter and as result.
    fn maker(&mut self) {
        let outer = (std::mem::take(&mut self.variables), std::mem::take(&mut self.records));
        let (name, tag) = (self.name(&format!("{}g", self.prefix)), format!("{}s", self.prefix));
        self.variables.push(Variable { parts: vec!["p0.m0".into()], writable: true });
        self.variables.push(Variable { parts: vec!["p1".into()], writable: true });
        self.records.push(Variable { parts: vec!["p0".into()], writable: true });
        self.line(format_args!("static {tag}_t {name}(struct {tag} p0, {tag}_n p1) {{"));
        self.in_maker = true;
        self.block(1);
        self.in_maker = false;
        let value = self.record(1);
        self.line(format_args!("return {value};\n}}"));
        (self.variables, self.records) = outer;
        self.makers.push(name);
    }

    /// An expression whose value is a structure.
    fn record(&mut self, depth: u32) -> String {
        let made = !self.makers.is_empty();
        match depth.checked_sub(1) {
            Some(next) if made && self.chance(40) => {
                let name = self.makers[self.rng.random_range(0..self.makers.len())].clone();
                format!("{name}({}, {})", self.record(next), self.expr(next))
            }
            Some(next) if self.chance(30) => {
                format!("({} ? {} : {})", self.expr(next), self.record(next), self.record(next))
            }
            Some(next) if self.chance(20) => format!("((void){}, {})", self.expr(next), self.record(next)),
            Some(next) if self.wild && self.chance(20) => match self.record_place(true, next) {
                Some(place) => format!("({place} = {})", self.record(next)),
                None => self.record(next),
            },
            _ => self.record_place(false, 0).unwrap_or_else(|| self.local_record()),
        }
    }

    fn record_place(&mut self, writable: bool, depth: u32) -> Option<String> {
        let fitting: Vec<Variable> =
            self.records.iter().filter(|variable| variable.writable || !writable).cloned().collect();
        let last = fitting.len().checked_sub(1)?;
        let variable = &fitting[self.rng.random_range(0..=last)];
        let index =
            |this: &mut Self| if variable.parts.len() > 1 { format!("[{}]", this.index(depth)) } else { String::new() };
        Some(format!("{}{}", variable.parts[0], index(self)))
    }

    /// Declares a structure in the current block. It is not in the list of variables, because the block may end.
    fn local_record(&mut self) -> String {
        let (name, tag) = (self.name("r"), format!("{}s", self.prefix));
        self.line(format_args!("struct {tag} {name} = {{ 0 }};"));
        name
    }

    fn block(&mut self, depth: u32) {
        let (known, records) = (self.variables.len(), self.records.len());
        self.locals();
        for _ in 0..self.rng.random_range(1..5) {
            self.stmt(depth);
        }
        self.variables.truncate(known);
        self.records.truncate(records);
    }

    fn locals(&mut self) {
        for _ in 0..self.rng.random_range(0..3) {
            let (ty, name) = (self.pick(&TYPES), self.name("v"));
            if self.chance(10) {
                let (tag, value) = (format!("{}s", self.prefix), self.record(2));
                self.line(format_args!("{tag}_t {name} = {value};"));
                self.variables.push(Variable { parts: vec![format!("{name}.m0")], writable: true });
                self.records.push(Variable { parts: vec![name], writable: true });
            } else if self.chance(70) {
                let value = self.expr(2);
                let ty = if self.chance(10) { format!("{}s_n", self.prefix) } else { ty.to_owned() };
                self.line(format_args!("{ty} {name} = {value};"));
                self.variables.push(Variable { parts: vec![name], writable: true });
            } else {
                self.line(format_args!("{ty} {name}[{LENGTH}] = {{ 5, -6 }};"));
                self.variables.push(Variable { parts: vec![name, String::new()], writable: true });
            }
        }
    }

    fn stmt(&mut self, depth: u32) {
        match self.rng.random_range(0..14) {
            0 | 1 if depth > 0 => self.if_else(depth),
            2 | 3 if depth > 0 && self.loops < 2 => self.repeat(depth),
            4 if depth > 0 => self.switch(),
            5 if self.loops > 0 => {
                let (condition, way) = (self.expr(2), self.pick(&["break", "continue"]));
                self.line(format_args!("if ({condition}) {way};"));
            }
            6 if !self.in_maker && self.chance(20) => {
                let (condition, value) = (self.expr(2), self.expr(2));
                self.line(format_args!("if ({condition}) return {value};"));
            }
            7 if self.wild => self.wild_stmt(),
            8..10 => self.update(),
            10 => {
                let value = self.record(2);
                match self.record_place(true, 1) {
                    Some(place) => self.line(format_args!("{place} = {value};")),
                    None => self.update(),
                }
            }
            _ => {
                let (place, value) = (self.place(true, 2), self.expr(4));
                self.line(format_args!("{place} = {value};"));
            }
        }
    }

    fn update(&mut self) {
        let place = self.place(true, 2);
        match self.rng.random_range(0..4) {
            0 => {
                let op = self.pick(&["++", "--"]);
                self.line(format_args!("{place}{op};"));
            }
            1 => {
                let (op, by) = (self.pick(&["/=", "%="]), self.divisor(2));
                self.line(format_args!("{place} {op} {by};"));
            }
            2 => {
                let (op, by) = (self.pick(&["<<=", ">>="]), self.expr(2));
                self.line(format_args!("{place} {op} ({by} & 31);"));
            }
            _ => {
                let (op, by) = (self.pick(&["+=", "-=", "*=", "&=", "|=", "^="]), self.expr(3));
                self.line(format_args!("{place} {op} {by};"));
            }
        }
    }

    fn if_else(&mut self, depth: u32) {
        let condition = self.expr(3);
        self.line(format_args!("if ({condition}) {{"));
        self.block(depth - 1);
        if self.chance(50) {
            self.line(format_args!("}} else {{"));
            self.block(depth - 1);
        }
        self.line(format_args!("}}"));
    }

    /// A loop of at most five iterations. The body cannot change the counter, because the counter is not in the
    /// list of variables.
    fn repeat(&mut self, depth: u32) {
        let (counter, turns) = (self.name("n"), self.rng.random_range(1..6));
        let end = match self.rng.random_range(0..3) {
            0 => {
                self.line(format_args!("int {counter} = {turns}; while ({counter}-- > 0) {{"));
                "}".to_owned()
            }
            1 => {
                self.line(format_args!("int {counter} = 0; do {{"));
                format!("}} while (++{counter} < {turns});")
            }
            _ => {
                self.line(format_args!("int {counter}; for ({counter} = 0; {counter} < {turns}; {counter}++) {{"));
                "}".to_owned()
            }
        };
        self.loops += 1;
        self.variables.push(Variable { parts: vec![counter], writable: false });
        self.block(depth - 1);
        self.loops -= 1;
        self.line(format_args!("{end}"));
    }

    fn switch(&mut self) {
        let (value, place) = (self.expr(2), self.place(true, 2));
        self.line(format_args!(
            "switch ({value} & 3) {{ case 0: {place} = 1; break; case 2: {place} += 5; break; default: {place}--; }}"
        ));
    }

    fn wild_stmt(&mut self) {
        let value = self.expr(3);
        match self.rng.random_range(0..4) {
            0 => self.line(format_args!("emit();")),
            3 if !self.functions.is_empty() => {
                let call = self.call(2);
                self.line(format_args!("{call};"));
            }
            1 => self.line(format_args!("attr.x += {value};")),
            _ => self.line(format_args!("attr.y = {value};")),
        }
    }

    /// Chooses a variable and its indices.
    fn place(&mut self, writable: bool, depth: u32) -> String {
        let fitting: Vec<Variable> =
            self.variables.iter().filter(|variable| variable.writable || !writable).cloned().collect();
        let Some(last) = fitting.len().checked_sub(1) else {
            return if writable { self.place_in_statics() } else { "3".to_owned() };
        };
        let variable = &fitting[self.rng.random_range(0..=last)];
        let mut text = variable.parts[0].clone();
        for part in &variable.parts[1..] {
            let _ = write!(text, "[{}]{part}", self.index(depth));
        }
        text
    }

    /// A function without parameters that may not access statics has no variable to write: this adds a local.
    fn place_in_statics(&mut self) -> String {
        let name = self.name("v");
        self.line(format_args!("int {name} = 0;"));
        name
    }

    fn index(&mut self, depth: u32) -> String {
        match depth.checked_sub(1) {
            Some(next) if self.wild && self.chance(4) => self.place(false, next),
            Some(next) if self.chance(60) => format!("{} & {}", self.expr(next), LENGTH - 1),
            _ => self.rng.random_range(0..LENGTH).to_string(),
        }
    }

    fn divisor(&mut self, depth: u32) -> String {
        if self.wild && self.chance(10) {
            return self.place(false, depth);
        }
        match self.chance(70) {
            true => format!("(({} & 15) + 1)", self.expr(depth)),
            false => format!("-(int)(({} & 255) + 2)", self.expr(depth)),
        }
    }

    fn expr(&mut self, depth: u32) -> String {
        let Some(next) = depth.checked_sub(1) else {
            return if self.chance(40) { self.pick(&CONSTANTS).to_owned() } else { self.place(false, 0) };
        };
        match self.rng.random_range(0..24) {
            23 if self.loops == 0 && self.floats < MOST_FLOATS => self.float_expr(next),
            22 => format!("{}.m0", self.record(next)),
            0..4 => self.place(false, next),
            4 => self.pick(&CONSTANTS).to_owned(),
            5 => format!("(-{})", self.spaced(next)),
            6 => format!("(~{})", self.expr(next)),
            7 => format!("(!{})", self.expr(next)),
            8 => format!("({} {} {})", self.expr(next), self.pick_op(&["/", "%"]), self.divisor(next)),
            9 => format!("({} {} ({} & 31))", self.expr(next), self.pick_op(&["<<", ">>"]), self.expr(next)),
            10 => format!("((long){} {} ({} & 63))", self.expr(next), self.pick_op(&["<<", ">>"]), self.expr(next)),
            11 => format!("({} {} {})", self.expr(next), self.pick_op(&["&&", "||"]), self.expr(next)),
            12 | 13 => {
                let op = self.pick_op(&["==", "!=", "<", "<=", ">", ">="]);
                format!("({} {op} {})", self.expr(next), self.expr(next))
            }
            14 => format!("({} ? {} : {})", self.expr(next), self.expr(next), self.expr(next)),
            15 => format!("(({}){})", self.pick(&TYPES), self.expr(next)),
            16 => self.call(next),
            17 if self.wild => self.wild_expr(next),
            _ => {
                let op = self.pick_op(&["+", "-", "*", "&", "|", "^"]);
                format!("({} {op} {})", self.expr(next), self.spaced(next))
            }
        }
    }

    /// A comparison of floating-point numbers. They are small enough that C defines all conversions.
    fn float_expr(&mut self, depth: u32) -> String {
        self.floats += 1;
        let ty = self.pick(&["double", "float"]);
        let (op, by) = match self.chance(70) {
            true => (self.pick(&["+", "-", "*"]), format!("{}.75f", self.rng.random_range(0..9))),
            false => ("/", self.divisor(0)),
        };
        let compare = self.pick(&["==", "!=", "<", "<=", ">", ">="]);
        format!("(({ty}){} {op} {by} {compare} {})", self.expr(depth), self.place(false, 0))
    }

    fn pick_op<'a>(&mut self, ops: &[&'a str]) -> &'a str {
        self.pick(ops)
    }

    /// A leading space, so that two minus signs do not become `--`.
    fn spaced(&mut self, depth: u32) -> String {
        format!(" {}", self.expr(depth))
    }

    fn call(&mut self, depth: u32) -> String {
        let Some(last) = self.functions.len().checked_sub(1) else { return self.place(false, depth) };
        let number = self.rng.random_range(0..=last);
        let (name, parameters) = (self.functions[number].name.clone(), self.functions[number].parameters);
        let arguments: Vec<String> = (0..parameters).map(|_| self.expr(depth)).collect();
        format!("{name}({})", arguments.join(", "))
    }

    fn wild_expr(&mut self, depth: u32) -> String {
        match self.rng.random_range(0..9) {
            0 => format!("({} = {})", self.place(true, depth), self.expr(depth)),
            1 => format!("({} += {})", self.place(true, depth), self.expr(depth)),
            2 => format!("{}++", self.place(true, depth)),
            3 => format!("(--{})", self.place(true, depth)),
            4 => "attr.x".to_owned(),
            5 => "emit()".to_owned(),
            6 => format!("max({}, {})", self.expr(depth), self.expr(depth)),
            7 => format!("({}, {})", self.expr(depth), self.expr(depth)),
            _ => format!("(attr.z = {})", self.expr(depth)),
        }
    }
}

/// The bytes of a random event.
pub fn event(seed: u64, bytes: usize) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut event = vec![0; bytes];
    rng.fill_bytes(&mut event);
    // Every third byte is small, so that some comparisons are between small numbers.
    event.iter_mut().step_by(3).for_each(|byte| *byte &= 3);
    event
}
