//! Source text may be hostile. For any text, the compiler soon returns a program within the limits or errors that
//! can be displayed.

use proptest::prelude::*;
use qfabric_ecode::bpf::measure;
use qfabric_ecode::{
    CallContext, Engine, Environment, Interpreter, Limits, compile, format_text, parse_formats, pretty,
};

const CORPUS: [&str; 4] = [
    include_str!("corpus/resources.ec"),
    include_str!("corpus/average.ec"),
    include_str!("corpus/functions.ec"),
    include_str!("corpus/comments.ec"),
];

/// Words of the grammar, and some that do not belong to it.
const WORDS: &[&str] = &[
    "int",
    "long",
    "char",
    "unsigned",
    "struct",
    "enum",
    "static",
    "const",
    "#define",
    "if",
    "else",
    "for",
    "while",
    "do",
    "switch",
    "case",
    "default",
    "break",
    "continue",
    "return",
    "sizeof",
    "input",
    "output",
    "attr",
    "a",
    "b",
    "f",
    "main",
    "min",
    "emit",
    "0",
    "1",
    "-1",
    "4096",
    "0xffffffff",
    "'x'",
    "1.5",
    "\"s\"",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "{",
    "}",
    ";",
    ";",
    ",",
    ".",
    "=",
    "+=",
    "<<=",
    "==",
    "<",
    "&&",
    "||",
    "?",
    ":",
    "+",
    "-",
    "*",
    "/",
    "%",
    "!",
    "~",
    "++",
    "--",
    "->",
    "...",
    "/*",
    "*/",
    "//",
    "\n",
    "\\",
    "goto",
    "float",
    "é",
    "\u{0}",
];

/// Applies every operation to a text; panics if one misbehaves.
fn check_text(text: &str) {
    let env = Environment::default();
    match compile(text, &env) {
        Ok(program) => {
            let size = measure(&program);
            assert!(size.instructions <= 30_000 && size.frame <= 32 << 10 && size.depth <= 512, "{size:?} of {text}");
            program.input.validate().expect("a valid format");
            let mut engine = Interpreter::new(&program, Limits { fuel: 1000, emissions: 4 });
            let event = vec![0x5a; program.input.size as usize];
            let _verdict_or_fault = engine.call(&event, &CallContext::default(), &mut |_| ());
            assert!(pretty(text).is_ok(), "a text that compiles can be formatted: {text}");
        }
        Err(errors) => {
            assert!(errors.iter().count() > 0);
            for error in errors.iter() {
                assert!(error.range().end <= text.len() || text.len() > 65536, "{error} in {text}");
            }
            assert!(!errors.render("f.ec", text, true).is_empty() && !errors.to_string().is_empty());
        }
    }
    if let Ok(formats) = parse_formats(text) {
        for format in formats {
            format.validate().expect("a valid format");
            let again = parse_formats(&format_text(&format)).expect("a valid declaration");
            assert_eq!(again[0].first_difference(&format), None);
        }
    }
    if let Ok(laid_out) = pretty(text)
        && laid_out.len() <= 65536
    {
        assert_eq!(pretty(&laid_out).expect("formatted text can be parsed"), laid_out);
    }
}

fn changed(text: &str, changes: &[(u16, u8, u8)]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for (at, how, what) in changes {
        let at = usize::from(*at) % (bytes.len() + 1);
        let word = WORDS[usize::from(*what) % WORDS.len()];
        let end = (at + usize::from(how / 4)).min(bytes.len());
        let stretch = bytes[at..end].to_vec();
        match how % 4 {
            0 => drop(bytes.splice(at..end, [])),
            1 => drop(bytes.splice(at..at, stretch)),
            2 => drop(bytes.splice(at..at, word.bytes())),
            _ => drop(bytes.splice(at..end, word.bytes())),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_give_a_program_or_errors(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check_text(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_words_give_a_program_or_errors(words in prop::collection::vec(0..WORDS.len(), 0..60)) {
        let words: Vec<&str> = words.into_iter().map(|word| WORDS[word]).collect();
        check_text(&words.join(" "));
    }

    #[test]
    fn any_statement_of_known_names_gives_a_program_or_errors(words in prop::collection::vec(0..WORDS.len(), 0..16)) {
        let words: Vec<&str> = words.into_iter().map(|word| WORDS[word]).collect();
        let known = "struct input { int a; struct { char b[4]; } s[2]; }; static long b[3]; int a; int f(int x) { return x; }";
        check_text(&format!("{known}\n{};", words.join(" ")));
    }

    #[test]
    fn damaged_programs_give_a_program_or_errors(
        which in 0..CORPUS.len(),
        changes in prop::collection::vec(any::<(u16, u8, u8)>(), 1..6),
    ) {
        check_text(&changed(CORPUS[which], &changes));
    }
}

#[test]
fn the_corpus_is_accepted() {
    for text in CORPUS {
        assert!(compile(text, &Environment::default()).is_ok());
        check_text(text);
    }
}

/// Runs on a stack of two megabytes, the size of a thread's stack. Quadratic work on ten megabytes would take too
/// long.
fn check_refused_soon(text: String) {
    let run = move || {
        assert!(compile(&text, &Environment::default()).is_err());
        check_text(&text);
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn ten_megabytes_are_refused_soon() {
    check_refused_soon("attr.x = 1;\n".repeat(870_000));
}

#[test]
fn deep_nesting_of_every_kind_is_refused() {
    let deep = |open: &str, middle: &str, close: &str| {
        check_refused_soon(format!("{}{middle}{}", open.repeat(100_000), close.repeat(100_000)));
        let fits = 60_000 / (open.len() + close.len());
        check_refused_soon(format!("{}{middle}{}", open.repeat(fits), close.repeat(fits)));
    };
    for (open, middle, close) in [
        ("(", "1", ")"),
        ("{", "", "}"),
        ("-", "1;", ""),
        ("1+", "1;", ""),
        ("a=", "1;", ""),
        ("1?", "1", ":1"),
        ("1?1:", "1;", ""),
        ("a[", "1", "]"),
        ("f(", "1", ")"),
        ("(int)", "1;", ""),
        ("sizeof ", "1;", ""),
        ("if(1)", ";", ""),
        ("if(1);else ", ";", ""),
        ("for(;;)", "break;", ""),
        ("do ", ";", "while(0);"),
        ("switch(1){case 1:", ";", "}"),
        ("struct{", "int a;", "}a;"),
        ("a.a", ";", ""),
        ("1,", "1;", ""),
    ] {
        deep(open, middle, close);
    }
    let cases: String = (0..63).map(|n| format!("case {n}:break;")).collect();
    check_refused_soon(format!("{}{}", format!("switch(now()){{{cases}default:").repeat(60), "}".repeat(60)));
    check_refused_soon(format!(
        "{}{}",
        format!("switch(now()){{default:break;{cases}case 99:").repeat(60),
        "}".repeat(60)
    ));
    deep("int a[]=", "", "");
    check_refused_soon(format!("int a = {}1{};", "{".repeat(20_000), "}".repeat(20_000)));
}

#[test]
fn wide_texts_are_refused_soon() {
    let many = |count: usize, part: &dyn Fn(usize) -> String| (0..count).map(part).collect::<String>();
    check_refused_soon(format!("int a{};", "[1]".repeat(20_000)));
    check_refused_soon(format!("struct {{ int a{}; }} b;", "[1]".repeat(20_000)));
    check_refused_soon(many(3000, &|n| format!("int a{n};")) + &many(5000, &|n| format!("b{n};")));
    check_refused_soon(many(5000, &|n| format!("f{n}(1);")));
    check_refused_soon(format!("int f({}) {{ }}", many(6000, &|n| format!("int a{n},"))));
    check_refused_soon(format!("void f(int a) {{ }}{}", "f();".repeat(15_000)));
    check_refused_soon(format!("struct {{ {} }} s;", many(7000, &|n| format!("char a{n};"))));
    check_refused_soon("}".repeat(60_000));
    check_refused_soon("'".repeat(60_000));
    check_refused_soon("\u{e9} ".repeat(20_000));
    check_refused_soon("while(1);".repeat(7_000));
    check_refused_soon(format!("switch (1) {{ {} }}", many(4000, &|n| format!("case {n}: break;"))));
    check_refused_soon(format!("switch (now()) {{ {} break; }}", many(6000, &|n| format!("case {n}:"))));
    check_refused_soon("#define A 1\n".repeat(5_000));
    check_refused_soon(format!("int a[] = {{{}}};", "1,".repeat(30_000)));
}

/// At the limits, no engine overflows its stack.
#[test]
fn programs_at_the_nesting_limit_run() {
    let run = || {
        check_text(&format!("int a = 1; return {}a{};", "-(".repeat(60), ")".repeat(60)));
        check_text(&format!("int a = 1; return a{};", " + a".repeat(120)));
        check_text(&format!("{}attr.x = 1;", "if (attr.x) ".repeat(120)));
        check_text(&format!("unsigned char a = 1; return {}a{};", "a + (char)(".repeat(40), ")".repeat(40)));
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn formats_that_would_fill_memory_are_refused() {
    let doubling: String = (1..15).map(|n| format!("struct s{n} {{ struct s{} a, b; }};\n", n - 1)).collect::<String>();
    check_refused_soon(format!("struct s0 {{ char a; }};\n{doubling}"));
    let many: String = (0..1500).map(|n| format!("struct t{n} {{ struct s a; }};\n")).collect();
    let members: String = (0..1000).map(|n| format!("char m{n};")).collect();
    let text = format!("struct s {{ {members} }};\n{many}");
    assert!(parse_formats(&text).is_err(), "a million members are too many");
}

#[test]
fn exponential_calls_are_refused_before_code_is_generated() {
    let doubling: String =
        (1..31).map(|n| format!("long f{n}(long x) {{ return f{}(x) + f{0}(x); }}\n", n - 1)).collect();
    check_refused_soon(format!("long f0(long x) {{ return x; }}\n{doubling}return f30(1);"));
    let many: String = (0..1700).map(|n| format!("long g{n}(int x) {{ return x; }}\n")).collect();
    let text = format!("{many}return {};", (0..100).map(|n| format!("g{n}(1)")).collect::<Vec<_>>().join("+"));
    check_text(&text);
}
