//! Events of any format survive conversion to JSON and back; invalid formats are refused.

use proptest::prelude::*;
use qfabric_types::event_json::{decode, encode};
use qfabric_types::format::{Field, Format, Kind, Scalar};

/// A member without its offset.
type Member = (Kind, Vec<u32>);

fn scalar() -> impl Strategy<Value = Scalar> {
    (prop::sample::select(vec![8u8, 16, 32, 64]), any::<bool>()).prop_map(|(bits, signed)| Scalar {
        bits,
        signed,
        float: false,
    })
}

/// Places the members one behind the other, each at the next multiple of its alignment.
fn laid_out(members: Vec<Member>) -> Format {
    let mut format = Format { name: "event".to_owned(), size: 0, align: 1, fields: Vec::new() };
    for (number, (kind, dims)) in members.into_iter().enumerate() {
        let offset = format.size.next_multiple_of(kind.align());
        format.size = offset + kind.size() * dims.iter().product::<u32>();
        format.align = format.align.max(kind.align());
        format.fields.push(Field { name: format!("m{number}"), offset, kind, dims });
    }
    format.size = format.size.next_multiple_of(format.align);
    format
}

fn member(kind: impl Strategy<Value = Kind>) -> impl Strategy<Value = Member> {
    (kind, prop::collection::vec(1..4u32, 0..3))
}

fn format() -> impl Strategy<Value = Format> {
    let leaf = prop::collection::vec(member(scalar().prop_map(Kind::Scalar)), 1..4).prop_map(laid_out);
    leaf.prop_recursive(3, 16, 3, |inner| {
        let kind = prop_oneof![scalar().prop_map(Kind::Scalar), inner.prop_map(Kind::Struct)];
        prop::collection::vec(member(kind), 1..4).prop_map(laid_out)
    })
}

proptest! {
    #[test]
    fn a_format_in_c_layout_is_valid(format in format()) {
        prop_assert_eq!(format.validate(), Ok(()));
        prop_assert_eq!(format.first_difference(&format), None);
    }

    #[test]
    fn events_survive_conversion_to_json_and_back(format in format(), seed in prop::collection::vec(any::<u8>(), 64)) {
        let bytes: Vec<u8> = seed.iter().copied().cycle().take(format.size as usize).collect();
        let shown = decode(&format, &bytes);
        let again = encode(&format, &shown).expect("a decoded event encodes");
        prop_assert_eq!(again.len(), bytes.len());
        prop_assert_eq!(decode(&format, &again), shown.clone(), "except for padding");
        // And as text.
        let text = serde_json::to_string(&shown).unwrap();
        let parsed = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(encode(&format, &parsed), Ok(again));
    }

    #[test]
    fn formats_survive_conversion_to_json_and_back(format in format()) {
        let text = serde_json::to_string(&format).unwrap();
        prop_assert_eq!(serde_json::from_str::<Format>(&text).unwrap(), format);
    }

    /// A format is a body of the local API, so every input must be answered.
    #[test]
    fn a_random_format_is_valid_or_refused(
        mut format in format(),
        (size, align, offset) in any::<(u32, u32, u32)>(),
        dims in prop::collection::vec(any::<u32>(), 0..4),
        which in any::<u8>(),
    ) {
        let last = format.fields.len() - 1;
        match which % 4 {
            0 => format.size = size,
            1 => format.align = align,
            2 => format.fields[last].offset = offset,
            _ => format.fields[last].dims = dims,
        }
        match format.validate() {
            Ok(()) => prop_assert!(encode(&format, &decode(&format, &vec![1; format.size as usize])).is_ok()),
            Err(error) => prop_assert!(error.to_string().starts_with("the format `event` has")),
        }
    }
}
