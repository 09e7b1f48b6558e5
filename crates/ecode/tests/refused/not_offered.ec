//// float
float f;
//// double in a function
double half(double x) { return x; }
//// a pointer
char *p;
//// a pointer as a parameter
int f(int *p) { return 1; }
//// the address of a variable
int a;
int b = &a;
//// what a pointer points to
int a;
a = *a;
//// a statement that follows a pointer
*a = 3;
//// an arrow
return input->len;
//// a conversion to a pointer
return (int *)3;
//// goto
goto end;
//// a label
end: return 1;
//// typedef
typedef int number;
//// union
union u { int a; };
//// a bit field
struct input { int flag : 1; };
//// a kernel's type
u32 a = 1;
//// bool
bool a = 1;
//// size_t
size_t a = 1;
//// a misspelt type
unit32_t a = 1;
//// a structure without its word
point p;
//// two types at once
long char a;
//// short and long at once
short long a;
//// signed and unsigned at once
signed unsigned a;
//// a function inside of another one
int f(int x) { int g(int y) { return y; } return x; }
//// a function that is only announced
int f(int x);
return f(1);
