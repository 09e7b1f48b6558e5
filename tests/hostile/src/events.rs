//! Properties of formats and of events in these formats.

use std::sync::LazyLock;

use qfabric_ecode::{format_text, parse_formats};
use qfabric_types::event_json;
use qfabric_types::format::Format;

use crate::Script;

/// Any text is parsed into valid formats, which can be written as C and parsed again with the same result, or is
/// refused with errors that can be printed. The text ends with a zero byte; the rest of the input is an event of
/// the formats. JSON that describes a format is either a valid format or refused.
pub fn format(bytes: &[u8]) {
    let mut script = Script(bytes);
    let Some(text) = script.text() else { return };
    match parse_formats(text) {
        Ok(formats) => formats.iter().for_each(|format| {
            format.validate().expect("a parsed format is valid");
            assert_printable(format, script.0);
        }),
        Err(errors) => assert!(!errors.render("fuzz.h", text, false).is_empty()),
    }
    if let Ok(format) = serde_json::from_str::<Format>(text)
        && format.validate().is_ok()
    {
        assert_printable(&format, script.0);
    }
}

/// A valid format can be printed, and so can any bytes as its event.
fn assert_printable(format: &Format, event: &[u8]) {
    if !format.fields.is_empty() {
        let text = format_text(format);
        let again = parse_formats(&text).unwrap_or_else(|errors| panic!("{text}{}", errors.render("", &text, false)));
        assert_eq!(again.last().and_then(|again| format.first_difference(again)), None, "{text}");
    }
    let shown = event_json::decode(format, event);
    let bytes = event_json::encode(format, &shown).expect("printed JSON can be encoded");
    assert_eq!(event_json::decode(format, &bytes), shown);
}

static FORMAT: LazyLock<Format> = LazyLock::new(|| {
    let text = "struct inner { short a; unsigned char b[3]; char c[2][2]; };
        struct event { long x; struct inner in[2]; unsigned long u; int list[4]; unsigned short h; };";
    parse_formats(text).expect("the text is valid").pop().expect("there are two formats")
});

/// An event as JSON or as bytes. Accepted JSON gives the same values when it is decoded again; missing fields are
/// zero.
pub fn event(bytes: &[u8]) {
    let shown = event_json::decode(&FORMAT, bytes);
    let encoded = event_json::encode(&FORMAT, &shown).expect("printed JSON can be encoded");
    assert_eq!(event_json::decode(&FORMAT, &encoded), shown);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(data) = event_json::from_hex(text) {
        assert_eq!(event_json::to_hex(&data), text.to_lowercase());
    }
    let Ok(fields) = serde_json::from_str(text) else { return };
    match event_json::encode(&FORMAT, &fields) {
        Ok(encoded) => {
            let shown = event_json::decode(&FORMAT, &encoded);
            assert_eq!(event_json::encode(&FORMAT, &shown), Ok(encoded));
        }
        Err(why) => assert!(!why.is_empty()),
    }
}
