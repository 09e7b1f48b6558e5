//// an unknown name
return treshold;
//// a misspelt name
int threshold = 3;
return treshold;
//// a constant of the environment, misspelt
return LIMT;
//// a member of the input without input
return len;
//// a misspelt member
return input.lenn;
//// an unknown member
return input.colour;
//// an unknown function
return frobnicate(1);
//// a misspelt function
return mni(1, 2);
//// an attribute function of COD
return attr_ivalue(stone_attrs, "load");
//// a submit to a second output
EVsubmit(1, output);
//// a submit where a variable hides the output
int output = 0;
EVsubmit(0, output);
//// a queue without several inputs
return EVcount_load();
//// a function of COD for queues
return EVdiscard_and_submit_load(0, 0);
//// a function of C
return rand() % 6;
//// a function that is not called
return now;
//// attr alone
return attr;
//// a name that is declared twice
int a = 1;
long a = 2;
//// a constant of the environment declared again
#define LIMIT 3
//// a name after the end of its block
{ int a = 1; }
return a;
//// a name in its own initial value
int a = a + 1;
//// a local variable of the statements used in a function
int count = 0;
int next(int by) { return count + by; }
return next(1);
//// get_attribute with a number
return get_attribute(3);
//// an unknown structure
struct point { int x; };
struct pint p;
//// two members with one name
struct s { int a; long a; };
