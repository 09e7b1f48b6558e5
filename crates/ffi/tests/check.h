/* What the programs of these tests end with where something does not hold. */
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
