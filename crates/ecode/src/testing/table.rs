//! The programs of the conformance suite and their results.

use super::conformance::{Call, Case, faults, gives};
use crate::FaultKind::{Division, Fuel, Index};

fn case(claim: &'static str, text: &'static str, calls: impl IntoIterator<Item = Call>) -> Case {
    Case { claim, text, calls: calls.into_iter().collect() }
}

pub(super) fn cases() -> Vec<Case> {
    let parts = [
        arithmetic(),
        division(),
        bits(),
        conversions(),
        control(),
        memory(),
        records(),
        strings(),
        printing(),
        queues(),
        full_queues(),
        submitting(),
        floats(),
        faulting(),
        shared(),
        whole_programs(),
    ];
    parts.into_iter().flatten().collect()
}

/// Prepends an input of two `int`s.
macro_rules! on_ints {
    ($body:literal) => {
        concat!("struct input { int a; int b; };\n", $body)
    };
}

/// A handler with the inputs 0 and 1; input 2 has no structure.
macro_rules! on_inputs {
    ($body:literal) => {
        concat!("struct input { int which; struct { int x; } a; struct { int y; int z; } b; };\n", $body)
    };
}

fn queues() -> Vec<Case> {
    vec![
        case(
            "a handler waits for an event of each input",
            on_inputs!(
                "struct output { int sum; };
                 if (EVcount_a() == 0 || EVcount_b() == 0) return 0;
                 output.sum = EVdata_a(0).x + EVdata_b(0).z;
                 EVdiscard_a(0); EVdiscard_b(0);
                 return EVcount_a() * 10 + EVcount_b() + 1;"
            ),
            [
                gives(0).of(&[0, 5, 0, 0]),
                gives(0).of(&[2, 4, 4, 4]),
                gives(0).of(&[0, 6, 0, 0]),
                gives(11).of(&[1, 0, 7, 9]).makes(&[14]),
                gives(1).of(&[1, 0, 0, 1]).makes(&[7]),
            ],
        ),
        case(
            "events of a queue leave in any order, and one that is not there is a fault",
            on_inputs!(
                "if (input.which == 2) EVdiscard_a(input.a.x);
                 long all = 0;
                 for (int i = 0; i < EVcount_a(); i++) all = all * 10 + EVdata_a(i).x;
                 return all;"
            ),
            [
                gives(1).of(&[0, 1, 0, 0]),
                gives(12).of(&[0, 2, 0, 0]),
                gives(123).of(&[0, 3, 0, 0]),
                gives(13).of(&[2, 1, 0, 0]),
                gives(134).of(&[0, 4, 0, 0]),
                gives(34).of(&[2, 0, 0, 0]),
                faults(Index, 2).of(&[2, 2, 0, 0]),
                faults(Index, 2).of(&[2, -1, 0, 0]),
                gives(345).of(&[0, 5, 0, 0]),
                gives(34).of(&[2, 2, 0, 0]),
            ],
        ),
    ]
}

fn full_queues() -> Vec<Case> {
    let newest = |x: i32| gives(i64::from((x - 15).max(1) * 10_000 + x * 100 + (x - 16).max(0))).of(&[0, x, 0, 0]);
    let large = |x: i32| gives(i64::from(x * 10 + 1)).of(&[&[0, x][..], &[0; 1250]].concat());
    vec![
        case(
            "a full queue drops its oldest event and counts it",
            on_inputs!("return EVdata_a(0).x * 10000 + EVdata_a(EVcount_a() - 1).x * 100 + EVdropped_a();"),
            (1..=40).map(newest),
        ),
        case(
            "a queue of large events has room for few",
            "struct input { int which; struct { int x; char rest[5000]; } a; };
             return EVdata_a(0).x * 10 + EVcount_a();",
            (1..=3).map(large),
        ),
    ]
}

fn submitting() -> Vec<Case> {
    vec![case(
        "a function reads a queue, and a call submits events of it",
        "struct load { int x; int y; }; struct input { int which; struct load a; struct load b; };
         struct output { int x; int y; };
         int newest() { return EVdata_b(EVcount_b() - 1).y; }
         while (EVcount_a() > 0 && EVcount_b() > 0) {
             struct load one = EVdata_a(0);
             one.y += newest();
             EVsubmit(0, one);
             EVsubmit(0, EVdata_b(0));
             EVdiscard_a(0);
         }
         return 0;",
        [
            gives(0).of(&[0, 1, 2, 0, 0]),
            gives(0).of(&[0, 3, 4, 0, 0]),
            gives(0).of(&[1, 0, 0, 5, 6]).emits(&[1, 8]).emits(&[5, 6]).emits(&[3, 10]).emits(&[5, 6]),
        ],
    )]
}

fn printing() -> Vec<Case> {
    vec![
        case(
            "printf shows values of every kind in the order of the calls",
            on_ints!(
                "printf(\"%d %u %x\\n\", input.a, input.a, (long)input.a);
                 for (int i = 0; i < 2; i++) printf(\"%c%d %.2f\", 'a' + i, i, input.b / 4.0);
                 return printf(\"done %%\");"
            ),
            [gives(0).of(&[-1, 5]).prints(&["-1 4294967295 ffffffffffffffff", "a0 1.25", "b1 1.25", "done %"])],
        ),
        case(
            "printf shows strings up to their zero, their array or the precision",
            on_ints!(
                "char name[5] = \"abc\"; char full[2] = \"xy\"; static const char t[2][10] = {\"one\", \"two-three\"};
                 printf(\"%s|%s|%.2s|%5s|%-4s|\", name, full, name, \"z\", name);
                 return printf(\"%s %d\", t[input.a], input.b);"
            ),
            [
                gives(0).of(&[1, 7]).prints(&["abc|xy|ab|    z|abc |", "two-three 7"]),
                faults(Index, 4).of(&[2, 7]).prints(&["abc|xy|ab|    z|abc |", "two-three 7", "abc|xy|ab|    z|abc |"]),
            ],
        ),
        case(
            "printf keeps the last sixteen calls, and no part of one that faults",
            on_ints!("for (int i = 0; i < input.a; i++) printf(\"%d\", i); printf(\"%d\", 1 / input.b);"),
            [
                gives(1).of(&[1, 1]).prints(&["0", "1"]),
                faults(Division, 2)
                    .of(&[15, 0])
                    .prints(&["1", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14"]),
            ],
        ),
    ]
}

fn arithmetic() -> Vec<Case> {
    let (min, max) = (i32::MIN, i32::MAX);
    vec![
        case(
            "sums wrap around",
            on_ints!("return input.a + input.b;"),
            [gives(5).of(&[2, 3]), gives(min.into()).of(&[max, 1]), gives(max.into()).of(&[min, -1])],
        ),
        case(
            "products wrap around",
            on_ints!("return input.a * input.b;"),
            [gives(-6).of(&[2, -3]), gives(0).of(&[1 << 16, 1 << 16]), gives(min.into()).of(&[min, -1])],
        ),
        case(
            "negation wraps around",
            on_ints!("return -input.a;"),
            [gives(min.into()).of(&[min, 0]), gives(-5).of(&[5, 0])],
        ),
    ]
}

fn division() -> Vec<Case> {
    let (min, max) = (i32::MIN, i32::MAX);
    vec![
        case(
            "quotients truncate towards zero",
            on_ints!("return input.a / input.b;"),
            [
                gives(3).of(&[7, 2]),
                gives(-3).of(&[-7, 2]),
                gives(-3).of(&[7, -2]),
                gives(3).of(&[-7, -2]),
                gives(min.into()).of(&[min, -1]),
                gives(1).of(&[min, min]),
                gives(0).of(&[max, min]),
            ],
        ),
        case(
            "remainders have the sign of the dividend",
            on_ints!("return input.a % input.b;"),
            [
                gives(1).of(&[7, 2]),
                gives(-1).of(&[-7, 2]),
                gives(1).of(&[7, -2]),
                gives(-1).of(&[-7, -2]),
                gives(0).of(&[min, -1]),
                gives(max.into()).of(&[max, min]),
            ],
        ),
        case(
            "division by a constant equals division by a variable",
            on_ints!("return input.a / 8 * 1000000 + input.a / -7 * 1000 + input.a % 5;"),
            [gives(12_000_000 - 14_000).of(&[100, 0]), gives(-12_000_000 + 14_000 - 1).of(&[-101, 0])],
        ),
        case(
            "unsigned division is unsigned",
            on_ints!("return (unsigned)input.a / (unsigned)input.b;"),
            [gives(1).of(&[-1, -1]), gives(0x7fff_ffff).of(&[-1, 2]), gives(0).of(&[5, -1])],
        ),
        case(
            "64-bit division",
            on_ints!("long a = (long)input.a << 32, b = input.b; return a / b + a % b;"),
            [gives(-(1 << 40) / 3 - 1).of(&[-256, 3]), gives(1 << 40).of(&[-256, -1])],
        ),
    ]
}

fn bits() -> Vec<Case> {
    let min = i32::MIN;
    vec![
        case(
            "shift counts are taken modulo the width",
            on_ints!("return (input.a << input.b) + ((long)input.a << input.b);"),
            [
                gives(4).of(&[1, 1]),
                gives(2 + (2i64 << 32)).of(&[1, 33]),
                gives((min as i64) + (1i64 << 31)).of(&[1, -33]),
            ],
        ),
        case(
            "a right shift keeps the sign of signed numbers",
            on_ints!("return (input.a >> input.b) * 2 + (int)((unsigned)input.a >> input.b);"),
            [gives(-4 * 2 + 0x3fff_fffc).of(&[-16, 2]), gives(-2 + 1).of(&[-16, 31])],
        ),
        case(
            "bits",
            on_ints!("return (input.a & input.b) + (input.a | input.b) * 3 + (input.a ^ input.b) * 5 + ~input.a;"),
            [gives(8 + 14 * 3 + 6 * 5 - 13).of(&[12, 10]), gives(-1).of(&[0, 0])],
        ),
    ]
}

fn conversions() -> Vec<Case> {
    vec![
        case(
            "a store to a narrow type truncates",
            on_ints!(
                "char c = input.a; unsigned char u = input.a; short s = input.a; return c * 1000000 + u * 1000 + s;"
            ),
            [gives(-56 * 1_000_000 + 200 * 1000 + 200).of(&[200, 0]), gives(-1_000_000 + 255_000 - 1).of(&[-1, 0])],
        ),
        case("narrow types are promoted", "unsigned char a = 200, b = 100; return a + b;", [gives(300)]),
        case(
            "an update converts back",
            "unsigned char a = 200; char c = 127; a += 100; c++; return a * 1000 + c;",
            [gives(44_000 - 128)],
        ),
        case(
            "a mixed comparison is unsigned",
            on_ints!("unsigned u = input.b; return (input.a < u) * 10 + ((long)input.a < u);"),
            [gives(1).of(&[-1, 1]), gives(11).of(&[0, -1])],
        ),
        case(
            "an unsigned long compares unsigned",
            "unsigned long a = -1; return (a > 5) * 10 + (a == -1l);",
            [gives(11)],
        ),
        case(
            "sign and width",
            on_ints!(
                "long l = input.a; unsigned long u = (unsigned)input.a; return (l < 0) * 4 + (u > 0xfffffffful - 1) * 2 + (u >> 32 == 0);"
            ),
            [gives(7).of(&[-1, 0]), gives(1).of(&[1, 0])],
        ),
        case(
            "a condition tests the whole value",
            "long a = 0x100000000; char c = 256; return (a ? 10 : 0) + (c ? 1 : 0) + (!a) * 100;",
            [gives(10)],
        ),
    ]
}

fn control() -> Vec<Case> {
    vec![
        case("reaching the end passes", "int a = 5;", [gives(1)]),
        case(
            "if and else",
            on_ints!("if (input.a > input.b) return 1; else if (input.a == input.b) return 2; return 3;"),
            [gives(1).of(&[2, 1]), gives(2).of(&[1, 1]), gives(3).of(&[-2, 1])],
        ),
        case(
            "&& and || evaluate the right side only if needed",
            on_ints!("int n = 0; if (input.a && n++ || input.b && ++n) n += 10; return n;"),
            [gives(0).of(&[0, 0]), gives(1).of(&[1, 0]), gives(12).of(&[1, 1]), gives(11).of(&[0, 1])],
        ),
        case(
            "conditions are numbers",
            on_ints!(
                "int t = (input.a < input.b) + (input.a <= input.b) * 2 + (input.a > 0 && input.b > 0) * 4; return -t;"
            ),
            [gives(-7).of(&[1, 2]), gives(-2).of(&[-1, -1]), gives(-4).of(&[2, 1])],
        ),
        case(
            "nested conditional expressions choose one value",
            on_ints!(
                "return input.a == 1 ? 10 : input.a == 2 ? 20 : input.a == 3 ? 30 : input.a == 4 ? 40 : input.a == 5 ? 50 : input.b;"
            ),
            [gives(10).of(&[1, 7]), gives(30).of(&[3, 7]), gives(50).of(&[5, 7]), gives(7).of(&[9, 7])],
        ),
        case(
            "loops nest, break and continue",
            on_ints!(
                "int i, j, n = 0;\nfor (i = 0; i < input.a; i++) {\n  if (i == 3) continue;\n  for (j = 0; j < 10; j++) { if (j == input.b) break; n++; }\n}\nreturn n;"
            ),
            [gives(6).of(&[4, 2]), gives(0).of(&[0, 2]), gives(90).of(&[10, 11])],
        ),
        case(
            "do runs at least once",
            on_ints!("int n = 0; do n++; while (n < input.a); return n;"),
            [gives(1).of(&[-5, 0]), gives(9).of(&[9, 0])],
        ),
        case(
            "while with a long condition",
            on_ints!("int n = 0; while (n * n + n * 3 - 7 < input.a && n * 2 + 1 < input.b * 100) n++; return n;"),
            [gives(9).of(&[100, 1]), gives(0).of(&[-100, 1])],
        ),
        case(
            "functions return from anywhere",
            on_ints!(
                "int f(int n) { for (int i = 0; i < 10; i++) { if (i * i >= n) return i; } return -1; }\nreturn f(input.a) * 100 + f(f(input.b));"
            ),
            [gives(402).of(&[16, 9]), gives(-100).of(&[1000, 0])],
        ),
        case(
            "arguments may be calls of the same function",
            "int f(int a, int b) { return a * 10 + b; } return f(f(1, 2), f(f(3, 4), 5));",
            [gives(12 * 10 + 345)],
        ),
    ]
}

fn memory() -> Vec<Case> {
    vec![
        case(
            "arrays of arrays",
            on_ints!(
                "int t[3][4]; int i, j; for (i = 0; i < 3; i++) for (j = 0; j < 4; j++) t[i][j] = i * 10 + j; return t[input.a][input.b];"
            ),
            [gives(23).of(&[2, 3]), gives(1).of(&[0, 1])],
        ),
        case(
            "an index is evaluated once",
            "int t[4]; int i = 0; t[i++] += 5; t[i++] = 7; t[i]--; return t[0] * 100 + t[1] * 10 + t[2] + i * 1000;",
            [gives(2569)],
        ),
        case(
            "the output starts as zeros",
            "struct input { int a; int b; }; struct output { int x; int y[2]; }; output.y[input.b] = input.a;",
            [gives(1).of(&[5, 1]).makes(&[0, 0, 5]), gives(1).of(&[6, 0]).makes(&[0, 6, 0])],
        ),
        case(
            "whole structures are copied",
            "struct input { int a; int b; }; struct output { int a; int b; }; output = input; output.a++;",
            [gives(1).of(&[5, 1]).makes(&[6, 1])],
        ),
        case(
            "locals start as zeros in each iteration",
            on_ints!("int i, n = 0; for (i = 0; i < 3; i++) { int fresh[2]; n += fresh[1]; fresh[1] = 5; } return n;"),
            [gives(0).of(&[0, 0])],
        ),
        case(
            "statics persist",
            on_ints!("static int n = 10; static short t[3] = {1, 2, 3}; n += input.a; t[1] += n; return t[1];"),
            [gives(13).of(&[1, 0]), gives(26).of(&[2, 0])],
        ),
        case(
            "stores to narrow elements leave their neighbours",
            on_ints!(
                "unsigned char t[4] = {1, 2, 3, 4}; t[input.a] = input.b; return t[0] + t[1] * 256 + t[2] * 65536 + t[3] * 16777216l;"
            ),
            [gives(0x0403_ff01).of(&[1, -1])],
        ),
    ]
}

fn faulting() -> Vec<Case> {
    vec![
        case(
            "division by zero is a fault",
            on_ints!("int x = 0;\nx = input.a / input.b;\nreturn x;"),
            [faults(Division, 3).of(&[1, 0]), gives(2).of(&[4, 2])],
        ),
        case(
            "remainder by zero is a fault",
            on_ints!("unsigned long x = 5;\nx %= (unsigned long)input.b;\nreturn x;"),
            [faults(Division, 3).of(&[1, 0])],
        ),
        case(
            "an index out of range is a fault",
            on_ints!("int t[4] = {9, 8, 7, 6};\nreturn t[input.a];"),
            [
                gives(6).of(&[3, 0]),
                faults(Index, 3).of(&[4, 0]),
                faults(Index, 3).of(&[-1, 0]),
                faults(Index, 3).of(&[i32::MIN, 0]),
            ],
        ),
        case(
            "all 64 bits of a long index are checked",
            on_ints!("int t[4];\nlong i = (long)input.a << 32;\nreturn t[i];"),
            [faults(Index, 4).of(&[1, 0]), gives(0).of(&[0, 0])],
        ),
        case(
            "too many iterations are a fault",
            on_ints!("int i = 0;\nwhile (i >= 0) { i = input.a; }\nreturn i;"),
            [faults(Fuel, 3).of(&[1, 0]), gives(-1).of(&[-1, 0])],
        ),
        case(
            "a fault keeps the values stored before it",
            on_ints!("static int n = 0; n++; attr.seen = n; n += 1 / input.a; return n;"),
            [faults(Division, 2).of(&[0, 0]).leaves(&[1]), gives(3).of(&[1, 0]).leaves(&[2])],
        ),
    ]
}

fn shared() -> Vec<Case> {
    vec![
        case(
            "attributes are words that persist",
            on_ints!("attr.sum += input.a; attr.last = input.b; return attr.sum;"),
            [gives(5).of(&[5, 1]).leaves(&[5, 1]), gives(3).of(&[-2, 2]).leaves(&[3, 2])],
        ),
        case(
            "attributes by name",
            on_ints!("set_attribute(limit, input.a); return get_attribute(limit) * 2;"),
            [gives(-8).of(&[-4, 0]).leaves(&[-4])],
        ),
        case(
            "emit delivers the current output",
            "struct input { int a; }; struct output { int x; }; int i; for (i = 0; i < input.a; i++) { output.x = i; emit(); } return 0;",
            [gives(0).of(&[2]).emits(&[0]).emits(&[1]), gives(0).of(&[0])],
        ),
        case(
            "emissions are bounded",
            on_ints!("int i, n = 0; for (i = 0; i < 20; i++) if (i >= input.a) n += emit(); return n;"),
            [gives(2).of(&[18, 3]).emits(&[18, 3]).emits(&[18, 3])],
        ),
        case(
            "the host supplies time, process and CPU",
            "return (now() > 0) + (pid() > 0) * 2 + (cpu() >= 0) * 4;",
            [gives(7)],
        ),
    ]
}

fn whole_programs() -> Vec<Case> {
    vec![
        case(
            "a filter of five comparisons",
            "struct input { int kind; int size; int rate; int load; int prio; };\nif (input.kind != 3) return 0;\nif (input.size > 1400) return 0;\nif (input.rate < 10) return 2;\nelse if (input.load >= 90) return 4;\nelse if (input.prio == 7) return 6;\nreturn 1;",
            [
                gives(0).of(&[2, 100, 20, 50, 1]),
                gives(0).of(&[3, 1401, 20, 50, 1]),
                gives(2).of(&[3, 100, 9, 50, 1]),
                gives(4).of(&[3, 100, 20, 90, 1]),
                gives(6).of(&[3, 100, 20, 50, 7]),
                gives(1).of(&[3, 100, 20, 50, 1]),
            ],
        ),
        case(
            "an average of the last four values",
            on_ints!(
                "static int last[4]; static unsigned n; int i, sum = 0;\nlast[n++ % 4] = input.a;\nfor (i = 0; i < 4; i++) sum += last[i];\nreturn sum / 4;"
            ),
            [
                gives(2).of(&[8, 0]),
                gives(3).of(&[4, 0]),
                gives(1).of(&[-8, 0]),
                gives(4).of(&[12, 0]),
                gives(12).of(&[40, 0]),
            ],
        ),
        case(
            "fixed point",
            "struct input { int a; int b; }; return fx_to_int(fx_mul(fx_from(input.a), fx_div(fx_from(input.b), fx_from(4))));",
            [gives(15).of(&[6, 10]), gives(-15).of(&[-6, 10])],
        ),
    ]
}

/// Prepends an input of two `int`s, and a structure that is larger than a word.
macro_rules! on_records {
    ($body:literal) => {
        concat!(on_ints!("typedef struct point { int x; char c[3]; long y; } point;\n"), $body)
    };
}

fn records() -> Vec<Case> {
    vec![
        case(
            "functions take and return structures",
            on_records!(
                "point make(int x, long y) { point p = {x, {1, 2, 3}, y}; return p; }
                long sum(point p, int by) { p.x += by; return p.x + p.y + p.c[2]; }
                point p = make(input.a, input.b);
                return sum(p, 10) * 100 + make(input.b, 7).x + p.x;"
            ),
            [gives(1805).of(&[3, 2])],
        ),
        case(
            "arguments that are structures are evaluated from left to right",
            on_records!(
                "static point p; int change(int x) { p.x = x; return x; }
                long f(point a, int b, point c) { return a.x * 10000 + b * 100 + c.x; }
                p.x = input.a;
                return f(p, change(input.b), p);"
            ),
            [gives(10_505).of(&[1, 5]), gives(70_303).of(&[7, 3])],
        ),
        case(
            "a function is called in an argument of its own call",
            on_records!(
                "point next(point p, point q) { p.x += q.x; p.y--; return p; }
                point a = {input.a}, b = {input.b, 0, 0, 0, 9};
                point c = next(next(a, b), next(b, next(a, a)));
                return c.x * 100 + c.y;"
            ),
            [gives(1200 - 2).of(&[2, 3]), gives(300 - 2).of(&[1, 0])],
        ),
        case(
            "structures are values of `? :`, `=` and `,`",
            on_records!(
                "point t[4]; point a = {input.a}, b = {input.b}; int i = 0;
                t[i++] = t[i++] = (i, input.a > input.b ? a : b);
                return (t[3] = t[0], t[3]).x * 100 + t[1].x * 10 + (a = b).x;"
            ),
            [gives(552).of(&[5, 2]), gives(777).of(&[3, 7])],
        ),
        case(
            "a function that reaches its end returns zeros",
            on_records!(
                "point f(int x) { if (x) { point p = {x, {1}, x}; return p; } }
                return f(input.a).y * 10 + f(input.b).y + f(input.b).c[0];"
            ),
            [gives(50).of(&[5, 0]), gives(56).of(&[5, 5])],
        ),
        case(
            "an index out of range in a copied structure is a fault",
            on_records!("point t[4], p;\np = t[input.a];\nt[input.b] = p;\nreturn 9;"),
            [gives(9).of(&[0, 3]), faults(Index, 4).of(&[4, 3]), faults(Index, 5).of(&[0, -1])],
        ),
    ]
}

fn strings() -> Vec<Case> {
    vec![
        case(
            "strings are compared, copied and measured",
            on_ints!(
                "static const struct { char name[6]; int value; } table[] = {\"one\", 1, \"two\", 2, \"three\", 3};
                char name[5]; strcpy(name, table[input.a & 3].name);
                long found = 0;
                for (int i = 0; i < 3; i++) if (strcmp(name, table[i].name) == 0) found += table[i].value;
                return found * 1000 + strlen(name) * 100 + strncmp(name, \"two\", 1);"
            ),
            [
                gives(1000 + 300 + 111 - 116).of(&[0, 7]),
                gives(2000 + 300).of(&[1, 7]),
                gives(400).of(&[2, 7]),
                faults(Index, 3).of(&[3, 7]),
            ],
        ),
        case(
            "random numbers are those of POSIX",
            on_ints!("if (input.a) srand48(input.a); lrand48(); return lrand48() ^ (mrand48() << 32);"),
            [gives(RANDOM[0]).of(&[42, 0]), gives(RANDOM[1]).of(&[0, 0]), gives(RANDOM[0]).of(&[42, 0])],
        ),
        case(
            "the length of an array is a member",
            "struct input { int n; int value[n <= 3]; };\nint i = input.n - 1; return input.value[i] + input.value[0];",
            [
                gives(30).of(&[2, 10, 20, 30]),
                gives(40).of(&[3, 10, 20, 30]),
                faults(Index, 2).of(&[0, 10, 20, 30]),
                faults(Index, 2).of(&[4, 10, 20, 30]),
            ],
        ),
    ]
}

/// Computed from the definition of POSIX, with the state that continues from call to call.
const RANDOM: [i64; 2] = {
    const fn next(state: u64) -> u64 {
        (state.wrapping_mul(0x5_deec_e66d) + 11) & ((1 << 48) - 1)
    }
    const fn of(state: u64) -> (i64, u64) {
        let second = next(next(state));
        let third = next(second);
        ((second >> 17) as i64 ^ (((third >> 16) as i32 as i64) << 32), third)
    }
    let first = of((42 << 16) + 0x330e);
    [first.0, of(first.1).0]
};

fn floats() -> Vec<Case> {
    let [half, third] = [0.5_f64, 1.0 / 3.0].map(|number| number.to_bits() as i64);
    vec![
        case(
            "numbers of floating point are computed as by IEEE 754",
            "struct input { int a; int b; };
            double a = input.a, b = input.b; float c = a / b;
            return (a + b) / 7 * 1000000 + (a - b) * (a < b ? 1e9 : 1e3) + (c == (float)(a / b)) + (long)(c * 1000) * 10;",
            [
                gives(((3.0 + 7.0) / 7.0 * 1e6 + -4.0 * 1e9 + 1.0 + 4280.0) as i64).of(&[3, 7]),
                gives(((7.0 + 3.0) / 7.0 * 1e6 + 4.0 * 1e3 + 1.0 + 23_330.0) as i64).of(&[7, 3]),
            ],
        ),
        case(
            "events have members of floating point",
            "struct input { double x; double y; }; struct output { double z; };
            static double sum; sum += input.x; output.z = sum / input.y; return sum > 0.75;",
            [
                gives(0).of(&words([half, half])).makes(&words([1.0_f64.to_bits() as i64])),
                gives(1).of(&words([third, third])).makes(&words([((0.5 + 1.0 / 3.0) / (1.0 / 3.0_f64)).to_bits() as i64])),
            ],
        ),
    ]
}

/// 64-bit words as pairs of `int`s.
fn words<const N: usize>(words: [i64; N]) -> Vec<i32> {
    words.iter().flat_map(|word| [*word as i32, (*word >> 32) as i32]).collect()
}
