/* Utility of a frame rate and a colour depth, in Q16.16. */
static int calls;

int utility1(int rate) { return rate*4; }

int utility2(int color_depth) { return color_depth; }

long weigh(long x, unsigned char by) {
    long w = fx_mul(fx_from(x), 98304); // 1.5
    if (by) w = fx_div(w, fx_from(by)); else return (unsigned int)w;
    return fx_to_int(w) + mul_div(x, 3, 7);
}

void count(void) { calls++; attr.calls += 1; }

// The entry.
int main(int rate, int color_depth) {
    count();
    int best = max(utility1(rate), utility2(color_depth));
    for (;;) {
        if (best > 100) break;
        best = best * 2 + 1;
    }
    return best >= 100 && weigh(best, calls) != 0;
}
