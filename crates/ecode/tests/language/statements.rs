//! Statements: loops, branches, jumps.

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
    let text = "int s = 0; for (int i = 0; i < 6; i++) { switch (i % 3) { case 0: continue; case 1: s += 10; break; }
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
