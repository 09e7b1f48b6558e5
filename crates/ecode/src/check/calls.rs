//! Who calls whom: functions in an order in which callees come before callers, without recursion.

use std::collections::HashMap;

use qfabric_types::format::Scalar;

use super::{Checked, Checker, Signature};
use crate::ast::{Function, Ident, Text, TypeKind};
use crate::diagnostics::Diagnostic;
use crate::hir::FunctionId;

/// How deep calls may be nested: functions are put in where they are called, that deep.
const MAX_CALL_DEPTH: usize = 32;

/// Functions of the text by their places in it, callees first.
pub(super) struct Order {
    pub functions: Vec<usize>,
    /// So many of them are called for an event; the entry, if it is a function, is the last of these.
    pub reached: usize,
}

/// A walk along the calls, depth first.
struct Walk<'t> {
    tree: &'t Text,
    places: HashMap<&'t str, usize>,
    done: Vec<bool>,
    /// The functions that the walk is in, from the outermost.
    path: Vec<usize>,
    order: Vec<usize>,
}

impl Checker<'_> {
    /// What callers know of each function. Parameters of the entry are the input's members and may be structures.
    pub(super) fn collect_signatures(&mut self, functions: &[Function], entry: Option<usize>) {
        for (place, function) in functions.iter().enumerate() {
            let Ok(signature) = self.signature(function, entry == Some(place)) else {
                self.broken.insert(function.name.name.clone());
                continue;
            };
            if let Some(before) = self.functions.insert(function.name.name.clone(), signature) {
                let message = format!("the function `{}` is defined twice", function.name.name);
                let error =
                    Diagnostic::new(function.name.span, message, "again here").related(before.head, "here before");
                self.report(error.help("give one of them another name"));
            }
        }
    }

    fn signature(&mut self, function: &Function, is_entry: bool) -> Checked<Signature> {
        let result = match &function.result.kind {
            TypeKind::Void => None,
            TypeKind::Scalar(scalar) => Some(*scalar),
            TypeKind::Enum { .. } => Some(Scalar::I32),
            TypeKind::Struct { .. } => {
                let error = Diagnostic::new(function.result.span, "functions return numbers", "a structure");
                return self.fail(error.help("write the parts of the structure where the function is called"));
            }
        };
        let mut parameters = Vec::new();
        for parameter in &function.parameters {
            let declarator = &parameter.declarator;
            let ty = match (&parameter.ty.kind, declarator.dims.is_empty()) {
                (TypeKind::Scalar(scalar), true) => *scalar,
                (TypeKind::Enum { .. }, true) => Scalar::I32,
                (TypeKind::Void, _) => {
                    let error = Diagnostic::new(parameter.ty.span, "nothing can be of type `void`", "a parameter");
                    return self.fail(error.help("choose a type of numbers, such as `int` or `long`"));
                }
                // Nobody calls the entry.
                _ if is_entry => Scalar::I32,
                _ => {
                    let error = Diagnostic::new(declarator.span, "parameters are numbers", "a structure or an array");
                    let help = "hand over the numbers that the function needs, or make the variable `static`";
                    return self.fail(error.help(help));
                }
            };
            parameters.push((declarator.name.name.clone(), ty));
        }
        Ok(Signature { id: FunctionId(0), result, parameters, head: function.head })
    }

    /// Puts functions in order and gives them their numbers.
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
            let error = Diagnostic::new(function.name.span, message, "the innermost one");
            return self.fail(error.help("write some of these functions into their callers"));
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
        let error = Diagnostic::new(call.span, message, "recursion is not offered");
        self.fail(error.help("write it as a loop: what a program may do must have a bound that can be seen"))
    }
}
