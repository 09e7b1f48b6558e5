//// a semicolon is missing at the end of the line
int a = 1
int b = 2;
//// a semicolon is missing before the closing brace
if (1) { int a = 1 }
//// a parenthesis is missing
int a = (1 + 2;
//// the parenthesis of a condition
if 1 return 0;
//// an operator without its right side
int a = 3 * ;
//// a keyword as a name
int for = 3;
//// a keyword as a value
return int;
//// a brace is never closed
if (1) {
    return 1;
//// a brace that closes nothing
return 1;
}
//// else without if
int a = 1;
else a = 2;
//// do without while
do { } return 1;
//// an index without its bracket
int a[3];
a[1 = 2;
//// two errors in two statements
int a = ;
int b = 1;
b = = 2;
//// a member without a type
struct input { rate; };
//// a case outside a switch
case 1: return 2;
//// a case in a nested block
switch (1) { case 1: { case 2: break; } }
//// a statement before the first case
switch (1) { return 1; case 1: return 2; }
//// a define with two values
#define A 1 + 2
return A;
//// a define without value
#define A
return 1;
//// an argument is missing between commas
return min(1, , 2);
//// a conditional expression without its second value
return 1 ? 2;
//// a semicolon is missing after a structure, before a statement
struct input { int len; }
return 1;
//// a semicolon is missing after a structure, before a type
struct input { int len; }
int f(int x) { return x; }
//// a semicolon is missing after a structure, before a call
struct input { int len; }
f(3);
//// a semicolon is missing after an enumeration
enum { A, B }
int a = A;
//// the sign of a comparison in the wrong order
int a = 1;
if (a => 3) return 1;
if (a =< 3) return 1;
//// a macro with parameters
#define SQUARE(x) ((x) * (x))
return SQUARE(3);
//// a function without the type of its result
main() { return 1; }
//// a function with parameters and without the type of its result
utility(int rate) { return rate * 4; }
return 1;
