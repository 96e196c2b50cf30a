/* Strict UTF-8 (RFC 3629): no overlong form, no surrogate, nothing above U+10FFFF. */
#ifndef BT_UTF8_H
#define BT_UTF8_H

#include "wire.h"

bool bt_is_ascii(const uint8_t *at, size_t bytes);
bool bt_is_utf8(const uint8_t *at, size_t bytes);

#endif
