/* A moving average over the last eight samples; passes on what is far from it. */
#define N 8
#define FAR (1 << 4)
struct input { long when_ns; unsigned short value; signed char unit; };
struct output { long when_ns; long mean; unsigned long seen; };
enum { UNKNOWN = -1, CELSIUS, KELVIN = 5, FAHRENHEIT };

static long ring[N], sum = 0;
static unsigned long seen;
static const int weights[] = {1, 2, 3, -4, ~5, !6, 'a', 0x7f};
static const struct pair { int a; short b[2]; } pairs[2] = {{1, {2, 3}}, {4, {5, -6}}};

long weighted(long value, int by) {
    return by < 0 ? -value : by == 0 ? value : value * weights[by & 7] / (by + 1);
}

void record(long value) {
    int place = seen % N;
    sum -= ring[place];
    ring[place] = value;
    sum += value, seen++;
}

if (input.unit != CELSIUS && input.unit != KELVIN || !input.value) return 0;
record(input.value);
long mean = sum / (long)min(seen, N); /* never 0 */
switch (input.unit) {
case CELSIUS: case FAHRENHEIT + 1:
    mean = weighted(mean, 3);
    break;
case KELVIN: {
    mean -= 273;
    break;
}
default:
    return 0;
}
// What is near the mean is dropped.
for (int i = 0, j = N - 1; i < j; ++i, j--) if (abs(ring[i] - mean) > FAR) attr.outliers += 1;
do attr.turns++; while (attr.turns < 3);
while (attr.turns > 3) { --attr.turns; if (attr.turns == 7) continue; }
output.when_ns = input.when_ns; output.mean = clamp(mean, -1000, 1000); output.seen = seen;
{ struct pair p = pairs[1]; p.b[0] <<= 2; p.a ^= p.b[1] | sizeof(struct pair) % 7 & ~p.b[input.unit & 1]; attr.last = - -p.a; }
return abs(input.value - mean) > FAR ? emit(), 0 : 0;
