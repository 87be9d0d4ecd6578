/* print_bits_table.c: prints common/train/bits_table.c for the scripts that check the programs and
 * bits.md by it: a line per row, "options TAB when TAB reason TAB remedy", "-" for what is NULL.
 */
#include <stdio.h>

#include "common/train/bits_table.h"

static const char *text_of(const char *text) {
    return text ? text : "-";
}

int main(void) {
    size_t count;
    const BitsRow *rows = bits_table(&count);
    for (size_t i = 0; i < count; i++) {
        CHECK(!rows[i].breaks == !rows[i].when, "--%s: a condition in C or in words alone",
              rows[i].options);
        printf("%s\t%s\t%s\t%s\n", rows[i].options, text_of(rows[i].when), rows[i].reason,
               text_of(rows[i].remedy));
    }
    return 0;
}
