//! The meaning of programs, tested with the reference engine.

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

mod thesis_programs {
    use super::*;

    /// Thesis §3.2.4 as printed.
    const HANDLER: &str = "{
    int i;
    int j;
    for (i = 0; i < NUM_RESOURCES; i++) {
        for (j = 0; j < input.resource[i].num_attributes; j++) {
            if (input.resource[i].attribute[j] > input.resource[i].threshold[j])
                output.resource[i].exceeded[j] = 1;
            else
                output.resource[i].exceeded[j] = 0;
        }
    }
}";

    fn environment() -> Environment {
        let field =
            |name: &str, offset, dims| Field { name: name.to_owned(), offset, kind: Kind::Scalar(Scalar::I32), dims };
        let of = |name: &str, element: Format| {
            let size = 2 * element.size;
            let field = Field { name: "resource".to_owned(), offset: 0, kind: Kind::Struct(element), dims: vec![2] };
            Some(Format { name: name.to_owned(), size, align: 4, fields: vec![field] })
        };
        let fields =
            vec![field("num_attributes", 0, vec![]), field("attribute", 4, vec![3]), field("threshold", 16, vec![3])];
        let input = of("monitor", Format { name: "resource".to_owned(), size: 28, align: 4, fields });
        let fields = vec![field("exceeded", 0, vec![3])];
        let output = of("alarm", Format { name: "resource".to_owned(), size: 12, align: 4, fields });
        let constants = [("NUM_RESOURCES".to_owned(), 2)].into();
        Environment { input, output, constants, ..Environment::default() }
    }

    #[test]
    fn the_handler_of_the_thesis_compiles_as_printed_and_reports_exceeded_thresholds() {
        let program = compile(HANDLER, &environment()).unwrap();
        assert!(program.has_loops && !program.writes_shared);
        let mut engine = Interpreter::new(&program, Limits::default());
        let event = ints(&[3, 10, 20, 30, 15, 15, 15, 1, 7, 7, 7, 6, 6, 6]);
        assert_eq!(
            engine.call(&event, &CallContext::default(), &mut |_| ()),
            Ok(1),
            "reaching the end passes the event"
        );
        assert_eq!(engine.output(), ints(&[0, 1, 1, 1, 0, 0]));
    }

    #[test]
    fn a_hostile_count_of_attributes_is_a_fault_and_not_an_access() {
        let program = compile(HANDLER, &environment()).unwrap();
        let mut engine = Interpreter::new(&program, Limits::default());
        let event = ints(&[4, 10, 20, 30, 15, 15, 15, 1, 7, 7, 7, 6, 6, 6]);
        let fault = engine.call(&event, &CallContext::default(), &mut |_| ());
        assert_eq!(fault, Err(Fault { kind: FaultKind::Index, line: 6 }));
    }

    #[test]
    fn the_utility_functions_of_the_thesis_compile_as_printed() {
        let both = "int utility1 (int rate) {
    return rate*4;
}

int utility2 (int color_depth) {
    return color_depth;
}
";
        for (entry, input, utility) in [("utility1", 20, 80), ("utility2", 24, 24)] {
            let env = Environment { entry: Some(entry.to_owned()), ..Environment::default() };
            let program = compile(both, &env).unwrap();
            assert_eq!(program.functions.len(), 1, "only the called function");
            let mut engine = Interpreter::new(&program, Limits::default());
            assert_eq!(engine.call(&ints(&[input]), &CallContext::default(), &mut |_| ()), Ok(utility));
        }
        assert_eq!(program(both).input.fields[0].name, "color_depth", "the last function is the default entry");
    }
}

mod arithmetic {
    use super::*;

    #[test]
    fn signed_overflow_wraps_around() {
        assert_eq!(verdict("int a = 2147483647; return a + 1;"), i64::from(i32::MIN));
        assert_eq!(verdict("long a = 9223372036854775807; a++; return a < 0;"), 1);
        assert_eq!(verdict("int a = -2147483647 - 1; return a / -1;"), i64::from(i32::MIN));
        assert_eq!(verdict("int a = -2147483647 - 1; return a % -1;"), 0);
    }

    #[test]
    fn narrow_types_are_promoted_before_arithmetic() {
        assert_eq!(verdict("unsigned char a = 200, b = 100; return a + b;"), 300);
        assert_eq!(verdict("unsigned char a = 200, b = 100; a += b; return a;"), 44);
        assert_eq!(verdict("char a = 127; a++; return a;"), -128);
        assert_eq!(verdict("unsigned short a = 0; return ~a;"), -1);
    }

    #[test]
    fn signed_and_unsigned_operands_compare_as_in_c() {
        assert_eq!(verdict("unsigned int a = 1; int b = -1; return b < a;"), 0);
        assert_eq!(verdict("unsigned int a = 1; long b = -1; return b < a;"), 1);
        assert_eq!(verdict("return -1 < 1u;"), 0);
        assert_eq!(verdict("return sizeof(int) > -1;"), 0);
    }

    #[test]
    fn shift_counts_are_taken_modulo_the_width() {
        assert_eq!(verdict("int n = 33; return 1 << n;"), 2);
        assert_eq!(verdict("int n = 65; return 1l << n;"), 2);
        assert_eq!(verdict("int n = 1; return -8 >> n;"), -4);
        assert_eq!(verdict("int n = 28; return 0xf0000000 >> n;"), 15);
        assert_eq!(verdict("return 1 << 33;"), 2, "constant operands");
    }

    #[test]
    fn division_truncates_towards_zero() {
        assert_eq!(verdict("int a = -7; return a / 2 * 100 + a % 2;"), -301);
        assert_eq!(verdict("unsigned long a = 18446744073709551615ul; return a / 2 == 9223372036854775807;"), 1);
    }

    #[test]
    fn division_by_zero_is_a_fault_with_its_line() {
        assert_eq!(run("int a = 0;\n\nreturn 1 / a;"), Err(Fault { kind: FaultKind::Division, line: 3 }));
        assert_eq!(run("int a = 0;\nint b = 7;\nb %= a;"), Err(Fault { kind: FaultKind::Division, line: 3 }));
    }

    #[test]
    fn literals_have_the_types_of_c() {
        assert_eq!(verdict("return sizeof(1) * 100 + sizeof(1l) * 10 + sizeof('a');"), 484);
        assert_eq!(verdict("return sizeof(2147483648) * 10 + sizeof(0x80000000);"), 84);
        assert_eq!(verdict("return 0x80000000 > 0;"), 1);
        assert_eq!(verdict("return 0777 + 0b101 + 'A' + '\\n' + '\\x10';"), 511 + 5 + 65 + 10 + 16);
        assert_eq!(verdict("return '\\xff';"), -1, "a char is signed");
    }

    #[test]
    fn an_assignment_yields_the_stored_value() {
        assert_eq!(verdict("unsigned char a; int b = a = 300; return b;"), 44);
        assert_eq!(verdict("int a = 5; int b = a++ * 10 + a; return b;"), 56);
        assert_eq!(verdict("int a = 5; int b = --a * 10 + a; return b;"), 44);
        assert_eq!(verdict("int a, b, c; a = b = c = 7; return a + b + c;"), 21);
    }

    #[test]
    fn unneeded_operands_are_not_evaluated() {
        assert_eq!(verdict("int a = 0; 0 && a++; 1 || a++; int b = 0; b && a++; !b || a++; return a;"), 0);
        assert_eq!(verdict("int a = 0; return a ? 1 / a : 7;"), 7);
    }

    #[test]
    fn types_have_the_sizes_of_lp64() {
        let text = "struct s { char a; long b; char c[3]; short d; };
            return sizeof(char) + 10 * sizeof(short) + 100 * sizeof(int) + 1000 * sizeof(long) + 10000 * sizeof(struct s);";
        assert_eq!(verdict(text), 248_421);
    }
}

mod variables {
    use super::*;

    #[test]
    fn locals_are_zero_at_each_declaration() {
        assert_eq!(verdict("int sum = 0; for (int i = 0; i < 3; i++) { int a; a += i; sum += a; } return sum;"), 3);
    }

    #[test]
    fn statics_persist_from_call_to_call() {
        let mut engine = engine("static int calls = 10; calls++; return calls;");
        let verdicts: Vec<_> =
            (0..3).map(|_| engine.call(&[], &CallContext::default(), &mut |_| ()).unwrap()).collect();
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
}

mod statements {
    use super::*;

    #[test]
    fn reaching_the_end_passes_the_event() {
        assert_eq!(verdict(""), 1);
        assert_eq!(verdict("{ }"), 1);
        assert_eq!(verdict("int a = 0; if (a) return 0;"), 1);
        assert_eq!(verdict("int a = 1; if (a) return;"), 1);
    }

    #[test]
    fn loops_of_every_kind_run() {
        assert_eq!(verdict("int s = 0; for (int i = 0; i < 5; i++) { if (i == 3) continue; s += i; } return s;"), 7);
        assert_eq!(verdict("int s = 0, i = 0; while (i < 5) { i++; if (i == 3) break; s += i; } return s;"), 3);
        assert_eq!(verdict("int s = 0; do s++; while (s < 5); return s;"), 5);
        assert_eq!(verdict("int s = 0; do { s++; if (s < 3) continue; } while (0); return s;"), 1);
        assert_eq!(verdict("int i; for (i = 0; ; i++) if (i > 9) break; return i;"), 10);
        assert_eq!(verdict("int n = 0; for (int i = 0, j = 10; i < j; i++, j--) n++; return n;"), 5);
    }

    #[test]
    fn a_loop_that_takes_too_long_is_a_fault() {
        let fault = run("long i = 0;\nwhile (i >= 0) { i = i * 2 + 1 & 0xff; }");
        assert_eq!(fault, Err(Fault { kind: FaultKind::Fuel, line: 2 }));
    }

    #[test]
    fn a_call_that_the_kernel_refused_is_not_out_of_fuel_and_names_no_line() {
        assert_eq!(Fault::REFUSED.to_string(), "the kernel refused the call");
        for kind in [FaultKind::Division, FaultKind::Index, FaultKind::Fuel, FaultKind::Refused] {
            let fault = Fault { kind, line: 7 };
            assert_eq!(Fault::from_code(fault.code()), Some(fault));
            assert!(fault.to_string().ends_with(" in line 7"), "{fault}");
        }
    }

    #[test]
    fn loops_with_a_visible_end_are_accepted() {
        for text in [
            "while (now() < 5) { }",
            "for (;;) { if (now() > 5) break; }",
            "int f(int x) { return x; } while (f(1)) { }",
            "static int n; int f(int x) { n += x; return n; } while (n < 5) f(1);",
            "int a[3]; int i = 0; while (a[i] < 3) a[i + 1]++;",
            "while (attr.x) attr.x--;",
            "do { } while (0);",
            "while (0) { }",
            "struct input { int len; }; for (;;) { switch (input.len) { case 1: return 0; default: break; } }",
            "struct p { int x; } a, b; while (a.x < 3) a = b;",
        ] {
            program(text);
        }
    }

    #[test]
    fn switch_chooses_one_section() {
        let text = "int f(int x) {
                switch (x) {
                case 1: case 2: return 10;
                case 3: { x = 30; break; }
                default: if (x > 100) { x = 5; break; } else x = 6; break;
                case -1: x = 7;
                }
                return x;
            }
            return f(1) == 10 && f(2) == 10 && f(3) == 30 && f(-1) == 7 && f(200) == 5 && f(50) == 6;";
        assert_eq!(verdict(text), 1);
    }

    #[test]
    fn continue_in_a_switch_continues_the_loop() {
        let text =
            "int s = 0; for (int i = 0; i < 6; i++) { switch (i % 3) { case 0: continue; case 1: s += 10; break; }
            s++; } return s;";
        assert_eq!(verdict(text), 24);
    }

    #[test]
    fn byte_order_marks_and_line_ends_do_not_matter() {
        assert_eq!(verdict("\u{feff}#define A 3 // three\r\n#define B \\\r\n 4\r\nreturn A + B;\r\n"), 7);
    }

    #[test]
    fn dangling_else_belongs_to_the_nearest_if() {
        assert_eq!(verdict("int a = 1, b = 0; if (a) if (b) return 2; else return 3; return 4;"), 3);
    }
}

mod functions {
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

mod formats {
    use super::*;
    use qfabric_ecode::{format_text, parse_formats};

    #[test]
    fn structures_have_the_layout_of_gcc() {
        let format =
            parse_formats("struct e { char a; long b; short c[3]; struct { char d; int e; } f[2]; };").unwrap();
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

mod floats {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "struct input { double a, b; float c, d; long i; unsigned long u; };
        struct output { double sum, difference, product, quotient, of_i, of_u, of_c;
            float fsum, fdifference, fproduct, fquotient, f_of_i, f_of_u, f_of_a; long to_i, compared; unsigned long to_u; };
        double a = input.a, b = input.b; float c = input.c, d = input.d;
        output.sum = a + b; output.difference = a - b; output.product = a * b; output.quotient = a / b;
        output.of_i = input.i; output.of_u = input.u; output.of_c = c;
        output.fsum = c + d; output.fdifference = c - d; output.fproduct = c * d; output.fquotient = c / d;
        output.f_of_i = input.i; output.f_of_u = input.u; output.f_of_a = a;
        output.to_i = a; output.to_u = a;
        output.compared = (a < b) | (a <= b) << 1 | (a > b) << 2 | (a >= b) << 3 | (a == b) << 4 | (a != b) << 5 | !a << 6
            | (c < d) << 7 | (c == d) << 8 | (a ? 1 : 0) << 9 | (a && c) << 10;";

    /// Numbers of every kind: any bits, special values, neighbours of integers, and pairs of similar size.
    fn word() -> impl Strategy<Value = u64> {
        let special = [
            0,
            1,
            1 << 51,
            (1 << 52) - 1,
            1 << 52,
            0x3ff0 << 48,
            0x3ff0_0000_0000_0001,
            0x3fdf_ffff_ffff_ffff,
            0x43e0 << 48,
            0x43df_ffff_ffff_ffff,
            0x43f0 << 48,
            0x4340 << 48,
            0x7fef_ffff_ffff_ffff,
            0x7ff0 << 48,
            0x7ff8 << 48,
            0x7ff0_0000_0000_0001,
            0x36a0 << 48,
            0x3690 << 48,
            0x3690_0000_0000_0001,
            0x47ef_ffff_f000_0000,
            0x3810 << 48,
        ];
        let near = (0x3fe..0x402_u64, any::<u64>()).prop_map(|(e, f)| e << 52 | f >> 12);
        let whole = any::<i32>().prop_map(|n| f64::from(n).to_bits());
        let positive = prop_oneof![any::<u64>(), prop::sample::select(special.to_vec()), near, whole];
        (positive, any::<bool>()).prop_map(|(word, minus)| word ^ u64::from(minus) << 63)
    }

    fn doubles(values: &[f64]) -> Vec<u8> {
        let word = |value: &f64| if value.is_nan() { 0x7ff8 << 48 } else { value.to_bits() };
        values.iter().flat_map(|value| word(value).to_le_bytes()).collect()
    }

    fn floats(values: &[f32]) -> Vec<u8> {
        let word = |value: &f32| if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() };
        values.iter().flat_map(|value| word(value).to_le_bytes()).collect()
    }

    fn rounds() -> u32 {
        std::env::var("QFABRIC_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000)
    }

    /// The output of [`TEXT`] by the processor.
    fn expected(a: f64, b: f64, c: f32, d: f32, i: i64, u: u64) -> Vec<u8> {
        let truths =
            [a < b, a <= b, a > b, a >= b, a == b, a != b, a == 0.0, c < d, c == d, a != 0.0, a != 0.0 && c != 0.0];
        let compared: i64 = truths.iter().zip(0..).map(|(truth, bit)| i64::from(*truth) << bit).sum();
        let doubles = doubles(&[a + b, a - b, a * b, a / b, i as f64, u as f64, c.into()]);
        let floats = floats(&[c + d, c - d, c * d, c / d, i as f32, u as f32, a as f32]);
        let words = [&(a as i64).to_le_bytes()[..], &compared.to_le_bytes(), &(a as u64).to_le_bytes()].concat();
        let floats = [floats, vec![0; 4]].concat();
        [doubles, floats, words].concat()
    }

    #[test]
    fn results_are_those_of_ieee_754() {
        let program = program(TEXT);
        let engine = std::cell::RefCell::new(Interpreter::new(&program, Limits::default()));
        let config = ProptestConfig { cases: rounds(), failure_persistence: None, ..ProptestConfig::default() };
        let numbers = (word(), word(), word(), word(), any::<u64>(), 0..64_u32);
        proptest!(config, |((a, b, c, d, n, shift) in numbers)| {
            let (a, b) = (f64::from_bits(a), f64::from_bits(b));
            let narrow = |word: u64| f32::from_bits(if word & 1 == 0 { (word >> 32) as u32 } else { (f64::from_bits(word) as f32).to_bits() });
            let (c, d, n) = (narrow(c), narrow(d), n >> shift);
            let event = [&a.to_le_bytes()[..], &b.to_le_bytes(), &c.to_le_bytes(), &d.to_le_bytes(), &n.to_le_bytes(), &n.to_le_bytes()].concat();
            let mut engine = engine.borrow_mut();
            engine.call(&event, &CallContext::default(), &mut |_| ()).unwrap();
            prop_assert_eq!(engine.output(), expected(a, b, c, d, n as i64, n), "{:e} {:e} {:e} {:e} {}", a, b, c, d, n);
        });
    }

    #[test]
    fn numbers_mix_as_in_c() {
        assert_eq!(verdict("double x = 0.1 + 0.2; return x * 1e17;"), 30_000_000_000_000_004);
        assert_eq!(verdict("float x = 0.1f; double y = 0.1; return (x == y) * 10 + (x == 0.1f);"), 1);
        assert_eq!(verdict("int i = 7; return i / 2 * 100 + i / 2. * 10;"), 335);
        assert_eq!(verdict("double x = 2.75; x += 1; x *= 2; x--; return x++ * 100 + x;"), 657);
        assert_eq!(verdict("int i = 10; i *= 1.25; i -= 0.5f; return i;"), 11);
        assert_eq!(
            verdict("double t[2][2] = {1.5, 2.5, {3}}; int i = 0; t[i++][1] += t[1][0]; return t[0][1] * 10 + i;"),
            56
        );
        assert_eq!(verdict("attr.x = 2; attr.x *= 2.5; attr.x += 1.75; return attr.x;"), 6);
        assert_eq!(
            verdict("static double sum = 1e3; sum = sum / 3; return (long)sum * 100 + (unsigned char)300.7;"),
            33_344
        );
        assert_eq!(verdict("#define PI 3.14159\ndouble area(double r) { return PI * r * r; } return area(10);"), 314);
        assert_eq!(verdict("return max(1, 2.5) * 10 + abs(-1.5) * 100 + clamp(7, 0.5, 1.5) * 1000;"), 1_675);
        assert_eq!(verdict("double n = 0; for (double x = 0; x < 1; x += 0.25) n++; return n;"), 4);
        assert_eq!(
            verdict("double a = -0.0; return (a ? 1 : 2) * 10 + (1 / a < 0) + sizeof(float) * 100 + sizeof 1.0;"),
            429
        );
        assert_eq!(
            verdict("double z = 0; double n = z / z; return (n == n) * 10 + (n != n) + (n ? 100 : 0) + !n * 1000;"),
            101
        );
    }

    /// The instructions that the guide states for an operation.
    #[test]
    fn an_operation_takes_at_most_the_stated_instructions() {
        let start = "struct input { double a, b; long i; }; static double r; static long l;
            double a = input.a, b = input.b; long i = input.i;";
        let size = |text: &str| qfabric_ecode::bpf::measure(&program(&format!("{start} {text}"))).instructions;
        for (operation, most) in [
            ("r = a + b;", 335),
            ("r = a * b;", 477),
            ("r = a / b;", 466),
            ("l = a < b;", 90),
            ("l = a == b;", 54),
            ("r = i;", 122),
            ("l = a;", 82),
        ] {
            let instructions = size(operation) - size("");
            assert!(instructions <= most, "{operation}: {instructions} instructions, {most} stated");
        }
    }

    #[test]
    fn random_fractions_are_those_of_posix() {
        assert_eq!(verdict("srand48(42); return drand48() * 1000000;"), 744_525);
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
        ] {
            assert_eq!(warnings(text), [(1, column, message.to_owned())], "{text}");
        }
    }

    #[test]
    fn parentheses_say_that_the_author_means_it() {
        for text in [
            "int a, b; if ((a = b)) return 1;",
            "int a; if ((a & 1) == 0 || (a > 2 && a < 9)) return 1;",
            "int a, b; (void)a; a && b++; if (a) { } return (a < b) < 3;",
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
