/* test_fsdp_options.c: the modules that --units names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include <stdlib.h>

#include "common/device/device.h"
#include "common/nn/module.h"
#include "ddp/fsdp/fsdp_options.h"

static Tensor *same(Module *self, Tape *tape, Tensor *x) {
    (void)self, (void)tape;
    return x;
}

// A layer with parameters "0", "1", ... of one element.
static Module *layer(Device *device, const char *type, int parameters) {
    Module *module = module_create(type, same);
    for (int i = 0; i < parameters; i++) {
        const char name[] = {(char)('0' + i), '\0'};
        module_add_parameter(module, device, name, 1, (size_t[]){1});
    }
    return module;
}

static void expect_units(Module *model, const char *units, const char *expected) {
    char names[64] = "";
    FsdpModules chosen = fsdp_choose_units(model, units);
    for (size_t i = 0; i < chosen.count; i++) strcat(names, chosen.items[i]->name);
    assert_string_equal(names, expected);
    free(chosen.items);
}

// A parameter that is shared makes neither layer a unit, whichever of theirs it is.
static void layers_are_units_that_share_nothing(void **state) {
    (void)state;
    Error err = {0};
    Device *cpu = device_open("cpu", &err);
    Module *model = module_create("Model", same), *inner = module_create("Inner", NULL);
    Module *lends = module_add(model, "a", layer(cpu, "Lends", 1));
    Module *borrows = module_add(model, "b", layer(cpu, "Borrows", 2));
    Module *lends_last = module_add(model, "c", layer(cpu, "LendsLast", 2));
    Module *borrows_last = module_add(model, "d", layer(cpu, "BorrowsLast", 2));
    Module *borrows_too = module_add(model, "e", layer(cpu, "BorrowsToo", 1));
    module_add(model, "f", layer(cpu, "One", 1));
    module_add(model, "g", layer(cpu, "None", 0));
    module_add(model, "h", inner);
    module_add_parameter(inner, cpu, "0", 1, (size_t[]){1}); // without a forward it is no layer
    module_add(inner, "i", layer(cpu, "Two", 2));
    module_tie_parameter(borrows, "0", lends, "0");
    module_tie_parameter(borrows_last, "1", lends_last, "1");
    expect_units(model, "layers", "efi");
    module_tie_parameter(borrows_too, "0", lends_last, "1"); // a second one of the same
    expect_units(model, "layers", "fi");
    expect_units(model, "blocks", "fi"); // it has none
    expect_units(model, "root", "");
    module_add(model, "j", layer(cpu, "Block", 0));
    module_add(inner, "k", layer(cpu, "ConvBlock", 1));
    module_add(model, "l", layer(cpu, "BasicBlock", 1));
    expect_units(model, "blocks", "kjl");
    module_close(model);
    device_close(cpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers_are_units_that_share_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
