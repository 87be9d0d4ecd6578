/* rig.h: how a capstone's judge proves that its last check was reached. A student's file runs in
 * the judge's process and may end it, so status 0 alone proves nothing.
 */
#ifndef TUTORIALS_CAPSTONES_RIG_H
#define TUTORIALS_CAPSTONES_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Returns the word that tutorials/capstone expects, and removes it from the environment, before the
// student's file is loaded. The caller frees it; NULL: no word is expected.
static inline char *rig_take_word(void) {
    const char *word = getenv("CAPSTONE_WORD");
    char *own = word ? strdup(word) : NULL;
    unsetenv("CAPSTONE_WORD");
    return own;
}

// Prints the word after this rank's last check, and frees it.
static inline void rig_end(char *word, int rank) {
    if (word) printf("END %s %d\n", word, rank);
    free(word);
}

#endif
