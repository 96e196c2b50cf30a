/* Which kinds of values rows of JSON have at each place, and the rows that add none.
 *
 * No value is made: a row is checked against what is known from earlier rows.
 */
#ifndef BT_JSON_KINDS_H
#define BT_JSON_KINDS_H

#include "vec.h"

/* Kinds of values, as bits; null is none. Big integers are those beyond 2^53. */
enum {
    JSON_BOOL = 1,
    JSON_INT = 2,
    JSON_BIG = 4,
    JSON_DOUBLE = 8,
    JSON_TEXT = 16,
    JSON_LIST = 32,
    JSON_OBJECT = 64
};

/* A key of an object, or the values of an array. Others are named by position; -1 is none. */
typedef struct {
    size_t key, key_bytes; /* in `keys` */
    int32_t first, next;   /* keys below this place, and the next key beside it */
    int32_t item;          /* the values of an array at this place */
    int32_t kinds;
    uint64_t object; /* number of the last object that had this key */
} JsonPlace;

typedef struct {
    Vec places; /* of JsonPlace; the first is the row itself */
    Vec keys;
    Vec unescaped; /* the key that is looked for */
    uint64_t objects;
} JsonPlaces;

/* Makes the place of the row in zeroed memory; false without memory. */
bool json_places_begin(JsonPlaces *places);
void json_places_free(JsonPlaces *places);

/* Adds kinds at a place below another: at a key, or at the values of an array where `key` is NULL.
 * Returns the place; -1 without memory. */
int32_t json_places_add(JsonPlaces *places, int32_t above, const uint8_t *key, size_t bytes,
                        int kinds);

/* Returns whether a line, of which the last byte is a newline, is certainly one valid object that
 * has no key twice, no half of a surrogate pair, and no key and no kind that is not known. */
bool json_line_fits(JsonPlaces *places, const uint8_t *line, size_t bytes);

#endif
