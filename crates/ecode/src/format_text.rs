//! Prints a format as a C structure.

use qfabric_types::format::{Format, Kind};

/// Returns the format as a C structure declaration that ends with a newline. [`crate::parse_formats`] reads it
/// back.
pub fn format_text(format: &Format) -> String {
    let mut text = format!("struct {} {{\n", identifier(&format.name));
    members(format, 1, &mut text);
    text.push_str("};\n");
    text
}

fn members(format: &Format, depth: usize, text: &mut String) {
    let indent = "    ".repeat(depth);
    for field in &format.fields {
        let dims: String = field.dims.iter().map(|dim| format!("[{dim}]")).collect();
        match &field.kind {
            Kind::Scalar(scalar) => {
                text.push_str(&format!("{indent}{} {}{dims};\n", scalar.c_name(), field.name));
            }
            Kind::Struct(inner) => {
                // The declaration must be complete by itself, so the inner structure is written out instead of
                // named.
                text.push_str(&format!("{indent}struct {{\n"));
                members(inner, depth + 1, text);
                text.push_str(&format!("{indent}}} {}{dims};\n", field.name));
            }
        }
    }
}

/// Turns the name of a format, which may contain any characters, into a C identifier.
fn identifier(name: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    let name: String = name.chars().map(plain).take(64).collect();
    if name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') { name } else { format!("_{name}") }
}
