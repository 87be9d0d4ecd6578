/* init_env.c: reads the environment into a Rendezvous (ddp/rendezvous/init.h).
 *
 * Precedence: torchrun's variables (ddprun sets the same); without RANK and WORLD_SIZE those of
 * Open MPI, PMI (MPICH), srun. A variable that is missing or out of range is an error that names
 * it.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/format.h"
#include "ddp/rendezvous/rendezvous_internal.h"

enum { DEFAULT_PORT = 29500 };

// The variable names of one launcher; NULL: it sets no such variable.
typedef struct Dialect {
    const char *rank, *world_size, *local_rank, *local_world_size;
    bool mpirun;
} Dialect;

static const Dialect TORCHRUN = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", false};
static const Dialect OTHERS[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", true},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", true},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL, false}, // srun
};

static const char *read_text(const char *name) { // an empty variable is a missing one
    const char *text = name ? getenv(name) : NULL;
    return text && *text ? text : NULL;
}

static int read_int(const char *name, int min, int max, int *value, Error *err) {
    const char *text = read_text(name), *at = text ? text + strspn(text, " ") : NULL;
    uint64_t number;
    if (!text || !format_read_number(&at, (uint64_t)max, &number) || *at || (int)number < min)
        return error_set(err, STATUS_USAGE, "%s must be a whole number from %d to %d, and is '%s'",
                         name, min, max, text ? text : "");
    *value = (int)number;
    return 0;
}

// Leaves *value unchanged if the variable is not set.
static int read_optional(const char *name, int min, int max, int *value, Error *err) {
    return read_text(name) ? read_int(name, min, max, value, err) : 0;
}

// One of OTHERS. A batch script outside srun has SLURM_PROCID 0 and SLURM_NTASKS, too, but is not a
// task: its rendezvous would time out. Only srun sets the step's id.
static bool usable(const Dialect *dialect) {
    if (!read_text(dialect->rank) || !read_text(dialect->world_size)) return false;
    return dialect->mpirun || !getenv("SLURM_JOB_ID") || getenv("SLURM_STEP_ID");
}

static const Dialect *find_dialect(void) {
    if (read_text("RANK") || read_text("WORLD_SIZE")) return &TORCHRUN;
    for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++)
        if (usable(&OTHERS[i])) return &OTHERS[i];
    return &TORCHRUN;
}

static const char *const NEEDED[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};

// Writes the variables of env:// that are missing and not given (-1): "A, B and C". Returns their
// number.
static int list_missing(int rank, int world_size, char text[80]) {
    const bool given[] = {rank >= 0, world_size >= 0, false, false};
    const char *missing[4];
    int count = 0;
    for (int i = 0; i < 4; i++)
        if (!given[i] && !read_text(NEEDED[i])) missing[count++] = NEEDED[i];
    text[0] = '\0';
    for (int i = 0; i < count; i++) {
        const char *joint = i == 0 ? "" : i == count - 1 ? " and " : ", ";
        format_append(text, 80, "%s%s", joint, missing[i]);
    }
    return count;
}

// Whether srun binds each task to one GPU (--gpus-per-task=1, --gpu-bind=single:1), the only one
// that the task sees. The ranks that a ddprun starts within a task share the task's GPUs.
static bool has_own_gpu(const Dialect *d) {
    static const char *const BINDINGS[] = {"SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK",
                                           "SLURM_GPU_BIND"};
    const char *visible = read_text("CUDA_VISIBLE_DEVICES");
    bool bound = false;
    for (size_t i = 0; i < sizeof BINDINGS / sizeof *BINDINGS; i++)
        bound = bound || read_text(BINDINGS[i]);
    return bound && d != &TORCHRUN && visible && !strchr(visible, ',');
}

// rank and world_size: -1 if not given.
static int read_who(Rendezvous *r, const Dialect *d, int rank, int world_size, Error *err) {
    r->rank = rank;
    r->world_size = world_size;
    if (world_size < 0 && read_int(d->world_size, 1, INIT_WORLD_MAX, &r->world_size, err) != 0)
        return -1;
    if (rank < 0) return read_int(d->rank, 0, r->world_size - 1, &r->rank, err);
    if (rank < r->world_size) return 0;
    return error_set(err, STATUS_USAGE, "there is no rank %d in a world of %d", rank,
                     r->world_size);
}

static int read_place(Rendezvous *r, const Dialect *d, Error *err) {
    const char *nodes = read_text("SLURM_STEP_NUM_NODES");
    if (!nodes) nodes = read_text("SLURM_NNODES");
    r->local_world_size = r->world_size;
    if (read_optional(d->local_world_size, 1, r->world_size, &r->local_world_size, err) != 0)
        return -1;
    r->own_gpu = has_own_gpu(d);
    r->by_mpirun = d->mpirun;
    r->several_hosts = r->local_world_size < r->world_size || (nodes && atoi(nodes) > 1);
    r->local_rank = r->rank % r->local_world_size;
    return read_optional(d->local_rank, 0, r->local_world_size - 1, &r->local_rank, err);
}

static int read_master(Rendezvous *r, Error *err) {
    const char *address = read_text("MASTER_ADDR");
    r->master_unknown = !address;
    if (address && strlen(address) >= sizeof r->master_addr)
        return error_set(err, STATUS_USAGE, "MASTER_ADDR is longer than %zu bytes",
                         sizeof r->master_addr - 1);
    if (address) strcpy(r->master_addr, address);
    r->master_port = DEFAULT_PORT;
    return read_optional("MASTER_PORT", 1, INIT_PORT_MAX, &r->master_port, err);
}

int init_read_token(char token[STORE_TOKEN_MAX + 1], Error *err) {
    const char *text = read_text("DDPRUN_TOKEN");
    if (text && strlen(text) > STORE_TOKEN_MAX)
        return error_set(err, STATUS_USAGE, "DDPRUN_TOKEN is longer than %d bytes",
                         STORE_TOKEN_MAX);
    if (text) strcpy(token, text);
    return 0;
}

int init_from_env_and(Rendezvous *rendezvous, int rank, int world_size, bool alone_is_fine,
                      Error *err) {
    Rendezvous *r = rendezvous;
    *r = (Rendezvous){.world_size = 1, .local_world_size = 1, .master_addr = "127.0.0.1"};
    const Dialect *dialect = rank < 0 && world_size < 0 ? find_dialect() : &TORCHRUN;
    char missing[80];
    const int count = dialect == &TORCHRUN ? list_missing(rank, world_size, missing) : 0;
    if (count == 4 && alone_is_fine) return 0;
    if (count > 0)
        return error_set(err, STATUS_USAGE,
                         "env:// needs RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: %s %s not set",
                         missing, count == 1 ? "is" : "are");
    if (read_who(r, dialect, rank, world_size, err) != 0) return -1;
    if (read_place(r, dialect, err) != 0 || read_master(r, err) != 0) return -1;
    if (init_read_token(r->token, err) != 0) return -1;
    const char *store = read_text("DDPRUN_STORE");
    r->launcher_store = store && strcmp(store, "0") != 0;
    r->fake_hosts = read_text("DDPRUN_FAKE_HOSTS") != NULL;
    return read_optional("TORCHELASTIC_RESTART_COUNT", 0, INT_MAX, &r->restart_count, err);
}

int init_from_env(Rendezvous *rendezvous, bool alone_is_fine, Error *err) {
    return init_from_env_and(rendezvous, -1, -1, alone_is_fine, err);
}
