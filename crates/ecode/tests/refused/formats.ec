//// a member of another type
struct input { unsigned int len; unsigned int port; };
return 1;
//// a member at another offset
struct input { unsigned short port; };
return 1;
//// an unknown member of a format
struct input { unsigned int len; unsigned short port; unsigned short colour; };
return 1;
//// an entry parameter that is not an input member
int main(int rate) { return rate; }
//// an entry parameter of another type
int main(int len) { return len; }
