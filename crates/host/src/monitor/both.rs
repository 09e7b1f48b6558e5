//! Two readers as one.

use qfabric_types::monitor::{Attribute, AttributeId, Readers};
use qfabric_types::{AppId, Instant};

/// What the first does not know is asked of the second. Their attributes are listed once, when they are put together:
/// make a new one when one of them changes.
pub struct Both<'a> {
    first: &'a mut dyn Readers,
    second: &'a mut dyn Readers,
    attributes: &'a [Attribute],
}

impl<'a> Both<'a> {
    /// Both, with a list of all attributes of both that the caller keeps ([`Both::list`]).
    pub fn new(first: &'a mut dyn Readers, second: &'a mut dyn Readers, attributes: &'a [Attribute]) -> Self {
        Both { first, second, attributes }
    }

    /// The attributes of both.
    pub fn list(first: &dyn Readers, second: &dyn Readers) -> Vec<Attribute> {
        first.attributes().iter().chain(second.attributes()).cloned().collect()
    }
}

impl Readers for Both<'_> {
    fn attributes(&self) -> &[Attribute] {
        self.attributes
    }

    fn read(&mut self, attribute: AttributeId, application: AppId, now: Instant) -> Option<i64> {
        self.first.read(attribute, application, now).or_else(|| self.second.read(attribute, application, now))
    }
}
