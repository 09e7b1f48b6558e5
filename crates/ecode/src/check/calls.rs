//! The call graph: orders functions so that callees come before callers, and refuses recursion.

use std::collections::HashMap;
use std::rc::Rc;

use qfabric_types::format::Scalar;

use super::types::{Type, round_up};
use super::{Checked, Checker, Findings, Known, Signature};
use crate::ast::{Function, Ident, Text, TypeKind, TypeName};
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::FunctionId;
use crate::parser::Failed;

/// Deepest nesting of calls. The code generator inlines functions at their calls to the same depth.
const MAX_CALL_DEPTH: usize = 32;

/// The functions of the text, by their index in it; callees come first.
pub(super) struct Order {
    pub functions: Vec<usize>,
    /// Number of functions that an event can reach. If the entry is a function, it is the last of them.
    pub reached: usize,
}

/// The head of a function as the text declares it.
pub(super) struct Head {
    result: TypeName,
    parameters: Vec<crate::ast::Parameter>,
    /// From the result type to the closing parenthesis.
    pub span: Span,
    /// Whether the function runs for an event.
    is_entry: bool,
}

/// A depth-first walk along the calls.
struct Walk<'t> {
    tree: &'t Text,
    places: HashMap<&'t str, usize>,
    done: Vec<bool>,
    /// The functions on the current path, outermost first.
    path: Vec<usize>,
    order: Vec<usize>,
}

impl Checker<'_> {
    /// Collects the head of each function. Parameters of the entry are the input's members.
    pub(super) fn collect_functions(&mut self, functions: &[Function], entry: Option<usize>) {
        for (place, function) in functions.iter().enumerate() {
            let Function { result, name, parameters, head, .. } = function;
            let (result, parameters) = (result.clone(), parameters.clone());
            let head = Rc::new(Head { result, parameters, span: *head, is_entry: entry == Some(place) });
            let known = Known { id: FunctionId(0), head, signature: None };
            if let Some(before) = self.functions.insert(name.name.clone(), known) {
                let message = format!("the function `{}` is defined twice", name.name);
                let error = Diagnostic::new(name.span, message, "second definition")
                    .related(before.head.span, "first definition");
                self.findings.report(error.help("rename one of them"));
            }
        }
    }

    /// The signature of a function of the text; `None` if the text has no such function.
    pub(super) fn signature_of(&mut self, name: &str) -> Checked<Option<Signature>> {
        let Some(known) = self.functions.get(name) else { return Ok(None) };
        if let Some(signature) = &known.signature {
            return Ok(Some(signature.clone()));
        }
        if self.broken.contains(name) {
            return Err(Failed);
        }
        let (id, head) = (known.id, known.head.clone());
        // A head sees only the types of the text, not those of the block that calls the function.
        let inner = self.scopes.hide_inner();
        let signature = self.signature(id, &head);
        self.scopes.show_inner(inner);
        match (signature, self.functions.get_mut(name)) {
            (Ok(signature), Some(known)) => {
                known.signature = Some(signature.clone());
                Ok(Some(signature))
            }
            _ => {
                self.broken.insert(name.to_owned());
                Err(Failed)
            }
        }
    }

    fn signature(&mut self, id: FunctionId, head: &Head) -> Checked<Signature> {
        let result = match &head.result.kind {
            TypeKind::Enum { .. } => Some(Type::Scalar(Scalar::I32)),
            _ => self.declared_before(&head.result)?,
        };
        let is_wrong = match &result {
            Some(Type::Array(..)) => true,
            Some(Type::Struct(_)) => head.is_entry,
            _ => false,
        };
        if is_wrong {
            let what = if head.is_entry { "the function that runs for an event" } else { "a function" };
            let error = Diagnostic::new(head.result.span, format!("{what} cannot return this"), "not a number");
            return self.findings.fail(error.help("return a number; other functions may also return a structure"));
        }
        // The result, if it is a structure, and the parameters are at the start of the function's frame.
        let mut end = match &result {
            Some(record @ Type::Struct(_)) => record.size(),
            _ => 0,
        };
        let mut parameters = Vec::new();
        for parameter in &head.parameters {
            let (name, ty) = (parameter.declarator.name.name.clone(), self.parameter_type(parameter, head.is_entry)?);
            let offset = round_up(end, ty.align());
            end = offset.saturating_add(ty.size());
            parameters.push(super::Parameter { name, ty, offset });
        }
        Ok(Signature { id, result, parameters })
    }

    fn parameter_type(&mut self, parameter: &crate::ast::Parameter, is_entry: bool) -> Checked<Type> {
        let declarator = &parameter.declarator;
        // The entry is never called by other functions, so its parameter types do not matter here.
        if is_entry && !matches!(parameter.ty.kind, TypeKind::Void) {
            return Ok(Type::Scalar(Scalar::I32));
        }
        let ty = match &parameter.ty.kind {
            TypeKind::Enum { .. } => Some(Type::Scalar(Scalar::I32)),
            _ => self.declared_before(&parameter.ty)?,
        };
        let Some(ty) = ty else {
            let error =
                Diagnostic::new(parameter.ty.span, "only the result of a function can be `void`", "a parameter");
            return self.findings.fail(error.help("choose a number type, such as `int` or `long`"));
        };
        if !declarator.dims.is_empty() || matches!(ty, Type::Array(..)) {
            let error = Diagnostic::new(declarator.span, "a parameter cannot be an array", "an array");
            return self.findings.fail(error.help("put the array into a structure, or make the variable `static`"));
        }
        Ok(ty)
    }

    /// A type that the head of a function names but does not define.
    fn declared_before(&mut self, ty: &TypeName) -> Checked<Option<Type>> {
        if let TypeKind::Struct { members: Some(_), .. } = &ty.kind {
            let error = Diagnostic::new(ty.span, "a structure is defined in the head of a function", "a definition");
            return self.findings.fail(error.help("define the structure before the function, and name it here"));
        }
        self.any_type(ty)
    }

    /// Orders the functions and assigns their numbers.
    pub(super) fn order(&mut self, tree: &Text, entry: Option<usize>) -> Checked<Order> {
        let places = tree.functions.iter().enumerate().map(|(place, function)| (function.name.name.as_str(), place));
        let done = vec![false; tree.functions.len()];
        let mut walk = Walk { tree, places: places.collect(), done, path: Vec::new(), order: Vec::new() };
        match entry {
            Some(entry) => self.visit(&mut walk, entry, None)?,
            None => self.visit_called(&mut walk, &tree.calls)?,
        }
        let reached = walk.order.len();
        for place in 0..tree.functions.len() {
            self.visit(&mut walk, place, None)?;
        }
        for (number, place) in walk.order.iter().enumerate() {
            if let Some(known) = self.functions.get_mut(&tree.functions[*place].name.name) {
                known.id = FunctionId(number as u32);
            }
        }
        Ok(Order { functions: walk.order, reached })
    }

    fn visit_called(&mut self, walk: &mut Walk<'_>, calls: &[Ident]) -> Checked<()> {
        for call in calls {
            if let Some(place) = walk.places.get(call.name.as_str()).copied() {
                self.visit(walk, place, Some(call))?;
            }
        }
        Ok(())
    }

    fn visit(&mut self, walk: &mut Walk<'_>, place: usize, call: Option<&Ident>) -> Checked<()> {
        if let (Some(from), Some(call)) = (walk.path.iter().position(|on| *on == place), call) {
            return self.findings.fail_recursion(walk, from, call);
        }
        if walk.done[place] {
            return Ok(());
        }
        if walk.path.len() >= MAX_CALL_DEPTH {
            let function = &walk.tree.functions[place];
            let message = format!("calls are nested more than {MAX_CALL_DEPTH} deep");
            let error = Diagnostic::new(function.name.span, message, "the innermost function");
            return self.findings.fail(error.help("move the code of some of these functions into their callers"));
        }
        walk.path.push(place);
        let tree = walk.tree;
        self.visit_called(walk, &tree.functions[place].calls)?;
        walk.path.pop();
        walk.done[place] = true;
        walk.order.push(place);
        Ok(())
    }
}

impl Findings<'_> {
    fn fail_recursion(&mut self, walk: &Walk<'_>, from: usize, call: &Ident) -> Checked<()> {
        let names: Vec<&str> = walk.path[from..].iter().map(|on| walk.tree.functions[*on].name.name.as_str()).collect();
        let message = match &names[..] {
            [only] => format!("`{only}` calls itself"),
            _ => format!("`{}` calls itself: {} → {}", call.name, names.join(" → "), call.name),
        };
        let error = Diagnostic::new(call.span, message, "recursion is not supported");
        self.fail(error.help("use a loop instead: the checker must be able to see a bound for each program"))
    }
}
