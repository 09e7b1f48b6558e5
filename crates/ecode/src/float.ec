// Arithmetic on IEEE 754 binary64 numbers with integers, for the kernel, which has no floating point. Rounds to
// nearest, ties to even. Every NaN result is 0x7ff8000000000000. A number is sign, exponent, fraction: 1, 11, 52 bits.
//
// Inside a function a magnitude is `sig * 2^(e - 63)`: `sig` has 64 bits, its lowest bit also stands for all lower
// bits that were cut off.
#define SIGN 0x8000000000000000ul
#define INFINITE 0x7ff0000000000000ul
#define NAN 0x7ff8000000000000ul
#define FRACTION 0xffffffffffffful
#define HIDDEN 0x10000000000000ul
#define LOW 0xfffffffful

int is_nan(unsigned long a) { return (a & ~SIGN) > INFINITE; }

int leading_zeros(unsigned long x) {
    int n = 0;
    if (!(x >> 32)) { n = 32; x <<= 32; }
    if (!(x >> 48)) { n += 16; x <<= 16; }
    if (!(x >> 56)) { n += 8; x <<= 8; }
    if (!(x >> 60)) { n += 4; x <<= 4; }
    if (!(x >> 62)) { n += 2; x <<= 2; }
    if (!(x >> 63)) n++;
    return n;
}

// The magnitude rounded to `bits` fraction bits of a format whose exponents have this bias; the highest bit of `sig`
// is set unless the number is below the smallest normal one.
unsigned long rounded(int e, unsigned long sig, int bits, int bias) {
    int biased = e + bias;
    if (biased > 2 * bias) return (unsigned long)(2 * bias + 1) << bits;
    if (biased <= 0) {
        int by = 1 - biased;
        sig = by > 63 ? sig != 0 : sig >> by | (sig << 64 - by != 0);
        biased = 1;
    }
    int cut = 63 - bits;
    unsigned long kept = sig >> cut, rest = sig << 64 - cut;
    if (rest > SIGN || (rest == SIGN && (kept & 1))) kept++;
    return ((unsigned long)(biased - 1) << bits) + kept;
}

unsigned long packed(unsigned long sign, int e, unsigned long sig) {
    if (sig == 0) return sign;
    int n = leading_zeros(sig);
    return sign | rounded(e - n, sig << n, 52, 1023);
}

unsigned long add(unsigned long a, unsigned long b) {
    if (a << 1 < b << 1) { unsigned long c = a; a = b; b = c; }
    if ((a & ~SIGN) >= INFINITE) return is_nan(a) || (a ^ b) == SIGN ? NAN : a;
    unsigned long sign = a & SIGN;
    int ea = a << 1 >> 53, eb = b << 1 >> 53;
    unsigned long sa = a & FRACTION, sb = b & FRACTION;
    if (ea) sa |= HIDDEN; else ea = 1;
    if (eb) sb |= HIDDEN; else eb = 1;
    int by = ea - eb;
    sa <<= 9;
    sb <<= 9;
    if (by > 63) sb = sb != 0;
    else if (by) sb = sb >> by | (sb << 64 - by != 0);
    if ((a ^ b) & SIGN) {
        sa -= sb;
        if (sa == 0) return 0;
    } else sa += sb;
    return packed(sign, ea - 1021, sa);
}

unsigned long subtract(unsigned long a, unsigned long b) { return add(a, is_nan(b) ? b : b ^ SIGN); }

unsigned long multiply(unsigned long a, unsigned long b) {
    unsigned long sign = (a ^ b) & SIGN;
    a &= ~SIGN;
    b &= ~SIGN;
    if (a > INFINITE || b > INFINITE) return NAN;
    if (a == INFINITE || b == INFINITE) return a == 0 || b == 0 ? NAN : sign | INFINITE;
    if (a == 0 || b == 0) return sign;
    int ea = a >> 52, eb = b >> 52;
    a = ea ? (a & FRACTION | HIDDEN) << 11 : a << 11;
    b = eb ? (b & FRACTION | HIDDEN) << 11 : b << 11;
    if (ea == 0) { int n = leading_zeros(a); a <<= n; ea = 1 - n; }
    if (eb == 0) { int n = leading_zeros(b); b <<= n; eb = 1 - n; }
    unsigned long low = (a & LOW) * (b & LOW), left = (a >> 32) * (b & LOW), right = (a & LOW) * (b >> 32);
    unsigned long middle = (low >> 32) + (left & LOW) + (right & LOW);
    unsigned long high = (a >> 32) * (b >> 32) + (left >> 32) + (right >> 32) + (middle >> 32);
    if ((middle << 32 | low & LOW) != 0) high |= 1;
    return packed(sign, ea + eb - 2045, high);
}

unsigned long divide(unsigned long a, unsigned long b) {
    unsigned long sign = (a ^ b) & SIGN;
    a &= ~SIGN;
    b &= ~SIGN;
    if (a > INFINITE || b > INFINITE) return NAN;
    if (a == INFINITE) return b == INFINITE ? NAN : sign | INFINITE;
    if (b == INFINITE) return sign;
    if (b == 0) return a == 0 ? NAN : sign | INFINITE;
    if (a == 0) return sign;
    int ea = a >> 52, eb = b >> 52;
    if (ea) a = a & FRACTION | HIDDEN; else { int n = leading_zeros(a) - 11; a <<= n; ea = 1 - n; }
    if (eb) b = b & FRACTION | HIDDEN; else { int n = leading_zeros(b) - 11; b <<= n; eb = 1 - n; }
    if (a < b) { a <<= 1; ea--; }
    // Eleven bits of the quotient at a time, because the remainder has 53 bits.
    unsigned long quotient = a / b, rest = a % b << 11;
    quotient = quotient << 11 | rest / b;
    rest = rest % b << 11;
    quotient = quotient << 11 | rest / b;
    rest = rest % b << 11;
    quotient = quotient << 11 | rest / b;
    rest = rest % b << 11;
    quotient = quotient << 11 | rest / b;
    rest = rest % b << 11;
    quotient = quotient << 11 | rest / b;
    return sign | rounded(ea - eb, quotient << 8 | (rest % b != 0), 52, 1023);
}

int equal(unsigned long a, unsigned long b) { return !is_nan(a) && !is_nan(b) && (a == b || (a | b) << 1 == 0); }
int not_equal(unsigned long a, unsigned long b) { return !equal(a, b); }

int less(unsigned long a, unsigned long b) {
    if (is_nan(a) || is_nan(b)) return 0;
    if ((a ^ b) & SIGN) return (a & SIGN) != 0 && (a | b) << 1 != 0;
    return a & SIGN ? b < a : a < b;
}

int at_most(unsigned long a, unsigned long b) {
    if (is_nan(a) || is_nan(b)) return 0;
    if ((a ^ b) & SIGN) return (a & SIGN) != 0 || (a | b) << 1 == 0;
    return a & SIGN ? b <= a : a <= b;
}

int greater(unsigned long a, unsigned long b) { return less(b, a); }
int at_least(unsigned long a, unsigned long b) { return at_most(b, a); }

unsigned long from_unsigned(unsigned long x) {
    if (x == 0) return 0;
    int n = leading_zeros(x);
    x <<= n;
    unsigned long kept = x >> 11, rest = x << 53;
    if (rest > SIGN || (rest == SIGN && (kept & 1))) kept++;
    return ((unsigned long)(1085 - n) << 52) + kept;
}

unsigned long from_signed(long x) {
    unsigned long sign = x & SIGN;
    if (sign) x = -x;
    return sign | from_unsigned(x);
}

// Towards zero; the nearest number of the type if the value is outside, and 0 for NaN.
long to_signed(unsigned long a) {
    if (is_nan(a)) return 0;
    int e = (int)(a << 1 >> 53) - 1023;
    if (e < 0) return 0;
    if (e > 62) return a & SIGN ? 0x8000000000000000ul : 0x7fffffffffffffffl;
    long x = a & FRACTION | HIDDEN;
    x = e > 52 ? x << e - 52 : x >> 52 - e;
    return a & SIGN ? -x : x;
}

unsigned long to_unsigned(unsigned long a) {
    if (is_nan(a) || (a & SIGN)) return 0;
    int e = (int)(a >> 52) - 1023;
    if (e < 0) return 0;
    if (e > 63) return ~0ul;
    a = a & FRACTION | HIDDEN;
    return e > 52 ? a << e - 52 : a >> 52 - e;
}

// binary32 as binary64, which is exact.
unsigned long widened(unsigned int a) {
    unsigned long sign = (unsigned long)(a >> 31) << 63, fraction = a & 0x7fffff;
    int e = a >> 23 & 255;
    if (e == 255) return fraction ? NAN : sign | INFINITE;
    if (e == 0) return packed(sign, -86, fraction);
    return sign | (unsigned long)(e + 896) << 52 | fraction << 29;
}

unsigned int narrowed(unsigned long a) {
    unsigned int sign = a >> 63 << 31;
    if (is_nan(a)) return 0x7fc00000;
    if ((a & ~SIGN) == INFINITE) return sign | 0x7f800000;
    int e = a << 1 >> 53;
    if (e == 0) return sign;
    return sign | rounded(e - 1023, (a & FRACTION | HIDDEN) << 11, 23, 127);
}

// An integer for binary32 through binary64: more than 53 bits are cut to an odd number, so that only the second
// rounding counts.
long shortened(long x) { return x & 2047 ? x & ~2047l | 2048 : x; }
unsigned int single_from_signed(long x) {
    return narrowed(from_signed(x >= 1l << 53 || x <= -(1l << 53) ? shortened(x) : x));
}
unsigned int single_from_unsigned(unsigned long x) { return narrowed(from_unsigned(x >> 53 ? shortened(x) : x)); }
