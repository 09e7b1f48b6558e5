//// a variable of type void
void a;
//// an array without a length
int table[];
//// an array whose length is not constant
int n = 3;
int table[n];
//// an array of no elements
int table[0];
//// an array of negative length
int table[-3];
//// an empty list of values
int table[] = {};
//// a structure without members
struct s { };
//// a structure declared twice
struct s { int a; };
struct s { int a; };
//// a static whose initial value is not constant
static long start = now();
//// a const static whose initial value is not constant
static const long start = now();
//// a constant without a value
const int a;
//// an enumeration constant beyond int
enum { LARGE = 3000000000 };
//// a define that is not constant
#define T now()
return T;
//// sizeof an unknown structure
return sizeof(struct nothing);
//// too many dimensions through typedefs
typedef int a[1][1][1][1];
typedef a b[1][1][1][1];
b c[1];
//// a length that is not a member
struct s { int a[n <= 3]; int n; };
//// a length that is not a number
struct s { int n[2]; int a[n <= 3]; };
//// a variable whose length changes
int n;
int a[n <= 3];
//// a string that is too long for its array
char a[3] = "abcd";
static char b[3] = "abcd";
