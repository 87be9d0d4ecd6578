/* checkpoint_find.c: which checkpoint of a folder to go on from.
 *
 * Every candidate is read in full, both files and their checksums, before it is called whole: the
 * newest one is the most likely to be hurt, by the same accident that makes one look for it. Names
 * and times of files are not believed, only the step that is written inside. Weights alone
 * (--save-init) are no candidates and are passed over silently.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "common/base/memory.h"
#include "common/train/checkpoint.h"

typedef struct Search {
    char *newest; // NULL: none so far
    uint64_t step;
    size_t damaged;
} Search;

static int is_candidate(const struct dirent *entry) {
    static const char END[] = ".safetensors";
    size_t length = strlen(entry->d_name);
    return length >= sizeof END && strcmp(entry->d_name + length - (sizeof END - 1), END) == 0;
}

static void look_at(Search *search, const char *path, Log *log) {
    Progress progress;
    Error why = {0};
    switch (checkpoint_check(path, &progress, &why)) {
    case CHECKPOINT_OTHER:
        return;
    case CHECKPOINT_DAMAGED:
        search->damaged++;
        log_say(log, "skipped %s", why.message);
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
    // Sorted: among equals, which best and last often are, every rank takes the same one.
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
