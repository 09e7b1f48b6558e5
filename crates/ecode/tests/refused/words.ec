//// a floating-point number in hexadecimal, and one without digits
double half = 0x1p-1;
return 1.5e > half;
//// a string as a number
return "abc" == 3;
//// a string without its closing quote
char a[8] = "abc;
return 1;
//// an unknown escape sequence
char a[8] = "a\q";
//// typographic quotes
return ‘a’;
//// a letter of another alphabet
int größe;
//// a character of two letters
return 'ab';
//// a character without its closing quote
return 'a;
//// a comment without its end
return 1; /* and so on
//// an include
#include <stdint.h>
return 1;
//// a number with letters in it
return 12ab;
//// a number beyond 64 bits
return 99999999999999999999;
//// a number that needs a suffix
return 18446744073709551615;
//// an octal number with a nine
return 09;
