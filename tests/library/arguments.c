/* arguments.c: wrong arguments of public functions: NULL, and numbers out of range. Each call runs
 * in its own process, which must end with an Error that names the cause or with a CHECK that names
 * the argument: never by another signal, and without a wait. nulls.h, written by arguments.sh, has
 * a call for every pointer of every public function; closes.h calls every _close with NULL, which
 * does nothing.
 */
#include <ddpc/ddpc.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int cases, failures;
static Error err;
static max_align_t dummy[4096]; // the target of every other pointer

typedef void Call(void);

// Runs the call in a child process. Writes the child's message into text and returns waitpid's
// status.
static int run(Call *call, char *text, size_t capacity) {
    int ends[2], status;
    fflush(stdout);
    if (pipe(ends) != 0) abort();
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]), close(ends[1]);
        alarm(10);
        call();
        if (err.status) fprintf(stderr, "error: %s\n", err.message);
        _exit(err.status ? 2 : 0);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t n;
         length < capacity - 1 && (n = read(ends[0], text + length, capacity - 1 - length)) > 0;)
        length += (size_t)n;
    text[length] = '\0';
    close(ends[0]);
    waitpid(child, &status, 0);
    return status;
}

// word: a part of the message. NULL: the call is allowed and succeeds.
static void expect(const char *what, const char *word, Call *call) {
    char text[4096];
    int status = run(call, text, sizeof text);
    bool aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, "CHECK(");
    bool refused = WIFEXITED(status) && WEXITSTATUS(status) != 0;
    bool good = word ? (aborted || refused) && strstr(text, word)
                     : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    cases++;
    if (good) return;
    failures++;
    printf("FAILED: %s: %s %d, says: %s\n", what, WIFSIGNALED(status) ? "signal" : "status",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), text);
}

#include "nulls.h"

// ---- numbers, and pointers inside structs -------------------------------------------------------

static Device *device(void) {
    return must_get(device_open("cpu:0", &err), &err);
}

static Rendezvous alone(void) {
    Rendezvous me;
    must_do(init_from_env(&me, true, &err), &err);
    return me;
}

static void model(ModelConfig config) {
    (void)model_create(&config, device(), &err);
}

static void group_of(int rank, int world, double timeout_s) {
    Rendezvous me = alone();
    me.rank = rank, me.world_size = world;
    (void)init_process_group("shm", &me, NULL, timeout_s, &err);
}

static void connect_to(int port, double timeout_s) {
    (void)store_connect("127.0.0.1", port, "", timeout_s, &err);
}

static ProcessGroup *thread_group(void) {
    ProcessGroup *group;
    must_do(init_thread_groups(1, 5, &group, &err), &err);
    return group;
}

static void threads(int world, double timeout_s) {
    ProcessGroup *groups[64];
    (void)init_thread_groups(world, timeout_s, groups, &err);
}

static void barrier_within(double timeout_s) {
    (void)pg_monitored_barrier(thread_group(), timeout_s, false, &err);
}

static void wait_in_store(double timeout_s) {
    StoreServer *server = must_get(store_serve("127.0.0.1", 0, "", &err), &err);
    Store *store =
        must_get(store_connect("127.0.0.1", store_server_port(server), "", 5, &err), &err);
    (void)store_wait(store, "key", timeout_s, &err);
}

static void close_twice(void) {
    ProcessGroup *group = thread_group();
    pg_close(group);
    pg_close(group);
}

static void close_and(void (*use)(ProcessGroup *group)) {
    ProcessGroup *group = thread_group();
    pg_close(group);
    use(group);
}

static void reduce_in(ProcessGroup *group) {
    (void)pg_run(group, pg_all_reduce(dummy, 1, PG_F32, PG_SUM), &err);
}

static PgWork *start_in(ProcessGroup *group) {
    return must_get(pg_start(group, pg_barrier(), &err), &err);
}

static void wait_for(PgWork *work, int times) {
    for (int i = 0; i < times; i++) must_do(pg_work_wait(work, NULL, NULL, &err), &err);
}

static void wait_after_close(void) {
    ProcessGroup *group = thread_group();
    PgWork *work = start_in(group);
    pg_close(group);
    wait_for(work, 1);
}

static int rank_main(ProcessGroup *group, const Rendezvous *me, void *arguments) {
    return (void)group, (void)me, (void)arguments, 0;
}

static void wrap(int devices) {
    Device *list[80];
    for (int i = 0; i < 80; i++) list[i] = device();
    (void)data_parallel(layer_linear(list[0], 2, 2), list, devices, &err);
}

static void wrap_nothing(void) {
    Device *list[] = {device(), NULL};
    (void)data_parallel(layer_linear(list[0], 2, 2), list, 2, &err);
}

static void shape_of(int ndim, const size_t *shape) {
    (void)tape_tensor(tape_create(device(), NULL), DTYPE_F32, ndim, shape);
}

static const size_t dummy_shape[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};

static Tensor *forward(Module *self, Tape *tape, Tensor *x) {
    return (void)self, (void)tape, x;
}

static Tape *training(void) {
    static Tape *tape; // one in each child process
    if (!tape) tape = tape_create(device(), NULL);
    return tape;
}

static Tensor *picture(void) {
    return tape_input(training(), DTYPE_F32, 4, (size_t[]){1, 3, 4, 4}, dummy);
}

// The operation's error, which the tape keeps.
static void after(const Tensor *result) {
    if (!result) (void)tape_error(training(), &err);
}

static void backward_of(Tensor *loss) {
    (void)tape_backward(training(), loss, &err);
}

static Tensor *some_loss(Tape *tape) {
    Module *model = layer_linear(device(), 2, 2);
    Tensor *x = tape_input(tape, DTYPE_F32, 2, (size_t[]){2, 2}, dummy);
    return op_mean(tape, module_forward(model, tape, x));
}

static void backward_after_reset(void) {
    Tensor *loss = some_loss(training());
    tape_reset(training());
    backward_of(loss);
}

static Optimizer *sgd_of_two(void) {
    return optimizer_create(layer_linear(device(), 2, 2),
                            &(OptimizerConfig){.kind = OPTIMIZER_SGD});
}

static void gpt_of(GptSizes sizes, size_t vocabulary) {
    (void)gpt_create(&sizes, vocabulary, device(), &err);
}

static void peer_of(int rank) {
    ProcessGroup *group = thread_group();
    (void)pg_peer_memory(group, must_get(pg_shared_alloc(group, 8, &err), &err), rank);
}

static Module *wrapped(void) {
    Device *list[] = {device()};
    return data_parallel(layer_linear(list[0], 2, 2), list, 1, &err);
}

static Sampler *dummy_sampler(void) {
    return sampler_whole(10, 5, false, false, 0, &err);
}

// A loader whose sampler is closed, before its epoch starts or after it.
static void next_without_sampler(bool started) {
    const Dataset set = {.count = 10,
                         .shape = {1, 1, 1},
                         .classes = 1,
                         .floats = (float *)dummy,
                         .labels = (int64_t *)dummy};
    Sampler *rows = dummy_sampler();
    Loader *loader = loader_create(&set, rows, NULL, 0, device());
    if (started) loader_start(loader, 0, 0);
    sampler_close(rows);
    if (!started) loader_start(loader, 0, 0);
    (void)loader_next(loader);
}

static void add_pair(const char *first, const char *second) {
    Module *parent = module_create("M", forward);
    module_add(parent, first, module_create("List", NULL));
    module_add(parent, second, module_create("List", NULL));
}

// Ties the weight of one layer `times` times to that of another, which has another input size.
static void tie(size_t in, size_t others_in, int times) {
    Device *cpu = device();
    Module *module = layer_linear(cpu, in, 2), *owner = layer_linear(cpu, others_in, 2);
    for (int i = 0; i < times; i++) module_tie_parameter(module, "weight", owner, "weight");
}

static void adjust(OptimizerConfig config) {
    (void)optimizer_create(layer_linear(device(), 2, 2), &config);
}

static int drop_gradients(Module *wrapper, Profile *profile, Error *error) {
    (void)profile, (void)error;
    module_zero_grad(wrapper);
    return 0;
}

static Module *ddp_of_one(void) {
    const DdpConfig config = ddp_config_default();
    return must_get(
        distributed_data_parallel(layer_linear(device(), 2, 2), thread_group(), &config, &err),
        &err);
}

static void close_wrapped(void) {
    module_close(ddp_module(ddp_of_one()));
}

static void add_to_two(void) {
    Module *child = module_create("M", forward);
    module_add(module_create("M", forward), "a", child);
    module_add(module_create("M", forward), "b", child);
}

static void add_to_itself(void) {
    Module *module = module_create("M", forward);
    module_add(module, "a", module);
}

static void close_group_first(void) {
    pg_close(ddp_group(ddp_of_one()));
}

static void unwrap_twice(void) {
    Module *wrapper = ddp_of_one();
    (void)ddp_unwrap(wrapper);
    (void)ddp_unwrap(wrapper);
}

// The optimizer of `module`, which is closed before it.
static Optimizer *outlives(Module *module) {
    Optimizer *sgd = optimizer_create(module, &(OptimizerConfig){.kind = OPTIMIZER_SGD});
    module_close(module);
    return sgd;
}

// Backward of a loss whose operand is an activation of another tape.
static void backward_across(void) {
    Tape *other = tape_create(device(), NULL);
    Tensor *x = tape_input(other, DTYPE_F32, 2, (size_t[]){2, 2}, dummy);
    Tensor *y = module_forward(layer_linear(device(), 2, 2), other, x);
    backward_of(op_mean(training(), y));
}

static void set_static_graph_late(void) {
    Module *wrapper = ddp_of_one();
    (void)module_forward(wrapper, training(),
                         tape_input(training(), DTYPE_F32, 2, (size_t[]){2, 2}, dummy));
    ddp_set_static_graph(wrapper);
}

// One step of DDP on one rank, with `between` after its backward.
static void step_with(int (*between)(Module *wrapper, Profile *profile, Error *err)) {
    Module *wrapper = ddp_of_one();
    Optimizer *sgd = optimizer_create(wrapper, &(OptimizerConfig){.kind = OPTIMIZER_SGD});
    Tensor *x = tape_input(training(), DTYPE_F32, 2, (size_t[]){2, 2}, dummy);
    Tensor *classes = tape_input(training(), DTYPE_I64, 1, (size_t[]){2}, dummy);
    Tensor *y = module_forward(wrapper, training(), x);
    backward_of(op_cross_entropy(training(), y, classes, 2));
    if (between) must_do(between(wrapper, NULL, &err), &err);
    optimizer_step(sgd, 0.1);
}

static void nothing(void *argument) {
    (void)argument;
}

static void close_nothing(void) {
#include "closes.h"
    join_abandon(NULL);
}

// The longest name of a module. A path of three of them has 31 characters left.
#define LONG "thirty-one-characters-in-a-name"

static void add_named(const char *child, const char *name) {
    Module *model = module_create("M", forward), *at = model;
    for (int i = 0; i < 3; i++) at = module_add(at, LONG, module_create("M", forward));
    at = module_add(at, child, module_create("M", forward));
    (void)module_add_buffer(at, device(), name, DTYPE_F32, 0, NULL);
    (void)module_tensors(model, MODULE_BUFFERS);
}

static void without_error(void) {
    if (device_open("nothing:0", NULL)) abort();
    if (dataset_open("nothing", 0, NULL)) abort();
}

// Each call, and a part of the message that it must end with.
#define CALLS(CALL)                                                                                \
    CALL(0, "timeout_s", group_of(0, 1, NAN))                                                      \
    CALL(1, "timeout_s", group_of(0, 1, INFINITY))                                                 \
    CALL(2, "timeout_s", group_of(0, 1, -1))                                                       \
    CALL(3, "timeout_s", group_of(0, 1, 0))                                                        \
    CALL(4, "rank 3", group_of(3, 2, 5))                                                           \
    CALL(5, "rank -1", group_of(-1, 2, 5))                                                         \
    CALL(6, "world of 0", group_of(0, 0, 5))                                                       \
    CALL(7, "timeout_s", connect_to(1, NAN))                                                       \
    CALL(8, "timeout_s", connect_to(1, INFINITY))                                                  \
    CALL(9, "port 99999", connect_to(99999, 1))                                                    \
    CALL(10, "port 0", connect_to(0, 1))                                                           \
    CALL(11, "port 99999", (void)store_serve("127.0.0.1", 99999, "", &err))                        \
    CALL(12, "port -1", (void)store_serve("127.0.0.1", -1, "", &err))                              \
    CALL(13, "timeout_s", threads(2, NAN))                                                         \
    CALL(14, "timeout_s", threads(2, INFINITY))                                                    \
    CALL(15, "world of 0", threads(0, 5))                                                          \
    CALL(16, "world of -1", threads(-1, 5))                                                        \
    CALL(17, "timeout_s", barrier_within(NAN))                                                     \
    CALL(18, "timeout_s", barrier_within(INFINITY))                                                \
    CALL(19, "timeout_s", wait_in_store(NAN))                                                      \
    CALL(20, "timeout_s", wait_in_store(INFINITY))                                                 \
    CALL(21, "closed already", close_twice())                                                      \
    CALL(22, "without hidden",                                                                     \
         model((ModelConfig){.name = "mlp", .input = {4, 1, 1}, .outputs = 2}))                    \
    CALL(23, "hidden",                                                                             \
         model((ModelConfig){.name = "mlp", .hidden = "0", .input = {4, 1, 1}, .outputs = 2}))     \
    CALL(24, "config->name", model((ModelConfig){.outputs = 2}))                                   \
    CALL(25, "no model", model((ModelConfig){.name = "nothing"}))                                  \
    CALL(26, "0 ranks", (void)launch_processes(rank_main, 0, 1, 0, "auto", NULL, &err))            \
    CALL(27, "machine", (void)launch_processes(rank_main, 1, 0, 0, "auto", NULL, &err))            \
    CALL(28, "device", wrap(0))                                                                    \
    CALL(29, "device", wrap(-1))                                                                   \
    CALL(30, "device", wrap(65))                                                                   \
    CALL(31, "ndim", shape_of(5, (size_t[]){1, 1, 1, 1, 1}))                                       \
    CALL(32, "ndim", shape_of(-1, NULL))                                                           \
    CALL(33, "shape", shape_of(2, NULL))                                                           \
    CALL(34, "options->name", (void)dataset_open_with(&(DataOptions){0}, &err))                    \
    CALL(35, "batch", (void)sampler_whole(10, 0, false, false, 0, &err))                           \
    CALL(36, "world", (void)sampler_blocked(10, 5, 0, 0, false, false, 0, &err))                   \
    CALL(37, "rank", (void)sampler_blocked(10, 4, 2, 2, false, false, 0, &err))                    \
    CALL(38, "world", (void)distributed_sampler(10, 4, 0, 0, false, false, 0, &err))               \
    CALL(39, "world", (void)distributed_count(10, 0, false))                                       \
    CALL(40, "batch", (void)sampler_evaluation(10, 0, 1, 0))                                       \
    CALL(41, "world", (void)sampler_evaluation(10, 5, 0, 0))                                       \
    CALL(42, "chunks", size_t begin, end; chunk_bounds(10, 0, 0, &begin, &end))                    \
    CALL(43, "root", (void)pg_run(thread_group(), pg_broadcast(dummy, 1, PG_F32, 7), &err))        \
    CALL(44, "buffer", (void)pg_run(thread_group(), pg_all_reduce(NULL, 1, PG_F32, PG_SUM), &err)) \
    CALL(45, "count", (void)tuple_create(tape_create(device(), NULL), NULL, -1))                   \
    CALL(46, "cpu:99999999999", (void)device_open("cpu:99999999999", &err))                        \
    CALL(47, NULL, close_nothing(), without_error())                                               \
    CALL(48, "max_pool", after(op_max_pool(training(), picture(), 0, 0, 0)))                       \
    CALL(49, "avg_pool", after(op_avg_pool(training(), picture(), 2, 0, 0)))                       \
    CALL(50, "stride", (void)layer_conv2d(device(), 3, 4, 3, 0, 1, true))                          \
    CALL(51, "kernel", (void)layer_max_pool(0, 1, 0))                                              \
    CALL(52, "shortcut", after(op_shortcut(training(), picture(), 3, 0)))                          \
    CALL(53, "attention", after(op_attention(training(), picture(), 0, 0)))                        \
    CALL(54, "0 heads", (void)gpt_create(&(GptSizes){0}, 0, device(), &err))                       \
    CALL(55, "s\" is too long", add_named("", LONG "s"))                                           \
    CALL(56, "ndim",                                                                               \
         (void)module_add_parameter(module_create("M", forward), device(), "weight", 7,            \
                                    dummy_shape))                                                  \
    CALL(57, "child", (void)module_child(module_create("M", forward), "nothing"))                  \
    CALL(58, "bytes", (void)device_alloc(device(), (size_t)-1 / 2))                                \
    CALL(59, "bytes", (void)tape_alloc(training(), (size_t)-1 / 2))                                \
    CALL(60, "dim", data_parallel_set_dim(wrapped(), 99))                                          \
    CALL(61, "dim", data_parallel_set_dim(wrapped(), -1))                                          \
    CALL(62, "depth",                                                                              \
         (void)loader_create(&(Dataset){0}, dummy_sampler(), NULL, (size_t)-1, device()))          \
    CALL(63, "schedule", (void)schedule_lr(&(Schedule){.kind = (ScheduleKind)99}, 5))              \
    CALL(64, "seconds",                                                                            \
         (void)(device_submit(device(), nothing, NULL), device_wait(device(), NAN, &err)))         \
    CALL(65, "ndim", (void)tensor_make(device(), DTYPE_F32, 9, dummy_shape, NULL))                 \
    CALL(66, "one_hot", after(op_one_hot(training(), picture(), 0)))                               \
    CALL(67, "devices[1]", wrap_nothing())                                                         \
    CALL(68, "config->kind",                                                                       \
         (void)optimizer_create(layer_linear(device(), 2, 2),                                      \
                                &(OptimizerConfig){.kind = (OptimizerKind)77}))                    \
    CALL(69, "stride", (void)layer_avg_pool(2, 0, 0))                                              \
    CALL(70, "max_pool", backward_of(op_max_pool(training(), picture(), 0, 0, 0)))                 \
    CALL(71, NULL, add_named("", LONG))                                                            \
    CALL(72, "the name", add_named("M", LONG + 1))                                                 \
    CALL(73, "the path", add_named(LONG, "w"))                                                     \
    CALL(74, NULL, module_close(module_create("List", NULL)))                                      \
    CALL(75, "no forward of its own",                                                              \
         (void)module_forward(module_create("List", NULL), training(), picture()))                 \
    CALL(76, "I64 is taken for float32",                                                           \
         after(op_relu(training(), tape_input(training(), DTYPE_I64, 1, (size_t[]){2}, dummy))))   \
    CALL(                                                                                          \
        77, "bytes of",                                                                            \
        (void)tape_tensor(training(), DTYPE_F32, 2, (size_t[]){(size_t)1 << 33, (size_t)1 << 33})) \
    CALL(78, "has a child", add_pair("a", "a"))                                                    \
    CALL(79, "has a dot", add_pair("a", "a.b"))                                                    \
    CALL(80, "Nesterov momentum requires a momentum", adjust((OptimizerConfig){.nesterov = true})) \
    CALL(81, "Invalid beta parameter at index 0", adjust((OptimizerConfig){.beta1 = NAN}))         \
    CALL(82, "no samples", (void)loader_create(&(Dataset){0}, dummy_sampler(), NULL, 0, device())) \
    CALL(83, "weight is not reduced yet: call ddp_finish_backward", step_with(NULL))               \
    CALL(84, NULL, step_with(ddp_finish_backward))                                                 \
    CALL(85, NULL, step_with(drop_gradients)) /* nothing to step with */                           \
    CALL(86, "static_graph must be set before the first forward", set_static_graph_late())         \
    CALL(87, "the group is closed: a call after pg_close", close_and(reduce_in))                   \
    CALL(88, NULL, wait_for(start_in(thread_group()), 1))                                          \
    CALL(89, "waited for before", wait_for(start_in(thread_group()), 2))                           \
    CALL(90, "its group is closed", wait_after_close())                                            \
    CALL(91, "computed before tape_reset", backward_after_reset())                                 \
    CALL(92, "or on another tape", backward_of(some_loss(tape_create(device(), NULL))))            \
    CALL(93, NULL, backward_of(some_loss(training())))                                             \
    CALL(94, "parameter 2 of 2", (void)optimizer_part(sgd_of_two(), 2))                            \
    CALL(95, "parameter 99 of 2", optimizer_step_parameter(sgd_of_two(), 99))                      \
    CALL(96, "rank 1 of 1", (void)peer_of(1))                                                      \
    CALL(97, "rank -1 of 1", (void)peer_of(-1))                                                    \
    CALL(98, "a Linear is no DistributedDataParallel",                                             \
         (void)ddp_module(layer_linear(device(), 2, 2)))                                           \
    CALL(99, "is too large", gpt_of((GptSizes){(size_t)-1, 1, 8, 8}, 8))                           \
    CALL(100, "is too large", gpt_of((GptSizes){1, (size_t)-1, 8, 8}, 8))                          \
    CALL(101, "is too large", gpt_of((GptSizes){1, 1, (size_t)1 << 62, 8}, 8))                     \
    CALL(102, "is too large", gpt_of((GptSizes){1, 1, 8, (size_t)-1}, 8))                          \
    CALL(103, "is too large", gpt_of((GptSizes){1, 1, 8, 8}, (size_t)-1))                          \
    CALL(104, NULL, gpt_of((GptSizes){1, 1, 8, 8}, 8))                                             \
    CALL(105, "Linear \"\" is a child: close its parent", close_wrapped())                         \
    CALL(106, "the child of another module already", add_to_two())                                 \
    CALL(107, "the child of another module already", add_to_itself())                              \
    CALL(108, "a wrapper uses the group: close the wrapper's module first", close_group_first())   \
    CALL(109, "tape_close: the tape is closed already", Tape *tape = tape_create(device(), NULL);  \
         tape_close(tape), tape_close(tape))                                                       \
    CALL(110, "device_close: the device is closed already", Device *cpu = device();                \
         device_close(cpu), device_close(cpu))                                                     \
    CALL(111, "module_close: the module is closed already", Module *wrapper = ddp_of_one();        \
         module_close(wrapper), module_close(wrapper))                                             \
    CALL(112, "optimizer_close: the optimizer is closed already", Optimizer *sgd = sgd_of_two();   \
         optimizer_close(sgd), optimizer_close(sgd))                                               \
    CALL(113, "ddp_unwrap: CHECK(open) failed: the argument wrapper is closed", unwrap_twice())    \
    CALL(114, "weight is gone: the optimizer's module was closed before it",                       \
         optimizer_step(outlives(layer_linear(device(), 2, 2)), 0.1))                              \
    CALL(115, "weight is gone: the optimizer's module was closed before it",                       \
         optimizer_close(outlives(layer_linear(device(), 2, 2))))                                  \
    CALL(116, "weight is gone: the optimizer's module was closed before it",                       \
         optimizer_step(outlives(ddp_of_one()), 0.1))                                              \
    CALL(117, "is an activation of another tape", backward_across())                               \
    CALL(118, "sampler_close: the sampler is closed already", Sampler *rows = dummy_sampler();     \
         sampler_close(rows), sampler_close(rows))                                                 \
    CALL(119, "loader_close: the loader is closed already",                                        \
         Loader *loader = loader_create(&(Dataset){.floats = (float *)dummy, .count = 10},         \
                                        dummy_sampler(), NULL, 0, device());                       \
         loader_close(loader), loader_close(loader))                                               \
    CALL(120, "the loader's sampler was closed before it", next_without_sampler(false))            \
    CALL(121, "the loader's sampler was closed before it", next_without_sampler(true))             \
    CALL(122, "the argument device is closed", Device *cpu = device();                             \
         device_close(cpu), (void)layer_linear(cpu, 2, 2))                                         \
    CALL(123, NULL, tie(2, 2, 1))                                                                  \
    CALL(124, "weight of a Linear cannot share weight of a Linear", tie(2, 3, 1))                  \
    CALL(125, "weight of a Linear cannot share weight of a Linear", tie(2, 2, 2))                  \
    CALL(126, "cannot share", Module *own = layer_linear(device(), 2, 2);                          \
         module_tie_parameter(own, "weight", own, "weight"))                                       \
    CALL(127, "cannot share",                                                                      \
         module_tie_parameter(layer_linear(device(), 2, 2), "weight",                              \
                              layer_linear(device(), 2, 2), "weight"))                             \
    CALL(128, "a Linear has no parameter \"gain\"",                                                \
         module_tie_parameter(layer_linear(device(), 2, 2), "gain", layer_linear(device(), 2, 2),  \
                              "weight"))                                                           \
    CALL(129, NULL, adjust((OptimizerConfig){.nesterov = true, .momentum = 0.1}))                  \
    CALL(130, "Invalid momentum value: -0.1", adjust((OptimizerConfig){.momentum = -0.1}))         \
    CALL(131, "Invalid weight_decay value: -1", adjust((OptimizerConfig){.weight_decay = -1}))     \
    CALL(132, "Invalid beta parameter at index 0: 1", adjust((OptimizerConfig){.beta1 = 1}))       \
    CALL(133, "Invalid beta parameter at index 0: -1", adjust((OptimizerConfig){.beta1 = -1}))     \
    CALL(134, "Invalid beta parameter at index 1: 1", adjust((OptimizerConfig){.beta2 = 1}))       \
    CALL(135, "Invalid beta parameter at index 1: -1", adjust((OptimizerConfig){.beta2 = -1}))     \
    CALL(136, "Invalid epsilon value: -1", adjust((OptimizerConfig){.eps = -1}))                   \
    CALL(137, "config->kind is 3", adjust((OptimizerConfig){.kind = (OptimizerKind)3}))            \
    CALL(138, NULL, adjust((OptimizerConfig){.kind = OPTIMIZER_ADAMW}))

#define DEFINE(number, word, ...)     \
    static void call_##number(void) { \
        __VA_ARGS__;                  \
    }
#define EXPECT(number, word, ...) expect(#__VA_ARGS__, word, call_##number);
CALLS(DEFINE)

int main(void) {
    try_nulls();
    CALLS(EXPECT)
    printf("%d calls, %d failures\n", cases, failures);
    return failures != 0;
}
