/* job.h: runs a job (ddprun and its ranks) in a test and finds the processes, files and ports that
 * it leaves behind.
 *
 * The processes of a job are found by DDPC_JOB=ID in their environment, which child processes
 * inherit and /proc shows: also a process whose parent has died and that has left its process
 * group. A job that does not end by its deadline is killed with all its processes.
 */
#ifndef TESTS_CHAOS_JOB_H
#define TESTS_CHAOS_JOB_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { JOB_SAID_MAX = 16 * 1024, JOB_VARIABLES_MAX = 4, JOB_PIDS_MAX = 64 };

typedef struct Job {
    // Set by the caller:
    const char *const *argv;                  // ends with NULL
    const char *variables[JOB_VARIABLES_MAX]; // "NAME=value", added to the environment
    double deadline_s;
    // Results:
    char id[64];
    pid_t pid;
    int stderr_fd;
    int status; // from waitpid
    bool late;  // it was killed at the deadline
    uint64_t started_ns;
    uint64_t reported_ns; // time of the first line "ddprun: rank ..." or "ddprun: received ..."
    uint64_t ended_ns;
    char said[JOB_SAID_MAX]; // the beginning of stderr
    size_t said_bytes;
} Job;

void job_start(Job *job);
// Reads the job's stderr and waits for its end; kills it at the deadline.
void job_await(Job *job);
// Reads the job's stderr for `seconds`. Returns true if the job has ended; job_await then returns
// at once.
bool job_pause(Job *job, double seconds);

// Finds the job's processes; zombies do not count. Returns their number and the first JOB_PIDS_MAX
// in pids.
int job_processes(const char *id, pid_t pids[JOB_PIDS_MAX]);
pid_t job_rank(const char *id, int rank); // 0: it is not running
// Waits up to patience_s until no process is left. Kills the remaining ones and returns their
// number.
int job_leftovers(const char *id, double patience_s);

// The exit status as a shell reports it: 128 + the number of a signal.
int job_exit_status(const Job *job);

// The names in a folder, for a comparison with a later state.
typedef struct Listing {
    char **names;
    size_t count;
} Listing;
Listing listing_take(const char *folder);
void listing_free(Listing *listing);
// Returns how many names in the folder are not in the listing; copies the first into name.
size_t listing_new(const Listing *before, const char *folder, char name[NAME_MAX + 1]);

// Gives this process and its children their own /dev/shm, without other programs' files. Call
// before any thread is started. Returns false where the system does not allow it.
bool shm_isolate(void);

// Gives this thread and its children their own network with 127.0.0.1 only, in which no other
// program takes ports. Call after shm_isolate. Returns false where the system does not allow it.
bool network_isolate(void);

bool port_is_free(int port); // on 127.0.0.1

char *job_program(const char *name); // the path in this program's folder; free() it

#endif
