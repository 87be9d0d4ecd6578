/* port_holder.c: see port_holder.h. Reads /proc only; every failure returns "unknown". */
#include "ddp/store/port_holder.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TCP_STATE_LISTEN = 0x0A }; // as /proc/net/tcp writes it

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

static bool process_has_socket(const char *pid, unsigned long inode) {
    char path[300], wanted[64], link[64], name[600];
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *folder = opendir(path);
    if (!folder) return false;
    bool found = false;
    for (struct dirent *entry; !found && (entry = readdir(folder)) != NULL;) {
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        ssize_t n = readlink(name, link, sizeof link - 1);
        if (n <= 0) continue;
        link[n] = '\0';
        found = strcmp(link, wanted) == 0;
    }
    closedir(folder);
    return found;
}

static void write_process(const char *pid, char *text, size_t capacity) {
    char path[300], name[64] = "?";
    snprintf(path, sizeof path, "/proc/%s/comm", pid);
    FILE *file = fopen(path, "re");
    if (file) {
        if (fgets(name, sizeof name, file)) name[strcspn(name, "\n")] = '\0';
        fclose(file);
    }
    snprintf(text, capacity, " (held by %s, pid %s)", name, pid);
}

void port_holder_name(int port, char *text, size_t capacity) {
    text[0] = '\0';
    unsigned long inode = listener_inode("/proc/net/tcp", port);
    if (!inode) inode = listener_inode("/proc/net/tcp6", port);
    DIR *processes = inode ? opendir("/proc") : NULL;
    if (!processes) return;
    bool found = false;
    for (struct dirent *entry; !found && (entry = readdir(processes)) != NULL;) {
        if (strspn(entry->d_name, "0123456789") != strlen(entry->d_name)) continue;
        found = process_has_socket(entry->d_name, inode);
        if (found) write_process(entry->d_name, text, capacity);
    }
    closedir(processes);
}
