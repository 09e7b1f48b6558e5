//! Operators and conversions of integers.

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
