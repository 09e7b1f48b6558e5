//! The programs of a named handler (`k_handler`), compiled once and shared by its subscriptions.
//!
//! A program depends on the format of the events and on the attributes of the session, so a handler keeps the last
//! [`KEPT`]. They belong to the handler, so they count against its owner's named handlers, and go with it.

use std::collections::VecDeque;
use std::sync::Arc;

use qfabric_ecode::bpf::measure;
use qfabric_ecode::{Environment, Program};

/// Programs of one handler.
const KEPT: usize = 2;
/// A program with more instructions is compiled each time, because it needs much memory: with this many, about 1 MB.
const MOST_INSTRUCTIONS: u64 = 4096;

#[derive(Debug, Default)]
pub(crate) struct Compiled(VecDeque<(Environment, Arc<Program>)>);

impl Compiled {
    pub(super) fn find(&self, environment: &Environment) -> Option<Arc<Program>> {
        let found = self.0.iter().find(|(known, _)| known == environment);
        found.map(|(_, program)| program.clone())
    }

    /// Keeps a program instead of the oldest one.
    pub(super) fn keep(&mut self, environment: Environment, program: &Arc<Program>) {
        if self.find(&environment).is_some() || measure(program).instructions > MOST_INSTRUCTIONS {
            return;
        }
        self.0.truncate(KEPT - 1);
        self.0.push_front((environment, program.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_programs_are_kept_by_their_environments_and_large_ones_are_not() {
        let mut compiled = Compiled::default();
        let environment = |name: &str| Environment { attributes: vec![name.to_owned()], ..Environment::default() };
        let add = |compiled: &mut Compiled, name: &str, text: &str| {
            let program = Arc::new(qfabric_ecode::compile(text, &environment(name)).unwrap());
            compiled.keep(environment(name), &program);
            compiled.keep(environment(name), &program);
            program
        };
        let [_, second, third] = ["a", "b", "c"].map(|name| add(&mut compiled, name, "return attr.x;"));
        let found = ["a", "b", "c"].map(|name| compiled.find(&environment(name)));
        assert!(found[0].is_none() && compiled.0.len() == KEPT);
        assert!(
            [(&second, &found[1]), (&third, &found[2])]
                .iter()
                .all(|(one, found)| Arc::ptr_eq(one, found.as_ref().unwrap()))
        );
        let line = "attr.x = attr.x * 3 + attr.y;";
        add(&mut compiled, "d", &line.repeat(1_000));
        assert!(compiled.find(&environment("d")).is_none());
    }
}
