/* outputs.h: locks on --out and --save, so that two runs never write to the same files.
 *
 * The main process holds --out DIR by DIR/.lock and --save FILE by FILE.lock (common/base/lock.h)
 * until the run ends. A killed process's locks are released at once. --out DIR without --save also
 * holds DIR/last.safetensors.lock, because another job's --save may name that checkpoint.
 */
#ifndef COMMON_TRAIN_OUTPUTS_H
#define COMMON_TRAIN_OUTPUTS_H

#include "common/base/lock.h"
#include "common/base/log.h"
#include "common/train/train_config.h"

typedef struct Outputs {
    FileLock *out, *last, *save; // NULL: the option was not given
} Outputs;

// Creates --out's folder and takes the locks, in the main process. Returns 0, or -1 with err filled
// (STATUS_USAGE), which names the job that holds a lock. In either case outputs_release follows.
int outputs_claim(Outputs *outputs, const TrainConfig *config, Error *err);
// Logs the outputs on file systems without locks.
void outputs_announce(const Outputs *outputs, const TrainConfig *config, RunLog *log);
void outputs_release(Outputs *outputs);

#endif
