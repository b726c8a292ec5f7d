/*
 * The table of libna_plugin_mx: every operation, without Mercury.
 *
 *   small libna (support/na.c) ── two or three classes in one process, or in two ──► plugin
 *
 * Each version of libna has its layout, and one that is not known is refused with one line.
 */
#include "support/na.h"

#include "../support/port.h"
#include "../support/world.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define OK(call) CHECK_THAT((call), ==, NA_SUCCESS)

/* ---- a pair of classes that know each other ---- */

struct pair {
    struct node *a, *b;
    na_addr *b_at_a, *a_at_b;
};

static void exchange(struct node *from, na_addr *to, struct node *at, uint32_t tag, size_t size, na_addr **source)
{
    static unsigned char out[65536], in[65536];
    struct op send, recv;

    op_init(from, &send);
    op_init(at, &recv);
    for (size_t n = 0; n < size; n++)
        out[n] = (unsigned char)(n * 7 + tag);
    memset(in, 0xee, sizeof in);
    OK(table()->recv_unexpected(&at->cls, &at->context, on_end, &recv, in, 4096, NULL, recv.id));
    OK(table()->send_unexpected(&from->cls, &from->context, on_end, &send, out, size, NULL, to, 0, tag, send.id));
    UNTIL_TURNS(send.calls && recv.calls, from, at);
    CHECK_THAT(send.ret, ==, NA_SUCCESS);
    CHECK_THAT(recv.ret, ==, NA_SUCCESS);
    CHECK_THAT(recv.size, ==, size);
    CHECK_THAT(recv.tag, ==, tag);
    CHECK(memcmp(in, out, size) == 0 && in[size] == 0xee);
    CHECK_THAT(send.calls + recv.calls, ==, 2);
    if (source) {
        *source = recv.source;
        recv.source = NULL;
    }
    op_done(from, &send);
    op_done(at, &recv);
}

static void pair_open(struct pair *pair)
{
    pair->a = node_open(NULL, 0);
    pair->b = node_open(NULL, 0);
    CHECK(pair->a && pair->b);
    pair->b_at_a = address_of(pair->a, pair->b);
    exchange(pair->a, pair->b_at_a, pair->b, 1, 10, &pair->a_at_b);
}

static void pair_close(struct pair *pair)
{
    table()->addr_free(&pair->a->cls, pair->b_at_a);
    table()->addr_free(&pair->b->cls, pair->a_at_b);
    node_close(pair->a);
    node_close(pair->b);
}

/* ---- versions ---- */

static int lines_of(int fd, char *text, size_t size)
{
    size_t have = 0;
    ssize_t got;
    int lines = 0;

    while ((got = read(fd, text + have, size - 1 - have)) > 0)
        have += (size_t)got;
    text[have] = '\0';
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    return lines;
}

/* A process in which the plugin is loaded for a version of libna. Returns the lines that it has written. */
static int in_version(unsigned major, unsigned minor, bool known, char *text, size_t size)
{
    int ends[2], status;

    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(ends[1], 2);
        host_version[0] = major;
        host_version[1] = minor;
        bool supported = table()->check_protocol("mx");
        if (supported != known || strcmp(table()->class_name, "mx") != 0)
            _exit(2);
        if (known) {
            struct pair pair;
            pair_open(&pair);
            pair_close(&pair);
        } else {
            struct na_class class = { .listen = true };
            struct na_info info = { .protocol_name = "mx" };
            if (table()->get_protocol_info != NULL || table()->initialize(&class, &info, true) != NA_PROTONOSUPPORT)
                _exit(3);
        }
        _exit(0);
    }
    close(ends[1]);
    int lines = lines_of(ends[0], text, size);
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        FAIL("version %u.%u: status %#x: %s", major, minor, status, text);
    return lines;
}

static void every_version(struct side *side)
{
    static const unsigned known[][2] = { { 4, 0 }, { 5, 0 }, { 6, 0 } };
    static const unsigned unknown[][2] = { { 7, 0 }, { 5, 1 }, { 3, 2 }, { 0, 0 } };
    char text[4096], number[32];

    for (size_t n = 0; n < 3; n++)
        CHECK_THAT(in_version(known[n][0], known[n][1], true, text, sizeof text), ==, 0);
    for (size_t n = 0; n < 4; n++) {
        CHECK_THAT(in_version(unknown[n][0], unknown[n][1], false, text, sizeof text), ==, 1);
        snprintf(number, sizeof number, "version %u.%u", unknown[n][0], unknown[n][1]);
        CHECK(strstr(text, number) && strstr(text, "6.0"));
    }
}

/* ---- addresses ---- */

static void protocols(struct side *side)
{
    struct na_protocol_info *info = NULL;
    const struct na_info tcp = { .protocol_name = "tcp" };
    int count = 0;

    OK(table()->get_protocol_info(NULL, &info));
    for (struct na_protocol_info *each = info; each; each = each->next, count++)
        CHECK(strcmp(each->class_name, "mx") == 0 && table()->check_protocol(each->protocol_name));
    CHECK_THAT(count, ==, 5);
    protocol_info_free(info);
    OK(table()->get_protocol_info(&tcp, &info));
    CHECK(info && !info->next && strcmp(info->protocol_name, "tcp") == 0);
    protocol_info_free(info);
    CHECK(!table()->check_protocol("sm") && !table()->check_protocol("loopback") && !table()->check_protocol(""));
}

static void addresses(struct side *side)
{
    struct pair pair;
    char text[128], small[8];
    na_addr *twin, *again;
    size_t size = sizeof small;

    pair_open(&pair);
    own_text(pair.b, text, sizeof text);
    OK(table()->addr_lookup(&pair.a->cls, text, &twin));
    CHECK(table()->addr_cmp(&pair.a->cls, twin, pair.b_at_a));
    CHECK(!table()->addr_is_self(&pair.a->cls, twin));
    OK(table()->addr_dup(&pair.a->cls, twin, &again));
    CHECK(table()->addr_cmp(&pair.a->cls, twin, again));
    table()->addr_free(&pair.a->cls, again);
    CHECK(!table()->addr_cmp(&pair.a->cls, twin, NULL));

    CHECK_THAT(table()->addr_to_string(&pair.a->cls, small, &size, twin), ==, NA_OVERFLOW);
    CHECK_THAT(size, ==, strlen(text) + 1);
    OK(table()->addr_to_string(&pair.a->cls, NULL, &size, twin));
    CHECK_THAT(size, ==, strlen(text) + 1);

    size = table()->addr_get_serialize_size(&pair.a->cls, twin);
    CHECK(size > 0 && size <= sizeof text);
    CHECK_THAT(table()->addr_serialize(&pair.a->cls, text, size - 1, twin), ==, NA_OVERFLOW);
    OK(table()->addr_serialize(&pair.a->cls, text, size, twin));
    OK(table()->addr_deserialize(&pair.b->cls, &again, text, size, 0));
    CHECK(table()->addr_is_self(&pair.b->cls, again));
    table()->addr_free(&pair.b->cls, again);
    CHECK_THAT(table()->addr_deserialize(&pair.b->cls, &again, text, size - 1, 0), ==, NA_INVALID_ARG);

    /* Who is removed is called anew by the next message. */
    OK(table()->addr_set_remove(&pair.a->cls, twin));
    table()->addr_free(&pair.a->cls, twin);
    exchange(pair.a, pair.b_at_a, pair.b, 3, 100, NULL);
    pair_close(&pair);
}

static void wrong_addresses(struct side *side)
{
    static const struct {
        const char *text;
        int code;
    } wrong[] = {
        { "", NA_INVALID_ARG },
        { "tcp://", NA_INVALID_ARG },
        { "tcp://10.0.0.1", NA_INVALID_ARG },
        { "tcp://10.0.0.1:x", NA_INVALID_ARG },
        { "tcp://10.0.0.1:70000", NA_INVALID_ARG },
        { "sm://10.0.0.1:7", NA_INVALID_ARG },
        { "tcp://[::1:7", NA_INVALID_ARG },
        { "tcp://0.0.0.0:7", NA_ADDRNOTAVAIL },
        { "tcp://no.such.host.invalid:7", NA_ADDRNOTAVAIL },
    };
    struct node *node = node_open(NULL, 0);
    na_addr *addr = (na_addr *)7;
    struct na_class class = { .listen = true };
    struct na_info info = { .protocol_name = "mx", .host_name = "no.such.host.invalid:0" };

    CHECK(node);
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++)
        if (table()->addr_lookup(&node->cls, wrong[n].text, &addr) != wrong[n].code || addr != (na_addr *)7)
            FAIL("%s", wrong[n].text);
    OK(table()->addr_lookup(&node->cls, "tcp://[2001:db8::7]:4000", &addr));
    char text[64];
    size_t size = sizeof text;
    OK(table()->addr_to_string(&node->cls, text, &size, addr));
    CHECK(strcmp(text, "tcp://[2001:db8::7]:4000") == 0);
    table()->addr_free(&node->cls, addr);
    node_close(node);
    CHECK_THAT(table()->initialize(&class, &info, true), ==, NA_ADDRNOTAVAIL);
    info.protocol_name = "sm";
    CHECK_THAT(table()->initialize(&class, &info, true), ==, NA_INVALID_ARG);
}

/* ---- messages ---- */

static void messages(struct side *side)
{
    struct pair pair;
    struct op send, recv;
    static unsigned char out[4096], in[4096];

    pair_open(&pair);
    CHECK(table()->max_unexpected(&pair.a->cls) == 4096 && table()->max_expected(&pair.a->cls) == 4096);
    CHECK(table()->max_tag(&pair.a->cls) == UINT32_MAX);
    CHECK(table()->has_opt_feature(&pair.a->cls, 1) && !table()->has_opt_feature(&pair.a->cls, 2));
    for (size_t size = 0; size <= 4096; size = size ? 4 * size : 1)
        exchange(pair.a, pair.b_at_a, pair.b, UINT32_MAX - (uint32_t)size, size, NULL);

    op_init(pair.b, &send);
    op_init(pair.a, &recv);
    for (uint32_t tag = 0; tag < 300; tag++) {
        memset(out, (int)tag, sizeof out);
        /* Before its receive, and after it. */
        if (tag % 2)
            OK(table()->send_expected(&pair.b->cls, &pair.b->context, on_end, &send, out, tag, NULL, pair.a_at_b, 0, tag, send.id));
        OK(table()->recv_expected(&pair.a->cls, &pair.a->context, on_end, &recv, in, sizeof in, NULL, pair.b_at_a, 0, tag, recv.id));
        if (!(tag % 2))
            OK(table()->send_expected(&pair.b->cls, &pair.b->context, on_end, &send, out, tag, NULL, pair.a_at_b, 0, tag, send.id));
        UNTIL_TURNS(send.calls > (int)tag && recv.calls > (int)tag, pair.a, pair.b);
        CHECK(recv.ret == NA_SUCCESS && send.ret == NA_SUCCESS && recv.size == tag);
        CHECK(memcmp(in, out, tag) == 0);
    }
    CHECK_THAT(table()->send_expected(&pair.b->cls, &pair.b->context, on_end, &send, out, 4097, NULL, pair.a_at_b, 0, 1, send.id),
               ==, NA_MSGSIZE);
    CHECK_THAT(table()->send_expected(&pair.b->cls, &pair.b->context, on_end, &send, out, 1, NULL, NULL, 0, 1, send.id),
               ==, NA_INVALID_ARG);
    OK(table()->recv_expected(&pair.a->cls, &pair.a->context, on_end, &recv, in, 8, NULL, pair.b_at_a, 0, 7, recv.id));
    CHECK_THAT(table()->recv_expected(&pair.a->cls, &pair.a->context, on_end, &recv, in, 8, NULL, pair.b_at_a, 0, 8, recv.id),
               ==, NA_BUSY);
    int before = recv.calls;
    OK(table()->send_expected(&pair.b->cls, &pair.b->context, on_end, &send, out, 100, NULL, pair.a_at_b, 0, 7, send.id));
    UNTIL_TURNS(recv.calls > before, pair.a, pair.b);
    CHECK_THAT(recv.ret, ==, NA_MSGSIZE);
    op_done(pair.b, &send);
    op_done(pair.a, &recv);
    pair_close(&pair);
}

struct several {
    int calls, last;
    size_t bytes;
    const unsigned char *begin;
};

static void on_several(const struct na_cb_info *info)
{
    struct several *several = info->arg;

    several->calls++;
    several->last += info->last;
    if (info->ret != NA_SUCCESS)
        return;
    const unsigned char *buf = info->buf;
    for (size_t n = 0; n < info->size; n++)
        CHECK(buf[n] == (unsigned char)info->tag);
    CHECK(buf >= several->begin);
    several->bytes += info->size;
    table()->addr_free(NULL, info->source);
}

static void multi_receive(struct side *side)
{
    struct pair pair;
    static unsigned char room[16384], out[4096];
    struct several several = { .begin = room };
    struct op send;
    na_op *multi;
    size_t sent = 0;

    pair_open(&pair);
    op_init(pair.a, &send);
    multi = table()->op_create(&pair.b->cls, 1);
    OK(table()->multi_recv_unexpected(&pair.b->cls, &pair.b->context, on_several, &several, room, sizeof room, NULL, multi));
    /* Until less than the largest message fits. */
    for (uint32_t tag = 1; !several.last; tag++) {
        memset(out, (int)tag, sizeof out);
        sent += 700;
        OK(table()->send_unexpected(&pair.a->cls, &pair.a->context, on_end, &send, out, 700, NULL, pair.b_at_a, 0, tag, send.id));
        UNTIL_TURNS(send.calls == (int)tag && several.bytes == sent, pair.a, pair.b);
    }
    CHECK(several.last == 1 && several.calls == send.calls);
    CHECK(sent > sizeof room - 4096 - 704 && sent <= sizeof room);
    /* Called off in the middle. */
    OK(table()->multi_recv_unexpected(&pair.b->cls, &pair.b->context, on_several, &several, room, sizeof room, NULL, multi));
    if (host_version[0] == 6)
        OK(table()->cancel(&pair.b->cls, &pair.b->context, multi));
    UNTIL_TURNS(several.last == 2, pair.b);
    table()->op_destroy(&pair.b->cls, multi);
    op_done(pair.a, &send);
    pair_close(&pair);
}

/* Messages go to the context that they name. */
static void contexts(struct side *side)
{
    struct pair pair;
    struct node second = { .lock = PTHREAD_MUTEX_INITIALIZER };
    struct op recv[2], send;
    char in[2][8], out[8] = "context";

    pair_open(&pair);
    second.last = &second.first;
    OK(table()->context_create.with(&pair.b->cls, &second.context, &second.context.plugin_context, 3));
    op_init(pair.a, &send);
    for (int n = 0; n < 2; n++) {
        struct na_context *context = n ? &second.context : &pair.b->context;
        op_init(pair.b, &recv[n]);
        OK(table()->recv_unexpected(&pair.b->cls, context, on_end, &recv[n], in[n], 8, NULL, recv[n].id));
    }
    OK(table()->send_unexpected(&pair.a->cls, &pair.a->context, on_end, &send, out, 8, NULL, pair.b_at_a, 3, 5, send.id));
    UNTIL_TURNS((trigger(&second), recv[1].calls), pair.a, pair.b);
    CHECK(recv[1].ret == NA_SUCCESS && recv[0].calls == 0);
    OK(table()->cancel(&pair.b->cls, &pair.b->context, recv[0].id));
    UNTIL_TURNS(recv[0].calls && send.calls, pair.a, pair.b);
    CHECK_THAT(recv[0].ret, ==, NA_CANCELED);
    op_done(pair.a, &send);
    op_done(pair.b, &recv[0]);
    op_done(pair.b, &recv[1]);
    OK(table()->context_destroy(&pair.b->cls, second.context.plugin_context));
    pair_close(&pair);
}

/* ---- memory ---- */

enum { LEN = 3 << 20 };

struct region {
    unsigned char *bytes;
    na_mem *local, *remote;
    char text[64];
    size_t text_size;
};

static void region_open(struct region *region, struct node *owner, struct node *other, unsigned long flags, size_t len)
{
    region->bytes = malloc(len);
    CHECK(region->bytes);
    for (size_t n = 0; n < len; n++)
        region->bytes[n] = (unsigned char)(n * 13 + n / 509);
    /* In two segments, one of them odd. */
    struct na_segment segments[] = { { region->bytes, len / 3 + 1 }, { region->bytes + len / 3 + 1, len - len / 3 - 1 } };
    OK(table()->mem_create_segments(&owner->cls, segments, 2, flags, &region->local));
    CHECK_THAT(table()->mem_serialize(&owner->cls, region->text, sizeof region->text, region->local), ==, NA_INVALID_ARG);
    OK(table()->mem_register(&owner->cls, region->local, 0, 0));
    CHECK_THAT(table()->mem_register(&owner->cls, region->local, 0, 0), ==, NA_BUSY);
    region->text_size = table()->mem_serialize_size(&owner->cls, region->local);
    CHECK(region->text_size <= sizeof region->text);
    CHECK_THAT(table()->mem_serialize(&owner->cls, region->text, region->text_size - 1, region->local), ==, NA_OVERFLOW);
    OK(table()->mem_serialize(&owner->cls, region->text, region->text_size, region->local));
    OK(table()->mem_deserialize(&other->cls, &region->remote, region->text, region->text_size));
}

static void region_close(struct region *region, struct node *owner, struct node *other)
{
    OK(table()->mem_deregister(&owner->cls, region->local));
    table()->mem_free(&owner->cls, region->local);
    table()->mem_free(&other->cls, region->remote);
    free(region->bytes);
}

/* Gets or puts, and returns how that ends. */
static int transfer(struct pair *pair, bool gets, na_mem *own, uint64_t own_at, na_mem *remote, uint64_t at, size_t len)
{
    struct op op;
    int ret;

    op_init(pair->a, &op);
    if (gets)
        ret = table()->get(&pair->a->cls, &pair->a->context, on_end, &op, own, own_at, remote, at, len, pair->b_at_a, 0, op.id);
    else
        ret = table()->put(&pair->a->cls, &pair->a->context, on_end, &op, own, own_at, remote, at, len, pair->b_at_a, 0, op.id);
    if (ret == NA_SUCCESS) {
        UNTIL_TURNS(op.calls, pair->a, pair->b);
        CHECK_THAT(op.calls, ==, 1);
        ret = op.ret;
    }
    op_done(pair->a, &op);
    return ret;
}

static void memory(struct side *side)
{
    static const size_t sizes[] = { 0, 1, 4096, 65536, 1000001, LEN };
    struct pair pair;
    struct region both, readable, writable;
    unsigned char *own_bytes = calloc(1, LEN);
    na_mem *own;

    CHECK(own_bytes);
    pair_open(&pair);
    region_open(&both, pair.b, pair.a, READABLE | WRITABLE, LEN);
    region_open(&readable, pair.b, pair.a, READABLE, 1000);
    region_open(&writable, pair.b, pair.a, WRITABLE, 1000);
    OK(table()->mem_create(&pair.a->cls, own_bytes, LEN, READABLE, &own));
    CHECK(table()->mem_max_segments(&pair.a->cls) >= 2);
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        size_t at = (LEN - sizes[n]) / 2;
        memset(own_bytes, 0, LEN);
        CHECK_THAT(transfer(&pair, true, own, at, both.remote, at, sizes[n]), ==, NA_SUCCESS);
        CHECK(memcmp(own_bytes + at, both.bytes + at, sizes[n]) == 0);
        CHECK(at == 0 || (own_bytes[at - 1] == 0 && own_bytes[at + sizes[n]] == 0));
        memset(own_bytes, (int)n + 1, LEN);
        CHECK_THAT(transfer(&pair, false, own, 0, both.remote, at, sizes[n]), ==, NA_SUCCESS);
        CHECK(memcmp(own_bytes, both.bytes + at, sizes[n]) == 0);
        CHECK(at == 0 || both.bytes[at - 1] == (unsigned char)((at - 1) * 13 + (at - 1) / 509));
    }

    /* Right by right, and bound by bound. */
    CHECK_THAT(transfer(&pair, false, own, 0, readable.remote, 0, 1), ==, NA_PERMISSION);
    CHECK_THAT(transfer(&pair, true, own, 0, writable.remote, 0, 1), ==, NA_PERMISSION);
    static const struct {
        uint64_t at;
        size_t len;
    } beyond[] = { { 1000, 1 }, { 999, 2 }, { 0, 1001 }, { UINT64_MAX, 1 }, { UINT64_MAX, 2 }, { UINT64_MAX - 99, 100 } };
    for (size_t n = 0; n < sizeof beyond / sizeof *beyond; n++) {
        memset(own_bytes, 0x55, 2000);
        CHECK_THAT(transfer(&pair, true, own, 0, readable.remote, beyond[n].at, beyond[n].len), ==, NA_OVERFLOW);
        CHECK_THAT(transfer(&pair, false, own, 0, writable.remote, beyond[n].at, beyond[n].len), ==, NA_OVERFLOW);
        CHECK(own_bytes[0] == 0x55 && memcmp(own_bytes, own_bytes + 1, 1999) == 0);
    }
    for (size_t n = 0; n < 1000; n++)
        CHECK(writable.bytes[n] == (unsigned char)(n * 13 + n / 509));
    /* The own side is checked, too. */
    CHECK_THAT(transfer(&pair, true, own, LEN, both.remote, 0, 1), ==, NA_OVERFLOW);
    CHECK_THAT(transfer(&pair, true, own, UINT64_MAX, both.remote, 0, 2), ==, NA_OVERFLOW);
    CHECK_THAT(transfer(&pair, true, both.remote, 0, both.remote, 0, 2), ==, NA_INVALID_ARG);

    /* A key of an earlier life, and one that never was. */
    OK(table()->mem_deregister(&pair.b->cls, readable.local));
    CHECK_THAT(transfer(&pair, true, own, 0, readable.remote, 0, 1), ==, NA_FAULT);
    OK(table()->mem_register(&pair.b->cls, readable.local, 0, 0));
    CHECK_THAT(transfer(&pair, true, own, 0, readable.remote, 0, 1), ==, NA_FAULT);
    readable.text[9] ^= 1;
    na_mem *guessed;
    OK(table()->mem_deserialize(&pair.a->cls, &guessed, readable.text, readable.text_size));
    CHECK_THAT(transfer(&pair, true, own, 0, guessed, 0, 1), ==, NA_FAULT);
    table()->mem_free(&pair.a->cls, guessed);
    readable.text[0] ^= 1;
    CHECK_THAT(table()->mem_deserialize(&pair.a->cls, &guessed, readable.text, readable.text_size), ==, NA_INVALID_ARG);
    CHECK_THAT(table()->mem_deserialize(&pair.a->cls, &guessed, readable.text, 3), ==, NA_OVERFLOW);
    CHECK(table()->mem_register(&pair.a->cls, own, 1, 0) != NA_SUCCESS);

    table()->mem_free(&pair.a->cls, own);
    free(own_bytes);
    region_close(&both, pair.b, pair.a);
    region_close(&readable, pair.b, pair.a);
    region_close(&writable, pair.b, pair.a);
    pair_close(&pair);
}

static int calls_of(const struct op *ops, int count)
{
    int calls = 0;

    for (int n = 0; n < count; n++)
        calls += ops[n].calls;
    return calls;
}

/* Access ends with the region, also what is under way. */
static void deregistered_meanwhile(struct side *side)
{
    struct pair pair;
    struct region region;
    enum { GETS = 24 };
    struct op ops[GETS];
    unsigned char *own_bytes = malloc(LEN);
    na_mem *own;
    int refused = 0;

    CHECK(own_bytes);
    pair_open(&pair);
    region_open(&region, pair.b, pair.a, READABLE | WRITABLE, LEN);
    OK(table()->mem_create(&pair.a->cls, own_bytes, LEN, READABLE, &own));
    for (int n = 0; n < GETS; n++) {
        op_init(pair.a, &ops[n]);
        if (n % 2)
            OK(table()->put(&pair.a->cls, &pair.a->context, on_end, &ops[n], own, 0, region.remote, 0, LEN, pair.b_at_a, 0, ops[n].id));
        else
            OK(table()->get(&pair.a->cls, &pair.a->context, on_end, &ops[n], own, 0, region.remote, 0, LEN, pair.b_at_a, 0, ops[n].id));
    }
    for (int n = 0; n < 3; n++) {
        turn(pair.b);
        turn(pair.a);
    }
    OK(table()->mem_deregister(&pair.b->cls, region.local));
    memset(region.bytes, 0x77, LEN);
    UNTIL_TURNS(calls_of(ops, GETS) == GETS, pair.a, pair.b);
    for (int n = 0; n < LEN; n++)
        CHECK(region.bytes[n] == 0x77);
    for (int n = 0; n < GETS; n++) {
        CHECK(ops[n].ret == NA_SUCCESS || ops[n].ret == NA_FAULT);
        refused += ops[n].ret == NA_FAULT;
        op_done(pair.a, &ops[n]);
    }
    CHECK(refused > 0);
    table()->mem_free(&pair.a->cls, own);
    free(own_bytes);
    OK(table()->mem_register(&pair.b->cls, region.local, 0, 0));
    region_close(&region, pair.b, pair.a);
    pair_close(&pair);
}

/* None of so many reads of foreign memory gets a byte. */
static void attacked(struct side *side)
{
    struct pair pair;
    struct region secret, open;
    enum { READS = 100000, AT_ONCE = 50 };
    static unsigned char own_bytes[AT_ONCE][64];
    struct op ops[AT_ONCE];
    na_mem *own[AT_ONCE];
    uint64_t state = 88172645463325252u;
    long got = 0, refused = 0;

    pair_open(&pair);
    region_open(&secret, pair.b, pair.a, READABLE | WRITABLE, 100000);
    region_open(&open, pair.b, pair.a, READABLE, 1000);
    memset(own_bytes, 0x55, sizeof own_bytes);
    for (int n = 0; n < AT_ONCE; n++) {
        op_init(pair.a, &ops[n]);
        OK(table()->mem_create(&pair.a->cls, own_bytes[n], sizeof own_bytes[n], READABLE, &own[n]));
    }
    for (long n = 0; n < READS; n += AT_ONCE) {
        na_mem *guesses[AT_ONCE];
        for (int k = 0; k < AT_ONCE; k++) {
            char text[64];
            memcpy(text, open.text, open.text_size);
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            /* Any key; or the right one, and bytes beside its region. */
            uint64_t at = state % 3 ? state >> 20 : 1000 + state % 100000;
            if (state % 3)
                memcpy(text + 8, &state, 8);
            OK(table()->mem_deserialize(&pair.a->cls, &guesses[k], text, open.text_size));
            ops[k].calls = 0;
            OK(table()->get(&pair.a->cls, &pair.a->context, on_end, &ops[k], own[k], 0, guesses[k], at, 64, pair.b_at_a, 0, ops[k].id));
        }
        UNTIL_TURNS(calls_of(ops, AT_ONCE) == AT_ONCE, pair.a, pair.b);
        for (int k = 0; k < AT_ONCE; k++) {
            got += ops[k].ret == NA_SUCCESS;
            refused += ops[k].ret == NA_FAULT || ops[k].ret == NA_OVERFLOW;
            table()->mem_free(&pair.a->cls, guesses[k]);
        }
    }
    CHECK_THAT(got, ==, 0);
    CHECK_THAT(refused, ==, READS);
    for (int n = 0; n < AT_ONCE; n++) {
        for (size_t k = 0; k < sizeof own_bytes[n]; k++)
            CHECK(own_bytes[n][k] == 0x55);
        op_done(pair.a, &ops[n]);
        table()->mem_free(&pair.a->cls, own[n]);
    }
    region_close(&secret, pair.b, pair.a);
    region_close(&open, pair.b, pair.a);
    pair_close(&pair);
}

/* ---- more than 4 GiB ---- */

/* A source of which only the marks were written, and a sink that has memory of its own only there: elsewhere its segments are
 * one piece of memory. The marks lie where sizes of 30, 31 and 32 bits end. */
enum { MARKS = 6, MARK_LEN = 4096, FOLD = 64 << 20 };
#define HUGE_LEN ((4ull << 30) + (40 << 20) + 123)

static const uint64_t marks[MARKS] = { 0, (1ull << 30) - 2048, (2ull << 30) - 1, (3ull << 30) - 7, (4ull << 30) - 4095, HUGE_LEN - MARK_LEN };

struct huge {
    unsigned char *source, *fold, sink[MARKS][MARK_LEN];
    na_mem *from, *into, *remote;
    bool gets;
};

/* The remote one is b's. */
static void huge_open(struct huge *huge, struct pair *pair, bool gets)
{
    struct na_segment segments[128];
    struct node *source = gets ? pair->b : pair->a, *sink = gets ? pair->a : pair->b;
    size_t count = 0;
    uint64_t at = 0;
    char text[64];

    memset(huge, 0, sizeof *huge);
    huge->gets = gets;
    huge->source = mmap(NULL, HUGE_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    huge->fold = malloc(FOLD);
    CHECK(huge->source != MAP_FAILED && huge->fold);
    for (size_t n = 0; n < MARKS; n++) {
        for (; at < marks[n]; at += segments[count++].len)
            segments[count] = (struct na_segment){ huge->fold, marks[n] - at < FOLD ? marks[n] - at : FOLD };
        segments[count++] = (struct na_segment){ huge->sink[n], MARK_LEN };
        at += MARK_LEN;
        for (size_t k = 0; k < MARK_LEN; k++)
            huge->source[marks[n] + k] = (unsigned char)(k * 13 + k / 509 + n + 1);
    }
    CHECK(at == HUGE_LEN);
    OK(table()->mem_create(&source->cls, huge->source, HUGE_LEN, READABLE, &huge->from));
    OK(table()->mem_create_segments(&sink->cls, segments, count, WRITABLE, &huge->into));
    na_mem *lent = gets ? huge->from : huge->into;
    OK(table()->mem_register(&pair->b->cls, lent, 0, 0));
    OK(table()->mem_serialize(&pair->b->cls, text, sizeof text, lent));
    OK(table()->mem_deserialize(&pair->a->cls, &huge->remote, text, sizeof text));
}

static void huge_close(struct huge *huge, struct pair *pair)
{
    table()->mem_free(&pair->a->cls, huge->remote);
    table()->mem_free(&(huge->gets ? pair->b : pair->a)->cls, huge->from);
    table()->mem_free(&(huge->gets ? pair->a : pair->b)->cls, huge->into);
    munmap(huge->source, HUGE_LEN);
    free(huge->fold);
}

static bool mark_has_come(const struct huge *huge, size_t n)
{
    return memcmp(huge->sink[n], huge->source + marks[n], MARK_LEN) == 0;
}

enum meanwhile { NOTHING, CANCEL, DEREGISTER };

/* Moves all of it; something may happen when the bytes around the second mark have come. */
static void huge_move(struct huge *huge, struct pair *pair, enum meanwhile what, int ret)
{
    int64_t limit = now_ms() + 120000 * slower();
    bool done = what == NOTHING;
    struct op op;

    op_init(pair->a, &op);
    memset(huge->sink, 0, sizeof huge->sink);
    na_mem *own = huge->gets ? huge->into : huge->from;
    OK((huge->gets ? table()->get : table()->put)(&pair->a->cls, &pair->a->context, on_end, &op, own, 0, huge->remote, 0,
                                                  HUGE_LEN, pair->b_at_a, 0, op.id));
    while (!op.calls && now_ms() < limit) {
        turn(pair->b);
        turn(pair->a);
        if (done || !mark_has_come(huge, 1))
            continue;
        if (what == CANCEL)
            OK(table()->cancel(&pair->a->cls, &pair->a->context, op.id));
        else
            OK(table()->mem_deregister(&pair->b->cls, huge->gets ? huge->from : huge->into));
        done = true;
    }
    CHECK(done);
    CHECK_THAT(op.calls, ==, 1);
    CHECK_THAT(op.ret, ==, ret);
    for (size_t n = 0; n < MARKS; n++)
        CHECK(mark_has_come(huge, n) == (n < 2 || ret == NA_SUCCESS));
    op_done(pair->a, &op);
}

static void huge_transfers(struct side *side)
{
    struct pair pair;
    static struct huge huge;

    pair_open(&pair);
    for (int gets = 0; gets < 2; gets++) {
        huge_open(&huge, &pair, gets);
        huge_move(&huge, &pair, NOTHING, NA_SUCCESS);
        huge_move(&huge, &pair, CANCEL, NA_CANCELED);
        huge_move(&huge, &pair, DEREGISTER, NA_FAULT);
        huge_close(&huge, &pair);
    }
    exchange(pair.a, pair.b_at_a, pair.b, 5, 100, NULL);
    pair_close(&pair);
}

/* ---- cancel ---- */

static void cancelled(struct side *side)
{
    struct pair pair;
    struct region region;
    struct op ops[5], late;
    static unsigned char in[4096], out[4096];
    unsigned char *own_bytes = malloc(LEN);
    na_mem *own;

    pair_open(&pair);
    region_open(&region, pair.b, pair.a, READABLE | WRITABLE, LEN);
    OK(table()->mem_create(&pair.a->cls, own_bytes, LEN, READABLE, &own));
    for (int round = 0; round < 20; round++) {
        uint32_t tag = 77 + (uint32_t)round;

        for (int n = 0; n < 5; n++)
            op_init(pair.a, &ops[n]);
        cls a = &pair.a->cls;
        ctx c = &pair.a->context;
        OK(table()->recv_unexpected(a, c, on_end, &ops[0], in, 4096, NULL, ops[0].id));
        OK(table()->recv_expected(a, c, on_end, &ops[1], in, 4096, NULL, pair.b_at_a, 0, tag, ops[1].id));
        OK(table()->get(a, c, on_end, &ops[2], own, 0, region.remote, 0, LEN, pair.b_at_a, 0, ops[2].id));
        OK(table()->put(a, c, on_end, &ops[3], own, 0, region.remote, 0, LEN, pair.b_at_a, 0, ops[3].id));
        OK(table()->send_expected(a, c, on_end, &ops[4], out, 1, NULL, pair.b_at_a, 0, 9, ops[4].id));
        for (int n = 0; n < round % 4; n++) {
            turn(pair.b);
            turn(pair.a);
        }
        int64_t began = now_ms();
        for (int n = 0; n < 5; n++) {
            OK(table()->cancel(a, c, ops[n].id));
            OK(table()->cancel(a, c, ops[n].id));
        }
        while (trigger(pair.a))
            ;
        CHECK(now_ms() - began <= 10 * slower());
        for (int n = 0; n < 5; n++) {
            CHECK_THAT(ops[n].calls, ==, 1);
            CHECK(ops[n].ret == NA_CANCELED || (n >= 2 && ops[n].ret == NA_SUCCESS));
            /* The id is free for the next operation. */
            OK(table()->cancel(a, c, ops[n].id));
            op_done(pair.a, &ops[n]);
        }
        /* The answer to the one that was called off comes late, and is for none after it. */
        op_init(pair.b, &late);
        OK(table()->send_expected(&pair.b->cls, &pair.b->context, on_end, &late, out, 5, NULL, pair.a_at_b, 0, tag, late.id));
        UNTIL_TURNS(late.calls, pair.a, pair.b);
        op_done(pair.b, &late);
    }
    exchange(pair.a, pair.b_at_a, pair.b, 5, 100, NULL);
    /* An operation that is destroyed while it is under way has no callback. */
    op_init(pair.a, &late);
    OK(table()->recv_unexpected(&pair.a->cls, &pair.a->context, on_end, &late, in, 4096, NULL, late.id));
    op_done(pair.a, &late);
    turn(pair.a);
    CHECK_THAT(late.calls, ==, 0);
    region_close(&region, pair.b, pair.a);
    table()->mem_free(&pair.a->cls, own);
    free(own_bytes);
    pair_close(&pair);
}

/* ---- sleeping ---- */

struct sleeper {
    struct node *node;
    struct op *op;
    int64_t slept_ms, cpu;
    bool waits; /* by poll_wait */
    int fd; /* the outermost epoll instance around the descriptor of poll_get_fd */
};

/* Mercury's epoll instance watches the descriptor, and its host's watches Mercury's. Linux allows five in a row, of which
 * libfabric has three. */
enum { OUTER = 2, OUTER_RDM = 1 };

static int epoll_around(int fd)
{
    int outer = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = { .events = EPOLLIN };

    CHECK(outer >= 0);
    if (epoll_ctl(outer, EPOLL_CTL_ADD, fd, &event) != 0)
        FAIL("the descriptor cannot be watched: %s", strerror(errno));
    return outer;
}

/* Sleeps on the descriptor, as Mercury does, or in poll_wait, until the operation has ended. */
static void *sleep_until(void *arg)
{
    struct sleeper *sleeper = arg;
    struct node *node = sleeper->node;
    int64_t began = now_ms();
    struct timespec cpu;

    while (!sleeper->op->calls && now_ms() < began + 20000) {
        if (sleeper->waits) {
            table()->v.poll_wait(&node->cls, &node->context, 5000, NULL);
        } else {
            struct pollfd fd = { .fd = sleeper->fd, .events = POLLIN };
            if (node->first == NULL && table()->poll_try_wait(&node->cls, &node->context))
                poll(&fd, 1, 5000);
            table()->u.poll(&node->cls, &node->context, NULL);
        }
        trigger(node);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    sleeper->cpu = cpu.tv_sec * 1000 + cpu.tv_nsec / 1000000;
    sleeper->slept_ms = now_ms() - began;
    return NULL;
}

static void sleeping(struct side *side)
{
    struct pair pair;
    static char in[4096], out[8] = "wake up";
    int fds[1 + OUTER], outer = port_is("rdm") ? OUTER_RDM : OUTER;

    pair_open(&pair);
    fds[0] = table()->poll_get_fd(&pair.b->cls, &pair.b->context);
    for (int n = 0; n < outer; n++)
        fds[n + 1] = epoll_around(fds[n]);
    for (int n = 0; n < 8; n++) {
        struct op recv, send;
        struct sleeper sleeper = { .node = pair.b, .op = &recv, .waits = n % 2, .fd = fds[outer] };
        pthread_t thread;
        bool by_thread = n % 4 >= 2;

        op_init(pair.b, &recv);
        op_init(pair.a, &send);
        OK(table()->recv_unexpected(&pair.b->cls, &pair.b->context, on_end, &recv, in, 4096, NULL, recv.id));
        CHECK(pthread_create(&thread, NULL, sleep_until, &sleeper) == 0);
        pause_ms(400);
        if (by_thread) {
            /* Another thread ends what the sleeper waits for. */
            OK(table()->cancel(&pair.b->cls, &pair.b->context, recv.id));
        } else {
            OK(table()->send_unexpected(&pair.a->cls, &pair.a->context, on_end, &send, out, 8, NULL, pair.b_at_a, 0, 5, send.id));
            UNTIL_TURNS(send.calls, pair.a);
        }
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK_THAT(recv.ret, ==, by_thread ? NA_CANCELED : NA_SUCCESS);
        /* It slept, and was woken, not timed out. */
        CHECK(sleeper.slept_ms >= 390 && sleeper.slept_ms < 2000 * slower());
        CHECK_THAT(sleeper.cpu, <, 200 * slower());
        op_done(pair.b, &recv);
        op_done(pair.a, &send);
    }
    if (host_version[0] == 6)
        CHECK_THAT(table()->v.poll_wait(&pair.b->cls, &pair.b->context, 20, NULL), ==, NA_TIMEOUT);
    for (int n = 1; n <= outer; n++)
        close(fds[n]);
    pair_close(&pair);
}

/* ---- death ---- */

/* A server: answers each request with its bytes, and lends memory. */
static void serve(int out, const char *host)
{
    struct node *node = node_open(host, 0);
    struct region region;
    struct op recv, send;
    static char buf[4096];
    char text[256] = "";

    if (!node)
        _exit(4);
    region_open(&region, node, node, READABLE | WRITABLE, LEN);
    own_text(node, text, sizeof text - 64);
    memcpy(text + 192, region.text, 64);
    if (write(out, text, sizeof text) != sizeof text)
        _exit(5);
    op_init(node, &recv);
    op_init(node, &send);
    for (int served = 0;; served++) {
        OK(table()->recv_unexpected(&node->cls, &node->context, on_end, &recv, buf, 4096, NULL, recv.id));
        while (recv.calls <= served) {
            table()->v.poll_wait(&node->cls, &node->context, 1000, NULL);
            trigger(node);
        }
        int before = send.calls;
        OK(table()->send_expected(&node->cls, &node->context, on_end, &send, buf, recv.size, NULL, recv.source, 0, recv.tag, send.id));
        while (send.calls == before)
            turn(node);
    }
}

static pid_t server_start(const char *host, char text[256])
{
    int ends[2];

    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        serve(ends[1], host);
    }
    close(ends[1]);
    CHECK_THAT(read(ends[0], text, 256), ==, 256);
    close(ends[0]);
    return child;
}

static int ask(struct node *node, na_addr *server, uint32_t tag)
{
    struct op recv, send;
    char in[64], out[64];

    memset(out, (int)tag, sizeof out);
    op_init(node, &recv);
    op_init(node, &send);
    int ret = table()->recv_expected(&node->cls, &node->context, on_end, &recv, in, 64, NULL, server, 0, tag, recv.id);
    if (ret == NA_SUCCESS) {
        int sent = table()->send_unexpected(&node->cls, &node->context, on_end, &send, out, 64, NULL, server, 0, tag, send.id);
        if (sent != NA_SUCCESS)
            OK(table()->cancel(&node->cls, &node->context, recv.id));
        UNTIL_TURNS(recv.calls && (sent != NA_SUCCESS || send.calls), node);
        ret = sent != NA_SUCCESS ? sent : recv.ret;
        if (ret == NA_SUCCESS)
            CHECK(memcmp(in, out, 64) == 0);
    }
    op_done(node, &recv);
    op_done(node, &send);
    return ret;
}

static void dead_server(struct side *side)
{
    char one_text[256], other_text[256];
    pid_t one = server_start(NULL, one_text), other = server_start(NULL, other_text);
    struct node *node = node_open(NULL, 0);
    na_addr *first, *second;
    na_mem *remote, *own;
    struct op ops[3];
    unsigned char *bytes = malloc(LEN);
    int status;

    CHECK(node && bytes);
    OK(table()->addr_lookup(&node->cls, one_text, &first));
    OK(table()->addr_lookup(&node->cls, other_text, &second));
    OK(ask(node, first, 1));
    OK(ask(node, second, 2));
    OK(table()->mem_deserialize(&node->cls, &remote, one_text + 192, 64));
    OK(table()->mem_create(&node->cls, bytes, LEN, READABLE, &own));
    for (int n = 0; n < 3; n++)
        op_init(node, &ops[n]);
    kill(one, SIGSTOP);
    OK(table()->recv_expected(&node->cls, &node->context, on_end, &ops[0], bytes, 64, NULL, first, 0, 7, ops[0].id));
    OK(table()->get(&node->cls, &node->context, on_end, &ops[1], own, 0, remote, 0, LEN, first, 0, ops[1].id));
    OK(table()->put(&node->cls, &node->context, on_end, &ops[2], own, 0, remote, 0, LEN, first, 0, ops[2].id));
    turn(node);
    kill(one, SIGKILL);
    CHECK(waitpid(one, &status, 0) == one);
    UNTIL_TURNS(ops[0].calls && ops[1].calls && ops[2].calls, node);
    for (int n = 0; n < 3; n++) {
        CHECK_THAT(ops[n].ret, ==, NA_HOSTUNREACH);
        CHECK_THAT(ops[n].calls, ==, 1);
        op_done(node, &ops[n]);
    }
    /* The other one, and progress, go on. */
    for (uint32_t tag = 10; tag < 30; tag++)
        OK(ask(node, second, tag));
    CHECK_THAT(ask(node, first, 3), ==, NA_HOSTUNREACH);
    /* A server at the same address is reached under the same one. */
    one = server_start(strrchr(one_text, ':'), one_text);
    int ret = NA_HOSTUNREACH;
    for (int64_t limit = now_ms() + 10000 * slower(); ret != NA_SUCCESS && now_ms() < limit;)
        ret = (pause_ms(10), ask(node, first, 4));
    OK(ret);
    kill(one, SIGKILL);
    kill(other, SIGKILL);
    waitpid(one, &status, 0);
    waitpid(other, &status, 0);
    table()->mem_free(&node->cls, own);
    table()->mem_free(&node->cls, remote);
    table()->addr_free(&node->cls, first);
    table()->addr_free(&node->cls, second);
    free(bytes);
    node_close(node);
}

/* How long a receive that is all that waits for a server takes to end after the server was killed or stopped. It was posted to
 * a session that stood, or with the message that begins one. */
static int64_t time_of_death(bool begins, int with)
{
    char text[256], in[64], out[64] = "no answer";
    pid_t server = server_start(NULL, text);
    struct node *node = node_open(NULL, 0);
    struct op recv, send;
    na_addr *addr;
    int status;

    CHECK(node);
    OK(table()->addr_lookup(&node->cls, text, &addr));
    if (!begins)
        OK(ask(node, addr, 1));
    op_init(node, &recv);
    op_init(node, &send);
    OK(table()->recv_expected(&node->cls, &node->context, on_end, &recv, in, 64, NULL, addr, 0, 7, recv.id));
    if (begins) {
        OK(table()->send_unexpected(&node->cls, &node->context, on_end, &send, out, 64, NULL, addr, 0, 8, send.id));
        UNTIL_TURNS(send.calls, node);
        CHECK_THAT(send.ret, ==, NA_SUCCESS);
    }
    /* Until everything is acknowledged: nothing is sent any more. */
    for (int64_t until = now_ms() + 500; now_ms() < until; pause_ms(1))
        turn(node);
    CHECK_THAT(recv.calls, ==, 0);
    kill(server, with);
    int64_t began = now_ms();
    UNTIL_TURNS(recv.calls, node);
    int64_t took = now_ms() - began;
    CHECK_THAT(recv.ret, ==, NA_HOSTUNREACH);
    kill(server, SIGKILL);
    CHECK(waitpid(server, &status, 0) == server);
    op_done(node, &recv);
    op_done(node, &send);
    table()->addr_free(&node->cls, addr);
    node_close(node);
    return took;
}

static void server_is_missed(struct side *side)
{
    for (int begins = 0; begins < 2; begins++)
        CHECK_THAT(time_of_death(begins, SIGKILL), <=, 1500 * slower());
    setenv("MX_PEER_TIMEOUT_MS", "1000", 1);
    for (int begins = 0; begins < 2; begins++)
        CHECK_THAT(time_of_death(begins, SIGSTOP), <=, 3000 * slower());
}

/* A server that writes its log there. */
static pid_t logging_server(FILE *log, char text[256])
{
    int own = dup(2);

    CHECK(own >= 0 && dup2(fileno(log), 2) == 2);
    pid_t server = server_start(NULL, text);
    CHECK(dup2(own, 2) == 2);
    close(own);
    return server;
}

/* A child of fork opens a class of its own, after its parent has closed one, and beside one that its parent has open: it works,
 * and none of its calls complains. */
static void forked(struct side *side)
{
    struct node *closed = node_open(NULL, 0);

    CHECK(closed);
    node_close(closed);
    for (int n = 0; n < 2; n++) {
        char text[2][256], line[512];
        FILE *log = tmpfile();
        CHECK(log);
        pid_t servers[2] = { logging_server(log, text[0]), 0 };
        struct node *node = node_open(NULL, 0);
        na_addr *addr;
        int status;

        CHECK(node);
        servers[1] = logging_server(log, text[1]);
        for (int k = 0; k < 2; k++) {
            OK(table()->addr_lookup(&node->cls, text[k], &addr));
            for (uint32_t tag = 1; tag < 20; tag++)
                OK(ask(node, addr, tag));
            table()->addr_free(&node->cls, addr);
            kill(servers[k], SIGKILL);
            CHECK(waitpid(servers[k], &status, 0) == servers[k]);
        }
        node_close(node);
        rewind(log);
        while (fgets(line, sizeof line, log))
            if (strstr(line, "ERROR"))
                FAIL("%s", line);
        fclose(log);
    }
}

static void prepare(int argc, char **argv)
{
    port_notices_deaths_soon();
}

TESTS_AFTER(prepare(argc, argv),
            SOLO(each version of libna has its table and an unknown one is refused with one line, every_version),
            SOLO(protocols are listed and checked, protocols),
            SOLO(addresses lead back to their endpoint as text and serialized, addresses),
            SOLO(wrong addresses have their codes, wrong_addresses),
            SOLO(messages of every size and tag arrive once and unchanged, messages),
            SOLO(a multi-receive takes messages until its buffer is used up, multi_receive),
            SOLO(a message goes to the context that it names, contexts),
            SOLO(memory is reached within its bounds and rights and not beyond, memory),
            SOLO(access ends with the region and takes along what is under way, deregistered_meanwhile),
            SOLO(transfers of more than 4 GiB arrive whole and end when called off, huge_transfers),
            SOLO(none of 100 000 reads of foreign memory gets a byte, attacked),
            SOLO(a cancelled operation ends once and at once, cancelled),
            SOLO(a thread sleeps on the descriptor and is woken, sleeping),
            SOLO(a dead server ends its own operations and is reached anew, dead_server),
            SOLO(a child of fork opens a class of its own, forked),
            SOLO(a receive that waits alone ends with its server, server_is_missed))
