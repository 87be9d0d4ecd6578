/* launch_env.c: see launch_env.h. */
#include "ddp/launch/launch_env.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/error.h"
#include "common/base/memory.h"

enum { OURS_MAX = 40 }; // variables that launch_env_make can set; with fake hosts 32

// Sets NAME=value, and replaces an entry of that name.
static void set(char **environment, size_t *count, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void set(char **environment, size_t *count, const char *name, const char *format, ...) {
    char value[1024];
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    CHECK(bytes >= 0 && (size_t)bytes < sizeof value, "%s of %d bytes", name, bytes);

    size_t length = strlen(name), i = 0;
    while (i < *count &&
           (strncmp(environment[i], name, length) != 0 || environment[i][length] != '='))
        i++;
    if (i == *count)
        (*count)++;
    else
        free(environment[i]);
    environment[i] = memory_format("%s=%s", name, value);
}

static void set_fake_hosts(char **environment, size_t *count, const LaunchEnv *f) {
    static const char *const settings[][2] = {
        {"NCCL_MNNVL_ENABLE", "0"}, {"NCCL_NET", "Socket"},     {"NCCL_IB_DISABLE", "1"},
        {"NCCL_P2P_DISABLE", "1"},  {"NCCL_SHM_DISABLE", "1"},  {"NCCL_SOCKET_IFNAME", "lo"},
        {"NCCL_NVLS_ENABLE", "0"},  {"NCCL_ALGO", "Ring"},      {"NCCL_PROTO", "Simple"},
        {"NCCL_MAX_CTAS", "2"},     {"DDPRUN_FAKE_HOSTS", "1"},
    };
    set(environment, count, "NCCL_HOSTID", "ddprun%d-%d", f->master_port, f->rank);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (!getenv(settings[i][0])) set(environment, count, settings[i][0], "%s", settings[i][1]);
}

const char *launch_env_threads(int local_ranks) {
    bool omp = !getenv("OMP_NUM_THREADS"), blas = !getenv("OPENBLAS_NUM_THREADS");
    if (local_ranks == 1 || (!omp && !blas)) return NULL;
    if (omp && blas) return "OMP_NUM_THREADS and OPENBLAS_NUM_THREADS";
    return omp ? "OMP_NUM_THREADS" : "OPENBLAS_NUM_THREADS";
}

char **launch_env_make(const LaunchEnv *f) {
    size_t count = 0;
    while (environ[count]) count++;
    char **list = memory_zalloc((count + OURS_MAX + 1) * sizeof *list); // NULL ends it
    for (size_t i = 0; i < count; i++) list[i] = memory_format("%s", environ[i]);

    set(list, &count, "RANK", "%d", f->rank);
    set(list, &count, "LOCAL_RANK", "%d", f->local_rank);
    set(list, &count, "WORLD_SIZE", "%d", f->world_size);
    set(list, &count, "LOCAL_WORLD_SIZE", "%d", f->local_world_size);
    set(list, &count, "GROUP_RANK", "%d", f->node);
    set(list, &count, "GROUP_WORLD_SIZE", "%d", f->nodes);
    set(list, &count, "ROLE_NAME", "default");
    set(list, &count, "ROLE_RANK", "%d", f->rank);
    set(list, &count, "ROLE_WORLD_SIZE", "%d", f->world_size);
    set(list, &count, "MASTER_ADDR", "%s", f->master_addr);
    set(list, &count, "MASTER_PORT", "%d", f->master_port);
    set(list, &count, "TORCHELASTIC_RESTART_COUNT", "%d", f->restart_count);
    set(list, &count, "TORCHELASTIC_MAX_RESTARTS", "%d", f->max_restarts);
    set(list, &count, "TORCHELASTIC_RUN_ID", "none");
    set(list, &count, "DDPRUN_STORE", "1");
    set(list, &count, "DDPRUN_TOKEN", "%s", f->token);
    set(list, &count, "DDPRUN_HEARTBEAT", "%d", f->heartbeat_fd);
    set(list, &count, "DDPRUN_COLUMNS", "%zu", f->terminal_columns);
    if (f->fake_hosts) set_fake_hosts(list, &count, f);
    if (f->local_world_size > 1) {
        if (!getenv("OMP_NUM_THREADS")) set(list, &count, "OMP_NUM_THREADS", "1");
        if (!getenv("OPENBLAS_NUM_THREADS")) set(list, &count, "OPENBLAS_NUM_THREADS", "1");
    }
    return list;
}

void launch_env_free(char **environment) {
    if (!environment) return;
    for (size_t i = 0; environment[i]; i++) free(environment[i]);
    free(environment);
}
