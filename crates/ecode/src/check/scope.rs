//! What names mean where.

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
}

/// Something in memory.
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

/// Scopes from the text's to the innermost block's.
#[derive(Debug)]
pub(crate) struct Scopes {
    stack: Vec<Scope>,
}

impl Scopes {
    /// With the scope of the whole text.
    pub fn new() -> Scopes {
        Scopes { stack: vec![Scope::default()] }
    }

    pub fn enter(&mut self) {
        self.stack.push(Scope::default());
    }

    pub fn leave(&mut self) {
        self.stack.pop();
    }

    /// 1 in the text's own scope.
    pub fn depth(&self) -> usize {
        self.stack.len()
    }

    /// Innermost first.
    fn visible(&self) -> impl Iterator<Item = &Scope> {
        self.stack.iter().rev()
    }

    pub fn find(&self, name: &str) -> Option<&Symbol> {
        self.visible().find_map(|scope| scope.names.get(name)).map(|(symbol, _)| symbol)
    }

    pub fn find_tag(&self, tag: &str) -> Option<&Rc<Struct>> {
        self.visible().find_map(|scope| scope.tags.get(tag)).map(|(structure, _)| structure)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.visible().flat_map(|scope| scope.names.keys()).map(String::as_str)
    }

    /// Names that are declared in the innermost scope.
    pub fn innermost(&self) -> impl Iterator<Item = &str> {
        self.stack.last().into_iter().flat_map(|scope| scope.names.keys()).map(String::as_str)
    }

    pub fn tags(&self) -> impl Iterator<Item = &str> {
        self.visible().flat_map(|scope| scope.tags.keys()).map(String::as_str)
    }

    /// Declares a name in the innermost scope, or in the text's. Gives where it is declared already.
    pub fn declare(&mut self, global: bool, name: &str, symbol: Symbol, span: Span) -> Option<Span> {
        let place = if global { 0 } else { self.stack.len() - 1 };
        self.stack[place].names.insert(name.to_owned(), (symbol, span)).map(|(_, before)| before)
    }

    pub fn declare_tag(&mut self, global: bool, structure: Rc<Struct>, span: Span) -> Option<Span> {
        let place = if global { 0 } else { self.stack.len() - 1 };
        self.stack[place].tags.insert(structure.name.clone(), (structure, span)).map(|(_, before)| before)
    }
}
