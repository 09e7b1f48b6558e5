//! The filters of one channel on this host.

use qfabric_types::channel::Name;

use super::{Body, Filter, TextFilter};
use crate::{Direction, Error, FilterError, FilterId, Limits};

/// The filters of each direction, in the order of their names.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    pub into: Vec<Filter>,
    pub out: Vec<Filter>,
}

impl Filters {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Filter> {
        self.into.iter().chain(&self.out)
    }

    pub(crate) fn get(&self, id: &FilterId) -> Option<&Filter> {
        let filters = match id.direction {
            Direction::In => &self.into,
            Direction::Out => &self.out,
        };
        Some(&filters[find(filters, &id.name).ok()?])
    }

    /// Refuses a filter that would exceed the limit; replacing a filter is always possible.
    pub(crate) fn room_for(&self, id: &FilterId) -> Result<(), Error> {
        let asked = self.into.len() + self.out.len() + 1;
        if asked <= Limits::FILTERS || self.get(id).is_some() {
            return Ok(());
        }
        let (what, limit, remedy) =
            ("filters of one channel", Limits::FILTERS, "remove a filter, or combine two texts");
        Err(Error::TooMany { what, asked, limit, remedy })
    }

    /// Inserts a filter in its place; replaces a filter of the same name.
    pub(crate) fn put(&mut self, filter: Filter) {
        let filters = self.of(filter.direction);
        match find(filters, &filter.name) {
            Ok(at) => filters[at] = filter,
            Err(at) => filters.insert(at, filter),
        }
    }

    pub(crate) fn remove(&mut self, id: &FilterId) -> Result<(), FilterError> {
        let filters = self.of(id.direction);
        let at = find(filters, &id.name).map_err(|_| FilterError::Unknown(id.clone()))?;
        filters.remove(at);
        Ok(())
    }

    /// Removes the filters whose author on another host satisfies `is_gone`.
    pub(crate) fn forget(&mut self, is_gone: impl Fn(&Name) -> bool) -> Vec<Filter> {
        let is_gone = |filter: &mut Filter| filter.author.as_ref().is_some_and(&is_gone);
        let mut gone: Vec<Filter> = self.into.extract_if(.., is_gone).collect();
        gone.extend(self.out.extract_if(.., is_gone));
        gone
    }

    /// Parameters no longer follow the hosts for which `is_over` is true.
    pub(crate) fn unfollow(&mut self, is_over: impl Fn(&Name) -> bool) {
        for filter in self.into.iter_mut().chain(&mut self.out) {
            if let Body::Text(text) = &mut filter.body {
                text.unfollow(&is_over);
            }
        }
    }

    /// The new text gets the current parameter values of the filter that it replaces.
    pub(crate) fn inherit(&mut self, id: &FilterId, text: &mut TextFilter) {
        let Ok(old) = self.text(id) else { return };
        for name in old.parameters.clone() {
            if let (Ok(value), Ok(place)) = (old.parameter(&name), text.parameter(&name)) {
                *place = *value;
            }
        }
    }

    /// The filter of this name, if it is in E-code.
    pub(crate) fn text(&mut self, id: &FilterId) -> Result<&mut TextFilter, FilterError> {
        let filters = self.of(id.direction);
        match find(filters, &id.name).map(|at| &mut filters[at].body) {
            Ok(Body::Text(text)) => Ok(text),
            _ => Err(FilterError::Unknown(id.clone())),
        }
    }

    fn of(&mut self, direction: Direction) -> &mut Vec<Filter> {
        match direction {
            Direction::In => &mut self.into,
            Direction::Out => &mut self.out,
        }
    }
}

fn find(filters: &[Filter], name: &Name) -> Result<usize, usize> {
    filters.binary_search_by(|filter| filter.name.cmp(name))
}
