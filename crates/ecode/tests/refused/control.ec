//// a for loop without an end
for (;;) { attr.x += 1; }
//// a while loop that is always true
while (1) attr.x += 1;
//// a do loop that is always true
do { attr.x += 1; } while (1);
//// the loop does not change the condition
int i = 0, j = 0;
while (i < 10) j++;
//// the loop changes another variable
for (int i = 0; i < 10; input.len) { int j = 0; j++; }
//// a break of an inner loop does not end the outer one
while (1) { while (1) { break; } }
//// the input does not change
while (input.len > 3) attr.x += 1;
//// break outside a loop
break;
//// continue outside a loop
if (input.len) continue;
//// continue in a switch outside a loop
switch (input.len) { case 1: continue; }
//// a case falls through
switch (input.len) { case 1: attr.x += 1; case 2: attr.y += 1; break; }
//// a break in the middle of a case
switch (input.len) { case 1: if (input.port) break; attr.x += 1; break; }
//// a label twice
switch (input.len) { case 1: break; case 2: case 1: break; }
//// default twice
switch (input.len) { default: break; default: break; }
//// a label that is not constant
switch (input.len) { case input.port: break; }
