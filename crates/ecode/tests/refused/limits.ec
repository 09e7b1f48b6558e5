//// a structure beyond 16 KiB
struct input { char page[20000]; };
//// too many members
struct a { char m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29, m30, m31, m32, m33, m34, m35, m36, m37, m38, m39; };
struct b { struct a m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19, m20, m21, m22, m23, m24, m25, m26, m27, m28, m29; };
//// structures nested too deep
struct s0 { int a; };
struct s1 { struct s0 a; };
struct s2 { struct s1 a; };
struct s3 { struct s2 a; };
struct s4 { struct s3 a; };
struct s5 { struct s4 a; };
struct s6 { struct s5 a; };
struct s7 { struct s6 a; };
struct s8 { struct s7 a; };
struct s9 { struct s8 a; };
struct s10 { struct s9 a; };
struct s11 { struct s10 a; };
struct s12 { struct s11 a; };
struct s13 { struct s12 a; };
struct s14 { struct s13 a; };
struct s15 { struct s14 a; };
struct s16 { struct s15 a; };
struct s17 { struct s16 a; };

//// locals beyond 32 KiB
int small[1000];
long large[4000];
//// statics beyond 32 KiB
static long table[2000];
static long more[3000];
//// an array of more elements than memory
static char table[100000];
//// input, output and locals together
struct input { char a[16000]; };
struct output { char a[16000]; };
char table[2000];
output.a[0] = input.a[table[0]];
//// 65 attributes
attr.a0 = 1; attr.a1 = 1; attr.a2 = 1; attr.a3 = 1; attr.a4 = 1; attr.a5 = 1; attr.a6 = 1; attr.a7 = 1; attr.a8 = 1; attr.a9 = 1; attr.a10 = 1; attr.a11 = 1; attr.a12 = 1;
attr.a13 = 1; attr.a14 = 1; attr.a15 = 1; attr.a16 = 1; attr.a17 = 1; attr.a18 = 1; attr.a19 = 1; attr.a20 = 1; attr.a21 = 1; attr.a22 = 1; attr.a23 = 1; attr.a24 = 1; attr.a25 = 1;
attr.a26 = 1; attr.a27 = 1; attr.a28 = 1; attr.a29 = 1; attr.a30 = 1; attr.a31 = 1; attr.a32 = 1; attr.a33 = 1; attr.a34 = 1; attr.a35 = 1; attr.a36 = 1; attr.a37 = 1; attr.a38 = 1;
attr.a39 = 1; attr.a40 = 1; attr.a41 = 1; attr.a42 = 1; attr.a43 = 1; attr.a44 = 1; attr.a45 = 1; attr.a46 = 1; attr.a47 = 1; attr.a48 = 1; attr.a49 = 1; attr.a50 = 1; attr.a51 = 1;
attr.a52 = 1; attr.a53 = 1; attr.a54 = 1; attr.a55 = 1; attr.a56 = 1; attr.a57 = 1; attr.a58 = 1; attr.a59 = 1; attr.a60 = 1; attr.a61 = 1; attr.a62 = 1; attr.a63 = 1; attr.a64 = 1;
//// nested parentheses
return ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))));
//// a chain of operators
return 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1 + 1;
//// nested blocks
{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}}
//// exponential calls
long f0(long x) { return x * 3 + 1; }
long f1(long x) { return f0(x) + f0(x + 1); }
long f2(long x) { return f1(x) + f1(x + 1); }
long f3(long x) { return f2(x) + f2(x + 1); }
long f4(long x) { return f3(x) + f3(x + 1); }
long f5(long x) { return f4(x) + f4(x + 1); }
long f6(long x) { return f5(x) + f5(x + 1); }
long f7(long x) { return f6(x) + f6(x + 1); }
long f8(long x) { return f7(x) + f7(x + 1); }
long f9(long x) { return f8(x) + f8(x + 1); }
long f10(long x) { return f9(x) + f9(x + 1); }
long f11(long x) { return f10(x) + f10(x + 1); }
long f12(long x) { return f11(x) + f11(x + 1); }
long f13(long x) { return f12(x) + f12(x + 1); }
long f14(long x) { return f13(x) + f13(x + 1); }
long f15(long x) { return f14(x) + f14(x + 1); }
return f15(1);
//// calls too deep
int f0(int x) { return x; }
int f1(int x) { return f0(x); }
int f2(int x) { return f1(x); }
int f3(int x) { return f2(x); }
int f4(int x) { return f3(x); }
int f5(int x) { return f4(x); }
int f6(int x) { return f5(x); }
int f7(int x) { return f6(x); }
int f8(int x) { return f7(x); }
int f9(int x) { return f8(x); }
int f10(int x) { return f9(x); }
int f11(int x) { return f10(x); }
int f12(int x) { return f11(x); }
int f13(int x) { return f12(x); }
int f14(int x) { return f13(x); }
int f15(int x) { return f14(x); }
int f16(int x) { return f15(x); }
int f17(int x) { return f16(x); }
int f18(int x) { return f17(x); }
int f19(int x) { return f18(x); }
int f20(int x) { return f19(x); }
int f21(int x) { return f20(x); }
int f22(int x) { return f21(x); }
int f23(int x) { return f22(x); }
int f24(int x) { return f23(x); }
int f25(int x) { return f24(x); }
int f26(int x) { return f25(x); }
int f27(int x) { return f26(x); }
int f28(int x) { return f27(x); }
int f29(int x) { return f28(x); }
int f30(int x) { return f29(x); }
int f31(int x) { return f30(x); }
int f32(int x) { return f31(x); }
int f33(int x) { return f32(x); }
return f33(1);
//// nested calls of nested expressions
long f0(long x) { return x; }
long f1(long x) { return -(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(f0(x))))))))))))))))))))))))))))))))))))))))); }
long f2(long x) { return -(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(f1(x))))))))))))))))))))))))))))))))))))))))); }
long f3(long x) { return -(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(f2(x))))))))))))))))))))))))))))))))))))))))); }
long f4(long x) { return -(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(f3(x))))))))))))))))))))))))))))))))))))))))); }
long f5(long x) { return -(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(f4(x))))))))))))))))))))))))))))))))))))))))); }
long f6(long x) { return -(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(f5(x))))))))))))))))))))))))))))))))))))))))); }
long f7(long x) { return -(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(f6(x))))))))))))))))))))))))))))))))))))))))); }
long f8(long x) { return -(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(f7(x))))))))))))))))))))))))))))))))))))))))); }
long f9(long x) { return -(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(f8(x))))))))))))))))))))))))))))))))))))))))); }
long f10(long x) { return -(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(f9(x))))))))))))))))))))))))))))))))))))))))); }
long f11(long x) { return -(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(f10(x))))))))))))))))))))))))))))))))))))))))); }
long f12(long x) { return -(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(f11(x))))))))))))))))))))))))))))))))))))))))); }
long f13(long x) { return -(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(f12(x))))))))))))))))))))))))))))))))))))))))); }
return f13(1);
//// too many labels
switch (now()) {
case 0: break;
case 1: break;
case 2: break;
case 3: break;
case 4: break;
case 5: break;
case 6: break;
case 7: break;
case 8: break;
case 9: break;
case 10: break;
case 11: break;
case 12: break;
case 13: break;
case 14: break;
case 15: break;
case 16: break;
case 17: break;
case 18: break;
case 19: break;
case 20: break;
case 21: break;
case 22: break;
case 23: break;
case 24: break;
case 25: break;
case 26: break;
case 27: break;
case 28: break;
case 29: break;
case 30: break;
case 31: break;
case 32: break;
case 33: break;
case 34: break;
case 35: break;
case 36: break;
case 37: break;
case 38: break;
case 39: break;
case 40: break;
case 41: break;
case 42: break;
case 43: break;
case 44: break;
case 45: break;
case 46: break;
case 47: break;
case 48: break;
case 49: break;
case 50: break;
case 51: break;
case 52: break;
case 53: break;
case 54: break;
case 55: break;
case 56: break;
case 57: break;
case 58: break;
case 59: break;
case 60: break;
case 61: break;
case 62: break;
case 63: break;
case 64: break;
}
//// too many dimensions
int table[1][1][1][1][1][1][1][1][1];
//// too many parameters
int f(int a0, int a1, int a2, int a3, int a4, int a5, int a6, int a7, int a8, int a9, int a10, int a11, int a12, int a13, int a14, int a15, int a16, int a17, int a18, int a19, int a20, int a21, int a22, int a23, int a24, int a25, int a26, int a27, int a28, int a29, int a30, int a31, int a32, int a33, int a34, int a35, int a36, int a37, int a38, int a39, int a40, int a41, int a42, int a43, int a44, int a45, int a46, int a47, int a48, int a49, int a50, int a51, int a52, int a53, int a54, int a55, int a56, int a57, int a58, int a59, int a60, int a61, int a62, int a63, int a64, int a65) { return a0; }
//// too many characters in the functions of strings
static char a[256];
int f1(int x) { return strlen(a) + strlen(a) + strlen(a) + strlen(a) + strlen(a) + strlen(a) + strlen(a) + strlen(a); }
int f2(int x) { return strlen(a) + strlen(a) + strlen(a) + strlen(a) + strlen(a) + strlen(a) + strlen(a) + strlen(a); }
int f3(int x) { return strlen(a); }
//// an event too large for a queue
struct input { int which; struct { char bytes[9000]; } big; };
return EVcount_big();
