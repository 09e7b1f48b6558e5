//! Expressions that can be read and assigned: variables, members, elements, attributes.

use qfabric_types::format::Scalar;

use super::expr::Value;
use super::fold::{constant, known};
use super::scope::{Symbol, Variable};
use super::types::Type;
use super::{Checked, Checker, Findings, MAX_ATTRIBUTES, suggestion};
use crate::ast::{Expr, ExprKind, Ident};
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::{self, Base, CompareOp, Index, Place};
use crate::parser::Failed;

/// A place in memory, of any type.
#[derive(Clone, Debug)]
pub(super) struct Location {
    pub base: Base,
    pub offset: u32,
    pub indices: Vec<Index>,
    pub ty: Type,
    pub is_const: bool,
    /// Evaluated before the place is accessed, such as the call whose result the place holds.
    pub before: Option<Box<hir::Expr>>,
    /// For an array: reads the number of its valid elements, if a member of its structure holds it.
    pub length: Option<Box<hir::Expr>>,
}

/// The left side of an assignment.
#[derive(Debug)]
pub(super) enum Target {
    Memory(Location),
    Attribute(u32),
}

impl Location {
    /// The place in the form that the engines use. A structure or array has no number type: it is only copied and
    /// cleared.
    pub(super) fn place(self) -> Place {
        let ty = if let Type::Scalar(scalar) = self.ty { scalar } else { Scalar::U8 };
        Place { base: self.base, offset: self.offset, indices: self.indices, ty }
    }

    /// A place without indices.
    pub(super) fn at(base: Base, offset: u32, ty: Type, is_const: bool) -> Location {
        Location { base, offset, indices: Vec::new(), ty, is_const, before: None, length: None }
    }

    fn of(variable: Variable) -> Location {
        let Variable { base, offset, ty, is_const } = variable;
        Location::at(base, offset, ty, is_const)
    }

    /// The same place, accessed after the evaluation of `first`.
    pub(super) fn after(mut self, first: hir::Expr) -> Location {
        let first = match self.before.take() {
            Some(before) => super::fold::comma(first, *before),
            None => first,
        };
        Location { before: Some(Box::new(first)), ..self }
    }
}

/// The meaning of an expression that names something.
enum Named {
    Constant(i64, Scalar),
    Target(Target),
}

fn is_event(expr: &Expr) -> bool {
    matches!(&expr.kind, ExprKind::Name(name) if name == "input" || name == "output")
}

impl Checker<'_> {
    pub(super) fn read(&mut self, expr: &Expr) -> Checked<Value> {
        match self.named(expr)? {
            Named::Constant(value, ty) => Ok(Value::Number(constant(value, ty))),
            Named::Target(Target::Attribute(number)) => {
                Ok(Value::Number(hir::Expr { kind: hir::ExprKind::Attr(number), ty: Scalar::I64 }))
            }
            Named::Target(Target::Memory(location)) => {
                self.use_whole(expr, &location);
                Ok(self.load(location))
            }
        }
    }

    fn load(&self, mut location: Location) -> Value {
        let Type::Scalar(ty) = location.ty else { return Value::Whole(location) };
        if let Some(value) = self.statics.known(&location, ty) {
            return Value::Number(constant(value, ty));
        }
        let before = location.before.take();
        let load = hir::Expr { kind: hir::ExprKind::Load(location.place()), ty };
        Value::Number(match before {
            Some(before) => super::fold::comma(*before, load),
            None => load,
        })
    }

    /// Checks the left side of an assignment.
    pub(super) fn target(&mut self, expr: &Expr) -> Checked<Target> {
        let named = match &expr.kind {
            ExprKind::Name(_) | ExprKind::Member(..) | ExprKind::Index(..) => self.named(expr)?,
            _ => {
                let error = Diagnostic::new(expr.span, "only a variable can be assigned to", "a value, not a variable");
                return self.findings.fail(error.help("did you mean the comparison `==`?"));
            }
        };
        match named {
            Named::Target(Target::Memory(location)) if location.before.is_some() => {
                let error = Diagnostic::new(expr.span, "a value is assigned to a part of a result", "not a variable");
                self.findings.fail(error.help("store the result in a variable first, and assign to its part"))
            }
            Named::Target(Target::Memory(location)) if location.is_const => self.findings.fail_const(expr, &location),
            Named::Target(target) => {
                if let Target::Memory(location) = &target {
                    self.use_whole(expr, location);
                }
                Ok(target)
            }
            Named::Constant(..) => {
                let message = format!("`{}` is a constant", self.findings.quote(expr.span));
                let error = Diagnostic::new(expr.span, message, "cannot be assigned to");
                self.findings.fail(error.help("declare it as a variable, without `const`, `enum` or `#define`"))
            }
        }
    }

    fn named(&mut self, expr: &Expr) -> Checked<Named> {
        match &expr.kind {
            ExprKind::Name(name) => self.name(name, expr.span),
            ExprKind::Member(base, member) if self.is_attributes(base) => {
                Ok(Named::Target(Target::Attribute(self.attribute(member)?)))
            }
            ExprKind::Member(base, member) => {
                let base_location = self.location(base)?;
                if is_event(base) {
                    self.use_member(base_location.base, &member.name);
                }
                self.member(base_location, base.span, member).map(Named::memory)
            }
            ExprKind::Index(base, index) => {
                let base_location = self.location(base)?;
                self.element(base_location, base.span, index).map(Named::memory)
            }
            _ => match self.value(expr)? {
                Value::Whole(location) => Ok(Named::memory(location)),
                _ => {
                    let message = "this is a number and has no members or elements";
                    self.findings.fail(Diagnostic::new(expr.span, message, "not a variable"))
                }
            },
        }
    }

    fn use_member(&mut self, base: Base, name: &str) {
        match base {
            Base::Input => self.uses.inputs.insert(name.to_owned()),
            Base::Output => self.uses.outputs.insert(name.to_owned()),
            Base::Static | Base::Local | Base::Frame(_) => false,
        };
    }

    /// Records the use of all members if the expression is `input` or `output` itself.
    fn use_whole(&mut self, expr: &Expr, location: &Location) {
        if let (true, Type::Struct(structure)) = (is_event(expr), &location.ty) {
            structure.members.iter().for_each(|member| self.use_member(location.base, &member.name));
        }
    }

    /// Checks an expression whose member or element is needed.
    fn location(&mut self, expr: &Expr) -> Checked<Location> {
        match self.named(expr)? {
            Named::Target(Target::Memory(location)) => Ok(location),
            _ => {
                let message =
                    format!("`{}` is a number and has no members or elements", self.findings.quote(expr.span));
                self.findings.fail(Diagnostic::new(expr.span, message, "neither a structure nor an array"))
            }
        }
    }

    fn name(&mut self, name: &str, span: Span) -> Checked<Named> {
        match self.scopes.find(name) {
            Some(Symbol::Constant(value, ty)) => {
                let constant = Named::Constant(*value, *ty);
                if self.env.constants.contains_key(name) {
                    self.uses.constants.insert(name.to_owned());
                }
                return Ok(constant);
            }
            Some(Symbol::Type(_)) => {
                let error = Diagnostic::new(span, format!("`{name}` is a type and has no value"), "a type");
                return self.findings.fail(error.help(format!("declare a variable of this type: `{name} value;`")));
            }
            Some(Symbol::Variable(variable)) => return Ok(Named::memory(Location::of(variable.clone()))),
            None => {}
        }
        match name {
            "input" => self.input(span).map(Named::memory),
            "output" => self.output(span).map(Named::memory),
            "attr" => {
                let error =
                    Diagnostic::new(span, "`attr` has no value without a name", "the name of an attribute is missing");
                self.findings.fail(error.help("write `attr.NAME`"))
            }
            _ => self.fail_unknown(name, span),
        }
    }

    fn fail_unknown<T>(&mut self, name: &str, span: Span) -> Checked<T> {
        if self.findings.errors.is_full() {
            return Err(Failed);
        }
        let known: Vec<&str> = self.scopes.names().chain(["input", "output", "attr"]).collect();
        let near = crate::suggest::nearest(name, known.iter().copied()).map(str::to_owned);
        let is_function = self.functions.contains_key(name) || super::builtin::is_builtin(name);
        let is_member = self.input.as_ref().is_some_and(|input| input.member(name).is_some());
        let help = match near {
            _ if matches!(name, "NULL" | "nullptr") => {
                "E-code has no pointers: compare a number with 0, or keep a flag beside the value".to_owned()
            }
            _ if matches!(name, "true" | "false") => format!("write `{}`", i32::from(name == "true")),
            _ if self.text_locals.contains(name) => {
                format!("it is a local of the statements: pass it as a parameter, or declare it `static … {name};`")
            }
            _ if is_function => format!("it is a function: write `{name}(…)` to call it"),
            _ if is_member => format!("the input has a member of this name: write `input.{name}`"),
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("declare a variable, `int {name};`, or a constant, `#define {name} …`"),
        };
        self.findings.fail(Diagnostic::new(span, format!("`{name}` is not defined here"), "unknown name").help(help))
    }

    fn input(&mut self, span: Span) -> Checked<Location> {
        let Some(input) = self.input.clone() else {
            let error = Diagnostic::new(span, "the layout of `input` is unknown", "no format is defined");
            return self
                .findings
                .fail(error.help("declare it, as in `struct input { int rate; };`, or name the service or channel"));
        };
        Ok(Location::at(Base::Input, 0, Type::Struct(input), true))
    }

    fn output(&mut self, span: Span) -> Checked<Location> {
        let Some(output) = self.output.clone().or_else(|| self.input.clone()) else {
            let error = Diagnostic::new(span, "the layout of `output` is unknown", "no format is defined");
            return self
                .findings
                .fail(error.help("declare it, as in `struct output { int rate; };`, or name the channel"));
        };
        self.output_is_used = true;
        Ok(Location::at(Base::Output, 0, Type::Struct(output), false))
    }

    fn is_attributes(&self, base: &Expr) -> bool {
        matches!(&base.kind, ExprKind::Name(name) if name == "attr" && self.scopes.find("attr").is_none())
    }

    /// Returns the attribute's number. A new attribute gets the next number.
    pub(super) fn attribute(&mut self, name: &Ident) -> Checked<u32> {
        if let Some(number) = self.attributes.iter().position(|known| *known == name.name) {
            return Ok(number as u32);
        }
        if self.attributes.len() >= MAX_ATTRIBUTES {
            let message =
                format!("`{}` would be attribute {}, the limit is {MAX_ATTRIBUTES}", name.name, MAX_ATTRIBUTES + 1);
            let error = Diagnostic::new(name.span, message, "this attribute exceeds the limit");
            return self.findings.fail(error.help("use `static` variables for values that only this program reads"));
        }
        self.attributes.push(name.name.clone());
        Ok(self.attributes.len() as u32 - 1)
    }

    fn member(&mut self, base: Location, base_span: Span, name: &Ident) -> Checked<Location> {
        let Type::Struct(structure) = &base.ty else {
            return self.findings.fail_no_members(&base, base_span, name);
        };
        if let Some(member) = structure.member(&name.name) {
            let offset = base.offset + member.offset;
            let length = member.length.map(|length| {
                let length = &structure.members[length];
                let place = Location { offset: base.offset + length.offset, ty: length.ty.clone(), ..base.clone() };
                let place = place.place();
                Box::new(hir::Expr { ty: place.ty, kind: hir::ExprKind::Load(place) })
            });
            return Ok(Location { offset, ty: member.ty.clone(), length, ..base });
        }
        if self.findings.errors.is_full() {
            return Err(Failed);
        }
        let known = structure.members.iter().map(|member| member.name.as_str());
        let help = suggestion(&name.name, known, "it has no members");
        let message = format!("`{}` has no member `{}`", self.findings.quote(base_span), name.name);
        self.findings.fail(Diagnostic::new(name.span, message, "unknown member").help(help))
    }

    fn element(&mut self, base: Location, base_span: Span, index: &Expr) -> Checked<Location> {
        let value = self.integer(index)?;
        let Type::Array(element, count) = &base.ty else {
            let message = format!("`{}` is {}, not an array", self.findings.quote(base_span), article(&base.ty));
            return self.findings.fail(Diagnostic::new(index.span, message, "has no elements"));
        };
        let (count, stride, ty) = (*count, element.size(), Type::clone(element));
        let line = self.findings.line(index.span);
        let length = base.length;
        let mut location = Location { ty, length: None, ..base };
        match known(&value) {
            Some(place) if (0..i64::from(count)).contains(&place) && length.is_some() => {
                let value = self.within(value, length, index.span)?;
                location.indices.push(Index { value, count, stride, line });
            }
            Some(place) if (0..i64::from(count)).contains(&place) => location.offset += place as u32 * stride,
            Some(place) => return self.findings.fail_index(place, value.ty, count, base_span, index.span),
            None => {
                let value = self.within(value, length, index.span)?;
                location.indices.push(Index { value, count, stride, line });
            }
        }
        Ok(location)
    }

    /// The index if it is below the number of valid elements, else −1, which is a fault.
    fn within(&mut self, index: hir::Expr, length: Option<Box<hir::Expr>>, span: Span) -> Checked<hir::Expr> {
        let Some(length) = length else { return Ok(index) };
        let long = Scalar::I64;
        let (kept, [index]) = self.keep_all([super::fold::cast(index, long)], span)?;
        let above = super::fold::compare(CompareOp::Ge, index.clone(), constant(0, long));
        let below = super::fold::compare(CompareOp::Lt, index.clone(), super::fold::cast(*length, long));
        let valid = super::fold::select(super::fold::and(above, below), index, constant(-1, long));
        Ok(super::builtin::after(kept, valid))
    }
}

impl Findings<'_> {
    fn fail_const<T>(&mut self, expr: &Expr, location: &Location) -> Checked<T> {
        let written = self.quote(expr.span);
        let (message, help) = match location.base {
            Base::Input => {
                let help = "copy it with `output = input;` and change the output, or use a local variable";
                (format!("`{written}` is part of the input, which is read-only"), help)
            }
            _ => (format!("`{written}` is `const`"), "declare it without `const`"),
        };
        self.fail(Diagnostic::new(expr.span, message, "cannot be assigned to").help(help))
    }

    fn fail_no_members<T>(&mut self, base: &Location, span: Span, name: &Ident) -> Checked<T> {
        let written = self.quote(span);
        let message = format!("`{written}` is {}, not a structure", article(&base.ty));
        let error = Diagnostic::new(name.span, message, "has no members");
        self.fail(match &base.ty {
            Type::Array(..) => error.help(format!("choose an element: `{written}[i].{}`", name.name)),
            _ => error,
        })
    }

    fn fail_index<T>(&mut self, place: i64, ty: Scalar, count: u32, base: Span, index: Span) -> Checked<T> {
        let place = if ty.signed { place.to_string() } else { (place as u64).to_string() };
        let message = format!("index {place} is outside of `{}`, which has {count} elements", self.quote(base));
        let error = Diagnostic::new(index, message, format!("must be 0 to {}", count - 1));
        self.fail(error.help("count from 0, or make the array longer"))
    }
}

impl Named {
    fn memory(location: Location) -> Named {
        Named::Target(Target::Memory(location))
    }
}

/// `an int`, `a struct point`.
pub(super) fn article(ty: &Type) -> String {
    let name = ty.to_string();
    let vowel = name.starts_with(['a', 'e', 'i', 'o']) || name.starts_with("un");
    let element = if let Type::Array(..) = ty {
        "an array"
    } else if vowel {
        "an"
    } else {
        "a"
    };
    match ty {
        Type::Array(..) => format!("{element}, `{name}`"),
        _ => format!("{element} `{name}`"),
    }
}
