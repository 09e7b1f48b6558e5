//! Events as JSON objects: fields by name, structures as objects, arrays as lists.
//!
//! A byte array (`char` or `unsigned char`) may also be given as a string; it is always written as a list of
//! numbers. A missing field is zero. A field that is unknown, does not fit its type, or has too many elements is
//! refused.
//!
//! The bytes behind an event's structure are its *tail*. It is a member of that name with hexadecimal digits, unless the
//! format has such a member itself.

use serde_json::{Map, Value};

use crate::format::{Field, Format, Kind, Scalar};

/// The member that holds an event's tail.
const TAIL: &str = "tail";

/// Encodes fields as an event.
///
/// # Errors
/// A message that names the field, its value and the accepted values.
pub fn encode(format: &Format, fields: &Map<String, Value>) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; format.size as usize];
    put_struct(format, fields, &mut bytes, "")?;
    Ok(bytes)
}

/// Decodes an event. Bytes beyond the format are ignored; missing bytes are zero.
pub fn decode(format: &Format, bytes: &[u8]) -> Map<String, Value> {
    let shown = |field: &Field| {
        let at = bytes.get(field.offset as usize..).unwrap_or(&[]);
        (field.name.clone(), show(&field.kind, &field.dims, at))
    };
    format.fields.iter().map(shown).collect()
}

/// Encodes fields as [`encode`] does, and the member `tail` as the bytes behind the structure.
pub fn encode_whole(format: &Format, mut fields: Map<String, Value>) -> Result<Vec<u8>, String> {
    let tail = if format.field(TAIL).is_none() { fields.remove(TAIL) } else { None };
    let mut bytes = encode(format, &fields)?;
    match tail {
        None => {}
        Some(Value::String(digits)) => bytes.extend(from_hex(&digits)?),
        Some(other) => return Err(format!("{TAIL} is a text of hexadecimal digits, not {other}")),
    }
    Ok(bytes)
}

/// Decodes an event as [`decode`] does, and its tail if it has one.
pub fn decode_whole(format: &Format, bytes: &[u8]) -> Map<String, Value> {
    let mut fields = decode(format, bytes);
    let tail = bytes.get(format.size as usize..).filter(|tail| !tail.is_empty());
    if let (Some(tail), None) = (tail, format.field(TAIL)) {
        fields.insert(TAIL.to_owned(), to_hex(tail).into());
    }
    fields
}

pub fn to_hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Decodes hexadecimal digits.
pub fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 => Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()),
        _ => Err("the data is not an even number of hexadecimal digits".to_owned()),
    }
}

/// Size of one element, in bytes.
pub fn size_of(kind: &Kind) -> usize {
    match kind {
        Kind::Scalar(scalar) => scalar.bytes() as usize,
        Kind::Struct(format) => format.size as usize,
    }
}

/// The scalar at the beginning of `bytes`; zero if `bytes` is too short.
pub fn scalar(ty: Scalar, bytes: &[u8]) -> i64 {
    let mut word = [0; 8];
    let size = ty.bytes() as usize;
    if let Some(from) = bytes.get(..size) {
        word[..size].copy_from_slice(from);
    }
    ty.wrap(i64::from_le_bytes(word))
}

fn put_struct(format: &Format, fields: &Map<String, Value>, bytes: &mut [u8], path: &str) -> Result<(), String> {
    for (name, value) in fields {
        let Some(field) = format.field(name) else {
            let known: Vec<_> = format.fields.iter().map(|field| field.name.as_str()).collect();
            return Err(format!("struct {} has no field {path}{name}; it has {}", format.name, known.join(", ")));
        };
        put(&field.kind, &field.dims, value, &mut bytes[field.offset as usize..], &format!("{path}{name}"))?;
    }
    Ok(())
}

fn put(kind: &Kind, dims: &[u32], value: &Value, bytes: &mut [u8], path: &str) -> Result<(), String> {
    match (dims, kind, value) {
        ([count], Kind::Scalar(Scalar { bits: 8, .. }), Value::String(text)) => put_text(*count, text, bytes, path),
        ([count, inner @ ..], _, Value::Array(values)) => {
            fits(values.len(), *count, path)?;
            let stride = size_of(kind) * inner.iter().map(|dim| *dim as usize).product::<usize>();
            let mut each = values.iter().enumerate();
            each.try_for_each(|(i, value)| put(kind, inner, value, &mut bytes[i * stride..], &format!("{path}[{i}]")))
        }
        ([count, ..], ..) => Err(format!("{path} is {value}; use a list of at most {count} elements")),
        ([], Kind::Struct(format), Value::Object(fields)) => put_struct(format, fields, bytes, &format!("{path}.")),
        ([], Kind::Struct(_), _) => Err(format!("{path} is {value}; use an object")),
        ([], Kind::Scalar(scalar), _) => put_scalar(*scalar, value, bytes, path),
    }
}

fn fits(length: usize, count: u32, path: &str) -> Result<(), String> {
    match length <= count as usize {
        true => Ok(()),
        false => Err(format!("{path} holds {count} elements, but {length} are given")),
    }
}

fn put_text(count: u32, text: &str, bytes: &mut [u8], path: &str) -> Result<(), String> {
    fits(text.len(), count, path)?;
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    Ok(())
}

fn put_scalar(ty: Scalar, value: &Value, bytes: &mut [u8], path: &str) -> Result<(), String> {
    if ty.float {
        return put_float(ty, value, bytes, path);
    }
    let number = match value {
        Value::Number(number) => number.as_i64().or_else(|| number.as_u64().map(|n| n as i64)),
        Value::Bool(yes) => Some(i64::from(*yes)),
        _ => None,
    };
    // An unsigned 64-bit field may hold a number above i64::MAX, which has the bits of a negative i64.
    let too_large = value.as_u64().is_some_and(|n| n > i64::MAX as u64) && (ty.signed || ty.bits < 64);
    let negative = value.as_i64().is_some_and(|n| n < 0) && !ty.signed;
    match number.filter(|n| ty.wrap(*n) == *n && !too_large && !negative) {
        Some(number) => {
            let size = ty.bytes() as usize;
            bytes[..size].copy_from_slice(&number.to_le_bytes()[..size]);
            Ok(())
        }
        None => Err(format!("{path} is {value}; use {}", range(ty))),
    }
}

fn put_float(ty: Scalar, value: &Value, bytes: &mut [u8], path: &str) -> Result<(), String> {
    let number = match value {
        Value::String(text) => NOT_FINITE.iter().find(|(name, _)| name == text).map(|(_, number)| *number),
        _ => value.as_f64(),
    };
    let Some(number) = number else {
        return Err(format!("{path} is {value}; use a number, or \"nan\", \"inf\" or \"-inf\""));
    };
    match ty.bits {
        32 => bytes[..4].copy_from_slice(&(number as f32).to_le_bytes()),
        _ => bytes[..8].copy_from_slice(&number.to_le_bytes()),
    }
    Ok(())
}

/// The numbers that JSON cannot express, as text.
const NOT_FINITE: [(&str, f64); 3] = [("nan", f64::NAN), ("inf", f64::INFINITY), ("-inf", f64::NEG_INFINITY)];

fn show_float(ty: Scalar, bytes: &[u8]) -> Value {
    let word = scalar(ty, bytes) as u64;
    let number = if ty.bits == 32 { f64::from(f32::from_bits(word as u32)) } else { f64::from_bits(word) };
    let text = if number.is_nan() {
        "nan"
    } else if number > 0.0 {
        "inf"
    } else {
        "-inf"
    };
    serde_json::Number::from_f64(number).map_or_else(|| text.into(), Value::Number)
}

fn range(ty: Scalar) -> String {
    let (low, high) = match ty.signed {
        true => (-1i128 << (ty.bits - 1), (1i128 << (ty.bits - 1)) - 1),
        false => (0, (1i128 << ty.bits) - 1),
    };
    format!("a whole number from {low} to {high}")
}

fn show(kind: &Kind, dims: &[u32], bytes: &[u8]) -> Value {
    match (dims, kind) {
        ([count, inner @ ..], _) => {
            let stride = size_of(kind) * inner.iter().map(|dim| *dim as usize).product::<usize>();
            let at = |i: usize| bytes.get(i * stride..).unwrap_or(&[]);
            Value::Array((0..*count as usize).map(|i| show(kind, inner, at(i))).collect())
        }
        ([], Kind::Struct(format)) => Value::Object(decode(format, bytes)),
        ([], Kind::Scalar(ty)) if ty.float => show_float(*ty, bytes),
        ([], Kind::Scalar(ty)) if ty.signed => scalar(*ty, bytes).into(),
        ([], Kind::Scalar(ty)) => (scalar(*ty, bytes) as u64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn field(name: &str, offset: u32, kind: Kind, dims: &[u32]) -> Field {
        Field { name: name.into(), offset, kind, dims: dims.to_vec() }
    }

    /// `struct inner { short a; unsigned char b[2]; }; struct event { long x; struct inner in[2]; unsigned long u; }`
    fn format() -> Format {
        let inner = Format {
            name: "inner".into(),
            size: 4,
            align: 2,
            fields: vec![field("a", 0, Kind::Scalar(Scalar::I16), &[]), field("b", 2, Kind::Scalar(Scalar::U8), &[2])],
        };
        let fields = vec![
            field("x", 0, Kind::Scalar(Scalar::I64), &[]),
            field("in", 8, Kind::Struct(inner), &[2]),
            field("u", 16, Kind::Scalar(Scalar::U64), &[]),
        ];
        Format { name: "event".into(), size: 24, align: 8, fields }
    }

    fn encoded(value: Value) -> Result<Vec<u8>, String> {
        encode(&format(), value.as_object().unwrap())
    }

    #[test]
    fn floating_point_numbers_are_numbers_and_the_others_are_words() {
        let fields =
            vec![field("d", 0, Kind::Scalar(Scalar::F64), &[2]), field("f", 16, Kind::Scalar(Scalar::F32), &[])];
        let format = Format { name: "event".into(), size: 24, align: 8, fields };
        assert_eq!(format.validate(), Ok(()));
        for event in [json!({"d": [0.1, -2.5e300], "f": 0.5}), json!({"d": ["nan", "inf"], "f": "-inf"})] {
            let bytes = encode(&format, event.as_object().unwrap()).unwrap();
            assert_eq!(Value::Object(decode(&format, &bytes)), event);
        }
        let wrong = encode(&format, json!({"f": "much"}).as_object().unwrap()).unwrap_err();
        assert_eq!(wrong, r#"f is "much"; use a number, or "nan", "inf" or "-inf""#);
    }

    #[test]
    fn an_encoded_event_decodes_to_itself() {
        let event = json!({"x": -7, "in": [{"a": -2, "b": [1, 255]}, {"a": 3, "b": [0, 4]}], "u": u64::MAX});
        let bytes = encoded(event.clone()).unwrap();
        assert_eq!(Value::Object(decode(&format(), &bytes)), event);
        assert_eq!(from_hex(&to_hex(&bytes)), Ok(bytes));
    }

    #[test]
    fn missing_fields_are_zero_and_text_fills_byte_arrays() {
        let bytes = encoded(json!({"in": [{"b": "ok"}]})).unwrap();
        assert_eq!(bytes[8..12], [0, 0, b'o', b'k']);
        assert!(bytes[..8].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_with_its_field() {
        for (event, parts) in [
            (json!({"y": 1}), ["no field y", "x, in, u"]),
            (json!({"in": [{"a": 32768}]}), ["in[0].a is 32768", "-32768 to 32767"]),
            (json!({"in": [{"b": [256]}]}), ["in[0].b[0] is 256", "0 to 255"]),
            (json!({"in": [{}, {}, {}]}), ["in holds 2", "3 are given"]),
            (json!({"in": [{"b": "long"}]}), ["in[0].b holds 2", "4 are given"]),
            (json!({"u": -1}), ["u is -1", "18446744073709551615"]),
            (json!({"x": u64::MAX}), ["x is 18446744073709551615", "9223372036854775807"]),
            (json!({"x": 1.5}), ["x is 1.5", "whole number"]),
            (json!({"in": 3}), ["in is 3", "use a list"]),
        ] {
            let refusal = encoded(event).unwrap_err();
            assert!(parts.iter().all(|part| refusal.contains(part)), "{refusal}");
        }
    }

    #[test]
    fn missing_bytes_of_a_short_event_are_zero() {
        let shown = decode(&format(), &[9, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((&shown["x"], &shown["u"]), (&json!(9), &json!(0)));
    }

    #[test]
    fn hexadecimal_digits_come_in_pairs() {
        assert!(from_hex("abc").is_err() && from_hex("zz").is_err() && from_hex("é").is_err());
        assert_eq!(from_hex("00fF"), Ok(vec![0, 255]));
    }

    #[test]
    fn what_lies_behind_the_structure_is_the_tail() {
        let format = format();
        let fields = json!({ "x": 5, "tail": "00ff" }).as_object().unwrap().clone();
        let bytes = encode_whole(&format, fields).unwrap();
        assert_eq!(bytes[format.size as usize..], [0, 255]);
        let shown = decode_whole(&format, &bytes);
        assert_eq!((&shown["x"], &shown["tail"]), (&json!(5), &json!("00ff")));
        assert!(!decode_whole(&format, &bytes[..format.size as usize]).contains_key("tail"));
        for tail in [json!("0"), json!("xy"), json!(7)] {
            let fields = json!({ "tail": tail }).as_object().unwrap().clone();
            assert!(encode_whole(&format, fields).unwrap_err().contains("hexadecimal digits"));
        }
        let own = Format { fields: vec![field("tail", 0, format.fields[0].kind.clone(), &[])], ..format };
        let bytes = encode_whole(&own, json!({ "tail": 3 }).as_object().unwrap().clone()).unwrap();
        assert_eq!((bytes[0], &decode_whole(&own, &[&bytes[..], &[1]].concat())["tail"]), (3, &json!(3)));
    }
}
