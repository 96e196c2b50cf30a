/* Extensions share no symbols, so the CSV kernel is linked with the UTF-8 check of its own. */
#include "utf8.c"
