/*
 * The overload controller of ECalls (003 §5.3, Figure 7), for service tcp.accept.
 *
 * An event is a SYN at a listening socket. The handler drops the SYN (verdict 0) while two criteria hold at once: more
 * connections are open than their threshold, AND more connections wait to be accepted than theirs. The server has spent
 * no work on the connection yet, and it answers the accepted connections before their clients give up. One criterion
 * alone is a burst that the server soon works off, or many connections without requests.
 *
 * The thresholds follow from the observed rate of completed connections: the server may have as many open connections as
 * it completes within `patience_ns`, and half as many in the queue. In the paper the thresholds are constants found by
 * experiment; the paper says that they could be adaptive.
 *
 * read     numconnects     open connections: stored by the server, or counted by connections.ec
 *          with_waiting    1: numconnects includes the connections that wait to be accepted (connections.ec counts them);
 *                          0: it does not, and the handler adds them
 *          completed       connections ended so far: stored by the server, or counted by connections.ec
 *          patience_ns     longest time that a connection may wait for the server
 *          fixed_connections, fixed_queue   thresholds set by the user; 0: the handler finds them
 * own      begun, done, waiting     at the begin of the window: time, completed connections, length of the queue
 *          learning        calls that are measuring; only the first one of several CPUs does
 * written  capacity        connections completed per second while connections always waited; 0: not known yet
 *          connections_limit, queue_limit, accept_queue     thresholds in force; last length of the queue
 *          syns, dropped   SYNs seen, SYNs dropped
 */
enum {
    WINDOW = 100000000,  /* ns over which a rate is measured */
    SECOND = 1000000000,
    UNKNOWN = 32,        /* threshold of connections before the capacity is known */
    LEAST = 2            /* smallest threshold of connections */
};

/* The handler has no static variables: handlers with such variables run on one CPU at a time, so under a flood of SYNs
 * on several CPUs requests would pass without a decision. */

/* A rate counts as the capacity if the server was busy: the queue was not empty at the begin and the end of the window. */
void learn(long time, long queue)
{
    long passed = time - attr.begun;
    if (passed < WINDOW)
        return;
    long rate = mul_div(attr.completed - attr.done, SECOND, passed);
    int busy = attr.waiting > 0 && queue > 0;
    if (rate > attr.capacity && (busy || attr.capacity > 0))
        attr.capacity = rate;
    else if (busy)
        attr.capacity = attr.capacity + (rate - attr.capacity) / 4;
    attr.begun = time;
    attr.done = attr.completed;
    attr.waiting = queue;
}

int main()
{
    if ((attr.learning += 1) == 1)
        learn(input.time, input.accept_queue);
    attr.learning -= 1;
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
