/* fake_gpus.h: simulates a host with a given number of GPUs: each is a CPU device with a GPU's
 * name. Include it in one file of a test with `WRAP ${FAKE_GPUS}` (functions.cmake).
 */
#ifndef TESTS_RIGS_FAKE_GPUS_H
#define TESTS_RIGS_FAKE_GPUS_H

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/format.h"
#include "common/device/device.h"

static struct FakeGpus {
    int gpus;          // number of GPUs of the host
    char opened[1024]; // names of the opened devices in order, each followed by a space
    char bound[1024];  // the devices' shares of the cores: "cpu:1:1/3 "
    int closed;        // number of closed devices
    Device *last;      // opened last
    Kernels kernels;   // the CPU's, but not marked as a CPU's
} fake;

int __wrap_device_usable(const char *kind, Error *why);
int __wrap_device_available(const char *kind);
Device *__wrap_device_open(const char *name, Error *err);
Device *__real_device_open(const char *name, Error *err);
void __wrap_device_close(Device *device);
void __real_device_close(Device *device);
void __wrap_device_bind_cores(Device *device, int place, int places);

int __wrap_device_usable(const char *kind, Error *why) {
    (void)why;
    return strcmp(kind, "cuda") == 0 ? fake.gpus : INT_MAX;
}

int __wrap_device_available(const char *kind) {
    return __wrap_device_usable(kind, NULL);
}

Device *__wrap_device_open(const char *name, Error *err) {
    char cpu[16];
    int index = (int)strtol(strchr(name, ':') + 1, NULL, 10);
    if (strncmp(name, "cuda", 4) == 0 && index >= fake.gpus)
        return error_null(err, STATUS_USAGE, "%s: the host has %d", name, fake.gpus);
    format_append(fake.opened, sizeof fake.opened, "%s ", name);
    snprintf(cpu, sizeof cpu, "cpu:%d", index);
    fake.last = __real_device_open(cpu, err);
    if (strncmp(name, "cuda", 4) != 0) return fake.last;
    fake.kernels = *fake.last->kernels;
    fake.kernels.is_cpu = false;
    fake.last->kernels = &fake.kernels;
    snprintf(fake.last->name, sizeof fake.last->name, "%s", name);
    return fake.last;
}

void __wrap_device_close(Device *device) {
    fake.closed++;
    __real_device_close(device);
}

void __wrap_device_bind_cores(Device *device, int place, int places) {
    format_append(fake.bound, sizeof fake.bound, "%s:%d/%d ", device->name, place, places);
}

#endif
