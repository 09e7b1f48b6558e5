//! Variables: their values, lifetimes and scopes.

use super::*;

#[test]
fn locals_are_zero_at_each_declaration() {
    assert_eq!(verdict("int sum = 0; for (int i = 0; i < 3; i++) { int a; a += i; sum += a; } return sum;"), 3);
}

#[test]
fn statics_persist_from_call_to_call() {
    let mut engine = engine("static int calls = 10; calls++; return calls;");
    let verdicts: Vec<_> = (0..3).map(|_| engine.call(&[], &CallContext::default(), &mut |_| ()).unwrap()).collect();
    assert_eq!(verdicts, [11, 12, 13]);
}

#[test]
fn a_static_in_a_function_is_private_to_it() {
    let text = "int next(int by) { static int n = 5; n += by; return n; } return next(1) * 100 + next(2);";
    assert_eq!(verdict(text), 608);
}

#[test]
fn inner_names_hide_outer_ones() {
    assert_eq!(verdict("int a = 1; { int a = 2; { int a = 3; } a = 4; } return a;"), 1);
    assert_eq!(verdict("int input = 3; return input;"), 3);
}

#[test]
fn lists_initialise_arrays_and_structures_and_leave_the_rest_zero() {
    let text = "struct point { int x; int y[3]; };
            struct point p = {1, {2, 3}};
            static const short table[] = {5, 6, 7};
            int i = 2;
            return p.x + 10 * p.y[0] + 100 * p.y[1] + 1000 * p.y[2] + 10000 * table[i] + 100000 * sizeof(table);";
    assert_eq!(verdict(text), 670_321);
}

#[test]
fn whole_structures_and_arrays_are_copied() {
    let text = "struct point { int x; int y; };
            struct line { struct point from, to; } a = {{1, 2}, {3, 4}}, b = a;
            b.from = b.to;
            struct point both[2];
            both[0] = a.from;
            both[1] = b.from;
            return both[0].x * 1000 + both[0].y * 100 + both[1].x * 10 + both[1].y;";
    assert_eq!(verdict(text), 1234);
}

#[test]
fn constants_come_from_define_enum_and_const() {
    let text = "#define WIDTH 4
            #define AREA (WIDTH * HEIGHT_)
            enum { RED, GREEN = 5, BLUE };
            const int half = WIDTH / 2;
            int table[WIDTH * half];
            return sizeof(table) + BLUE;";
    let text = text.replace("HEIGHT_", "3");
    assert_eq!(verdict(&text), 38);
}

#[test]
fn a_constant_of_the_environment_may_be_repeated_but_not_changed() {
    let env = Environment { constants: [("N".to_owned(), 4)].into(), ..Environment::default() };
    assert!(compile("#define N 4\nint a[N];", &env).is_ok());
    assert!(compile("int a[N]; a[3] = 1;", &env).is_ok());
    assert!(compile("#define N 5\nint a[N];", &env).is_err());
}

#[test]
fn a_const_table_at_a_constant_index_is_a_constant() {
    let program = program("static const int table[3] = {4, 5, 6}; int a[table[1] - 4]; return a[0];");
    assert_eq!(program.functions[0].frame, 8, "one int");
}

#[test]
fn an_index_is_evaluated_once() {
    let text = "int a[4] = {1, 2, 3, 4}; int i = 0; a[i++] += 10; a[i++]++; return a[0] * 100 + a[1] * 10 + i;";
    assert_eq!(verdict(text), 1132);
}

#[test]
fn an_index_out_of_range_is_a_fault() {
    let fault = |line| Err(Fault { kind: FaultKind::Index, line });
    assert_eq!(run("int a[4]; int i = 4;\nreturn a[i];"), fault(2));
    assert_eq!(run("int a[4]; int i = -1;\na[i] = 3;"), fault(2));
    assert_eq!(run("int a[4][2]; unsigned long i = 18446744073709551615ul;\n\nreturn a[1][i];"), fault(3));
}
