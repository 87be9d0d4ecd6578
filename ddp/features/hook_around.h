/* hook_around.h: a communication hook around another one, which it owns.
 *
 * Its start and finish are the inner hook's, and so are its save and load; it changes the bucket
 * before the inner hook's start and after its finish.
 */
#ifndef DDP_FEATURES_HOOK_AROUND_H
#define DDP_FEATURES_HOOK_AROUND_H

#include "ddp/comm_hook.h"

typedef struct HookAround {
    CommHook inner;
    void *context;
    void (*before)(void *context, GradBucket *bucket); // optional
    void (*after)(void *context, GradBucket *bucket);  // optional; not if the inner hook failed
    void (*close)(void *context);                      // optional
} HookAround;

CommHook hook_around(const char *name, HookAround around);

#endif
