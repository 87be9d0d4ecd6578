/* routes.c: see routes.h. */
#include "ddp/launch/routes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory.h"

// Reads a number from 0 to `most` and steps over it.
static bool read_number(const char **at, int most, int *number) {
    char *end = NULL;
    errno = 0;
    if (**at < '0' || **at > '9') return false;
    long value = strtol(*at, &end, 10);
    if (errno || value > most) return false;
    *at = end;
    *number = (int)value;
    return true;
}

// Steps over the comma between two entries. False: neither that nor the end is there.
static bool next_entry(const char **at) {
    if (**at == ',') return *++*at != '\0';
    return **at == '\0';
}

// Reads "3" or "0:3,1:2" into modes[ranks].
static int parse_modes(const char *name, const char *text, int ranks, unsigned char *modes,
                       Error *err) {
    if (!text) return 0;
    if (strlen(text) == 1 && strchr("0123", text[0])) {
        memset(modes, text[0] - '0', (size_t)ranks);
        return 0;
    }
    for (const char *at = text; *at || at == text;) {
        int rank, mode;
        bool fine = read_number(&at, ranks - 1, &rank) && *at++ == ':' &&
                    read_number(&at, 3, &mode) && next_entry(&at);
        if (!fine)
            return error_set(err, STATUS_USAGE,
                             "--%s '%s': use 0, 1, 2 or 3, or LOCAL_RANK:0..3,... with local ranks "
                             "below %d",
                             name, text, ranks);
        modes[rank] = (unsigned char)mode;
    }
    return 0;
}

static int parse_shown(const char *text, int ranks, unsigned char *hidden, Error *err) {
    if (!text) return 0;
    memset(hidden, 3, (size_t)ranks);
    for (const char *at = text; *at || at == text;) {
        int rank;
        if (!read_number(&at, ranks - 1, &rank) || !next_entry(&at))
            return error_set(err, STATUS_USAGE,
                             "--local-ranks-filter '%s': use local ranks below %d, as in 0,2", text,
                             ranks);
        hidden[rank] = 0;
    }
    return 0;
}

int routes_read(const OutputOptions *options, unsigned char *files, unsigned char *hidden,
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
        hidden[r] |=
            (unsigned char)(redirected[r] & ~files[r]); // what is both redirected and teed is teed
        files[r] |= redirected[r];
    }
    free(redirected);
    return status;
}
