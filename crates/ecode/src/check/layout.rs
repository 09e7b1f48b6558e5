//! Declared types: structures with their limits, and the formats made from them.

use std::rc::Rc;

use qfabric_types::format::{Format, Scalar};

use super::fold::known;
use super::scope::Symbol;
use super::types::{Struct, Type, UNNAMED};
use super::{Checked, Checker, Findings, suggestion};
use crate::ast::{
    Declaration, Declarator, Expr, ExprKind, Ident, Member, Operator, StmtKind, Text, TypeKind, TypeName,
};
use crate::diagnostics::{Diagnostic, Diagnostics, Span};
use crate::environment::Environment;
use crate::hir::CompareOp;
use crate::parser::Failed;

/// Largest number of members of all formats of one text together. A format also counts the members of the structures
/// inside it.
const MAX_ALL_MEMBERS: u32 = 16 * Format::MAX_MEMBERS;

/// Name and type of a member, and the index of the member with the number of its elements.
type NewMember = (String, Type, Option<usize>);

/// The length and the largest length of `name[length <= most]`.
fn length_of(declarator: &Declarator) -> Option<(&Expr, &Expr)> {
    match &declarator.dims.first()?.as_ref()?.kind {
        ExprKind::Binary(Operator::Compare(CompareOp::Le), _, length, most)
            if matches!(length.kind, ExprKind::Name(_)) =>
        {
            Some((&**length, &**most))
        }
        _ => None,
    }
}

/// Returns the formats that a text of structure declarations declares, in order.
pub(crate) fn formats(text: &str, tree: &Text) -> Result<Vec<Format>, Diagnostics> {
    let env = Environment::default();
    let mut checker = Checker::new(text, &env);
    let mut formats = Vec::new();
    let mut members = 0;
    for function in &tree.functions {
        checker.findings.refuse_beside_formats(function.head);
    }
    for statement in &tree.statements {
        match &statement.kind {
            StmtKind::Declare(declaration) if declaration.announces() => {}
            StmtKind::Declare(declaration) if declaration.is_typedef => checker.typedef(declaration),
            StmtKind::Declare(declaration) if declaration.declarators.is_empty() => {
                if let Ok(Some(Type::Struct(structure))) = checker.any_type(&declaration.ty) {
                    members += structure.total_members;
                    checker.findings.refuse_many_members(members, statement.span);
                    formats.push(structure);
                }
            }
            StmtKind::Define(name, value) => checker.define(name, value),
            StmtKind::Declare(declaration) if declaration.is_const => checker.declaration(declaration, &mut Vec::new()),
            _ => checker.findings.refuse_beside_formats(statement.span),
        }
    }
    match checker.findings.errors.is_empty() {
        true => Ok(formats.iter().map(|structure| structure.format()).collect()),
        false => Err(checker.findings.errors.finish(text)),
    }
}

impl Checker<'_> {
    /// Checks a type; `None` stands for `void`.
    pub(super) fn any_type(&mut self, ty: &TypeName) -> Checked<Option<Type>> {
        match &ty.kind {
            TypeKind::Void => Ok(None),
            TypeKind::Scalar(scalar) => Ok(Some(Type::Scalar(*scalar))),
            TypeKind::Named(name) => match self.scopes.find(&name.name) {
                Some(Symbol::Type(ty)) => Ok(Some(ty.clone())),
                _ if self.broken.contains(&name.name) => Err(Failed),
                _ => {
                    let message = format!("there is no type `{}`", name.name);
                    let error = Diagnostic::new(name.span, message, "not declared before");
                    self.findings.fail(error.help(format!("declare it first: `typedef … {};`", name.name)))
                }
            },
            TypeKind::Enum { constants } => {
                self.enumeration(constants.as_deref().unwrap_or_default());
                Ok(Some(Type::Scalar(Scalar::I32)))
            }
            TypeKind::Struct { tag, members: Some(members) } => {
                let structure = self.new_structure(tag.as_ref(), UNNAMED, members, ty.span);
                if let (Err(Failed), Some(tag)) = (structure.as_ref(), tag) {
                    self.broken.insert(tag.name.clone());
                }
                structure.map(|structure| Some(Type::Struct(structure)))
            }
            TypeKind::Struct { tag, members: None } => {
                let tag = tag.as_ref().expect("a structure without members has a name");
                self.known_structure(tag).map(|structure| Some(Type::Struct(structure)))
            }
        }
    }

    /// `typedef type name;`: declares names of types.
    pub(super) fn typedef(&mut self, declaration: &Declaration) {
        let ty = self.variable_type(&declaration.ty);
        for declarator in &declaration.declarators {
            match ty.clone().and_then(|ty| self.with_dims(ty, declarator)) {
                Ok(ty) => self.declare_here(&declarator.name, Symbol::Type(ty)),
                Err(Failed) => drop(self.broken.insert(declarator.name.name.clone())),
            }
        }
    }

    /// Checks the type of a variable, which must not be `void`.
    pub(super) fn variable_type(&mut self, ty: &TypeName) -> Checked<Type> {
        match self.any_type(ty)? {
            Some(ty) => Ok(ty),
            None => {
                let error = Diagnostic::new(
                    ty.span,
                    "only the result of a function can be `void`",
                    "not the type of a variable",
                );
                self.findings.fail(error.help("choose a number type, such as `int` or `long`"))
            }
        }
    }

    fn known_structure(&mut self, tag: &Ident) -> Checked<Rc<Struct>> {
        if let Some(structure) = self.scopes.find_tag(&tag.name) {
            return Ok(structure.clone());
        }
        match (tag.name.as_str(), &self.input, &self.output) {
            ("input", Some(input), _) => return Ok(input.clone()),
            ("output", _, Some(output)) => return Ok(output.clone()),
            _ => {}
        }
        if self.broken.contains(&tag.name) || self.findings.errors.is_full() {
            return Err(Failed);
        }
        let help = suggestion(&tag.name, self.scopes.tags(), "declare it first: `struct NAME { … };`");
        let message = format!("there is no structure `{}`", tag.name);
        self.findings.fail(Diagnostic::new(tag.span, message, "not declared before").help(help))
    }

    /// Messages use `name` if the structure has no tag.
    fn new_structure(
        &mut self,
        tag: Option<&Ident>,
        name: &str,
        members: &[Member],
        span: Span,
    ) -> Checked<Rc<Struct>> {
        let name = tag.map_or(name, |tag| &tag.name).to_owned();
        let members = self.member_list(&name, members, span)?;
        let structure = Struct::new(name, members);
        self.findings.check_limits(&structure, tag.map_or(span, |tag| tag.span))?;
        let structure = Rc::new(structure);
        if let Some(tag) = tag {
            self.declare_structure(tag, structure.clone())?;
        }
        Ok(structure)
    }

    fn member_list(&mut self, name: &str, members: &[Member], span: Span) -> Checked<Vec<NewMember>> {
        let mut list: Vec<NewMember> = Vec::new();
        let mut seen: std::collections::HashMap<&str, Span> = std::collections::HashMap::new();
        for member in members {
            let ty = self.member_type(member)?;
            for declarator in &member.declarators {
                if let Some(before) = seen.insert(&declarator.name.name, declarator.name.span) {
                    let message = format!("`{}` is already a member of `struct {name}`", declarator.name.name);
                    let error = Diagnostic::new(declarator.name.span, message, "second declaration");
                    return self.findings.fail(error.related(before, "first declaration"));
                }
                let (ty, length) = match length_of(declarator) {
                    Some((length, most)) => {
                        let length = self.length_member(&list, length)?;
                        let dims = std::iter::once(Some(most.clone())).chain(declarator.dims[1..].iter().cloned());
                        let most = Declarator { dims: dims.collect(), ..declarator.clone() };
                        (self.with_dims(ty.clone(), &most)?, Some(length))
                    }
                    None => (self.with_dims(ty.clone(), declarator)?, None),
                };
                list.push((declarator.name.name.clone(), ty, length));
            }
        }
        if list.is_empty() {
            let error = Diagnostic::new(span, format!("`struct {name}` has no members"), "this structure is empty");
            return self.findings.fail(error.help("declare at least one member"));
        }
        Ok(list)
    }

    /// The index of the member that holds the length of an array.
    fn length_member(&mut self, list: &[NewMember], length: &Expr) -> Checked<usize> {
        let ExprKind::Name(name) = &length.kind else { unreachable!("`length_of` returns a name") };
        match list.iter().position(|(known, ..)| known == name) {
            Some(place) if matches!(list[place].1, Type::Scalar(_)) => Ok(place),
            found => {
                let what = if found.is_some() { "is not a number" } else { "is not an earlier member" };
                let message = format!("the length `{name}` of this array {what}");
                let error = Diagnostic::new(length.span, message, "not a length");
                let help = "declare the length before the array, in the same structure: `int n; int value[n <= 16];`";
                self.findings.fail(error.help(help))
            }
        }
    }

    /// Messages name a structure without a tag after its first variable.
    fn member_type(&mut self, member: &Member) -> Checked<Type> {
        match (&member.ty.kind, member.declarators.first()) {
            (TypeKind::Struct { tag: None, members: Some(members) }, Some(first)) => {
                self.new_structure(None, &first.name.name, members, member.ty.span).map(Type::Struct)
            }
            _ => self.variable_type(&member.ty),
        }
    }

    fn declare_structure(&mut self, tag: &Ident, structure: Rc<Struct>) -> Checked<()> {
        let global = self.at_top();
        if let Some(before) = self.scopes.declare_tag(global, structure.clone(), tag.span) {
            let error =
                Diagnostic::new(tag.span, format!("`struct {}` is declared twice", tag.name), "second declaration");
            return self.findings.fail(error.related(before, "first declaration"));
        }
        match tag.name.as_str() {
            "input" if global => self.declare_input(tag, structure),
            "output" if global => self.declare_output(tag, structure),
            _ => Ok(()),
        }
    }

    /// Wraps the type in one array for each `[…]` after the name.
    pub(super) fn with_dims(&mut self, ty: Type, declarator: &Declarator) -> Checked<Type> {
        let dims = declarator
            .dims
            .iter()
            .map(|count| match count {
                Some(count) => self.array_length(count),
                None => self.findings.fail_no_length(declarator),
            })
            .collect::<Checked<Vec<u32>>>()?;
        let dimensions = ty.dimensions() + dims.len();
        if dimensions > Format::MAX_DIMENSIONS {
            let name = &declarator.name;
            let message =
                format!("`{}` has {dimensions} dimensions, the limit is {}", name.name, Format::MAX_DIMENSIONS);
            let error = Diagnostic::new(name.span, message, "too many dimensions, with those of its type");
            return self
                .findings
                .fail(error.help("use fewer dimensions and compute the index: `table[row * WIDTH + column]`"));
        }
        Ok(ty.array(dims.into_iter()))
    }

    fn array_length(&mut self, count: &Expr) -> Checked<u32> {
        if matches!(&count.kind, ExprKind::Binary(Operator::Compare(CompareOp::Le), ..)) {
            let message = "only the first dimension of a member can have a length that changes";
            let error = Diagnostic::new(count.span, message, "not a constant length");
            return self
                .findings
                .fail(error.help("write the largest length, and keep the number of elements in a variable"));
        }
        let value = self.constant(count)?;
        if (1..=i64::from(Format::MAX_SIZE) * 2).contains(&value) {
            return Ok(value as u32);
        }
        let message = format!("an array of {value} elements");
        let error = Diagnostic::new(count.span, message, format!("must be 1 to {}", Format::MAX_SIZE * 2));
        self.findings.fail(error.help("choose a length in this range"))
    }

    pub(super) fn constant(&mut self, expr: &Expr) -> Checked<i64> {
        match self.typed_constant(expr)? {
            (_, ty) if ty.float => self.integer(expr).map(|_| 0),
            (value, _) => Ok(value),
        }
    }

    pub(super) fn typed_constant(&mut self, expr: &Expr) -> Checked<(i64, Scalar)> {
        let number = self.number(expr)?;
        match known(&number) {
            Some(value) => Ok((value, number.ty)),
            None => {
                let message = format!("`{}` is not a constant", self.findings.quote(expr.span));
                let error = Diagnostic::new(expr.span, message, "expected a constant");
                self.findings.fail(
                    error.help("constants are numbers, `sizeof`, and names of `#define`, `enum` and constant `const`"),
                )
            }
        }
    }

    /// `enum { A, B = 5 }`: constants of type `int`.
    fn enumeration(&mut self, constants: &[(Ident, Option<Expr>)]) {
        let mut next = 0i64;
        for (name, value) in constants {
            let value = match value {
                Some(value) => self.constant(value).unwrap_or(next),
                None => next,
            };
            if i32::try_from(value).is_err() {
                let message = format!("`{}` would be {value}, which does not fit an `int`", name.name);
                self.findings
                    .report(Diagnostic::new(name.span, message, "too large").help("use `#define` or `const long`"));
            }
            self.declare_here(name, Symbol::Constant(value, Scalar::I32));
            next = value.wrapping_add(1);
        }
    }

    /// `#define NAME value`.
    pub(super) fn define(&mut self, name: &Ident, value: &Expr) {
        // After an error the constant gets an arbitrary value, so that its uses cause no further errors.
        let (value, ty) = self.typed_constant(value).unwrap_or((1, Scalar::I32));
        self.declare_here(name, Symbol::Constant(value, ty));
    }

    /// Constants and types declared outside functions are visible in all functions.
    pub(super) fn declare_here(&mut self, name: &Ident, symbol: Symbol) {
        let global = self.at_top();
        self.declare(global, name, symbol);
    }
}

impl Findings<'_> {
    fn refuse_beside_formats(&mut self, span: Span) {
        let error = Diagnostic::new(span, "only structures and constants are allowed here", "not a structure");
        self.report(error.help("declare a format as `struct NAME { … };`"));
    }

    fn refuse_many_members(&mut self, members: u32, span: Span) {
        if members > MAX_ALL_MEMBERS {
            let message = format!("{members} members in all formats together, the limit is {MAX_ALL_MEMBERS}");
            let error = Diagnostic::new(span, message, "this structure exceeds the limit");
            self.report(error.help("register the formats in several texts"));
        }
    }

    pub(super) fn check_limits(&mut self, structure: &Struct, span: Span) -> Checked<()> {
        let checks = [
            (structure.size, Format::MAX_SIZE, "bytes", "make its arrays smaller"),
            (structure.total_members, Format::MAX_MEMBERS, "members", "use arrays for members of one type"),
            (structure.depth, Format::MAX_DEPTH, "levels of nested structures", "nest fewer structures"),
        ];
        for (value, limit, what, help) in checks {
            if value > limit {
                let message = format!("`struct {}` has {value} {what}, the limit is {limit}", structure.name);
                return self.fail(Diagnostic::new(span, message, "too large").help(help));
            }
        }
        Ok(())
    }

    fn fail_no_length<T>(&mut self, declarator: &Declarator) -> Checked<T> {
        let message = format!("the array `{}` has no length", declarator.name.name);
        let error = Diagnostic::new(declarator.span, message, "`[]` contains no number");
        self.fail(error.help("write the length, or a list of values that determines it: `int table[] = {1, 2, 3};`"))
    }
}
