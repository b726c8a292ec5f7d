/*
 * The protocol of bmi_fileserver and bmi_cp.
 *
 *   client                                   server
 *     | -- request (unexpected) -------------> |
 *     | <-- reply (tag) ---------------------- |   status, size
 *     | -- or <- data (tag + 1), in chunks --- |   put / get, list
 *     | <-- reply (tag) ---------------------- |   put, get: checksum of all data
 *
 * All numbers are little endian. The client chooses the tag.
 */
#ifndef FILESERVER_PROTOCOL_H
#define FILESERVER_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FS_MAGIC 0x31534642u /* "BFS1" */
#define FS_NAME_MAX 255
#define FS_CHUNK ((int64_t)1 << 20)
/* Chunks under way at a time in each transfer. */
#define FS_WINDOW 4

enum fs_op { FS_PUT = 1, FS_GET = 2, FS_LIST = 3, FS_REMOVE = 4, FS_STAT = 5, FS_PING = 6 };

struct fs_request {
    uint32_t op;
    int32_t tag;
    uint64_t size;
    char name[FS_NAME_MAX + 1];
};

struct fs_reply {
    int32_t status; /* 0, or an errno of the server */
    uint64_t size;
    int64_t mtime;
    uint64_t checksum;
};

#define FS_REQUEST_HEAD 24
#define FS_REQUEST_MAX (FS_REQUEST_HEAD + FS_NAME_MAX)
#define FS_REPLY_LEN 32

static inline void fs_put32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static inline void fs_put64(unsigned char *at, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static inline uint32_t fs_get32(const unsigned char *at)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++)
        value |= (uint32_t)at[i] << (8 * i);
    return value;
}

static inline uint64_t fs_get64(const unsigned char *at)
{
    return fs_get32(at) | (uint64_t)fs_get32(at + 4) << 32;
}

/* Writes a request to `wire`, which has room for FS_REQUEST_MAX. Returns its length in bytes. */
static inline size_t fs_emit_request(const struct fs_request *request, unsigned char *wire)
{
    size_t name_len = strlen(request->name);
    fs_put32(wire, FS_MAGIC);
    fs_put32(wire + 4, request->op);
    fs_put32(wire + 8, (uint32_t)request->tag);
    fs_put32(wire + 12, (uint32_t)name_len);
    fs_put64(wire + 16, request->size);
    memcpy(wire + FS_REQUEST_HEAD, request->name, name_len);
    return FS_REQUEST_HEAD + name_len;
}

/* Parses a request. Returns 0 if the bytes are not one. */
static inline int fs_parse_request(const unsigned char *wire, size_t len, struct fs_request *request)
{
    if (len < FS_REQUEST_HEAD || fs_get32(wire) != FS_MAGIC)
        return 0;
    size_t name_len = fs_get32(wire + 12);
    if (name_len > FS_NAME_MAX || len != FS_REQUEST_HEAD + name_len ||
        memchr(wire + FS_REQUEST_HEAD, 0, name_len) != NULL)
        return 0;
    request->op = fs_get32(wire + 4);
    request->tag = (int32_t)fs_get32(wire + 8);
    request->size = fs_get64(wire + 16);
    memcpy(request->name, wire + FS_REQUEST_HEAD, name_len);
    request->name[name_len] = '\0';
    return 1;
}

static inline void fs_emit_reply(const struct fs_reply *reply, unsigned char *wire)
{
    fs_put32(wire, FS_MAGIC);
    fs_put32(wire + 4, (uint32_t)reply->status);
    fs_put64(wire + 8, reply->size);
    fs_put64(wire + 16, (uint64_t)reply->mtime);
    fs_put64(wire + 24, reply->checksum);
}

static inline int fs_parse_reply(const unsigned char *wire, size_t len, struct fs_reply *reply)
{
    if (len != FS_REPLY_LEN || fs_get32(wire) != FS_MAGIC)
        return 0;
    reply->status = (int32_t)fs_get32(wire + 4);
    reply->size = fs_get64(wire + 8);
    reply->mtime = (int64_t)fs_get64(wire + 16);
    reply->checksum = fs_get64(wire + 24);
    return 1;
}

#endif
