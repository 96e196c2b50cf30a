/* Stubs: records without the bytes of a file that they hold as a value.
 *
 * A stub is a framed record itself, so whatever sorts and copies records does so with stubs. Its
 * payload:
 *
 *   le64 payload bytes of the whole record    le32 masked CRC-32C of that payload
 *   le32 bytes before the file's              le32 bytes of the name of the file, NUL included
 *   le64 bytes of the file
 *   the bytes before the file's, its name, the bytes behind it
 *
 * A record that holds no file has no name: it is there in one piece, "before". */
#ifndef BT_STUBS_H
#define BT_STUBS_H

#include "vec.h"

enum { STUB_HEAD = 28 };

/* What is wrong with a stub that is made whole; any positive number is an errno. */
enum { STUB_GOOD = 0, STUB_MALFORMED = -3, STUB_OTHER_SIZE = -1, STUB_OTHER_BYTES = -4 };

/* Where a stub can be made: a record and the file that is the only value of its feature `key`. */
typedef struct {
    Span payload;
    Span key;
    const char *path; /* NULL: none */
} StubInput;

/* Appends the stub of a record. Values below `least_bytes` stay in the record. */
int bt_push_stub(const StubInput *input, size_t least_bytes, Vec *out);

/* Bytes of the framed record that a stub's payload stands for; 0 where it is no stub. */
size_t bt_whole_bytes(Span stub);

/* Name of the file of a stub, without the NUL behind it; empty where it has none or is no stub. */
Span bt_stub_path(Span stub);

/* Framed stubs, and which of them are meant: each of `order` is known to be one. */
typedef struct {
    const uint8_t *data;
    size_t bytes;
    const int64_t *starts;
    const int64_t *order;
    int64_t count;
} StubList;

/* Writes the framed records that stubs stand for one behind the other, reading their files. `out`
 * has room for all of them. Returns one of the numbers above; if it is not STUB_GOOD, `bad` is the
 * position in the order that it is for. */
int32_t bt_make_whole(const StubList *list, uint8_t *out, int64_t *bad);

#endif
