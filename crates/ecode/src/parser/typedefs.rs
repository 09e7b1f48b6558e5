//! The names of types, which the parser must know: `(name)(x)` is a conversion if `name` is a type, else a call.

use std::collections::HashMap;

/// The names that `typedef` declared. A variable of an inner block may hide a type.
#[derive(Debug, Default)]
pub(super) struct Typedefs {
    /// For each name, whether its declarations declare a type; the innermost declaration is the last.
    names: HashMap<String, Vec<bool>>,
    /// The declared names in order, to forget them at the end of their block.
    log: Vec<String>,
}

impl Typedefs {
    /// Records a declaration. A variable matters only if it hides a type.
    pub(super) fn declare(&mut self, name: &str, is_type: bool) {
        if is_type || self.is_type(name) {
            self.names.entry(name.to_owned()).or_default().push(is_type);
            self.log.push(name.to_owned());
        }
    }

    pub(super) fn is_type(&self, name: &str) -> bool {
        self.names.get(name).and_then(|declared| declared.last()) == Some(&true)
    }

    /// Begins a block; its value ends the block in [`Typedefs::leave`].
    pub(super) fn enter(&self) -> usize {
        self.log.len()
    }

    pub(super) fn leave(&mut self, begin: usize) {
        for name in self.log.drain(begin..) {
            self.names.entry(name).and_modify(|declared| {
                declared.pop();
            });
        }
    }
}
