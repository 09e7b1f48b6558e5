//! Encoding and decoding of formats and specifications.

use qfabric_types::Nanos;
use qfabric_types::format::{Field, Format, Kind, Scalar};

use super::{Malformed, Reader, Writer};
use crate::{EventType, Limits, Order, Pressure, Spec};

/// Set in the number of bits of `float` and `double`. Versions without these types refuse the format.
const FLOAT: u8 = 0x80;

impl Writer<'_> {
    pub(crate) fn spec(&mut self, spec: &Spec) {
        self.u8(match spec.order {
            Order::Time => 0,
            Order::Deadline => 1,
        });
        match spec.pressure {
            Pressure::DropOldest => self.u8(0),
            Pressure::DropNewest => self.u8(1),
            Pressure::Block { patience } => {
                self.u8(2);
                self.u64(patience.get());
            }
        }
        self.list(spec.types.iter(), |writer, event_type| writer.format(&event_type.format));
    }

    fn format(&mut self, format: &Format) {
        self.text(&format.name);
        self.u32(format.size);
        self.u8(format.align as u8);
        self.list(format.fields.iter(), Writer::field);
    }

    fn field(&mut self, field: &Field) {
        self.text(&field.name);
        self.u32(field.offset);
        self.list(field.dims.iter(), |writer, dim| writer.u32(*dim));
        match &field.kind {
            Kind::Scalar(scalar) => {
                self.u8(0);
                self.u8(scalar.bits | if scalar.float { FLOAT } else { 0 });
                self.flag(scalar.signed);
            }
            Kind::Struct(format) => {
                self.u8(1);
                self.format(format);
            }
        }
    }
}

impl Reader<'_> {
    /// The specification is valid: the number of types is within the limit, their names differ, and their formats are
    /// valid.
    pub(crate) fn spec(&mut self) -> Result<Spec, Malformed> {
        let order = match self.u8()? {
            0 => Order::Time,
            1 => Order::Deadline,
            _ => return Err(Malformed),
        };
        let pressure = match self.u8()? {
            0 => Pressure::DropOldest,
            1 => Pressure::DropNewest,
            2 => Pressure::Block { patience: Nanos::new(self.u64()?) },
            _ => return Err(Malformed),
        };
        let types = self.list(Limits::TYPES, |reader| Ok(EventType { format: reader.format(1)? }))?;
        let spec = Spec { types, order, pressure };
        spec.validate().map_err(|_| Malformed)?;
        Ok(spec)
    }

    fn format(&mut self, depth: u32) -> Result<Format, Malformed> {
        if depth > Format::MAX_DEPTH {
            return Err(Malformed);
        }
        let (name, size, align) = (self.text()?.to_owned(), self.u32()?, u32::from(self.u8()?));
        let fields = self.list(Format::MAX_MEMBERS as usize, |reader| reader.field(depth))?;
        Ok(Format { name, size, align, fields })
    }

    fn field(&mut self, depth: u32) -> Result<Field, Malformed> {
        let (name, offset) = (self.text()?.to_owned(), self.u32()?);
        let dims = self.list(Format::MAX_DIMENSIONS, Reader::u32)?;
        let kind = match self.u8()? {
            0 => {
                let (bits, signed) = (self.u8()?, self.flag()?);
                Kind::Scalar(Scalar { bits: bits & !FLOAT, signed, float: bits & FLOAT != 0 })
            }
            1 => Kind::Struct(self.format(depth + 1)?),
            _ => return Err(Malformed),
        };
        Ok(Field { name, offset, kind, dims })
    }
}
