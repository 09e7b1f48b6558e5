/* CHECK ends a test program with exit code 1, the line, the expression and the last error. */
#include <qfabric.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MS UINT64_C(1000000)
#define CHECK(what)                                                                                            \
    do {                                                                                                       \
        if (!(what)) {                                                                                         \
            fprintf(stderr, "line %d: %s; last error: %s\n", __LINE__, #what, qf_last_error());                \
            exit(1);                                                                                           \
        }                                                                                                      \
    } while (0)
