//// a member of another type
struct input { unsigned int len; unsigned int port; };
return 1;
//// a member at another place
struct input { unsigned short port; };
return 1;
//// a member that is not there
struct input { unsigned int len; unsigned short port; unsigned short colour; };
return 1;
//// a parameter that is no member
int main(int rate) { return rate; }
//// a parameter of another type
int main(int len) { return len; }
