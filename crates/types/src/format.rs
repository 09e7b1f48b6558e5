//! Event formats: C structures with fixed layout (LP64, little endian), as E-code declares them.
//!
//! A [`Format`] says where each field of an event lies; it travels with services and channels, so that whoever
//! gets an event can read it without the text it was declared in.

use serde::{Deserialize, Serialize};

/// One of C's integer types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Scalar {
    /// 8, 16, 32 or 64.
    pub bits: u8,
    /// Two's complement, or not.
    pub signed: bool,
}

impl Scalar {
    /// `signed char`, and `char` as on x86.
    pub const I8: Scalar = Scalar { bits: 8, signed: true };
    /// `unsigned char`.
    pub const U8: Scalar = Scalar { bits: 8, signed: false };
    /// `short`.
    pub const I16: Scalar = Scalar { bits: 16, signed: true };
    /// `unsigned short`.
    pub const U16: Scalar = Scalar { bits: 16, signed: false };
    /// `int`.
    pub const I32: Scalar = Scalar { bits: 32, signed: true };
    /// `unsigned int`.
    pub const U32: Scalar = Scalar { bits: 32, signed: false };
    /// `long` and `long long`.
    pub const I64: Scalar = Scalar { bits: 64, signed: true };
    /// `unsigned long` and `unsigned long long`.
    pub const U64: Scalar = Scalar { bits: 64, signed: false };

    /// Its size and its alignment, in bytes.
    pub const fn bytes(self) -> u32 {
        self.bits as u32 / 8
    }

    /// Wraps a value into the type: cut to its bits, then sign- or zero-extended to 64.
    pub const fn wrap(self, value: i64) -> i64 {
        let unused = 64 - self.bits as u32;
        if self.signed { (value << unused) >> unused } else { ((value as u64) << unused >> unused) as i64 }
    }
}

/// What a field, or one element of it, is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A number.
    Scalar(Scalar),
    /// A structure of its own.
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    Struct(Format),
}

/// One member of a structure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Bytes from the structure's beginning.
    pub offset: u32,
    /// What one element is.
    pub kind: Kind,
    /// Its array dimensions, outermost first; empty for a single value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dims: Vec<u32>,
}

/// A structure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Format {
    /// Its tag.
    pub name: String,
    /// Its size in bytes, with the padding at its end.
    pub size: u32,
    /// Its alignment in bytes.
    pub align: u32,
    /// Its members in order.
    pub fields: Vec<Field>,
}

impl Format {
    /// Largest format that is taken, in bytes: what fits an event.
    pub const MAX_SIZE: u32 = 16 << 10;

    /// The member of that name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}
