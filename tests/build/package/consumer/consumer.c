/* SPDX-License-Identifier: BSD-3-Clause */
/* Asks the installed C library what memory an address belongs to. */
#include <stdio.h>

#include <rdmabuf/rdmabuf.h>

int main(void) {
    int variable = 0;
    rdmabuf_resolver* resolver = NULL;
    struct rdmabuf_allocation found = RDMABUF_INIT(found);
    if (rdmabuf_resolver_create(&resolver) < 0 || rdmabuf_find(resolver, &variable, &found) < 0 ||
        found.kind != RDMABUF_KIND_HOST) {
        fprintf(stderr, "%s\n", rdmabuf_last_error());
        return 1;
    }
    rdmabuf_resolver_destroy(&resolver);
    printf("%s\n", rdmabuf_version());
    return 0;
}
