// first

// second, alone
struct input /* the event */ { int a; /* tail */ // and another
    // before b
    int b[2]; /* two
        lines */ };


/* before define */ #define LIMIT /* in define */ 3 // behind define
int x = /* in an expression */ input.a; // trailing
if (x /* why */ > LIMIT) // on the head
    return 1; // on the body
else // on the else
    x = 2;
/* own line */
while (x < 5) /* body */ { // open
    // first in block
    x++; /* a */ /* b */
    // last in block
}
x = max(x, // first argument
        3 /* second */);
do { x--; } /* between */ while (x > 0); // end of do
switch (x) { // sections
// before case
case 1: // behind case
    break; // behind break
default: /* d */ x = 1;
}
{ /* only a comment */ }
return x /* last */; // end
// the very end
