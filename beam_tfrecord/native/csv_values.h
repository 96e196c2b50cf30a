/* What the text of a CSV field means: numbers, truth values, dates and times. */
#ifndef BT_CSV_VALUES_H
#define BT_CSV_VALUES_H

#include "wire.h"

/* What a field can be; a column collects the kinds of its fields as a set of bits. */
enum {
    CSV_NOTHING = 0, /* blank, or a word for null: no evidence */
    CSV_BOOL = 1,
    CSV_INT = 2,     /* an integer that a double holds exactly: up to 2^53 */
    CSV_BIG_INT = 4, /* any other int64 */
    CSV_FLOAT = 8,
    CSV_DATE = 16,
    CSV_TIME = 32,       /* date and time without a zone, no finer than 1 us */
    CSV_ZONED_TIME = 64, /* the same with a zone */
    CSV_TEXT = 128,
    CSV_EMPTY = 256 /* blank, but quoted: the empty text, where the column turns out to be text */
};

/* Results of parsing: a hard number needs arbitrary precision to be rounded correctly. */
enum { CSV_GOOD, CSV_BAD, CSV_HARD };

/* Words that stand for null. `first` has a bit per byte that begins one of them. */
typedef struct {
    const uint8_t *text; /* all words, one after the other */
    const uint32_t *ends;
    uint32_t count;
    uint32_t longest;
    uint64_t first[4];
} CsvWords;

typedef struct {
    int64_t seconds; /* since 1970-01-01, in UTC where zoned */
    int32_t nanos;
    bool dated; /* no time of day was given */
    bool zoned;
} CsvTime;

/* The number of the word that the text is, or -1. */
int csv_find_word(const CsvWords *words, const uint8_t *at, size_t bytes);
bool csv_is_word(const CsvWords *words, const uint8_t *at, size_t bytes);

/* An integer as sign and magnitude; leading zeros are allowed. */
int csv_parse_int(const uint8_t *at, size_t bytes, bool *negative, uint64_t *magnitude);
/* A decimal number, nan or inf, correctly rounded; a finite number that rounds to infinity is
 * CSV_BAD. `side` is set to 1 or -1 where the number is greater or less than the value and the
 * value does not stand for it: written with as many digits (but for zeros at
 * the end) it would be another number. It is set
 * to 2 or -2 where the value stands for it, but is halfway between two float32. */
int csv_parse_double(const uint8_t *at, size_t bytes, double *value, int8_t *side);
int csv_parse_bool(const uint8_t *at, size_t bytes, bool *value);
/* YYYY-MM-DD, or that, T or a space, HH:MM[:SS[.fraction]][Z|+HH[[:]MM]]. */
int csv_parse_time(const uint8_t *at, size_t bytes, CsvTime *value);

/* The kind of a field's text; blanks around it do not count. */
int csv_kind(const uint8_t *at, size_t bytes);

/* Takes blanks (space, tab) from both ends; tells whether there were any. */
bool csv_trim(const uint8_t **at, size_t *bytes);

/* The 128 leading bits (high, low) of 5^q for q from -342 to 308, 651 pairs, that must be given
 * once before any number is parsed. */
void csv_set_powers_of_five(const uint64_t *powers);

#endif
