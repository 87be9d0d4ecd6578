/* output_routing.c: see output_routing.h. */
#include "ddp/launch/output_routing.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/format.h"
#include "common/base/memory.h"

// Parses "3" or "0:3,1:2" into modes[ranks].
static int parse_modes(const char *name, const char *text, int ranks, unsigned char *modes,
                       Error *err) {
    if (!text) return 0;
    if (strlen(text) == 1 && strchr("0123", text[0])) {
        memset(modes, text[0] - '0', (size_t)ranks);
        return 0;
    }
    for (const char *at = text; *at || at == text;) {
        uint64_t rank, mode;
        bool fine = format_read_number(&at, (uint64_t)ranks - 1, &rank) && *at++ == ':' &&
                    format_read_number(&at, 3, &mode) && format_read_comma(&at);
        if (!fine)
            return error_set(err, STATUS_USAGE,
                             "--%s '%s': use 0, 1, 2 or 3, or LOCAL_RANK:0..3,... with local ranks "
                             "below %d",
                             name, format_quote(text).text, ranks);
        modes[rank] = (unsigned char)mode;
    }
    return 0;
}

static int parse_shown(const char *text, int ranks, unsigned char *hidden, Error *err) {
    if (!text) return 0;
    memset(hidden, 3, (size_t)ranks);
    for (const char *at = text; *at || at == text;) {
        uint64_t rank;
        if (!format_read_number(&at, (uint64_t)ranks - 1, &rank) || !format_read_comma(&at))
            return error_set(err, STATUS_USAGE,
                             "--local-ranks-filter '%s': use local ranks below %d, as in 0,2",
                             format_quote(text).text, ranks);
        hidden[rank] = 0;
    }
    return 0;
}

int output_routing_parse(const OutputOptions *options, unsigned char *files, unsigned char *hidden,
                         Error *err) {
    int ranks = options->ranks;
    if ((options->redirects || options->tee) && !options->log_dir)
        return error_set(err, STATUS_USAGE,
                         "--redirects and --tee need --log-dir, where the files go");
    unsigned char *redirected = memory_zalloc((size_t)ranks);
    int status = parse_modes("redirects", options->redirects, ranks, redirected, err);
    if (!status) status = parse_modes("tee", options->tee, ranks, files, err);
    if (!status) status = parse_shown(options->shown, ranks, hidden, err);
    bool all = options->log_dir && !options->redirects && !options->tee;
    for (int r = 0; r < ranks && !status; r++) {
        if (all) files[r] = 3;
        hidden[r] |= (unsigned char)(redirected[r] & ~files[r]); // --tee overrides --redirects
        files[r] |= redirected[r];
    }
    free(redirected);
    return status;
}
