//! What a text is compiled for.

use std::collections::BTreeMap;

use qfabric_types::format::Format;

/// What is known before the text is read: the service or channel it is for, and who else shares its attributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Environment {
    /// Layout of the events; none: the text says it (`struct input { … };`), or takes no events.
    pub input: Option<Format>,
    /// Layout of what the program makes of an event; none: the text says it, or it is the input's.
    pub output: Option<Format>,
    /// Named constants, as `long`s (as `int`s where they fit).
    pub constants: BTreeMap<String, i64>,
    /// Attributes that have their numbers already, in order: the program's own come after them.
    pub attributes: Vec<String>,
    /// The function that is called; none: the statements of the text, or its `main`, or its last function.
    pub entry: Option<String>,
}
