//! The call graph: orders functions so that callees come before callers, and refuses recursion.

use std::collections::HashMap;

use qfabric_types::format::Scalar;

use super::{Checked, Checker, Signature};
use crate::ast::{Function, Ident, Text, TypeKind};
use crate::diagnostics::Diagnostic;
use crate::hir::FunctionId;

/// Deepest nesting of calls. The code generator inlines functions at their calls to the same depth.
const MAX_CALL_DEPTH: usize = 32;

/// The functions of the text, by their index in it; callees come first.
pub(super) struct Order {
    pub functions: Vec<usize>,
    /// Number of functions that an event can reach. If the entry is a function, it is the last of them.
    pub reached: usize,
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
    /// Collects the signature of each function. Parameters of the entry are the input's members and may be
    /// structures.
    pub(super) fn collect_signatures(&mut self, functions: &[Function], entry: Option<usize>) {
        for (place, function) in functions.iter().enumerate() {
            let Ok(signature) = self.signature(function, entry == Some(place)) else {
                self.broken.insert(function.name.name.clone());
                continue;
            };
            if let Some(before) = self.functions.insert(function.name.name.clone(), signature) {
                let message = format!("the function `{}` is defined twice", function.name.name);
                let error = Diagnostic::new(function.name.span, message, "second definition")
                    .related(before.head, "first definition");
                self.report(error.help("rename one of them"));
            }
        }
    }

    fn signature(&mut self, function: &Function, is_entry: bool) -> Checked<Signature> {
        let result = match &function.result.kind {
            TypeKind::Void => None,
            TypeKind::Scalar(scalar) => Some(*scalar),
            TypeKind::Enum { .. } => Some(Scalar::I32),
            TypeKind::Struct { .. } => {
                let error = Diagnostic::new(function.result.span, "a function must return a number", "a structure");
                return self.fail(error.help("return a number, and set the members of the structure in the caller"));
            }
        };
        let mut parameters = Vec::new();
        for parameter in &function.parameters {
            let declarator = &parameter.declarator;
            let ty = match (&parameter.ty.kind, declarator.dims.is_empty()) {
                (TypeKind::Scalar(scalar), true) => *scalar,
                (TypeKind::Enum { .. }, true) => Scalar::I32,
                (TypeKind::Void, _) => {
                    let error = Diagnostic::new(
                        parameter.ty.span,
                        "only the result of a function can be `void`",
                        "a parameter",
                    );
                    return self.fail(error.help("choose a number type, such as `int` or `long`"));
                }
                // The entry is never called by other functions, so its parameter type does not matter here.
                _ if is_entry => Scalar::I32,
                _ => {
                    let error =
                        Diagnostic::new(declarator.span, "a parameter must be a number", "a structure or an array");
                    let help = "pass the numbers that the function needs, or make the variable `static`";
                    return self.fail(error.help(help));
                }
            };
            parameters.push((declarator.name.name.clone(), ty));
        }
        Ok(Signature { id: FunctionId(0), result, parameters, head: function.head })
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
            if let Some(signature) = self.functions.get_mut(&tree.functions[*place].name.name) {
                signature.id = FunctionId(number as u32);
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
            return self.fail_recursion(walk, from, call);
        }
        if walk.done[place] {
            return Ok(());
        }
        if walk.path.len() >= MAX_CALL_DEPTH {
            let function = &walk.tree.functions[place];
            let message = format!("calls are nested more than {MAX_CALL_DEPTH} deep");
            let error = Diagnostic::new(function.name.span, message, "the innermost function");
            return self.fail(error.help("move the code of some of these functions into their callers"));
        }
        walk.path.push(place);
        let tree = walk.tree;
        self.visit_called(walk, &tree.functions[place].calls)?;
        walk.path.pop();
        walk.done[place] = true;
        walk.order.push(place);
        Ok(())
    }

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
