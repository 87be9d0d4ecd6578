/* format.c: see format.h. */
#include "common/base/format.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool format_append(char *text, size_t capacity, const char *format, ...) {
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(text + used, capacity - used, format, arguments);
    va_end(arguments);
    return wanted >= 0 && (size_t)wanted < capacity - used;
}

Quote format_quote(const char *value) {
    Quote quote;
    size_t kept = strnlen(value, 80);
    while (kept > 0 && ((unsigned char)value[kept] & 0xc0) == 0x80) kept--; // whole characters
    snprintf(quote.text, sizeof quote.text, "%.*s%s", (int)kept, value, value[kept] ? "…" : "");
    return quote;
}

NumberText format_number(double value) {
    NumberText number;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(number.text, sizeof number.text, "%.*g", digits, value);
        if (strtod(number.text, NULL) == value) break;
    }
    return number;
}

bool format_read_number(const char **at, uint64_t most, uint64_t *number) {
    const char *c = *at;
    for (*number = 0; *c >= '0' && *c <= '9'; c++) {
        const uint64_t digit = (uint64_t)(*c - '0');
        if (digit > most || *number > (most - digit) / 10) return false;
        *number = 10 * *number + digit;
    }
    const bool found = c > *at;
    *at = c;
    return found;
}

bool format_read_comma(const char **at) {
    if (**at == ',') return *++*at != '\0';
    return **at == '\0';
}

bool format_ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), wanted = strlen(end);
    return length > wanted && strcmp(text + length - wanted, end) == 0;
}
