//! Event formats: C structures with a fixed layout (LP64, little endian), as E-code declares them.
//!
//! A [`Format`] contains the offset of each field of an event. It travels with services and channels, so that a
//! receiver can read an event without the declaration's text.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One of C's integer types, or `float` or `double`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Scalar {
    /// 8, 16, 32 or 64.
    pub bits: u8,
    /// False for `float` and `double`: their words are bits, not signed numbers.
    pub signed: bool,
    /// True for `float` (IEEE 754 binary32) and `double` (binary64).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub float: bool,
}

impl Scalar {
    /// `signed char`, and `char`, which is signed as on x86.
    pub const I8: Scalar = Scalar { bits: 8, signed: true, float: false };
    /// `unsigned char`.
    pub const U8: Scalar = Scalar { bits: 8, signed: false, float: false };
    /// `short`.
    pub const I16: Scalar = Scalar { bits: 16, signed: true, float: false };
    /// `unsigned short`.
    pub const U16: Scalar = Scalar { bits: 16, signed: false, float: false };
    /// `int`.
    pub const I32: Scalar = Scalar { bits: 32, signed: true, float: false };
    /// `unsigned int`.
    pub const U32: Scalar = Scalar { bits: 32, signed: false, float: false };
    /// `long` and `long long`.
    pub const I64: Scalar = Scalar { bits: 64, signed: true, float: false };
    /// `unsigned long` and `unsigned long long`.
    pub const U64: Scalar = Scalar { bits: 64, signed: false, float: false };

    /// `float`.
    pub const F32: Scalar = Scalar { bits: 32, signed: false, float: true };
    /// `double`.
    pub const F64: Scalar = Scalar { bits: 64, signed: false, float: true };

    /// Size and alignment, in bytes.
    pub const fn bytes(self) -> u32 {
        self.bits as u32 / 8
    }

    /// The name of the type in C.
    pub const fn c_name(self) -> &'static str {
        match (self.bits, self.signed) {
            (32, _) if self.float => "float",
            _ if self.float => "double",
            (8, true) => "char",
            (8, false) => "unsigned char",
            (16, true) => "short",
            (16, false) => "unsigned short",
            (32, true) => "int",
            (32, false) => "unsigned int",
            (_, true) => "long",
            (_, false) => "unsigned long",
        }
    }

    /// Converts a value to the type: cuts it to its bits, then sign- or zero-extends it to 64 bits.
    pub const fn wrap(self, value: i64) -> i64 {
        let unused = 64 - self.bits as u32;
        if self.signed { (value << unused) >> unused } else { ((value as u64) << unused >> unused) as i64 }
    }
}

/// The type of a field, or of one element of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A number.
    Scalar(Scalar),
    /// A structure inside the structure.
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    Struct(Format),
}

/// One member of a structure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Field {
    /// The field's name.
    pub name: String,
    /// Bytes from the begin of the structure.
    pub offset: u32,
    /// The type of one element.
    pub kind: Kind,
    /// Array dimensions, outermost first; empty for a single value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dims: Vec<u32>,
}

/// A structure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Format {
    /// The tag of the structure.
    pub name: String,
    /// The size in bytes, including padding at the end.
    pub size: u32,
    /// Its alignment in bytes.
    pub align: u32,
    /// The fields, in order of their offsets.
    pub fields: Vec<Field>,
}

impl Format {
    /// Largest accepted size, in bytes: the largest event.
    pub const MAX_SIZE: u32 = 16 << 10;

    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Whether both have the same members at the same places; their names may differ.
    pub fn is_laid_out_as(&self, other: &Format) -> bool {
        (self.size, &self.fields) == (other.size, &other.fields)
    }

    /// Deepest nesting of structures; bounds the recursion of readers.
    pub const MAX_DEPTH: u32 = 16;
    /// Largest number of members, including the members of inner structures.
    pub const MAX_MEMBERS: u32 = 1024;

    /// Largest number of dimensions of an array.
    pub const MAX_DIMENSIONS: usize = 8;

    /// Checks that the format describes a possible memory layout: every member inside the structure, aligned, and
    /// behind the previous member. Validate a format from outside before using it.
    pub fn validate(&self) -> Result<(), FormatError> {
        let mut members = 0;
        self.validate_at(1, &mut members)
    }

    fn validate_at(&self, depth: u32, members: &mut u32) -> Result<(), FormatError> {
        let refused = |what: String| Err(FormatError { format: self.name.clone(), what });
        if depth > Format::MAX_DEPTH {
            return refused(format!("has more than {} nested structures", Format::MAX_DEPTH));
        }
        *members = members.saturating_add(u32::try_from(self.fields.len()).unwrap_or(u32::MAX));
        if *members > Format::MAX_MEMBERS {
            return refused(format!("has {members} members, the limit is {}", Format::MAX_MEMBERS));
        }
        if self.size > Format::MAX_SIZE {
            return refused(format!("has {} bytes, the limit is {}", self.size, Format::MAX_SIZE));
        }
        if !matches!(self.align, 1 | 2 | 4 | 8) || !self.size.is_multiple_of(self.align) {
            return refused(format!("has {} bytes at an alignment of {}", self.size, self.align));
        }
        let mut end = 0;
        for field in &self.fields {
            if let Kind::Struct(inner) = &field.kind {
                inner.validate_at(depth + 1, members)?;
            }
            end = self.validate_field(field, end)?;
        }
        Ok(())
    }

    /// Returns the end of the field, in bytes.
    fn validate_field(&self, field: &Field, end_before: u32) -> Result<u32, FormatError> {
        let refused = |what: String| Err(FormatError { format: self.name.clone(), what });
        let name = &field.name;
        if !is_identifier(name) {
            return refused(format!("has a member {name:?}, which is not a name in C"));
        }
        if self.fields.iter().filter(|other| other.name == *name).count() > 1 {
            return refused(format!("has two members `{name}`"));
        }
        let align = field.kind.align();
        let dims = field.dims.iter().map(|dim| u64::from(*dim));
        let size = dims.fold(u64::from(field.kind.size()), u64::saturating_mul);
        let end = u64::from(field.offset).saturating_add(size);
        if field.dims.len() > Format::MAX_DIMENSIONS {
            return refused(format!(
                "has `{name}` of {} dimensions, the limit is {}",
                field.dims.len(),
                Format::MAX_DIMENSIONS
            ));
        }
        if size == 0 || !field.kind.is_sound() {
            return refused(format!("has a member `{name}` of no size"));
        }
        if field.offset < end_before
            || align > self.align
            || !field.offset.is_multiple_of(align)
            || end > u64::from(self.size)
        {
            return refused(format!(
                "has `{name}` at {} to {end}: the member before ends at {end_before}, the structure at {}, and {name} is \
                 aligned to {align}",
                field.offset, self.size
            ));
        }
        Ok(end as u32)
    }

    /// The first member of this format that differs in `other`, by offset or type, or is missing there. If `None`,
    /// a reader of this format can read events of `other`.
    pub fn first_difference(&self, other: &Format) -> Option<Difference> {
        let described = |field: &Field| format!("{} at byte {}", field.type_text(), field.offset);
        self.fields.iter().find_map(|field| {
            let there = other.field(&field.name);
            let same = there.is_some_and(|there| {
                there.offset == field.offset && there.dims == field.dims && there.kind.same_layout(&field.kind)
            });
            let difference =
                || Difference { member: field.name.clone(), here: described(field), there: there.map(described) };
            (!same).then(difference)
        })
    }
}

impl Kind {
    /// Size of one element, in bytes.
    pub fn size(&self) -> u32 {
        match self {
            Kind::Scalar(scalar) => scalar.bytes(),
            Kind::Struct(format) => format.size,
        }
    }

    /// Alignment in bytes.
    pub fn align(&self) -> u32 {
        match self {
            Kind::Scalar(scalar) => scalar.bytes(),
            Kind::Struct(format) => format.align,
        }
    }

    fn is_sound(&self) -> bool {
        match self {
            Kind::Scalar(scalar) if scalar.float => !scalar.signed && matches!(scalar.bits, 32 | 64),
            Kind::Scalar(scalar) => matches!(scalar.bits, 8 | 16 | 32 | 64),
            Kind::Struct(format) => !format.fields.is_empty(),
        }
    }

    /// Names of structures are ignored.
    fn same_layout(&self, other: &Kind) -> bool {
        match (self, other) {
            (Kind::Scalar(a), Kind::Scalar(b)) => a == b,
            (Kind::Struct(a), Kind::Struct(b)) => {
                a.size == b.size && a.fields.len() == b.fields.len() && a.first_difference(b).is_none()
            }
            _ => false,
        }
    }
}

impl Field {
    /// The type in C, such as `unsigned int[4]`.
    pub fn type_text(&self) -> String {
        let dims: String = self.dims.iter().map(|dim| format!("[{dim}]")).collect();
        match &self.kind {
            Kind::Scalar(scalar) => format!("{}{dims}", scalar.c_name()),
            Kind::Struct(format) => format!("struct {}{dims}", format.name),
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    letters && name.len() <= 64 && name.as_bytes().first().is_some_and(|byte| !byte.is_ascii_digit())
}

/// A format is not a possible memory layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the format `{format}` {what}")]
pub struct FormatError {
    pub format: String,
    pub what: String,
}

/// The first difference of two formats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub member: String,
    /// The member in the first format, such as `int at byte 4`.
    pub here: String,
    /// The member in the second format; `None` if it has no such member.
    pub there: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { member, here, there } = self;
        match there {
            Some(there) => write!(f, "`{member}` is {here} here, but {there} there"),
            None => write!(f, "`{member}` is {here} here, but does not exist there"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, offset: u32, ty: Scalar) -> Field {
        Field { name: name.to_owned(), offset, kind: Kind::Scalar(ty), dims: vec![] }
    }

    /// `struct sample { int rate; short depth[2]; };`
    fn sample() -> Format {
        let depth = Field { dims: vec![2], ..field("depth", 4, Scalar::I16) };
        Format { name: "sample".to_owned(), size: 8, align: 4, fields: vec![field("rate", 0, Scalar::I32), depth] }
    }

    fn within(inner: Format) -> Format {
        let (size, align) = (inner.size, inner.align);
        let field = Field { name: "inner".to_owned(), offset: 0, kind: Kind::Struct(inner), dims: vec![] };
        Format { name: "outer".to_owned(), size, align, fields: vec![field] }
    }

    fn refusal(change: impl FnOnce(&mut Format)) -> String {
        let mut format = sample();
        change(&mut format);
        format.validate().expect_err("refused").to_string()
    }

    #[test]
    fn possible_layouts_are_valid() {
        assert_eq!(sample().validate(), Ok(()));
        assert_eq!(within(sample()).validate(), Ok(()));
        let nothing = Format { name: "none".to_owned(), size: 0, align: 1, fields: vec![] };
        assert_eq!(nothing.validate(), Ok(()));
    }

    #[test]
    fn impossible_layouts_are_refused_with_their_numbers() {
        assert_eq!(
            refusal(|format| format.fields[1].offset = 2),
            "the format `sample` has `depth` at 2 to 6: the member before ends at 4, the structure at 8, and depth is \
             aligned to 2"
        );
        assert!(
            refusal(|format| format.fields[1].dims[0] = 3).contains("`depth` at 4 to 10"),
            "an array beyond the end of the structure"
        );
        assert!(refusal(|format| format.fields[1].dims[0] = u32::MAX).contains("`depth` at 4 to"), "no overflow");
        assert!(refusal(|format| format.fields[1].dims = vec![u32::MAX; 8]).contains("`depth` at 4 to"));
        assert!(refusal(|format| format.fields[1].dims = vec![1; 9]).contains("`depth` of 9 dimensions"));
        assert!(refusal(|format| format.fields[1].dims[0] = 0).contains("of no size"));
        assert!(refusal(|format| format.fields[0].offset = u32::MAX).contains("`rate` at 4294967295"));
        assert!(
            refusal(|format| format.align = 2).contains("aligned to 4"),
            "the structure is at least as aligned as its members"
        );
        assert!(refusal(|format| format.align = 3).contains("8 bytes at an alignment of 3"));
        assert!(refusal(|format| format.size = 6).contains("6 bytes at an alignment of 4"));
        assert!(refusal(|format| format.size = 1 << 20).contains("the limit is 16384"));
        assert!(refusal(|format| format.fields[0].name = "a b".to_owned()).contains("not a name in C"));
        assert!(refusal(|format| format.fields[1].name = "rate".to_owned()).contains("two members `rate`"));
        let odd = Kind::Scalar(Scalar { bits: 24, ..Scalar::I32 });
        assert!(refusal(|format| format.fields[0].kind = odd).contains("of no size"));
    }

    #[test]
    fn nesting_and_members_are_bounded() {
        let deep = (0..Format::MAX_DEPTH).fold(sample(), |format, _| within(format));
        assert!(deep.validate().unwrap_err().to_string().contains("more than 16 nested structures"));
        let fields = (0..=Format::MAX_MEMBERS).map(|n| field(&format!("m{n}"), n, Scalar::I8)).collect();
        let wide = Format { name: "wide".to_owned(), size: 2048, align: 1, fields };
        assert!(wide.validate().unwrap_err().to_string().contains("1025 members, the limit is 1024"));
    }

    #[test]
    fn the_first_difference_is_named_with_both_sides() {
        let mut other = sample();
        assert_eq!(sample().first_difference(&other), None);
        other.fields.push(field("more", 8, Scalar::I8));
        assert_eq!(sample().first_difference(&other), None, "further members do not matter");
        other.fields[1].dims[0] = 3;
        let described = "`depth` is short[2] at byte 4 here, but short[3] at byte 4 there";
        assert_eq!(sample().first_difference(&other).unwrap().to_string(), described);
        other.fields[0].name = "speed".to_owned();
        let described = "`rate` is int at byte 0 here, but does not exist there";
        assert_eq!(sample().first_difference(&other).unwrap().to_string(), described);
    }

    #[test]
    fn structures_are_compared_by_members_not_by_names() {
        let mut inner = sample();
        inner.name = "another".to_owned();
        assert_eq!(within(sample()).first_difference(&within(inner.clone())), None);
        inner.fields[0].kind = Kind::Scalar(Scalar::U32);
        let difference = within(sample()).first_difference(&within(inner)).unwrap();
        assert_eq!(
            difference.to_string(),
            "`inner` is struct sample at byte 0 here, but struct another at byte 0 there"
        );
    }

    #[test]
    fn values_are_converted_to_their_types() {
        assert_eq!(Scalar::I8.wrap(200), -56);
        assert_eq!(Scalar::U16.wrap(-1), 65_535);
        assert_eq!(Scalar::I64.wrap(i64::MIN), i64::MIN);
    }
}
