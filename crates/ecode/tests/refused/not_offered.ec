//// long double
long double f;
//// an unsigned float
unsigned float f;
//// floating point and operators on bits
double a;
return a % 2 + (a << 1) + ~a;
//// floating point as an index, a label and a length
double a;
int t[3];
return t[a];
//// floating point in a switch
double a;
switch (a) { case 1: return 1; }
//// floating point as a length
int t[2.5];
//// a pointer
char *p;
//// a pointer as a parameter
int f(int *p) { return 1; }
//// the address of a variable
int a;
int b = &a;
//// a dereferenced pointer
int a;
a = *a;
//// an assignment through a pointer
*a = 3;
//// an arrow
return input->len;
//// a conversion to a pointer
return (int *)3;
//// goto
goto end;
//// a label
end: return 1;
//// a typedef with static
static typedef int number;
//// a typedef in a parameter
int f(typedef int number) { return 1; }
//// a typedef with a value
typedef int number = 3;
//// union
union u { int a; };
//// a bit field
struct input { int flag : 1; };
//// a kernel type
u32 a = 1;
//// bool
bool a = 1;
//// size_t
size_t a = 1;
//// a misspelt type
unit32_t a = 1;
//// a structure type without struct
point p;
//// two types
long char a;
//// short and long
short long a;
//// signed and unsigned
signed unsigned a;
//// a function inside another function
int f(int x) { int g(int y) { return y; } return x; }
//// a function without a body
int f(int x);
return f(1);
//// volatile and its like
volatile int a;
static volatile int b;
extern long c;
register int d;
//// a definition in the style of K&R
int add(a, b) int a, b; { return a + b; }
//// a designated member
struct point { int x, y; } p = {.x = 1};
//// a designated element
int table[4] = {[2] = 1};
