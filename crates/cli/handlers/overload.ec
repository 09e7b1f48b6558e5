/*
 * The overload controller of ECalls (003 §5.3, Figure 7), for service tcp.accept.
 *
 * An event is a SYN at a listening socket. While two criteria hold at once, more connections open than their
 * threshold AND more of them waiting to be accepted than theirs, it is dropped (verdict 0): nothing was spent on it
 * yet, and what was let in is answered before its client gives up. One criterion alone is a burst that the server
 * will soon have worked off, or many connections that ask for nothing.
 *
 * Thresholds follow from what the server is seen to complete: as many connections as it completes within
 * `patience_ns`, half of that in the queue. They were constants found by experiment in the paper, which says that
 * they could be adaptive.
 *
 * read     numconnects     open connections: stored by the server, or counted by connections.ec
 *          with_waiting    1: those that wait to be accepted are among them, as connections.ec counts; 0: a server's own
 *                          number, to which they are added
 *          completed       connections ended so far: the same
 *          patience_ns     how long a connection may wait for the server
 *          fixed_connections, fixed_queue   thresholds given by somebody; 0: found
 * written  capacity        connections completed per second by a server that always had some waiting; 0: not known
 *          connections_limit, queue_limit, accept_queue     thresholds in force; the queue as last seen
 *          syns, dropped   requests seen; those dropped
 */
enum {
    WINDOW = 100000000,  /* ns over which a rate is taken */
    SECOND = 1000000000,
    UNKNOWN = 32,        /* connections let in before a capacity is known */
    LEAST = 2            /* so many are always let in */
};

static long begun, done, waiting;  /* of the window: when, completed so far, queue at that moment */

/* A rate counts as the capacity if the server had something to do: the queue was not empty at both ends. */
void learn(long time, long queue)
{
    long passed = time - begun;
    if (passed < WINDOW)
        return;
    long rate = mul_div(attr.completed - done, SECOND, passed);
    int busy = waiting > 0 && queue > 0;
    if (rate > attr.capacity && (busy || attr.capacity > 0))
        attr.capacity = rate;
    else if (busy)
        attr.capacity = attr.capacity + (rate - attr.capacity) / 4;
    begun = time;
    done = attr.completed;
    waiting = queue;
}

int main()
{
    learn(input.time, input.accept_queue);
    long found = UNKNOWN;
    if (attr.capacity > 0)
        found = max(LEAST, mul_div(attr.capacity, attr.patience_ns, SECOND));
    attr.connections_limit = attr.fixed_connections > 0 ? attr.fixed_connections : found;
    attr.queue_limit = attr.fixed_queue > 0 ? attr.fixed_queue : found / 2;
    attr.accept_queue = input.accept_queue;
    attr.syns += 1;
    long open = attr.numconnects;
    if (!attr.with_waiting)
        open += input.accept_queue;
    if (open > attr.connections_limit && input.accept_queue > attr.queue_limit) {
        attr.dropped += 1;
        return 0;
    }
    return 1;
}
