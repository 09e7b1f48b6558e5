//! Functions of a program: calls, parameters, results.

use super::*;

#[test]
fn functions_may_be_called_before_their_definition() {
    assert_eq!(verdict("long a(long x) { return b(x) + 1; } long b(long x) { return x * 2; } return a(20);"), 41);
}

#[test]
fn arguments_and_results_are_converted() {
    assert_eq!(verdict("char low(int x) { return x; } return low(0x1ff);"), -1);
    assert_eq!(verdict("long f(unsigned char x) { return x; } return f(-1);"), 255);
}

#[test]
fn parameters_are_variables_of_the_function() {
    assert_eq!(verdict("int f(int x) { x += 5; return x; } int x = 1; int y = f(x); return x * 10 + y;"), 16);
}

#[test]
fn main_is_the_entry_if_it_exists() {
    let text = "int main(int a, struct_) { return a + twice(b); } int twice(int x) { return x * 2; }";
    let program = program(&text.replace("struct_", "short b"));
    assert_eq!(program.input.size, 8);
    let mut engine = Interpreter::new(&program, Limits::default());
    let mut event = ints(&[3]);
    event.extend([5, 0, 0, 0]);
    assert_eq!(engine.call(&event, &CallContext::default(), &mut |_| ()), Ok(13));
}

#[test]
fn parameters_of_the_entry_are_found_by_name_in_the_input() {
    let input = qfabric_ecode::parse_formats("struct sample { long when; int rate; };").unwrap().remove(0);
    let env = Environment { input: Some(input), ..Environment::default() };
    let program = compile("int utility(int rate) { rate *= 4; return rate; }", &env).unwrap();
    let mut engine = Interpreter::new(&program, Limits::default());
    let event: Vec<u8> = [0i64.to_le_bytes(), 20i64.to_le_bytes()].concat();
    assert_eq!(engine.call(&event, &CallContext::default(), &mut |_| ()), Ok(80));
}

#[test]
fn a_void_function_is_called_for_its_effects() {
    assert_eq!(
        verdict(
            "void count(int by) { attr.n += by; if (by > 1) return; attr.n += 100; } count(1); count(2);
            return attr.n;"
        ),
        103
    );
}

#[test]
fn functions_of_the_text_take_precedence_over_built_in_ones() {
    assert_eq!(verdict("int max(int a, int b) { return 7; } return max(1, 2);"), 7);
}

#[test]
fn uncalled_functions_are_checked_and_omitted() {
    let unused = program("int f(int x) { return x; } int g(int x) { return x; } return g(1);");
    assert_eq!(unused.functions.len(), 2);
    assert!(compile("int f(int x) { return y; } return 1;", &Environment::default()).is_err());
}
