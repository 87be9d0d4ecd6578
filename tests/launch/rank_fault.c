/* rank_fault.c: a rank for tests of ddprun: it sends heartbeats, and if its rank is BAD, fails as
 * HOW says.
 *
 *     rank_fault BAD kill|stop|segv|hang|exit3|error
 *
 * Other ranks run for a minute and then exit with 99, which no test expects. With "error", BAD
 * reports an error in its heartbeat; the others lose the connection and exit before it.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "ddp/rendezvous/heartbeat.h"

static void rest(long ms) {
    struct timespec pause = {.tv_nsec = ms * 1000000};
    nanosleep(&pause, NULL);
}

static void fail(const char *how, Heartbeat *heartbeat) {
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    fprintf(stderr, "about to %s\n", how);
    if (strcmp(how, "kill") == 0) raise(SIGKILL);
    if (strcmp(how, "stop") == 0) raise(SIGSTOP);
    signal(SIGSEGV, SIG_DFL); // AddressSanitizer would turn it into an exit status
    if (strcmp(how, "segv") == 0) raise(SIGSEGV);
    if (strcmp(how, "exit3") == 0) exit(3);
    if (strcmp(how, "error") == 0) {
        rest(100);
        heartbeat_culprit(heartbeat);
        exit(1);
    }
    sleep(60); // "hang"
}

int main(int argc, char **argv) {
    const char *rank = getenv("RANK"), *local_rank = getenv("LOCAL_RANK");
    if (argc != 3 || !rank || !local_rank) return 98;
    Error err = {0};
    Heartbeat *heartbeat = NULL;
    if (heartbeat_open(atoi(local_rank), &heartbeat, &err) != 0 || !heartbeat) return 97;
    for (unsigned step = 0; step < 6000; step++) {
        heartbeat_enter(heartbeat, "train", step);
        heartbeat_collective(heartbeat, 10 * step + 2, "all_reduce");
        if (step == 17 && strcmp(rank, argv[1]) == 0) fail(argv[2], heartbeat);
        if (step == 17 && strcmp(argv[2], "error") == 0) exit(1);
        rest(10);
    }
    heartbeat_close(heartbeat);
    return 99;
}
