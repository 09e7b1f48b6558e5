//! `float` and `double`.

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
