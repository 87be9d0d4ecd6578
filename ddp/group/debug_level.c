/* debug_level.c: see debug_level.h. */
#include "ddp/group/debug_level.h"

#include <strings.h>

int debug_level_read(DebugLevel *level, Error *err) {
    const char *names[] = {"OFF", "INFO", "DETAIL"};
    const char *text = getenv("TORCH_DISTRIBUTED_DEBUG");
    *level = DEBUG_OFF;
    if (!text || !*text) return 0;
    for (int i = 0; i < 3; i++) {
        if (strcasecmp(text, names[i]) != 0) continue;
        *level = (DebugLevel)i;
        return 0;
    }
    return error_set(
        err, STATUS_USAGE,
        "The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL. (not '%s')", text);
}
