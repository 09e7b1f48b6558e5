//! The persistent variables of a text: their initial bytes, and the places of those that have no name.

use std::collections::HashMap;
use std::rc::Rc;

use qfabric_types::format::Scalar;

use super::findings::Findings;
use super::place::Location;
use super::types::{Type, round_up};
use super::{Checked, MAX_STATICS};
use crate::diagnostics::{Diagnostic, Span};
use crate::hir::{Base, Place};

#[derive(Debug, Default)]
pub(super) struct Statics {
    pub bytes: Vec<u8>,
    /// Places of the strings of the text.
    strings: HashMap<Vec<u8>, u32>,
    /// Place of the state of `lrand48`, if the text uses it.
    random_state: Option<u32>,
}

impl Statics {
    /// Allocates space for a persistent variable. All its bytes are zero.
    pub(super) fn allocate(
        &mut self,
        size: u32,
        align: u32,
        what: &str,
        span: Span,
        findings: &mut Findings<'_>,
    ) -> Checked<u32> {
        let used = self.bytes.len();
        let offset = round_up(used as u32, align);
        let end = offset.saturating_add(size);
        if end > MAX_STATICS {
            let message = format!("{what} needs {size} bytes, but {used} of {MAX_STATICS} are already in use");
            let error = Diagnostic::new(span, message, "too large for the persistent variables");
            return findings.fail(error.help("make arrays smaller"));
        }
        self.bytes.resize(end as usize, 0);
        Ok(offset)
    }

    /// Sets initial bytes of a variable.
    pub(super) fn write(&mut self, offset: u32, bytes: &[u8]) {
        self.bytes[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// The value of an element of a constant table if the index is constant.
    pub(super) fn known(&self, location: &Location, ty: Scalar) -> Option<i64> {
        if !(location.is_const && location.base == Base::Static && location.indices.is_empty()) {
            return None;
        }
        let start = location.offset as usize;
        let bytes = self.bytes.get(start..start + ty.bytes() as usize)?;
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        Some(ty.wrap(i64::from_le_bytes(word)))
    }

    /// The place of a string in quotes.
    pub(super) fn text_constant(&mut self, text: &[u8], span: Span, findings: &mut Findings<'_>) -> Checked<Location> {
        let bytes = text.len() as u32 + 1;
        let offset = match self.strings.get(text) {
            Some(offset) => *offset,
            None => {
                let offset = self.allocate(bytes, 1, "this string", span, findings)?;
                self.write(offset, text);
                self.strings.insert(text.to_vec(), offset);
                offset
            }
        };
        let ty = Type::Array(Rc::new(Type::Scalar(Scalar::I8)), bytes);
        Ok(Location::at(Base::Static, offset, ty, true))
    }

    /// The place of the state of the random numbers, which is `initial` before the first one.
    pub(super) fn random_state(&mut self, initial: i64, span: Span, findings: &mut Findings<'_>) -> Checked<Place> {
        let offset = match self.random_state {
            Some(offset) => offset,
            None => {
                let offset = self.allocate(8, 8, "the state of the random numbers", span, findings)?;
                self.write(offset, &initial.to_le_bytes());
                self.random_state = Some(offset);
                offset
            }
        };
        Ok(Place { base: Base::Static, offset, indices: Vec::new(), ty: Scalar::U64 })
    }
}
