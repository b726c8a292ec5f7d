/* See pattern.h. */
#include "pattern.h"

enum {
    FENCE = 64,
    FENCE_BYTE = 0xfe,
    BLANK_BYTE = 0xb1,
};

struct fence_head {
    size_t size;
    unsigned char pad[FENCE - sizeof(size_t)];
};

void *fenced(size_t size)
{
    unsigned char *block = malloc(size + 2 * FENCE);
    struct fence_head *head = (struct fence_head *)(void *)block;

    CHECK(block != NULL);
    head->size = size;
    memset(head->pad, FENCE_BYTE, sizeof head->pad);
    memset(block + FENCE, BLANK_BYTE, size);
    memset(block + FENCE + size, FENCE_BYTE, FENCE);
    return block + FENCE;
}

/* Checks both fences. */
static void fenced_check(const void *buffer)
{
    const unsigned char *block = (const unsigned char *)buffer - FENCE;
    const struct fence_head *head = (const struct fence_head *)(const void *)block;

    for (size_t i = 0; i < sizeof head->pad; i++)
        if (head->pad[i] != FENCE_BYTE)
            FAIL("written before the buffer");
    for (size_t i = 0; i < FENCE; i++)
        if (block[FENCE + head->size + i] != FENCE_BYTE)
            FAIL("written behind the buffer of %zu bytes", head->size);
}

void fenced_free(void *buffer)
{
    if (buffer == NULL)
        return;
    fenced_check(buffer);
    free((unsigned char *)buffer - FENCE);
}

static uint64_t word_of(uint64_t index, uint64_t seed)
{
    uint64_t x = index * UINT64_C(0x9e3779b97f4a7c15) + seed * UINT64_C(0xbf58476d1ce4e5b9);

    return x ^ (x >> 29);
}

static unsigned char byte_of(size_t index, uint64_t seed)
{
    return (unsigned char)(word_of(index / 8, seed) >> (8 * (index % 8)));
}

void fill(void *buffer, size_t size, uint64_t seed)
{
    unsigned char *bytes = buffer;
    size_t words = size / 8;

    for (size_t i = 0; i < words; i++) {
        uint64_t word = word_of(i, seed);

        memcpy(bytes + 8 * i, &word, 8); /* little endian, as the host's ABI is */
    }
    for (size_t i = words * 8; i < size; i++)
        bytes[i] = byte_of(i, seed);
}

void check_filled_from(const void *buffer, size_t from, size_t size, uint64_t seed)
{
    const unsigned char *bytes = buffer;

    for (size_t i = 0; i < size;) {
        if ((from + i) % 8 == 0 && size - i >= 8) {
            uint64_t word = word_of((from + i) / 8, seed);

            if (memcmp(bytes + i, &word, 8) == 0) {
                i += 8;
                continue;
            }
        }
        if (bytes[i] != byte_of(from + i, seed))
            FAIL("byte %zu of %zu is 0x%02x, not 0x%02x (pattern %llu)", i, size, bytes[i],
                 byte_of(from + i, seed), (unsigned long long)seed);
        i++;
    }
}

void check_filled(const void *buffer, size_t size, uint64_t seed)
{
    check_filled_from(buffer, 0, size, seed);
}

void check_untouched(const void *buffer, size_t from, size_t size)
{
    const unsigned char *bytes = buffer;

    for (size_t i = from; i < size; i++)
        if (bytes[i] != BLANK_BYTE)
            FAIL("byte %zu was written although the message ends at %zu", i, from);
}
