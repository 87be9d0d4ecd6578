/* test_format.c: appending to strings, conversion of numbers from and to text, hashes of bytes.
 */
#include "common/base/format.h"
#include "common/base/hash.h"
#include "tests/rigs/check.h"

static void test_format_append(void **state) {
    (void)state;
    char text[8] = "";
    assert_true(format_append(text, sizeof text, "%d", 12));
    assert_true(format_append(text, sizeof text, "%s%d", ", ", 345)); // fills the buffer exactly
    assert_string_equal(text, "12, 345");
    assert_false(format_append(text, sizeof text, "6"));
    assert_true(format_append(text, sizeof text, "%s", ""));
    text[6] = '\0';
    assert_false(format_append(text, sizeof text, "67"));
    assert_string_equal(text, "12, 346");
}

static void test_format_read_number(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t most;
        bool found;
        uint64_t number;
        const char *rest;
    } rows[] = {
        {"0", 0, true, 0, ""},
        {"12,3", 12, true, 12, ",3"},
        {"13", 12, false, 0, "13"},
        {"3", 2, false, 0, "3"},
        {"18446744073709551615:", UINT64_MAX, true, UINT64_MAX, ":"},
        {"18446744073709551616", UINT64_MAX, false, 0, "18446744073709551616"},
        {"4294967296", 1, false, 0, "4294967296"},
        {"", 9, false, 0, ""},
        {"+1", 9, false, 0, "+1"},
        {" 1", 9, false, 0, " 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *at = rows[i].text;
        uint64_t number;
        assert_int_equal(format_read_number(&at, rows[i].most, &number), rows[i].found);
        if (rows[i].found) assert_int_equal(number, rows[i].number);
        assert_string_equal(at, rows[i].rest);
    }
    const char *end = "", *comma = ",2", *last = ",", *other = ":2";
    assert_true(format_read_comma(&end));
    assert_true(format_read_comma(&comma));
    assert_string_equal(comma, "2");
    assert_false(format_read_comma(&last));
    assert_false(format_read_comma(&other));
}

static void test_format_number(void **state) {
    (void)state;
    assert_string_equal(format_number(0.1).text, "0.1");
    assert_string_equal(format_number(1e6).text, "1000000");
    assert_string_equal(format_number(1.0 / 3).text, "0.3333333333333333");
    assert_string_equal(format_number(-1e-300).text, "-1e-300");
    assert_string_equal(format_number(5e-324).text, "4.94065645841247e-324");  // 15 digits
    assert_string_equal(format_number(0.1 + 0.2).text, "0.30000000000000004"); // 17 digits
}

// At most 80 bytes, cut between characters.
static void test_format_quote(void **state) {
    (void)state;
    char text[90], wanted[90];
    memset(text, 'a', sizeof text);
    text[80] = '\0';
    assert_string_equal(format_quote(text).text, text);
    strcpy(text + 80, "b");
    snprintf(wanted, sizeof wanted, "%.80s…", text);
    assert_string_equal(format_quote(text).text, wanted);
    memcpy(text + 78, "€b", 5); // ends at byte 81
    snprintf(wanted, sizeof wanted, "%.78s…", text);
    assert_string_equal(format_quote(text).text, wanted);
    memset(text, 0x80, 89); // continuation bytes without a first byte
    text[89] = '\0';
    assert_string_equal(format_quote(text).text, "…");
    assert_string_equal(format_quote("").text, "");
}

static void test_format_ends_with(void **state) {
    (void)state;
    static const struct {
        const char *text, *end;
        bool ends;
    } rows[] = {{"a.pt", ".pt", true},    {".pt", ".pt", false},   {"pt", ".pt", false},
                {"a.pt.b", ".pt", false}, {"a.pth", ".pt", false}, {"ab", "", true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(format_ends_with(rows[i].text, rows[i].end), rows[i].ends);
}

// Known answers by the hash's authors, Fowler, Noll and Vo.
static void test_hash_known_answers(void **state) {
    (void)state;
    const uint64_t begin = UINT64_C(0xcbf29ce484222325);
    assert_true(hash_bytes(begin, "", 0) == begin);
    assert_true(hash_bytes(begin, "a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(hash_bytes(begin, "foobar", 6) == UINT64_C(0x85944171f73967e8));
    assert_true(hash_bytes(hash_bytes(begin, "foo", 3), "bar", 3) == UINT64_C(0x85944171f73967e8));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_format_append),    cmocka_unit_test(test_format_read_number),
        cmocka_unit_test(test_format_number),    cmocka_unit_test(test_format_quote),
        cmocka_unit_test(test_format_ends_with), cmocka_unit_test(test_hash_known_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
