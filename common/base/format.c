/* format.c: see format.h. */
#include "common/base/format.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool format_append(char *text, size_t capacity, const char *format, ...) {
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(text + used, capacity - used, format, arguments);
    va_end(arguments);
    return wanted >= 0 && (size_t)wanted < capacity - used;
}
