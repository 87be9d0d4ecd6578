/* checkpoint_find.c: finds the newest complete checkpoint of a folder.
 *
 * Every candidate is read completely, both files with their checksums, because the accident that
 * ended the run probably damaged the newest one. Candidates are ordered by the step in their
 * metadata, not by name or time. Files of weights only (--save-init) are silently skipped.
 */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/tensor_files/checkpoint.h"

typedef struct Search {
    char *newest; // NULL: none found yet
    uint64_t step;
    size_t damaged;
} Search;

static int is_candidate(const struct dirent *entry) {
    return fnmatch("?*.safetensors", entry->d_name, 0) == 0;
}

static void look_at(Search *search, const char *path, Log *log) {
    Progress progress;
    Error why = {0};
    switch (checkpoint_check(path, &progress, &why)) {
    case CHECKPOINT_OTHER:
        return;
    case CHECKPOINT_DAMAGED:
        search->damaged++;
        if (log) log_say(log, "skipped %s", why.message);
        return;
    case CHECKPOINT_WHOLE:
        if (search->newest && progress.step <= search->step) return;
        free(search->newest);
        search->newest = memory_format("%s", path);
        search->step = progress.step;
    }
}

int checkpoint_find(const char *folder, char **path, Log *log, Error *err) {
    Search search = {0};
    struct dirent **entries;
    // Sorted, so that every rank chooses the same one of several with equal steps (best and last).
    int count = scandir(folder, &entries, is_candidate, alphasort);
    *path = NULL;
    if (count < 0)
        return error_set(err, STATUS_USAGE, "cannot look into %s: %s", folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        char *candidate = memory_format("%s/%s", folder, entries[i]->d_name);
        look_at(&search, candidate, log);
        free(candidate);
        free(entries[i]);
    }
    free(entries);
    *path = search.newest;
    if (search.newest || search.damaged == 0) return 0;
    return error_set(err, STATUS_USAGE, "%s: no whole checkpoint; %zu damaged", folder,
                     search.damaged);
}
