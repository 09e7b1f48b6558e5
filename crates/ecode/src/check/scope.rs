//! The names that are visible at each point of a text.

use std::collections::HashMap;
use std::rc::Rc;

use qfabric_types::format::Scalar;

use super::types::{Struct, Type};
use crate::diagnostics::Span;
use crate::hir::Base;

#[derive(Clone, Debug)]
pub(crate) enum Symbol {
    Constant(i64, Scalar),
    Variable(Variable),
    /// A type that `typedef` declared.
    Type(Type),
}

/// A variable in memory.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub base: Base,
    pub offset: u32,
    pub ty: Type,
    pub is_const: bool,
}

#[derive(Debug, Default)]
struct Scope {
    names: HashMap<String, (Symbol, Span)>,
    tags: HashMap<String, (Rc<Struct>, Span)>,
}

/// Scopes that are not visible at the moment.
pub(super) struct Hidden(Vec<Scope>);

/// The stack of scopes, from the scope of the text to the innermost block.
#[derive(Debug)]
pub(crate) struct Scopes {
    stack: Vec<Scope>,
}

impl Scopes {
    /// A stack with the scope of the whole text.
    pub(super) fn new() -> Scopes {
        Scopes { stack: vec![Scope::default()] }
    }

    pub(super) fn enter(&mut self) {
        self.stack.push(Scope::default());
    }

    pub(super) fn leave(&mut self) {
        self.stack.pop();
    }

    /// Hides all scopes but the text's. Returns them for [`Scopes::show_inner`].
    pub(super) fn hide_inner(&mut self) -> Hidden {
        Hidden(self.stack.split_off(1))
    }

    pub(super) fn show_inner(&mut self, Hidden(mut inner): Hidden) {
        self.stack.truncate(1);
        self.stack.append(&mut inner);
    }

    /// 1 in the scope of the text.
    pub(super) fn depth(&self) -> usize {
        self.stack.len()
    }

    /// Innermost scope first.
    fn visible(&self) -> impl Iterator<Item = &Scope> {
        self.stack.iter().rev()
    }

    pub(super) fn find(&self, name: &str) -> Option<&Symbol> {
        self.visible().find_map(|scope| scope.names.get(name)).map(|(symbol, _)| symbol)
    }

    pub(super) fn find_tag(&self, tag: &str) -> Option<&Rc<Struct>> {
        self.visible().find_map(|scope| scope.tags.get(tag)).map(|(structure, _)| structure)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.visible().flat_map(|scope| scope.names.keys()).map(String::as_str)
    }

    pub(super) fn innermost(&self) -> impl Iterator<Item = &str> {
        self.stack.last().into_iter().flat_map(|scope| scope.names.keys()).map(String::as_str)
    }

    pub(super) fn tags(&self) -> impl Iterator<Item = &str> {
        self.visible().flat_map(|scope| scope.tags.keys()).map(String::as_str)
    }

    /// Declares a name in the innermost scope, or in the scope of the text if `global`. Returns the place of an
    /// earlier declaration in the same scope.
    pub(super) fn declare(&mut self, global: bool, name: &str, symbol: Symbol, span: Span) -> Option<Span> {
        let place = if global { 0 } else { self.stack.len() - 1 };
        self.stack[place].names.insert(name.to_owned(), (symbol, span)).map(|(_, before)| before)
    }

    pub(super) fn declare_tag(&mut self, global: bool, structure: Rc<Struct>, span: Span) -> Option<Span> {
        let place = if global { 0 } else { self.stack.len() - 1 };
        self.stack[place].tags.insert(structure.name.clone(), (structure, span)).map(|(_, before)| before)
    }
}
