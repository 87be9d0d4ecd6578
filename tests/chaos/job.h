/* job.h: running a job (ddprun and all that it starts) in a test, and looking at what it leaves.
 *
 * Every process of a job is known by DDPC_JOB=ID in its environment, which processes inherit and
 * /proc shows: so a process that has lost its parent and its group is found too. A job that does
 * not end by its deadline is killed, whole.
 */
#ifndef TESTS_CHAOS_JOB_H
#define TESTS_CHAOS_JOB_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { JOB_SAID_MAX = 16 * 1024, JOB_VARIABLES_MAX = 4, JOB_PIDS_MAX = 64 };

typedef struct Job {
    // What is to run:
    const char *const *argv;                  // ends with NULL
    const char *variables[JOB_VARIABLES_MAX]; // "NAME=value", added to the environment
    double deadline_s;
    // What became of it:
    char id[64];
    pid_t pid;
    int stderr_fd;
    int status; // as of waitpid
    bool late;  // it had to be killed
    uint64_t started_ns;
    uint64_t reported_ns; // when the first line "ddprun: rank ..." or "ddprun: received ..." came
    uint64_t ended_ns;
    char said[JOB_SAID_MAX]; // stderr, as far as it fits
    size_t said_bytes;
} Job;

void job_start(Job *job);
// Reads its stderr and waits for its end; kills it at the deadline.
void job_await(Job *job);
// Waits `seconds` meanwhile reading its stderr; true if it has ended (then job_await returns at
// once).
bool job_pause(Job *job, double seconds);

// The processes of a job (zombies are dead). Returns how many; the first JOB_PIDS_MAX in pids.
int job_processes(const char *id, pid_t pids[JOB_PIDS_MAX]);
pid_t job_rank(const char *id, int rank); // 0: it does not run now
// Waits until none is left, at most so long. Returns how many are; kills them.
int job_leftovers(const char *id, double patience_s);

// Exit status as a shell gives it: 128 + number for a signal.
int job_exit_status(const Job *job);

// Names in a folder, to be compared with what it holds later.
typedef struct Listing {
    char **names;
    size_t count;
} Listing;
Listing listing_take(const char *folder);
void listing_free(Listing *listing);
// How many names in the folder the listing has not; writes the first into name.
size_t listing_new(const Listing *before, const char *folder, char name[NAME_MAX + 1]);

// Gives this process, and all it starts, a /dev/shm of their own, so that what other programs do
// there is not seen. Before any thread is started. False where the system does not allow it.
bool shm_isolate(void);

// Gives this thread, and all that it starts, a network of its own with nothing but 127.0.0.1, so
// that no other program takes its ports. After shm_isolate; false where the system does not allow
// it.
bool network_isolate(void);

bool port_is_free(int port); // on 127.0.0.1

char *job_program(const char *name); // its path: in this program's folder; free() it

#endif
