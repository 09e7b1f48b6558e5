//! Formats, and events in them.

use std::sync::LazyLock;

use qfabric_ecode::{format_text, parse_formats};
use qfabric_types::event_json;
use qfabric_types::format::Format;

use crate::Script;

/// Any text is answered by formats that can be, written as C and read back the same; or by errors that can be shown. The
/// text ends with a zero, an event of the formats follows. JSON that says it is a format is one that can be, or refused.
pub fn format(bytes: &[u8]) {
    let mut script = Script(bytes);
    let Some(text) = script.text() else { return };
    match parse_formats(text) {
        Ok(formats) => formats.iter().for_each(|format| {
            format.validate().expect("what is parsed can be");
            readable(format, script.0);
        }),
        Err(errors) => assert!(!errors.render("fuzz.h", text, false).is_empty()),
    }
    if let Ok(format) = serde_json::from_str::<Format>(text)
        && format.validate().is_ok()
    {
        readable(&format, script.0);
    }
}

/// Whoever has a valid format can show it, and any bytes as its event.
fn readable(format: &Format, event: &[u8]) {
    if !format.fields.is_empty() {
        let text = format_text(format);
        let again = parse_formats(&text).unwrap_or_else(|errors| panic!("{text}{}", errors.render("", &text, false)));
        assert_eq!(again.last().and_then(|again| format.first_difference(again)), None, "{text}");
    }
    let shown = event_json::decode(format, event);
    let bytes = event_json::encode(format, &shown).expect("what is shown fits");
    assert_eq!(event_json::decode(format, &bytes), shown);
}

static FORMAT: LazyLock<Format> = LazyLock::new(|| {
    let text = "struct inner { short a; unsigned char b[3]; char c[2][2]; };
        struct event { long x; struct inner in[2]; unsigned long u; int list[4]; unsigned short h; };";
    parse_formats(text).expect("it compiles").pop().expect("the last one")
});

/// An event as JSON, or as bytes: what is accepted is shown as it was given, what is left out is zero.
pub fn event(bytes: &[u8]) {
    let shown = event_json::decode(&FORMAT, bytes);
    let encoded = event_json::encode(&FORMAT, &shown).expect("what is shown fits");
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
