//! Programs near the limits, in forms that are hard for the kernel's verifier. Each accepted program must also
//! load.

/// Pairs of name and text.
pub fn all() -> Vec<(&'static str, String)> {
    vec![
        ("a thousand choices in a row", repeated(1_000, |i| format!("if (input.a > {i}) x += {i}; else x ^= {i};\n"))),
        ("choices inside an index", repeated(100, |_| format!("t[{} & 7] += x;\n", truths(12)))),
        ("a choice of 60 numbers as an index", repeated(8, |_| format!("x += t[{}];\n", choices(60)))),
        ("eight loops inside each other", nested(8)),
        ("two hundred loops in a row", repeated(200, |i| format!("for (i = 0; i < input.a; i++) x += t[i] + {i};\n"))),
        ("large copies", "struct input { int a[3500]; }; struct output { int a[3500]; };\noutput = input;\n".into()),
        ("a small function in many places", calls(600)),
        ("divisions everywhere", repeated(400, |_| "x = x / input.a + x % input.b;\n".into())),
    ]
}

/// A program with two input numbers, a sum and a table, that repeats a statement.
fn repeated(times: u32, statement: impl Fn(u32) -> String) -> String {
    let body: String = (0..times).map(statement).collect();
    format!("struct input {{ int a; int b; }};\nlong x = 1; int i; int t[8];\n{body}return x + t[3] + i;")
}

fn truths(terms: u32) -> String {
    let terms: Vec<String> = (0..terms).map(|i| format!("(input.a < {i} && input.b > x)")).collect();
    format!("({})", terms.join(" + "))
}

fn choices(terms: u32) -> String {
    let choice = |rest: String, i: u32| format!("(input.a == {i} ? {} : {rest})", i % 8);
    (0..terms).fold("7".to_owned(), choice)
}

fn nested(loops: u32) -> String {
    let heads: String = (0..loops).map(|i| format!("for (int n{i} = 0; n{i} < input.a; n{i}++)\n")).collect();
    repeated(1, |_| format!("{heads}t[n0 + n7] += n1 * n2 ^ n3;\n"))
}

fn calls(times: u32) -> String {
    let function = "int near(int a, int b) { if (a > b) return a - b; if (a < b) return b - a; return 0; }\n";
    function.to_owned() + &repeated(times, |i| format!("x += near(x, {i});\n"))
}
