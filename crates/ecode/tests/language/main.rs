//! The meaning of programs, tested with the reference engine.

mod arithmetic;
mod floats;
mod formats;
mod functions;
mod statements;
mod thesis_programs;
mod variables;

use qfabric_ecode::{CallContext, Engine, Environment, Fault, FaultKind, Interpreter, Limits, Program, compile};
use qfabric_types::format::{Field, Format, Kind, Scalar};

fn program(text: &str) -> Program {
    compile(text, &Environment::default()).unwrap_or_else(|errors| panic!("{}", errors.render("test.ec", text, false)))
}

fn engine(text: &str) -> Interpreter {
    Interpreter::new(&program(text), Limits::default())
}

/// One call without input.
fn run(text: &str) -> Result<i64, Fault> {
    engine(text).call(&[], &CallContext::default(), &mut |_| ())
}

fn verdict(text: &str) -> i64 {
    run(text).unwrap_or_else(|fault| panic!("{fault:?} in {text}"))
}

/// An event that consists of `int`s.
fn ints(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

mod built_in {
    use super::*;

    #[test]
    fn min_max_clamp_and_abs_return_the_values_of_c_arithmetic() {
        assert_eq!(verdict("int a = 3; long b = -4; return min(a, b) * 10 + max(a, b);"), -37);
        assert_eq!(
            verdict("int x = 15; return clamp(x, 0, 10) + clamp(-x, -3, 3) * 100 + clamp(5, 0, 10) * 1000;"),
            4710
        );
        assert_eq!(verdict("int x = -3; return abs(x) + abs(7);"), 10);
        assert_eq!(verdict("unsigned int a = 1; return min(a, -1);"), 1, "compared as in C");
    }

    #[test]
    fn arguments_of_built_in_functions_are_evaluated_once_and_in_order() {
        assert_eq!(verdict("int i = 1; int m = max(i++, i++); return m * 10 + i;"), 23);
        assert_eq!(verdict("int i = 5; int m = min(i, i = 3); return m * 10 + i;"), 33);
    }

    #[test]
    fn fixed_point_has_sixteen_fractional_bits() {
        assert_eq!(verdict("return fx_from(3);"), 3 << 16);
        assert_eq!(verdict("return fx_to_int(fx_mul(fx_from(3), 98304));"), 4, "3 * 1.5");
        assert_eq!(verdict("return fx_div(fx_from(1), fx_from(4));"), 1 << 14);
        assert_eq!(verdict("int a = -98304; return fx_to_int(a);"), -2, "rounded towards minus infinity");
        assert_eq!(verdict("long a = 3000000000; return mul_div(a, 3, 4);"), 2_250_000_000);
        assert_eq!(run("int a = 0;\nreturn mul_div(3, 3, a);"), Err(Fault { kind: FaultKind::Division, line: 2 }));
    }

    #[test]
    fn the_host_supplies_time_process_and_cpu() {
        let mut engine = engine("attr.t = now(); return pid() * 10 + cpu();");
        let context = CallContext { now: 77, pid: 4, cpu: 2 };
        assert_eq!(engine.call(&[], &context, &mut |_| ()), Ok(42));
        assert_eq!(engine.attributes(), [77]);
    }

    #[test]
    fn emit_delivers_the_current_output() {
        let text = "struct output { short n; }; for (int i = 1; i < 4; i++) { output.n = i; emit(); } return 0;";
        let mut sent = Vec::new();
        let verdict = engine(text).call(&[], &CallContext::default(), &mut |event| sent.push(event.to_vec()));
        assert_eq!(verdict, Ok(0));
        assert_eq!(sent, [[1, 0], [2, 0], [3, 0]]);
    }
}

mod attributes {
    use super::*;

    #[test]
    fn attributes_are_long_words_shared_by_name() {
        let env = Environment { attributes: vec!["rate".to_owned(), "depth".to_owned()], ..Environment::default() };
        let program =
            compile("attr.depth = 3; attr.mine = get_attribute(rate); set_attribute(rate, 9);", &env).unwrap();
        assert_eq!(program.attributes, ["rate", "depth", "mine"]);
        assert!(program.writes_shared);
        let mut engine = Interpreter::new(&program, Limits::default());
        engine.attributes()[0] = -5;
        engine.call(&[], &CallContext::default(), &mut |_| ()).unwrap();
        assert_eq!(engine.attributes(), [9, 3, -5]);
    }

    #[test]
    fn attribute_sums_are_atomic_and_yield_the_values_of_c() {
        assert_eq!(verdict("attr.x += 5; attr.x -= 2; attr.x++; --attr.x; return attr.x;"), 3);
        assert_eq!(
            verdict("long a = attr.x++; long b = ++attr.x; long c = attr.x--; return a * 100 + b * 10 + c;"),
            22
        );
        assert_eq!(verdict("attr.x = 6; attr.x *= 7; attr.x %= 10; attr.x <<= 2; return attr.x;"), 8);
        let program = program("attr.x += 1;");
        let added = format!("{:?}", program.functions[0].body);
        assert!(added.contains("AddAttr"), "{added}");
    }

    #[test]
    fn a_program_that_only_reads_does_not_write_shared_state() {
        assert!(!program("static int n = 3; return n + attr.x;").writes_shared);
        assert!(program("static int n = 3; n = 4;").writes_shared);
    }
}

mod the_entry {
    use super::*;

    #[test]
    fn a_missing_entry_function_is_refused() {
        let env = Environment { entry: Some("utilty".to_owned()), ..Environment::default() };
        let errors = compile("int utility(int rate) { return rate; }", &env).unwrap_err();
        let error = errors.iter().next().unwrap();
        assert_eq!(error.message(), "the entry function `utilty` does not exist");
        assert_eq!(error.remedy(), Some("did you mean `utility`?"));
    }

    #[test]
    fn an_error_in_an_empty_text_can_be_shown() {
        let env = Environment { entry: Some("main".to_owned()), ..Environment::default() };
        let errors = compile("", &env).unwrap_err();
        assert!(errors.render("f.ec", "", false).contains("the text defines no functions: name no entry function"));
    }

    #[test]
    fn statements_outside_the_entry_function_are_refused() {
        let env = Environment { entry: Some("f".to_owned()), ..Environment::default() };
        let errors = compile("int f(int x) { return x; } attr.x = 1;", &env).unwrap_err();
        let said = "statements outside functions, although the entry function is `f`";
        assert_eq!(errors.iter().next().unwrap().message(), said);
    }
}

#[test]
fn a_program_lists_the_constants_and_members_that_its_text_uses() {
    let text = "
        struct input { int load; int other; };
        struct output { int level; int rate; };
        /* output.rate = LIMIT; */
        if (input.load > MOST) output.level = 1; // output.rate
        return 1;";
    let constants = [("MOST".to_owned(), 7), ("LIMIT".to_owned(), 9)].into_iter().collect();
    let env = qfabric_ecode::Environment { constants, ..Default::default() };
    let uses = qfabric_ecode::compile(text, &env).unwrap().uses;
    let names = |set: &std::collections::BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!([&uses.constants, &uses.inputs, &uses.outputs].map(names), ["MOST", "load", "level"]);
    let whole = program("struct input { int a; int b; }; struct output { int a; int b; }; output = input; return 1;");
    assert_eq!([&whole.uses.inputs, &whole.uses.outputs].map(names), ["a b", "a b"]);
}

mod declarations {
    use super::*;

    #[test]
    fn an_enumeration_in_a_condition_is_not_visible_after_its_statement() {
        assert_eq!(verdict("if (sizeof(enum { A = 1 }) == 4) { } enum { A = 2 }; return A;"), 2);
        assert_eq!(verdict("switch (sizeof(enum { A = 1 })) { case 4: break; } enum { A = 2 }; return A;"), 2);
        assert_eq!(verdict("enum { A = 5 }; if (sizeof(enum { A = 1 }) == 4) { } return A;"), 5);
        assert_eq!(verdict("int r; if (sizeof(enum { A = 7 }) == 4) r = A; else r = -A; return r;"), 7);
        let leaked = compile("if (sizeof(enum { A = 1 })) { } return A;", &Environment::default());
        assert!(leaked.unwrap_err().to_string().contains("`A` is not defined here"));
    }

    #[test]
    fn a_structure_can_be_announced_before_its_definition() {
        assert_eq!(verdict("struct point; struct point { int x; }; struct point p = {3}; return p.x;"), 3);
        assert_eq!(verdict("struct point { int x; }; { struct point; } return sizeof(struct point);"), 4);
        assert!(compile("struct point; struct point p; return 1;", &Environment::default()).is_err());
    }

    #[test]
    fn braces_around_inner_values_may_be_omitted() {
        let point = "struct point { int x; int y[2]; struct { int a, b; } in; };";
        let sum = "return p.x + 10 * p.y[0] + 100 * p.y[1] + 1000 * p.in.a + 10000 * p.in.b;";
        for kind in ["", "static "] {
            for list in ["{1, 2, 3, 4, 5}", "{1, {2, 3}, 4, 5}", "{1, 2, 3, {4, 5}}", "{1, {2, 3}, {4, 5},}"] {
                assert_eq!(verdict(&format!("{point} {kind}struct point p = {list}; {sum}")), 54_321, "{list}");
            }
            assert_eq!(verdict(&format!("{point} {kind}struct point p = {{1, {{2}}, 4}}; {sum}")), 4_021);
            let rows = format!("{kind}int t[][2] = {{1, 2, 3, {{4}}, 5}};");
            assert_eq!(verdict(&format!("{rows} return sizeof t;")), 24, "1 2, 3 0 would be C's reading of {{4}}");
        }
    }
}

mod typedefs {
    use super::*;

    #[test]
    fn a_typedef_names_any_type() {
        let text = "typedef unsigned char byte, *_; ";
        assert!(compile(text, &Environment::default()).is_err(), "pointers stay refused");
        assert_eq!(verdict("typedef unsigned char byte; byte b = 300; return b + (byte)257 + sizeof(byte);"), 46);
        assert_eq!(verdict("typedef struct { int x, y; } point; point p = {3, 4}; return p.x * 10 + p.y;"), 34);
        let text = "typedef struct node { int v; } node; struct node a = {5}; node b = a; return b.v;";
        assert_eq!(verdict(text), 5);
        assert_eq!(verdict("typedef int row[4]; row table[3]; return sizeof(row) * 100 + sizeof table;"), 1648);
        assert_eq!(verdict("typedef enum { RED, GREEN } colour; colour c = GREEN; return c;"), 1);
        assert_eq!(verdict("typedef long number; typedef number other; other n = -1; return n;"), -1);
    }

    #[test]
    fn a_typedef_is_visible_in_functions_and_their_heads() {
        let text = "typedef long number; number twice(number x) { number y = x; return y * 2; } return twice(21);";
        assert_eq!(verdict(text), 42);
        assert_eq!(verdict("int f(void) { typedef char small; return (small)300; } return f();"), 44);
    }

    #[test]
    fn a_variable_hides_a_typedef_in_its_block() {
        assert_eq!(
            verdict("typedef int t; { int t = 3; t = (t) + 4; if (t != 7) return 0; } t x = (t)2; return x;"),
            2
        );
        assert_eq!(verdict("typedef int t; int f(int t) { return (t) - 1; } return f(5);"), 4);
        assert_eq!(verdict("typedef int t; struct s { int t; } a = {6}; return a.t;"), 6);
    }
}

mod records {
    use super::*;

    const POINT: &str = "typedef struct point { int x; char c[3]; long y; } point;";

    #[track_caller]
    fn gives(text: &str, expected: i64) {
        assert_eq!(verdict(&format!("{POINT} {text}")), expected, "{text}");
    }

    #[test]
    fn functions_take_and_return_structures() {
        gives("point make(int x, long y) { point p = {x, {1, 2, 3}, y}; return p; } return make(3, 4).y;", 4);
        gives("long sum(point p) { p.x += 1; return p.x + p.y; } point p = {1, {0}, 5}; return sum(p) * 10 + p.x;", 71);
        let text = "point move(point p, int by) { p.x += by; return p; } long f(point p) { return p.x; }
            point p = {1}; return f(move(move(p, 2), 3)) * 10 + p.x;";
        gives(text, 61);
        gives("point zero(int x) { if (x) { point p = {7}; return p; } } return zero(1).x * 10 + zero(0).x;", 70);
    }

    #[test]
    fn arguments_are_evaluated_from_left_to_right() {
        let text = "static point p; int change(int x) { p.x = x; return x; }
            long f(point a, int b, point c) { return a.x * 100 + b * 10 + c.x; }
            p.x = 1; return f(p, change(5), p);";
        gives(text, 155);
        let text = "point next(point p) { p.x++; return p; } long f(point a, point b) { return a.x * 10 + b.x; }
            point p = {1}; return f(next(p), next(next(p)));";
        gives(text, 23);
        let text =
            "int one(point p) { return p.x; } long f(point a, int b, point c) { return a.x * 100 + b * 10 + c.x; }
            point a = {1}, b = {2}, c = {3}; return f(a, one(b) + f(c, 0, a), c);";
        gives(text, 3133);
    }

    #[test]
    fn structures_are_values_in_expressions() {
        gives("point a = {1}, b = {2}, c; int i = 0; c = (i++, b); return c.x * 10 + i;", 21);
        gives("point a = {1}, b = {2}, c; c = a = b; return c.x * 10 + a.x;", 22);
        gives("point a = {1}, b = {2}; int n = 5; return (n > 3 ? a : b).x * 10 + (n > 7 ? a : b).x;", 12);
        gives("point a = {1}, b = {2}; return (a = b, a).x * 10 + (a.x = 7, b = a).x;", 27);
        gives("point t[3]; point a = {4}; int i = 0; t[i++] = t[i++] = a; return i * 100 + t[0].x * 10 + t[1].x;", 244);
        gives("point a = {4, {5, 6, 7}}; int i = 1; return (i, a).c[i];", 6);
    }

    #[test]
    fn a_part_of_a_result_is_not_a_variable() {
        let text = format!("{POINT} point f(int x) {{ point p; return p; }} f(1).x = 3;");
        let said = compile(&text, &Environment::default()).unwrap_err().to_string();
        assert!(said.contains("a value is assigned to a part of a result"), "{said}");
    }
}

mod strings {
    use super::*;

    #[test]
    fn a_string_initialises_an_array_of_characters() {
        assert_eq!(verdict("char a[] = \"abc\"; return sizeof a * 1000 + a[0] + a[3];"), 4097);
        assert_eq!(verdict("static const char a[6] = \"a\\n\" \"\\x41\"; return a[1] * 100 + a[2] + a[5];"), 1065);
        assert_eq!(verdict("char a[3] = \"abc\"; return a[2];"), 99, "without the zero at its end, as in C");
        assert_eq!(verdict("struct { int n; char name[8]; } t[] = {{1, \"x\"}, 2, \"yz\"}; return t[1].name[1];"), 122);
        assert_eq!(verdict("char a[8] = {\"abc\"}; return a[2] + a[7];"), 99);
    }

    #[test]
    fn strings_are_compared_and_measured_within_their_arrays() {
        let texts = ["", "a", "ab", "abc", "abe", "b", "abcdefg"];
        for a in texts {
            for b in texts {
                let text = format!("char a[7] = \"{a}\"; char b[9] = \"{b}\"; return strcmp(a, b);");
                assert_eq!(verdict(&text).signum(), a.cmp(b) as i64, "{a} {b}");
                let text = format!("char a[7] = \"{a}\"; return strncmp(a, \"{b}\", 2);");
                let head = |text: &str| text[..text.len().min(2)].to_owned();
                assert_eq!(verdict(&text).signum(), head(a).cmp(&head(b)) as i64, "{a} {b}");
            }
            assert_eq!(verdict(&format!("char a[7] = \"{a}\"; return strlen(a);")), a.len() as i64);
        }
        assert_eq!(verdict("return strlen(\"abc\") * 10 + strcmp(\"x\", \"x\");"), 30);
        assert_eq!(verdict("unsigned char a[2] = {200}; char b[2] = {100}; return strcmp(a, b);"), 100);
    }

    #[test]
    fn a_copy_is_cut_at_the_end_of_its_array() {
        let text = "char a[4] = \"....\"; strcpy(a, \"tomato\"); return strcmp(a, \"tom\") == 0 && a[3] == 0;";
        assert_eq!(verdict(text), 1);
        let text = "char a[8] = \".......\"; strcpy(a, \"hi\"); return strlen(a) * 100 + (a[4] == '.');";
        assert_eq!(verdict(text), 201);
        let text = "struct { char n[4]; } t[2] = {{\"ab\"}}; int i = 0; strcpy(t[i + 1].n, t[i++].n);
            return i * 10 + strlen(t[1].n);";
        assert_eq!(verdict(text), 12);
    }
}

mod random_numbers {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_posix() {
        let text = "srand48(42); long a = lrand48(), b = mrand48(); return a * 4 + (b & 3);";
        // x = (0x5deece66d x + 11) mod 2^48, from 42 * 65536 + 0x330e.
        let next = |x: u64| (x.wrapping_mul(0x5_deec_e66d) + 11) & ((1 << 48) - 1);
        let first = next((42 << 16) + 0x330e);
        let second = next(first);
        assert_eq!(verdict(text), (first >> 17) as i64 * 4 + ((second >> 16) & 3) as i64);
        assert_eq!(first >> 17, 1_598_855_263, "glibc's first number after srand48(42)");
    }

    #[test]
    fn each_handler_continues_its_own_sequence() {
        let mut first = engine("return lrand48();");
        let mut second = engine("return lrand48();");
        let call = |engine: &mut Interpreter| engine.call(&[], &CallContext::default(), &mut |_| ()).unwrap();
        let numbers: Vec<i64> = (0..50).map(|_| call(&mut first)).collect();
        assert_eq!(numbers, (0..50).map(|_| call(&mut second)).collect::<Vec<_>>());
        assert!(numbers.iter().all(|number| (0..1 << 31).contains(number)));
        assert!(numbers.windows(2).all(|pair| pair[0] != pair[1]), "{numbers:?}");
    }
}

mod lengths {
    use super::*;

    const INPUT: &str = "struct input { int n; int value[n <= 3]; };";

    fn answer(body: &str, event: &[i32]) -> Result<i64, Fault> {
        let program = program(&format!("{INPUT} {body}"));
        Interpreter::new(&program, Limits::default()).call(&ints(event), &CallContext::default(), &mut |_| ())
    }

    #[test]
    fn the_length_of_an_array_can_be_a_member_before_it() {
        let sum = "long sum; for (int i = 0; i < input.n; i++) sum += input.value[i]; return sum;";
        assert_eq!(answer(sum, &[2, 10, 20, 30]), Ok(30));
        assert_eq!(answer(sum, &[0, 10, 20, 30]), Ok(0));
        assert_eq!(answer(sum, &[3, 10, 20, 30]), Ok(60));
        let fault = Err(Fault { kind: FaultKind::Index, line: 1 });
        assert_eq!(answer(sum, &[4, 10, 20, 30]), fault, "beyond the largest length");
        assert_eq!(answer("return input.value[1];", &[2, 10, 20, 30]), Ok(20));
        assert_eq!(answer("return input.value[1];", &[1, 10, 20, 30]), fault, "beyond the present length");
        assert_eq!(answer("return input.value[0];", &[-1, 10, 20, 30]), fault);
        assert_eq!(answer("return sizeof input;", &[0; 4]), Ok(16), "always the largest length");
        let text = "struct s { unsigned char n; int v[n <= 2 * 2][2]; } a[2]; a[1].n = 3; int i = 1;
            a[i].v[2][1] = 5; return a[i].v[i + 1][i];";
        assert_eq!(verdict(text), 5);
    }
}

mod warnings {
    use super::*;
    use qfabric_ecode::compile_with_warnings;

    /// The warnings of a text: line, column and message.
    fn warnings(text: &str) -> Vec<(u32, u32, String)> {
        let (_, warnings) = compile_with_warnings(text, &Environment::default()).expect("the text compiles");
        warnings.iter().map(|warning| (warning.line(), warning.column(), warning.message().to_owned())).collect()
    }

    #[test]
    fn the_places_where_c_compilers_warn_are_reported() {
        for (text, column, message) in [
            ("int a, b; if (a = b) return 1;", 17, "this condition is an assignment"),
            ("int a, b = 1; while (a = b) b--;", 24, "this condition is an assignment"),
            ("int a; if (a); return 1;", 14, "this `if` does nothing"),
            ("int a; a + 1;", 8, "this statement has no effect"),
            ("int a; return 1 < a < 3;", 21, "this compares the result of a comparison, 0 or 1"),
            ("int a; return a & 1 == 0;", 17, "the comparison binds tighter than this operator"),
            ("int a; return a == 1 || a > 2 && a < 9;", 22, "`&&` binds tighter than `||`"),
            ("int a; return 1 << a + 2;", 17, "`+` and `-` bind tighter than a shift"),
            ("int a; return !a == 3;", 15, "`!` binds tighter than the comparison"),
            ("unsigned a; return a < 0;", 22, "this comparison never holds"),
            ("unsigned a; return 0 <= a;", 22, "this comparison always holds"),
        ] {
            assert_eq!(warnings(text), [(1, column, message.to_owned())], "{text}");
        }
    }

    #[test]
    fn a_negative_verdict_is_reported_because_it_passes_the_event() {
        let message = "a negative verdict passes the event, because only 0 drops it".to_owned();
        assert_eq!(warnings("return -1;"), [(1, 8, message.clone())]);
        assert_eq!(warnings("int a; if (a) return -2; return 1;"), [(1, 22, message)]);
        for text in ["return (-1);", "return 0;", "int f(int x) { return -1; } return f(1);", "int a; return -a;"] {
            assert_eq!(warnings(text), [], "{text}");
        }
        assert_eq!(warnings("int utility(int rate) { return -1; }"), [], "a result that is not a verdict");
    }

    #[test]
    fn parentheses_say_that_the_author_means_it() {
        for text in [
            "int a, b; if ((a = b)) return 1;",
            "int a; if ((a & 1) == 0 || (a > 2 && a < 9)) return 1;",
            "int a, b; (void)a; a && b++; if (a) { } return (a < b) < 3;",
            "int a, b; return (1 << (a + 2)) + ((!a) == b) + (!a == !b) + (a < 0);",
        ] {
            assert_eq!(warnings(text), [], "{text}");
        }
    }

    #[test]
    fn warnings_are_rendered_like_errors() {
        let text = "int a, b;\nif (a = b) return 1;\n";
        let (_, warnings) = compile_with_warnings(text, &Environment::default()).unwrap();
        let shown = warnings.render("f.ec", text, false);
        assert!(shown.starts_with("warning: this condition is an assignment\n --> f.ec:2:7"), "{shown}");
        assert!(compile_with_warnings("return 1;", &Environment::default()).unwrap().1.is_empty());
    }
}
