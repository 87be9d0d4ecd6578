/* port_holder.c: see port_holder.h. Reads /proc only; every failure returns "unknown". */
#include "ddp/store/port_holder.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TCP_STATE_LISTEN = 0x0A }; // in /proc/net/tcp

// A line reads "sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...";
// addresses are HEX:PORT.
static unsigned long listener_inode(const char *table, int port) {
    FILE *file = fopen(table, "re");
    if (!file) return 0;
    char line[512];
    unsigned long found = 0;
    while (!found && fgets(line, sizeof line, file)) {
        unsigned local_port = 0, state = 0;
        unsigned long inode = 0;
        int fields = sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %*s %*s %lu",
                            &local_port, &state, &inode);
        if (fields == 3 && local_port == (unsigned)port && state == TCP_STATE_LISTEN) found = inode;
    }
    fclose(file);
    return found;
}

static void write_process(int pid, char *text, size_t capacity) {
    char path[64], name[64] = "?";
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    FILE *file = fopen(path, "re");
    if (file) {
        if (fgets(name, sizeof name, file)) name[strcspn(name, "\n")] = '\0';
        fclose(file);
    }
    snprintf(text, capacity, " (held by %s, pid %d)", name, pid);
}

void port_holder_name(int port, char *text, size_t capacity) {
    char wanted[64], link[64];
    glob_t all;
    int holder = 0;
    text[0] = '\0';
    unsigned long inode = listener_inode("/proc/net/tcp", port);
    if (!inode) inode = listener_inode("/proc/net/tcp6", port);
    if (!inode || glob("/proc/[0-9]*/fd/*", GLOB_NOSORT, NULL, &all) != 0) return;
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    for (size_t i = 0; i < all.gl_pathc; i++) {
        const ssize_t n = readlink(all.gl_pathv[i], link, sizeof link - 1);
        link[n > 0 ? n : 0] = '\0';
        const int pid = atoi(all.gl_pathv[i] + strlen("/proc/"));
        if (strcmp(link, wanted) == 0 && (holder == 0 || pid < holder)) holder = pid;
    }
    if (holder != 0) write_process(holder, text, capacity);
    globfree(&all);
}
