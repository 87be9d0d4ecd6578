/* output_routing.c: parses --redirects, --tee and --local-ranks-filter: which stream of which rank
 * is written to a log file, to the console or to both.
 *
 *   log_dir    folder of the log files; alone, all output is teed
 *   redirects  streams written to the log file only
 *   tee        streams written to the log file and the console
 *   shown      local ranks whose output the console shows, "0,2"; NULL: all
 *
 * redirects and tee are in torchrun's notation: "0" none, "1" stdout, "2" stderr, "3" both, for all
 * local ranks; or by local rank, "0:3,1:2".
 */
#include <string.h>

#include "common/base/format.h"
#include "ddp/launch/output.h"

// Parses "0:3,1:2", or "0,2" if has_modes is false, into modes[ranks]. False: malformed.
static bool parse_list(const char *text, int ranks, bool has_modes, unsigned char *modes) {
    for (const char *at = text; *at || at == text;) {
        uint64_t rank, mode = 0;
        if (!format_read_number(&at, (uint64_t)ranks - 1, &rank)) return false;
        if (has_modes && (*at++ != ':' || !format_read_number(&at, 3, &mode))) return false;
        if (!format_read_comma(&at)) return false;
        modes[rank] = (unsigned char)mode;
    }
    return true;
}

// Parses "3" or "0:3,1:2" into modes[ranks].
static int parse_modes(const char *name, const char *text, int ranks, unsigned char *modes,
                       Error *err) {
    if (!text) return 0;
    if (strlen(text) == 1 && strchr("0123", text[0])) {
        memset(modes, text[0] - '0', (size_t)ranks);
        return 0;
    }
    if (parse_list(text, ranks, true, modes)) return 0;
    return error_set(err, STATUS_USAGE,
                     "--%s '%s': use 0, 1, 2 or 3, or LOCAL_RANK:0..3,... with local ranks below "
                     "%d",
                     name, format_quote(text).text, ranks);
}

int output_routing_parse(const LaunchOptions *options, unsigned char files[LAUNCH_RANKS_MAX],
                         unsigned char hidden[LAUNCH_RANKS_MAX], Error *err) {
    unsigned char redirected[LAUNCH_RANKS_MAX] = {0};
    const LaunchOptions *o = options;
    int ranks = o->local_ranks;
    if ((o->redirects || o->tee) && !o->log_dir)
        return error_set(err, STATUS_USAGE,
                         "--redirects and --tee need --log-dir, where the files go");
    memset(files, o->log_dir && !o->redirects && !o->tee ? 3 : 0, (size_t)ranks);
    memset(hidden, o->shown ? 3 : 0, (size_t)ranks);
    if (parse_modes("redirects", o->redirects, ranks, redirected, err) != 0 ||
        parse_modes("tee", o->tee, ranks, files, err) != 0)
        return -1;
    if (o->shown && !parse_list(o->shown, ranks, false, hidden))
        return error_set(err, STATUS_USAGE,
                         "--local-ranks-filter '%s': use local ranks below %d, as in 0,2",
                         format_quote(o->shown).text, ranks);
    for (int r = 0; r < ranks; r++) {
        hidden[r] |= (unsigned char)(redirected[r] & ~files[r]); // --tee overrides --redirects
        files[r] |= redirected[r];
    }
    return 0;
}
