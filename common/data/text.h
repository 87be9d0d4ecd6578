/* text.h: text to learn from: a stream of tokens, of which a sample is a window.
 *
 * Sample i of a set is the tokens [i T, (i + 1) T), and its labels are the token that follows each
 * of them. So the windows lie side by side: an epoch asks for every token once, samplers deal out
 * windows as they deal out pictures, and what is left behind the last whole window is not used.
 *
 * A text file becomes tokens by its characters: the vocabulary is the characters (Unicode code
 * points, of UTF-8) of the training part, in ascending order. The training part is the first nine
 * tenths of the file, the rest is the test part. A character that only the test part has is read as
 * U+FFFD, one more token at the vocabulary's end: no model has seen it, and each pays for it in its
 * loss.
 *
 * A folder of token files holds DIR/train.bin and DIR/val.bin, as programs that train GPT-2 write
 * them: 16-bit unsigned numbers, the low byte first, from the first byte on. A file that begins
 * with the 32-bit number 20240520 has a header of 256 such numbers: that one, the version 1, and
 * how many tokens follow.
 */
#ifndef COMMON_DATA_TEXT_H
#define COMMON_DATA_TEXT_H

#include "common/data/dataset.h"

enum { TEXT_UNKNOWN = 0xfffd };

// What a sample is, and how many tokens the model shall know.
typedef struct TextShape {
    size_t context;    // T
    size_t vocabulary; // 0: as many as the training part shows; otherwise at least so many
} TextShape;

// Each fills the source, its name too. Returns 0, or -1 with err filled: one line that names the
// file and what is wrong (no UTF-8, shorter than a window, sizes that disagree, a token that the
// model does not know). The caller closes the source in both cases.
int text_open_file(const char *path, TextShape shape, DataSource *source, Error *err);
int text_open_tokens(const char *folder, TextShape shape, DataSource *source, Error *err);

bool text_names_file(const char *path); // does it end in .txt or .txt.gz?
bool text_tokens_present(const char *folder);

// Writes the character of a token as UTF-8, with a NUL behind it. Returns how many bytes it has. A
// token without a character becomes U+FFFD.
enum { TEXT_CHARACTER_ROOM = 5 };
size_t text_character(const DataSource *source, size_t token, char utf8[TEXT_CHARACTER_ROOM]);

#endif
