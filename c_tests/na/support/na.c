#include "na.h"

#include <dlfcn.h>

unsigned host_version[2] = { 6, 0 };

/* Functions that the plugin looks up. */
void NA_Version_get(unsigned *major, unsigned *minor, unsigned *patch);
void na_cb_completion_add(struct na_context *context, struct na_completion *completion);
struct na_protocol_info *na_protocol_info_alloc(const char *class_name, const char *protocol, const char *device);

void NA_Version_get(unsigned *major, unsigned *minor, unsigned *patch)
{
    *major = host_version[0];
    *minor = host_version[1];
    *patch = 0;
}

void na_cb_completion_add(struct na_context *context, struct na_completion *completion)
{
    struct node *node = (struct node *)context;
    completion->next = NULL;
    pthread_mutex_lock(&node->lock);
    *node->last = completion;
    node->last = &completion->next;
    pthread_mutex_unlock(&node->lock);
}

struct na_protocol_info *na_protocol_info_alloc(const char *class_name, const char *protocol, const char *device)
{
    struct na_protocol_info *info = calloc(1, sizeof *info);
    CHECK(info);
    info->class_name = strdup(class_name);
    info->protocol_name = strdup(protocol);
    info->device_name = strdup(device);
    return info;
}

void protocol_info_free(struct na_protocol_info *info)
{
    while (info) {
        struct na_protocol_info *next = info->next;
        free(info->class_name);
        free(info->protocol_name);
        free(info->device_name);
        free(info);
        info = next;
    }
}

const struct na_table *table(void)
{
    static const struct na_table *found;
    if (!found) {
        const char *path = getenv("NA_PLUGIN");
        void *plugin = dlopen(path ? path : "libna_plugin_mx.so", RTLD_LAZY);
        if (!plugin)
            FAIL("%s", dlerror());
        found = dlsym(plugin, "na_mx_class_ops_g");
        CHECK(found);
    }
    return found;
}

struct node *node_open(const char *host, uint8_t context)
{
    struct node *node = calloc(1, sizeof *node);
    CHECK(node);
    pthread_mutex_init(&node->lock, NULL);
    node->last = &node->first;
    node->cls.ops = table();
    const char *port = getenv("MX_PORT");
    struct na_info info = { .protocol_name = port ? port : "mx", .host_name = host };
    struct na_init_info init = { .max_unexpected_size = 0 };
    if (host_version[0] == 4)
        info.u.pointer = &init;
    else
        info.u.init = init;
    if (table()->initialize(&node->cls, &info, true) != NA_SUCCESS) {
        free(node);
        return NULL;
    }
    int ret = host_version[0] < 6 ? table()->context_create.without(&node->cls, &node->context.plugin_context, context)
                                  : table()->context_create.with(&node->cls, &node->context, &node->context.plugin_context, context);
    CHECK_THAT(ret, ==, NA_SUCCESS);
    return node;
}

void node_close(struct node *node)
{
    while (trigger(node))
        ;
    CHECK_THAT(table()->context_destroy(&node->cls, node->context.plugin_context), ==, NA_SUCCESS);
    CHECK_THAT(table()->finalize(&node->cls), ==, NA_SUCCESS);
    CHECK(!node->first);
    free(node);
}

int trigger(struct node *node)
{
    int calls = 0;
    for (;; calls++) {
        pthread_mutex_lock(&node->lock);
        struct na_completion *next = node->first;
        if (next) {
            node->first = next->next;
            if (!node->first)
                node->last = &node->first;
        }
        pthread_mutex_unlock(&node->lock);
        if (!next)
            return calls;
        struct na_completion copy = *next;
        copy.plugin_callback(copy.plugin_arg);
        copy.callback(&copy.info);
    }
}

void turn(struct node *node)
{
    unsigned count = 0;
    if (host_version[0] == 4) {
        int ret = table()->u.progress(&node->cls, &node->context, 0);
        CHECK(ret == NA_SUCCESS || ret == NA_TIMEOUT);
    } else {
        CHECK_THAT(table()->u.poll(&node->cls, &node->context, &count), ==, NA_SUCCESS);
    }
    trigger(node);
}

void op_init(struct node *node, struct op *op)
{
    memset(op, 0, sizeof *op);
    op->id = table()->op_create(&node->cls, 0);
    CHECK(op->id);
}

void op_done(struct node *node, struct op *op)
{
    if (op->source)
        table()->addr_free(&node->cls, op->source);
    table()->op_destroy(&node->cls, op->id);
}

void on_end(const struct na_cb_info *info)
{
    struct op *op = info->arg;
    op->calls++;
    op->ret = info->ret;
    bool receives = info->type == RECV_UNEXPECTED || info->type == MULTI_RECV_UNEXPECTED;
    if (receives || info->type == RECV_EXPECTED)
        op->size = info->size;
    if (receives && info->ret == NA_SUCCESS) {
        op->tag = info->tag;
        if (op->source)
            table()->addr_free(NULL, op->source);
        op->source = info->source;
    }
}

void own_text(struct node *node, char *text, size_t size)
{
    na_addr *own;
    CHECK_THAT(table()->addr_self(&node->cls, &own), ==, NA_SUCCESS);
    CHECK(table()->addr_is_self(&node->cls, own));
    CHECK_THAT(table()->addr_to_string(&node->cls, text, &size, own), ==, NA_SUCCESS);
    CHECK_THAT(size, ==, strlen(text) + 1);
    table()->addr_free(&node->cls, own);
}

na_addr *address_of(struct node *node, struct node *of)
{
    char text[128];
    na_addr *addr;
    own_text(of, text, sizeof text);
    CHECK_THAT(table()->addr_lookup(&node->cls, text, &addr), ==, NA_SUCCESS);
    return addr;
}

/* Messages show codes as numbers. */
const char *code_text(long long code)
{
    static _Thread_local char text[24];

    snprintf(text, sizeof text, "%lld", code);
    return text;
}
