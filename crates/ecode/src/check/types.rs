//! Types of values and variables, and their layout in memory: LP64, as gcc uses it on x86-64.

use std::fmt;
use std::rc::Rc;

use qfabric_types::format::{Field, Format, Kind, Scalar};

/// The name of a structure without a tag.
pub(crate) const UNNAMED: &str = "unnamed";

#[derive(Clone, Debug)]
pub(crate) enum Type {
    Scalar(Scalar),
    Struct(Rc<Struct>),
    Array(Rc<Type>, u32),
}

#[derive(Debug)]
pub(crate) struct Struct {
    pub name: String,
    pub size: u32,
    pub align: u32,
    pub members: Vec<Member>,
    /// 1 for a structure that contains no other structure.
    pub depth: u32,
    /// Members, including the members of nested structures.
    pub total_members: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub name: String,
    pub offset: u32,
    pub ty: Type,
    /// The index of an earlier member that holds the number of valid elements of this array.
    pub length: Option<usize>,
}

impl Type {
    /// Size in bytes; saturates, because a declared array may exceed the range of `u32`.
    pub(crate) fn size(&self) -> u32 {
        match self {
            Type::Scalar(scalar) => scalar.bytes(),
            Type::Struct(structure) => structure.size,
            Type::Array(element, count) => element.size().saturating_mul(*count),
        }
    }

    pub(crate) fn align(&self) -> u32 {
        match self {
            Type::Scalar(scalar) => scalar.bytes(),
            Type::Struct(structure) => structure.align,
            Type::Array(element, _) => element.align(),
        }
    }

    /// The element type of a (nested) array, or the type itself.
    pub(crate) fn innermost(&self) -> &Type {
        match self {
            Type::Array(element, _) => element.innermost(),
            other => other,
        }
    }

    /// Whether this is an array of characters, which can hold a string.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self, Type::Array(element, _) if matches!(**element, Type::Scalar(Scalar { bits: 8, .. })))
    }

    /// Number of dimensions of an array; 0 for other types.
    pub(crate) fn dimensions(&self) -> usize {
        match self {
            Type::Array(element, _) => 1 + element.dimensions(),
            _ => 0,
        }
    }

    /// Wraps the type in an array for each dimension; the first dimension is the outermost.
    pub(crate) fn array(self, dims: impl DoubleEndedIterator<Item = u32>) -> Type {
        dims.rev().fold(self, |element, count| Type::Array(Rc::new(element), count))
    }

    /// Whether both types have the same layout and the same member names. The names of structures do not matter.
    pub(crate) fn same(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::Scalar(a), Type::Scalar(b)) => a == b,
            (Type::Array(a, m), Type::Array(b, n)) => m == n && a.same(b),
            (Type::Struct(a), Type::Struct(b)) => Rc::ptr_eq(a, b) || a.same(b),
            _ => false,
        }
    }
}

impl Struct {
    /// Lays members out in order, each at the next multiple of its alignment.
    pub(crate) fn new(name: String, members: impl IntoIterator<Item = (String, Type, Option<usize>)>) -> Struct {
        let mut laid = Struct { name, size: 0, align: 1, members: Vec::new(), depth: 1, total_members: 0 };
        for (name, ty, length) in members {
            let offset = round_up(laid.size, ty.align());
            laid.size = offset.saturating_add(ty.size());
            laid.push(Member { name, offset, ty, length });
        }
        laid.size = round_up(laid.size, laid.align);
        laid
    }

    fn push(&mut self, member: Member) {
        self.align = self.align.max(member.ty.align());
        let (depth, inner) = match member.ty.innermost() {
            Type::Struct(inner) => (inner.depth, inner.total_members),
            _ => (0, 0),
        };
        self.depth = self.depth.max(depth + 1);
        self.total_members = self.total_members.saturating_add(1).saturating_add(inner);
        self.members.push(member);
    }

    pub(crate) fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }

    fn same(&self, other: &Struct) -> bool {
        let alike = |(a, b): (&Member, &Member)| a.name == b.name && a.offset == b.offset && a.ty.same(&b.ty);
        self.size == other.size
            && self.members.len() == other.members.len()
            && self.members.iter().zip(&other.members).all(alike)
    }

    /// The structure as a [`Format`].
    pub(crate) fn format(&self) -> Format {
        let fields = self.members.iter().map(|member| field(&member.name, member.offset, &member.ty)).collect();
        Format { name: self.name.clone(), size: self.size, align: self.align, fields }
    }

    /// Converts a valid format to a type.
    pub(crate) fn of(format: &Format) -> Struct {
        let mut structure = Struct {
            name: format.name.clone(),
            size: format.size,
            align: format.align,
            members: Vec::new(),
            depth: 1,
            total_members: 0,
        };
        for field in &format.fields {
            let element = match &field.kind {
                Kind::Scalar(scalar) => Type::Scalar(*scalar),
                Kind::Struct(inner) => Type::Struct(Rc::new(Struct::of(inner))),
            };
            let ty = element.array(field.dims.iter().copied());
            structure.push(Member { name: field.name.clone(), offset: field.offset, ty, length: None });
        }
        structure.align = format.align;
        structure
    }
}

fn field(name: &str, offset: u32, ty: &Type) -> Field {
    let mut dims = Vec::new();
    let mut ty = ty;
    while let Type::Array(element, count) = ty {
        dims.push(*count);
        ty = element;
    }
    let kind = match ty {
        Type::Struct(structure) => Kind::Struct(structure.format()),
        Type::Scalar(scalar) => Kind::Scalar(*scalar),
        Type::Array(..) => unreachable!("all array dimensions were removed above"),
    };
    Field { name: name.to_owned(), offset, kind, dims }
}

/// Rounds up to the next multiple of `align`, a power of two.
pub(crate) fn round_up(size: u32, align: u32) -> u32 {
    size.saturating_add(align - 1) & !(align - 1)
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Scalar(scalar) => f.write_str(scalar.c_name()),
            Type::Struct(structure) if structure.name == UNNAMED => f.write_str("struct {…}"),
            Type::Struct(structure) => write!(f, "struct {}", structure.name),
            Type::Array(..) => {
                write!(f, "{}", self.innermost())?;
                let mut ty = self;
                while let Type::Array(element, count) = ty {
                    write!(f, "[{count}]")?;
                    ty = element;
                }
                Ok(())
            }
        }
    }
}
