/*
 * Counts the connections of a server that does not store their number itself, for service tcp.state.
 *
 * A connection is open from the end of its handshake until the server closes it or the connection is reset. A connection
 * that the client has closed (CLOSE_WAIT) still counts, because the server still has work with it.
 *
 * written  numconnects   open now
 *          completed     ended so far
 */
enum { ESTABLISHED = 1, SYN_RECV = 3, CLOSE_WAIT = 8 };

int was_open = input.old_state == ESTABLISHED || input.old_state == CLOSE_WAIT;
int is_open = input.state == ESTABLISHED || input.state == CLOSE_WAIT;

if (input.old_state == SYN_RECV && is_open)
    attr.numconnects += 1;
if (was_open && !is_open) {
    attr.numconnects -= 1;
    attr.completed += 1;
}
return 1;
