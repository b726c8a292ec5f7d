/*
 * Interface between a plugin and libna, and a small libna.
 *
 *   test --host_open--> class, context --table--> plugin --na_cb_completion_add--> queue --trigger--> callbacks
 *
 * Written from the layouts of Mercury's headers; all versions of the table have these entries up to poll_try_wait.
 *
 * Owns: the version that the plugin is told, completion queues. Knows nothing of: Mercury.
 */
#ifndef C_TESTS_NA_H
#define C_TESTS_NA_H

#include "../../support/check.h"

enum {
    NA_SUCCESS = 0, NA_PERMISSION = 1, NA_NOMEM = 5, NA_FAULT = 7, NA_BUSY = 8, NA_INVALID_ARG = 11,
    NA_OVERFLOW = 13, NA_MSGSIZE = 14, NA_PROTONOSUPPORT = 15, NA_ADDRNOTAVAIL = 18, NA_HOSTUNREACH = 19,
    NA_TIMEOUT = 20, NA_CANCELED = 21,
};
enum { SEND_UNEXPECTED, RECV_UNEXPECTED, MULTI_RECV_UNEXPECTED, SEND_EXPECTED, RECV_EXPECTED, PUT, GET };
enum { READABLE = 1, WRITABLE = 2 };

typedef struct na_addr na_addr;
typedef struct na_op na_op;
typedef struct na_mem na_mem;

struct na_class {
    const void *ops;
    void *plugin_class;
    char *protocol_name;
    uint8_t progress_mode;
    bool listen;
};

struct na_context {
    void *plugin_context;
};

struct na_init_info {
    const char *ip_subnet, *auth_key;
    size_t max_unexpected_size, max_expected_size;
    char rest[64];
};

struct na_info {
    const char *protocol_name, *host_name;
    union {
        const struct na_init_info *pointer; /* NA 4.0 */
        struct na_init_info init;           /* later */
    } u;
};

struct na_protocol_info {
    struct na_protocol_info *next;
    char *class_name, *protocol_name, *device_name;
};

struct na_segment {
    void *base;
    size_t len;
};

struct na_cb_info {
    size_t size;
    na_addr *source;
    uint32_t tag;
    void *buf;
    bool last;
    void *arg;
    int type, ret;
};

typedef void (*na_cb)(const struct na_cb_info *info);

struct na_completion {
    struct na_cb_info info;
    na_cb callback;
    void (*plugin_callback)(void *);
    void *plugin_arg;
    struct na_completion *next;
};

typedef struct na_class *cls;
typedef struct na_context *ctx;

struct na_table {
    const char *class_name;
    int (*get_protocol_info)(const struct na_info *, struct na_protocol_info **);
    bool (*check_protocol)(const char *);
    int (*initialize)(cls, const struct na_info *, bool);
    int (*finalize)(cls);
    void (*cleanup)(void);
    bool (*has_opt_feature)(cls, unsigned long);
    union {
        int (*with)(cls, ctx, void **, uint8_t); /* NA 6.0 */
        int (*without)(cls, void **, uint8_t);   /* earlier */
    } context_create;
    int (*context_destroy)(cls, void *);
    na_op *(*op_create)(cls, unsigned long);
    void (*op_destroy)(cls, na_op *);
    int (*addr_lookup)(cls, const char *, na_addr **);
    void (*addr_free)(cls, na_addr *);
    int (*addr_set_remove)(cls, na_addr *);
    int (*addr_self)(cls, na_addr **);
    int (*addr_dup)(cls, na_addr *, na_addr **);
    bool (*addr_cmp)(cls, na_addr *, na_addr *);
    bool (*addr_is_self)(cls, na_addr *);
    int (*addr_to_string)(cls, char *, size_t *, na_addr *);
    size_t (*addr_get_serialize_size)(cls, na_addr *);
    int (*addr_serialize)(cls, void *, size_t, na_addr *);
    int (*addr_deserialize)(cls, na_addr **, const void *, size_t, uint64_t);
    size_t (*max_unexpected)(const struct na_class *);
    size_t (*max_expected)(const struct na_class *);
    void *header_sizes[2];
    uint32_t (*max_tag)(const struct na_class *);
    void *msg_buf[2], *msg_init_unexpected;
    int (*send_unexpected)(cls, ctx, na_cb, void *, const void *, size_t, void *, na_addr *, uint8_t, uint32_t, na_op *);
    int (*recv_unexpected)(cls, ctx, na_cb, void *, void *, size_t, void *, na_op *);
    int (*multi_recv_unexpected)(cls, ctx, na_cb, void *, void *, size_t, void *, na_op *);
    void *msg_init_expected;
    int (*send_expected)(cls, ctx, na_cb, void *, const void *, size_t, void *, na_addr *, uint8_t, uint32_t, na_op *);
    int (*recv_expected)(cls, ctx, na_cb, void *, void *, size_t, void *, na_addr *, uint8_t, uint32_t, na_op *);
    int (*mem_create)(cls, void *, size_t, unsigned long, na_mem **);
    int (*mem_create_segments)(cls, struct na_segment *, size_t, unsigned long, na_mem **);
    void (*mem_free)(cls, na_mem *);
    size_t (*mem_max_segments)(const struct na_class *);
    int (*mem_register)(cls, na_mem *, int, uint64_t);
    int (*mem_deregister)(cls, na_mem *);
    size_t (*mem_serialize_size)(cls, na_mem *);
    int (*mem_serialize)(cls, void *, size_t, na_mem *);
    int (*mem_deserialize)(cls, na_mem **, const void *, size_t);
    int (*put)(cls, ctx, na_cb, void *, na_mem *, uint64_t, na_mem *, uint64_t, size_t, na_addr *, uint8_t, na_op *);
    int (*get)(cls, ctx, na_cb, void *, na_mem *, uint64_t, na_mem *, uint64_t, size_t, na_addr *, uint8_t, na_op *);
    int (*poll_get_fd)(cls, ctx);
    bool (*poll_try_wait)(cls, ctx);
    union {
        int (*progress)(cls, ctx, unsigned); /* NA 4.0 */
        int (*poll)(cls, ctx, unsigned *);
    } u;
    union {
        int (*cancel)(cls, ctx, na_op *); /* NA 4.0 */
        int (*poll_wait)(cls, ctx, unsigned, unsigned *);
    } v;
    int (*cancel)(cls, ctx, na_op *);
};

/* The version that the plugin finds. Set before the plugin is loaded. */
extern unsigned host_version[2];

/* Returns the plugin's table; loads the plugin at the first call. */
const struct na_table *table(void);

/* Frees like NA_Free_protocol_info. */
void protocol_info_free(struct na_protocol_info *info);

/* A class with one context and its queue. */
struct node {
    struct na_context context; /* first: the plugin's context leads here */
    struct na_class cls;
    pthread_mutex_t lock;
    struct na_completion *first, **last;
    int fd;
};

/* An operation and its result. */
struct op {
    na_op *id;
    int calls, ret;
    size_t size;
    uint32_t tag;
    na_addr *source;
};

/* Opens a class over the port that MX_PORT names, and a context with that number. NULL: not available here. */
struct node *node_open(const char *host, uint8_t context);
void node_close(struct node *node);

/* Runs the callbacks that are queued; returns their number. */
int trigger(struct node *node);
/* Polls and runs callbacks. */
void turn(struct node *node);

/* Prepares an operation, which is passed as argument with `on_end` as callback. */
void op_init(struct node *node, struct op *op);
void op_done(struct node *node, struct op *op);
void on_end(const struct na_cb_info *info);

/* Turns of up to three nodes until the condition holds, at most for some seconds. */
#define UNTIL_TURNS(condition, ...)                                                \
    do {                                                                           \
        struct node *nodes_[] = { __VA_ARGS__ };                                   \
        int64_t limit_ = now_ms() + 20000;                                         \
        while (!(condition)) {                                                     \
            for (size_t n_ = 0; n_ < sizeof nodes_ / sizeof *nodes_; n_++)         \
                turn(nodes_[n_]);                                                  \
            if (now_ms() > limit_)                                                 \
                FAIL("%s: not within 20 s", #condition);                           \
        }                                                                          \
    } while (0)

/* Returns the address of node `of`, looked up by `node`. */
na_addr *address_of(struct node *node, struct node *of);
/* Formats the node's own address, without the class. */
void own_text(struct node *node, char *text, size_t size);

#endif
