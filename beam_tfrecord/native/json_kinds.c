#include "json_kinds.h"

#include "utf8.h"

/* Python converts no integer with more digits than its limit, which is at least 640. */
enum { MOST_DIGITS = 600, EXACT_DIGITS = 18 };

static const uint64_t EXACT = 1ull << 53;

void json_places_free(JsonPlaces *places) {
    vec_free(&places->places);
    vec_free(&places->keys);
    vec_free(&places->unescaped);
}

BT_INLINE JsonPlace *place_of(const JsonPlaces *places, int32_t number) {
    return (JsonPlace *)places->places.data + number;
}

static int32_t new_place(JsonPlaces *places, const uint8_t *key, size_t bytes) {
    size_t number = places->places.size / sizeof(JsonPlace);
    JsonPlace place = {places->keys.size, bytes, -1, -1, -1, 0, 0};
    if (number >= INT32_MAX || !vec_push(&places->places, &place, sizeof place)) return -1;
    if (!vec_push(&places->keys, key, bytes)) return -1;
    return (int32_t)number;
}

BT_INLINE bool has_key(const JsonPlaces *places, const JsonPlace *place, Span key) {
    size_t bytes = span_bytes(key);
    if (place->key_bytes != bytes) return false;
    return !bytes || !memcmp(places->keys.data + place->key, key.at, bytes);
}

/* The place of a key, which is likely `*likely`; its successor is likely next. -1 if unknown. */
static int32_t find_key(const JsonPlaces *places, int32_t above, Span key, int32_t *likely) {
    int32_t first = place_of(places, above)->first;
    int32_t begin = *likely < 0 ? first : *likely, at = begin;
    if (at < 0) return -1;
    do {
        const JsonPlace *place = place_of(places, at);
        if (has_key(places, place, key)) {
            *likely = place->next;
            return at;
        }
        at = place->next < 0 ? first : place->next;
    } while (at != begin);
    return -1;
}

bool json_places_begin(JsonPlaces *places) { return new_place(places, NULL, 0) == 0; }

int32_t json_places_add(JsonPlaces *places, int32_t above, const uint8_t *key, size_t bytes,
                        int kinds) {
    int32_t likely = -1;
    int32_t place = key ? find_key(places, above, (Span){key, key + bytes}, &likely)
                        : place_of(places, above)->item;
    if (place < 0) {
        place = new_place(places, key, bytes);
        if (place < 0) return -1;
        int32_t *link = key ? &place_of(places, above)->first : &place_of(places, above)->item;
        while (*link >= 0) link = &place_of(places, *link)->next;
        *link = place;
    }
    place_of(places, place)->kinds |= kinds;
    return place;
}

/* In all functions below `*at` is before the newline at which every line ends, and the functions
 * never go over it. */
BT_INLINE void skip_space(const uint8_t **at) {
    while (**at == ' ' || **at == '\t' || **at == '\r') ++*at;
}

BT_INLINE bool take(const uint8_t **at, uint8_t character) {
    skip_space(at);
    if (**at != character) return false;
    ++*at;
    return true;
}

static bool take_word(const uint8_t **at, const char *word) {
    for (; *word; word++, ++*at)
        if (**at != (uint8_t)*word) return false;
    return true;
}

/* The four digits of \uXXXX; -1 if they are none. */
static int32_t take_unit(const uint8_t **at) {
    int32_t unit = 0;
    for (int i = 0; i < 4; i++, ++*at) {
        uint8_t digit = **at, letter = digit | 0x20;
        if (digit >= '0' && digit <= '9')
            unit = unit << 4 | (digit - '0');
        else if (letter >= 'a' && letter <= 'f')
            unit = unit << 4 | (letter - 'a' + 10);
        else
            return -1;
    }
    return unit;
}

/* What an escape stands for, of which the backslash is taken; -1 if it is not right. */
static int32_t take_escape(const uint8_t **at) {
    static const char letters[] = "\"\\/bfnrt", characters[] = "\"\\/\b\f\n\r\t";
    uint8_t letter = **at;
    if (letter != 'u') {
        for (int i = 0; letters[i]; i++) {
            if ((uint8_t)letters[i] != letter) continue;
            ++*at;
            return characters[i];
        }
        return -1;
    }
    ++*at;
    int32_t unit = take_unit(at);
    if (unit < 0xd800 || unit > 0xdfff) return unit;
    if (unit > 0xdbff || !take_word(at, "\\u")) return -1;
    int32_t low = take_unit(at);
    if (low < 0xdc00 || low > 0xdfff) return -1;
    return 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
}

/* The raw text of a string, of which the quote is taken. */
static bool take_string(const uint8_t **at, Span *text, bool *escaped) {
    text->at = *at;
    *escaped = false;
    for (;;) {
        uint8_t byte = **at;
        if (byte < 0x20) return false;
        if (byte == '"') break;
        ++*at;
        if (byte != '\\') continue;
        *escaped = true;
        if (take_escape(at) < 0) return false;
    }
    text->end = (*at)++;
    return true;
}

static size_t put_character(uint8_t *at, int32_t code) {
    size_t size = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = size; --i; code >>= 6) at[i] = (uint8_t)(0x80 | (code & 0x3f));
    at[0] = (uint8_t)(size == 1 ? code : (0xf00 >> size) | code);
    return size;
}

/* Text without its escapes, all of which are right. */
static bool unescape(Vec *out, Span *text) {
    out->size = 0;
    while (text->at < text->end) {
        uint8_t bytes[4] = {*text->at++};
        size_t size = bytes[0] == '\\' ? put_character(bytes, take_escape(&text->at)) : 1;
        if (!vec_push(out, bytes, size)) return false;
    }
    *text = (Span){out->data, out->data + out->size};
    return true;
}

BT_INLINE size_t take_digits(const uint8_t **at, uint64_t *value) {
    const uint8_t *start = *at;
    /* The value is of no use after it overflows. */
    for (; (uint8_t)(**at - '0') < 10; ++*at) *value = *value * 10 + (uint8_t)(**at - '0');
    return (size_t)(*at - start);
}

/* Kinds of a number; zero if it is not right. */
static int take_number(const uint8_t **at) {
    uint64_t value = 0, other = 0;
    if (**at == '-') ++*at;
    if (**at == 'I') return take_word(at, "Infinity") ? JSON_DOUBLE : 0;
    bool zero = **at == '0';
    size_t digits = take_digits(at, &value);
    if (!digits || (zero && digits > 1)) return 0;
    bool integer = true;
    if (**at == '.') {
        integer = false;
        ++*at;
        if (!take_digits(at, &other)) return 0;
    }
    if ((**at | 0x20) == 'e') {
        integer = false;
        ++*at;
        if (**at == '+' || **at == '-') ++*at;
        if (!take_digits(at, &other)) return 0;
    }
    if (!integer) return JSON_DOUBLE;
    if (digits > MOST_DIGITS) return 0;
    return digits > EXACT_DIGITS || value > EXACT ? JSON_INT | JSON_BIG : JSON_INT;
}

static bool value_fits(JsonPlaces *places, int32_t above, const uint8_t **at);

static bool array_fits(JsonPlaces *places, int32_t above, const uint8_t **at) {
    if (take(at, ']')) return true;
    int32_t item = place_of(places, above)->item;
    do {
        skip_space(at);
        if (item < 0 || !value_fits(places, item, at)) return false;
    } while (take(at, ','));
    return take(at, ']');
}

static bool object_fits(JsonPlaces *places, int32_t above, const uint8_t **at) {
    uint64_t object = ++places->objects;
    int32_t likely = -1;
    if (take(at, '}')) return true;
    do {
        Span key;
        bool escaped;
        if (!take(at, '"') || !take_string(at, &key, &escaped)) return false;
        if (escaped && !unescape(&places->unescaped, &key)) return false;
        int32_t place = find_key(places, above, key, &likely);
        if (place < 0 || place_of(places, place)->object == object) return false;
        place_of(places, place)->object = object;
        if (!take(at, ':')) return false;
        skip_space(at);
        if (!value_fits(places, place, at)) return false;
    } while (take(at, ','));
    return take(at, '}');
}

/* The depth of calls is limited by that of the known places. */
static bool value_fits(JsonPlaces *places, int32_t above, const uint8_t **at) {
    int known = place_of(places, above)->kinds, kinds;
    Span text;
    bool escaped;
    switch (**at) {
        case '"':
            ++*at;
            return known & JSON_TEXT && take_string(at, &text, &escaped);
        case '{':
            ++*at;
            return known & JSON_OBJECT && object_fits(places, above, at);
        case '[':
            ++*at;
            return known & JSON_LIST && array_fits(places, above, at);
        case 't':
            return known & JSON_BOOL && take_word(at, "true");
        case 'f':
            return known & JSON_BOOL && take_word(at, "false");
        case 'n':
            return take_word(at, "null");
        case 'N':
            return known & JSON_DOUBLE && take_word(at, "NaN");
        default:
            kinds = take_number(at);
            return kinds && !(kinds & ~known);
    }
}

bool json_line_fits(JsonPlaces *places, const uint8_t *line, size_t bytes) {
    const uint8_t *at = line, *end = line + bytes - 1;
    if (*at != '{' || !bt_is_utf8(line, bytes)) return false;
    at++;
    if (!object_fits(places, 0, &at)) return false;
    skip_space(&at);
    return at == end;
}
