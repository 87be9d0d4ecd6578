/* text.h: text: a stream of tokens; a sample is a window of it.
 *
 * Sample i of a set is the tokens [i T, (i + 1) T); its labels are the next token of each. The
 * windows do not overlap: an epoch has every token once, samplers treat windows like pictures, and
 * the tokens after the last whole window are unused.
 *
 * A text file is tokenized by characters (Unicode code points of UTF-8): the vocabulary is the
 * training set's characters in ascending order. The training set is the first nine tenths of the
 * file, the test set is the rest. A character that only the test set has is read as U+FFFD, an
 * additional last token of the vocabulary, which counts in the loss.
 *
 * A folder of token files has DIR/train.bin and DIR/val.bin, as programs that train GPT-2 write
 * them: 16-bit unsigned numbers, little-endian. A file that begins with the 32-bit number 20240520
 * has a header of 256 32-bit numbers: 20240520, the version 1, and the number of tokens.
 */
#ifndef COMMON_DATA_TEXT_H
#define COMMON_DATA_TEXT_H

#include "common/data/dataset.h"

enum { TEXT_UNKNOWN = 0xfffd };

// Writes the character of a token as UTF-8, NUL-terminated, U+FFFD for a token without a character.
// Returns its number of bytes.
enum { TEXT_CHARACTER_ROOM = 5 };
size_t text_character(const DataSource *source, size_t token, char utf8[TEXT_CHARACTER_ROOM]);

#endif
