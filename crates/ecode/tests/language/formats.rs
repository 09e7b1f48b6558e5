//! Formats of events: layout, fields, text.

use super::*;
use qfabric_ecode::{format_text, parse_formats};

#[test]
fn structures_have_the_layout_of_gcc() {
    let format = parse_formats("struct e { char a; long b; short c[3]; struct { char d; int e; } f[2]; };").unwrap();
    let offsets: Vec<u32> = format[0].fields.iter().map(|field| field.offset).collect();
    assert_eq!((offsets, format[0].size, format[0].align), (vec![0, 8, 16, 24], 40, 8));
}

#[test]
fn a_parsed_format_is_printed_unchanged() {
    let text = "struct event {\n    unsigned char kind;\n    unsigned long when[2][3];\n    struct {\n        int x;\n    \
                    } at[4];\n};\n";
    assert_eq!(format_text(&parse_formats(text).unwrap()[0]), text);
}

#[test]
fn service_names_become_valid_structure_names() {
    let mut format = parse_formats("struct event { int a; };").unwrap().remove(0);
    format.name = "0.sched;} x".to_owned();
    assert!(format_text(&format).starts_with("struct _0_sched___x {"));
}

#[test]
fn members_may_have_the_names_of_built_ins() {
    let text = "struct input { int input; int output; int attr; int now; int kind; }; output = input;
            return input.input + output.now;";
    let mut engine = Interpreter::new(&program(text), Limits::default());
    assert_eq!(engine.call(&ints(&[1, 2, 3, 4, 5]), &CallContext::default(), &mut |_| ()), Ok(5));
    assert_eq!(engine.output(), ints(&[1, 2, 3, 4, 5]));
}

#[test]
fn without_an_output_format_the_output_has_the_format_of_the_input() {
    let program = program("struct input { int a; }; output.a = input.a * 2;");
    assert_eq!(program.output.as_ref().map(|output| output.size), Some(4));
    assert!(super::program("struct input { int a; }; return input.a;").output.is_none(), "the input is passed on");
}

#[test]
fn a_text_may_declare_a_part_of_the_given_format() {
    let given = parse_formats("struct packet { int len; int port; long when; };").unwrap().remove(0);
    let env = Environment { input: Some(given.clone()), ..Environment::default() };
    let program = compile("struct input { int len; int port; }; return input.when;", &env).unwrap();
    assert_eq!(program.input, given);
}

#[test]
fn an_invalid_format_is_refused_before_it_is_used() {
    let mut given = parse_formats("struct packet { int len; int port; };").unwrap().remove(0);
    given.fields[1].offset = 6;
    let env = Environment { input: Some(given), ..Environment::default() };
    let errors = compile("return 1;", &env).unwrap_err();
    let said = "the format of the input is invalid: the format `packet` has `port` at 6 to 10: the member before \
                    ends at 4, the structure at 8, and port is aligned to 4";
    assert_eq!(errors.iter().next().unwrap().message(), said);
}
