//! The environment that a source text is compiled for.

use std::collections::BTreeMap;

use qfabric_types::format::Format;

/// Facts that the service or channel defines before the text is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Environment {
    /// Layout of the events. If `None`, the text declares it (`struct input { … };`) or the program takes no
    /// events.
    pub input: Option<Format>,
    /// Layout of the output. If `None`, the text declares it, or the output has the layout of the input.
    pub output: Option<Format>,
    /// Named constants; each has the type `int` if its value fits, otherwise `long`.
    pub constants: BTreeMap<String, i64>,
    /// Attributes whose numbers are already assigned, in order. New attributes of the program follow them.
    pub attributes: Vec<String>,
    /// Name of the function to run. If `None`, the statements of the text run, or `main`, or the last function.
    pub entry: Option<String>,
}
