//// the input is never written
input.len = 3;
//// the input is not incremented
input.len++;
//// a constant is not assigned to
#define A 3
A = 4;
//// a const local is not assigned to
const long now_ns = now();
now_ns = 3;
//// a const table is not assigned to
static const int table[3] = {1, 2, 3};
table[1] = 3;
//// a sum is not assigned to
1 + 2 = 3;
//// a call is not assigned to
now() = 3;
//// a structure is not a number
return input;
//// an array is not a number
static int table[3];
return table + 1;
//// a number is not a structure
int a;
return a.b;
//// a number is not an array
int a;
return a[1];
//// a constant has no members
#define A 3
return A.b;
//// an array has no members
static struct { int x; } table[3];
return table.x;
//// an index beyond the end
static int table[3];
return table[3];
//// a negative index
static int table[3];
table[-1] = 1;
//// an index beyond the end by a constant expression
#define N 4
static int table[N][2];
return table[N / 2][N - 2];
//// a division by zero
return 1 / (2 - 2);
//// a remainder by zero
int a = 1;
a %= 0;
//// a number assigned to a structure
struct point { int x; } p;
p = 3;
//// a structure assigned to a number
int a;
a = input;
//// a structure assigned to an attribute
attr.last = input;
//// a structure assigned to another type of structure
struct point { int x; } p;
p = input;
//// structures of different types in a choice
struct point { int x; } p;
struct other { long x; } q;
int a = (1 ? p : q).x;
//// a number in place of a structure
struct point { int x; } p;
int f(struct point p) { return p.x; }
return f(3);
//// a type as a value
typedef int number;
return number + 1;
//// a structure initialised with a number
struct point { int x; } p = 3;
//// a list with too many values
int table[2] = {1, 2, 3};
//// too many values without inner braces
struct point { int x; int y[2]; } p = {1, 2, 3, 4};
//// a number in place of a list
int table[2] = 3;
//// a null pointer
return input.len == NULL;
//// true
return input.len == true;
//// a number initialised with two values
int a = {1, 2};
//// a conversion to a structure
struct point { int x; } p;
return (struct point)p;
//// too few arguments
return min(1);
//// too many arguments
return now(3);
//// a comparison in place of an assignment
int a;
a == 3;
//// a number in place of a string
int a;
return strlen(a) + strcmp(3, "a");
//// an array that is too long for a function of strings
static char a[300];
return strlen(a);
//// a string is not written to
strcpy("abc", "def");
