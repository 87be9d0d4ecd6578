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

static int is_candidate(const struct dirent *entry) {
    return fnmatch("?*.safetensors", entry->d_name, 0) == 0;
}

int checkpoint_find(const char *folder, char **path, RunLog *log, Error *err) {
    struct dirent **entries;
    // Sorted, so that every rank chooses the same one of several with equal steps (best and last).
    int count = scandir(folder, &entries, is_candidate, alphasort);
    uint64_t newest = 0;
    size_t damaged = 0;
    *path = NULL;
    if (count < 0)
        return error_set(err, STATUS_USAGE, "cannot read the folder %s: %s", folder,
                         strerror(errno));
    for (int i = 0; i < count; i++) {
        char *candidate = memory_format("%s/%s", folder, entries[i]->d_name);
        Progress progress;
        Error why = {0};
        CheckpointState state = checkpoint_check(candidate, &progress, &why);
        if (state == CHECKPOINT_DAMAGED) {
            damaged++;
            if (log) log_say(log, "skipped %s", why.message);
        }
        if (state == CHECKPOINT_WHOLE && (!*path || progress.step > newest)) {
            free(*path);
            *path = memory_format("%s", candidate);
            newest = progress.step;
        }
        free(candidate);
        free(entries[i]);
    }
    free(entries);
    if (*path || damaged == 0) return 0;
    return error_set(err, STATUS_USAGE, "%s: no whole checkpoint; %zu damaged", folder, damaged);
}
