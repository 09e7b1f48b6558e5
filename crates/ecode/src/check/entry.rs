//! Checks the text as a whole: its entry function, its input, and the order of its functions.

use qfabric_types::format::{Format, Scalar};

use super::scope::{Symbol, Variable};
use super::types::{Struct, Type, round_up};
use super::{Checked, Checker, Findings, Frame};
use crate::ast::{Function, Parameter, Stmt, StmtKind, Text};
use crate::diagnostics::{Diagnostic, Diagnostics, Span, Warnings};
use crate::environment::Environment;
use crate::hir::{self, Base, Place, Program};
use crate::parser::Failed;

/// Checks a text and returns its program and its warnings.
pub(crate) fn program(text: &str, tree: &Text, env: &Environment) -> Result<(Program, Warnings), Diagnostics> {
    let mut checker = Checker::new(text, env);
    match checker.program(tree) {
        Ok(program) => Ok((program, checker.findings.warnings.finish_warnings(text))),
        Err(Failed) => Err(checker.findings.errors.finish(text)),
    }
}

impl Checker<'_> {
    fn program(&mut self, tree: &Text) -> Checked<Program> {
        let entry = self.choose_entry(tree)?;
        self.collect_functions(&tree.functions, entry);
        let order = self.order(tree, entry)?;
        let top = self.statements_of_text(tree, entry.is_some());
        let mut functions = Vec::new();
        for place in &order.functions {
            let function = &tree.functions[*place];
            let is_entry = Some(*place) == entry;
            functions.push(if is_entry { self.entry_function(function) } else { self.function(function) });
        }
        // The functions after the entry are never called: they have only been checked.
        functions.truncate(order.reached);
        let mut heads: Vec<Span> = order.functions.iter().map(|place| tree.functions[*place].head).collect();
        heads.truncate(order.reached);
        if entry.is_none() {
            functions.push(top);
            heads.push(self.findings.head_of_statements(tree, does_something));
        }
        if !self.findings.errors.is_empty() {
            return Err(Failed);
        }
        if let Some(entry) = functions.last_mut() {
            entry.body.splice(0..0, self.arrivals());
        }
        let added = super::float::link(&mut functions);
        heads.splice(0..0, std::iter::repeat_n(Span::default(), added));
        let program = self.assemble(functions);
        self.findings.check_program(&program, &heads)?;
        Ok(program)
    }

    /// Returns the index of the function that runs for an event, or `None` if the statements of the text run.
    fn choose_entry(&mut self, tree: &Text) -> Checked<Option<usize>> {
        let find = |name: &str| tree.functions.iter().position(|function| function.name.name == name);
        let code = tree.statements.iter().find(|statement| does_something(statement));
        match (&self.env.entry, code) {
            (Some(name), _) if find(name).is_none() => {
                let message = format!("the entry function `{name}` does not exist");
                let error = Diagnostic::new(Span::default(), message, "not defined in this text");
                let known = tree.functions.iter().map(|function| function.name.name.as_str());
                let help = super::suggestion(name, known, "the text defines no functions: name no entry function");
                self.findings.fail(error.help(help))
            }
            (Some(name), Some(code)) => {
                let message = format!("statements outside functions, although the entry function is `{name}`");
                let error = Diagnostic::new(code.span, message, "would never run");
                self.findings.fail(error.help("move them into a function, or name no entry function"))
            }
            (Some(name), None) => Ok(find(name)),
            (None, Some(_)) => Ok(None),
            (None, None) => Ok(find("main").or(tree.functions.len().checked_sub(1))),
        }
    }

    /// Checks the statements outside functions. Constants, types and `static` variables declared there are visible
    /// in all functions.
    fn statements_of_text(&mut self, tree: &Text, only_declares: bool) -> hir::Function {
        self.frame = Frame { is_entry: true, result: Some(Type::Scalar(Scalar::I64)), ..Frame::default() };
        let mut body = Vec::new();
        self.scopes.enter();
        for statement in &tree.statements {
            let before = body.len();
            self.statement(statement, &mut body);
            if only_declares && (body.len() > before || is_local(statement)) {
                self.findings.refuse_local_beside_functions(statement);
            }
        }
        self.text_locals = self.scopes.innermost().map(str::to_owned).collect();
        self.scopes.leave();
        self.finish_function(Vec::new(), body)
    }

    /// Returns an empty body if the head is wrong, because errors in the body would be consequences.
    fn function(&mut self, function: &Function) -> hir::Function {
        let signature = self.signature_of(&function.name.name).ok().flatten();
        let result = signature.as_ref().and_then(|signature| signature.result.clone());
        self.frame = Frame { name: function.name.name.clone(), result: result.clone(), ..Frame::default() };
        self.scopes.enter();
        let (mut places, mut body) = (Vec::new(), Vec::new());
        if let Some(signature) = signature {
            self.result_record(result, &function.body, &mut body);
            for (known, parameter) in signature.parameters.iter().zip(&function.parameters) {
                places.extend(self.parameter(known, parameter));
            }
            self.block(&function.body, &mut body);
        }
        self.scopes.leave();
        self.finish_function(places, body)
    }

    /// Declares a parameter. Returns its place if it is a number; a structure is copied to its place by the caller.
    fn parameter(&mut self, known: &super::Parameter, parameter: &Parameter) -> Option<Place> {
        let (name, ty) = (&parameter.declarator.name, known.ty.clone());
        let offset = self.frame.allocate(ty.size(), ty.align(), "a parameter", name.span, &mut self.findings).ok()?;
        debug_assert_eq!(offset, known.offset, "the caller knows the places of structures");
        let number = if let Type::Scalar(scalar) = ty { Some(scalar) } else { None };
        self.declare(false, name, Symbol::Variable(Variable { base: Base::Local, offset, ty, is_const: false }));
        number.map(|ty| Place { base: Base::Local, offset, indices: Vec::new(), ty })
    }

    /// Checks the function that runs for an event: its parameters are members of the input.
    fn entry_function(&mut self, function: &Function) -> hir::Function {
        let signature = self.signature_of(&function.name.name);
        let is_known = signature.is_ok();
        let result = signature.ok().flatten().and_then(|signature| signature.result);
        self.frame = Frame { name: function.name.name.clone(), is_entry: true, result, ..Frame::default() };
        self.scopes.enter();
        let mut body = Vec::new();
        if is_known && self.entry_parameters(function, &mut body).is_ok() {
            self.block(&function.body, &mut body);
        }
        self.scopes.leave();
        self.finish_function(Vec::new(), body)
    }

    fn entry_parameters(&mut self, function: &Function, body: &mut Vec<hir::Stmt>) -> Checked<()> {
        let mut members = Vec::new();
        for parameter in &function.parameters {
            let ty = self.variable_type(&parameter.ty)?;
            members.push((parameter.declarator.name.name.clone(), self.with_dims(ty, &parameter.declarator)?));
        }
        if members.is_empty() {
            return Ok(());
        }
        if self.input.is_none() {
            let input = Struct::new(
                function.name.name.clone(),
                members.iter().map(|(name, ty)| (name.clone(), ty.clone(), None)),
            );
            self.findings.check_limits(&input, function.head)?;
            self.input = Some(input.into());
        }
        for ((_, ty), parameter) in members.into_iter().zip(&function.parameters) {
            self.entry_parameter(ty, parameter, body)?;
        }
        Ok(())
    }

    /// Declares a local whose initial value is the input member of the same name.
    fn entry_parameter(&mut self, ty: Type, parameter: &Parameter, body: &mut Vec<hir::Stmt>) -> Checked<()> {
        let name = &parameter.declarator.name;
        let input = self.input.clone().expect("given, or made of the parameters");
        let Some(member) = input.member(&name.name).filter(|member| member.ty.same(&ty)) else {
            let there = input.member(&name.name).map_or_else(
                || format!("the input has no member `{}`", name.name),
                |member| format!("the input's `{}` is {}", name.name, super::place::article(&member.ty)),
            );
            let message = format!("the parameter `{}` is not a member of the input", name.name);
            let error = Diagnostic::new(name.span, message, there);
            return self.findings.fail(
                error.help("each parameter of the entry function must have the name and the type of an input member"),
            );
        };
        self.uses.inputs.insert(name.name.clone());
        let offset = self.frame.allocate(ty.size(), ty.align(), "a parameter", name.span, &mut self.findings)?;
        let scalar = if let Type::Scalar(scalar) = ty { Some(scalar) } else { None };
        let place = |base, offset| Place { base, offset, indices: Vec::new(), ty: scalar.unwrap_or(Scalar::U8) };
        let (from, to) = (place(Base::Input, member.offset), place(Base::Local, offset));
        body.push(match scalar {
            Some(ty) => {
                let value = Box::new(hir::Expr { kind: hir::ExprKind::Load(from), ty });
                hir::Stmt::Expr(hir::Expr { kind: hir::ExprKind::Store(to, value), ty })
            }
            None => {
                let kind = hir::ExprKind::Copy { to: Box::new(to), from: Box::new(from), bytes: ty.size() };
                hir::Stmt::Expr(hir::Expr { kind, ty: Scalar::I32 })
            }
        });
        self.declare(false, name, Symbol::Variable(Variable { base: Base::Local, offset, ty, is_const: false }));
        Ok(())
    }

    fn finish_function(&mut self, parameters: Vec<Place>, body: Vec<hir::Stmt>) -> hir::Function {
        let frame = std::mem::take(&mut self.frame);
        let result = match frame.result {
            _ if frame.is_entry => Some(Scalar::I64),
            Some(Type::Scalar(scalar)) => Some(scalar),
            _ => None,
        };
        hir::Function { name: frame.name, result, parameters, frame: round_up(frame.most, 8), body }
    }

    fn assemble(&mut self, functions: Vec<hir::Function>) -> Program {
        let nothing = || Format { name: "input".to_owned(), size: 0, align: 1, fields: Vec::new() };
        let input = self.input.as_ref().map_or_else(nothing, |input| input.format());
        let same = |output: &Format| output.size == input.size && output.first_difference(&input).is_none();
        let output = match &self.output {
            Some(output) => Some(output.format()).filter(|output| self.output_is_used || !same(output)),
            None if self.output_is_used => Some(Format { name: "output".to_owned(), ..input.clone() }),
            None => None,
        };
        let bodies = || functions.iter().map(|function| &function.body[..]);
        let writes_shared = bodies().any(super::loops::writes_shared);
        let has_loops = bodies().any(super::loops::has_loops);
        let (statics, attributes) = (std::mem::take(&mut self.statics.bytes), std::mem::take(&mut self.attributes));
        let (loops, uses) = (std::mem::take(&mut self.loops), std::mem::take(&mut self.uses));
        let mut program =
            Program { input, output, statics, attributes, functions, loops, writes_shared, has_loops, uses };
        program.charge();
        program
    }
}

impl Findings<'_> {
    fn refuse_local_beside_functions(&mut self, statement: &Stmt) {
        let error = Diagnostic::new(statement.span, "a local variable outside all functions", "belongs to no function");
        self.report(
            error.help("write `static` before it to keep its value between events, or move it into a function"),
        );
    }
}

fn does_something(statement: &Stmt) -> bool {
    !matches!(statement.kind, StmtKind::Declare(_) | StmtKind::Define(..) | StmtKind::Empty)
}

fn is_local(statement: &Stmt) -> bool {
    match &statement.kind {
        StmtKind::Declare(it) => !(it.is_static || it.is_const || it.is_typedef || it.declarators.is_empty()),
        _ => false,
    }
}
