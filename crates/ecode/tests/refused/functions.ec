//// recursion
int f(int x) { return x ? f(x - 1) : 1; }
//// recursion through other functions
int f(int x) { return g(x); }
int g(int x) { return h(x); }
int h(int x) { return x ? f(x - 1) : 1; }
return f(3);
//// a function defined twice
int f(int x) { return x; }
int f(int y) { return y; }
return f(1);
//// a number in place of the result
struct point { int x; };
struct point f(int x) { return x; }
return 1;
//// a structure as the verdict
struct point { int x; };
struct point f(int x) { struct point p; return p; }
//// a structure defined in the head of a function
int f(struct point { int x; } p) { return p.x; }
return 1;
//// a type that is declared after its first use
int a = f(1);
typedef int number;
int f(number x) { return x; }
return a;
//// an array as parameter
int f(int table[3]) { return table[0]; }
return 1;
//// a parameter of type void
int f(int a, void b) { return a; }
return 1;
//// the wrong number of arguments
long scale(long x, long by) { return x * by; }
return scale(3);
//// a value from a void function
void f(int x) { attr.x = x; }
return f(3);
//// a void function that returns a value
void f(int x) { return x; }
f(3);
//// a function that returns no value
int f(int x) { return; }
return f(3);
//// a local variable outside all functions
int count;
int main(int x) { return x; }
//// an argument that is a structure
struct point { int x; } p;
int f(int x) { return x; }
return f(p);
//// printf without a format
printf(3);
//// printf with a conversion that is not offered
printf("%p", 3);
//// printf of a number as a string, and of a string that is too long
char name[64];
printf("%s %s", 3, name);
//// printf of strings that take too many words
char name[30];
printf("%s %s", name, name);
//// printf with too few and too many values
printf("%d");
printf("%d %d %d %d %d %d %d", 1, 2, 3, 4, 5, 6, 7);
//// printf of a fraction as an integer
double x;
printf("%d", x / 2);
