/* rig.h: how a capstone's judge shows that it came to its own end. A student's file runs in the
 * judge's process and may end it: status 0 alone proves nothing.
 */
#ifndef TUTORIALS_CAPSTONES_RIG_H
#define TUTORIALS_CAPSTONES_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Takes the word that tutorials/capstone waits for out of the environment, before the student's
// file is loaded. The caller frees it; NULL: none is waited for.
static inline char *rig_take_word(void) {
    const char *word = getenv("CAPSTONE_WORD");
    char *own = word ? strdup(word) : NULL;
    unsetenv("CAPSTONE_WORD");
    return own;
}

// After the last check of this rank.
static inline void rig_end(char *word, int rank) {
    if (word) printf("END %s %d\n", word, rank);
    free(word);
}

#endif
