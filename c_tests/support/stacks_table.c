/* The table of libbmi_mx, with each entry called on a stack of its own (stacks.h). */
#include "bmi.h"
#include "stacks.h"

static const struct bmi_method_ops *inner;

#define CALL(large, name, ...)                                                   \
    on_stack(#name, large, (void (*)(void))inner->name, (const word[ARGUMENTS]){__VA_ARGS__})
#define W(value) (word)(value)

/* An entry of the table, by its parameters' types. */
#define F1(type, name, A) \
    static type name(A a) { return (type)CALL(false, name, W(a)); }
#define F2(type, name, A, B) \
    static type name(A a, B b) { return (type)CALL(false, name, W(a), W(b)); }
#define F3(type, name, A, B, C) \
    static type name(A a, B b, C c) { return (type)CALL(false, name, W(a), W(b), W(c)); }
#define F4(type, large, name, A, B, C, D) \
    static type name(A a, B b, C c, D d) { return (type)CALL(large, name, W(a), W(b), W(c), W(d)); }
#define F7(type, name, A, B, C, D, E, F, G)                    \
    static type name(A a, B b, C c, D d, E e, F f, G g)        \
    {                                                          \
        return (type)CALL(false, name, W(a), W(b), W(c), W(d), W(e), W(f), W(g)); \
    }
#define F8(type, name, A, B, C, D, E, F, G, H)                 \
    static type name(A a, B b, C c, D d, E e, F f, G g, H h)   \
    {                                                          \
        return (type)CALL(false, name, W(a), W(b), W(c), W(d), W(e), W(f), W(g), W(h)); \
    }
#define F9(type, name, A, B, C, D, E, F, G, H, I)                   \
    static type name(A a, B b, C c, D d, E e, F f, G g, H h, I i)   \
    {                                                               \
        return (type)CALL(false, name, W(a), W(b), W(c), W(d), W(e), W(f), W(g), W(h), W(i)); \
    }
#define F10(type, name, A, B, C, D, E, F, G, H, I, J)                    \
    static type name(A a, B b, C c, D d, E e, F f, G g, H h, I i, J j)   \
    {                                                                    \
        return (type)CALL(false, name, W(a), W(b), W(c), W(d), W(e), W(f), W(g), W(h), W(i), W(j)); \
    }
#define F11(type, name, A, B, C, D, E, F, G, H, I, J, K)                      \
    static type name(A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k)   \
    {                                                                         \
        return (type)CALL(false, name, W(a), W(b), W(c), W(d), W(e), W(f), W(g), W(h), W(i), W(j), W(k)); \
    }
#define F12(type, name, A, B, C, D, E, F, G, H, I, J, K, L)                        \
    static type name(A a, B b, C c, D d, E e, F f, G g, H h, I i, J j, K k, L l)   \
    {                                                                              \
        return (type)CALL(false, name, W(a), W(b), W(c), W(d), W(e), W(f), W(g), W(h), W(i), W(j), W(k), W(l)); \
    }

typedef struct bmi_method_addr *peer;
typedef bmi_op_id_t *out_id;
typedef const void *const *out_list;

F4(int, true, initialize, peer, int, int, char *)
F2(int, set_info, int, void *)
F2(int, get_info, int, void *)
F2(void *, memalloc, bmi_size_t, bmi_op_type)
F3(int, memfree, void *, bmi_size_t, bmi_op_type)
F1(int, unexpected_free, void *)
F9(int, post_send, out_id, peer, const void *, bmi_size_t, bmi_buffer_type, bmi_msg_tag_t, void *, bmi_context_id,
   bmi_hint)
F9(int, post_sendunexpected, out_id, peer, const void *, bmi_size_t, bmi_buffer_type, bmi_msg_tag_t, void *,
   bmi_context_id, bmi_hint)
F10(int, post_recv, out_id, peer, void *, bmi_size_t, bmi_size_t *, bmi_buffer_type, bmi_msg_tag_t, void *,
    bmi_context_id, bmi_hint)
F7(int, test, bmi_op_id_t, int *, bmi_error_code_t *, bmi_size_t *, void **, int, bmi_context_id)
F9(int, testsome, int, out_id, int *, int *, bmi_error_code_t *, bmi_size_t *, void **, int, bmi_context_id)
F8(int, testcontext, int, out_id, int *, bmi_error_code_t *, bmi_size_t *, void **, int, bmi_context_id)
F4(int, false, testunexpected, int, int *, struct bmi_method_unexpected_info *, int)
F1(peer, method_addr_lookup, const char *)
F11(int, post_send_list, out_id, peer, out_list, const bmi_size_t *, int, bmi_size_t, bmi_buffer_type, bmi_msg_tag_t,
    void *, bmi_context_id, bmi_hint)
F12(int, post_recv_list, out_id, peer, void *const *, const bmi_size_t *, int, bmi_size_t, bmi_size_t *,
    bmi_buffer_type, bmi_msg_tag_t, void *, bmi_context_id, bmi_hint)
F11(int, post_sendunexpected_list, out_id, peer, out_list, const bmi_size_t *, int, bmi_size_t, bmi_buffer_type,
    bmi_msg_tag_t, void *, bmi_context_id, bmi_hint)
F1(int, open_context, bmi_context_id)
F2(int, cancel, bmi_op_id_t, bmi_context_id)
F1(const char *, rev_lookup_unexpected, peer)
F3(int, query_addr_range, peer, const char *, int)

static int finalize(void)
{
    return (int)CALL(true, finalize, 0);
}

static void close_context(bmi_context_id context)
{
    (void)CALL(false, close_context, W(context));
}

const struct bmi_method_ops *on_stacks(const struct bmi_method_ops *table)
{
    static struct bmi_method_ops outer;

    if (!are_stacks_wanted())
        return table;
    inner = table;
    outer = (struct bmi_method_ops){
        table->method_name, table->flags, initialize, finalize, set_info, get_info, memalloc, memfree, unexpected_free,
        post_send, post_sendunexpected, post_recv, test, testsome, testcontext, testunexpected, method_addr_lookup,
        post_send_list, post_recv_list, post_sendunexpected_list, open_context, close_context, cancel,
        rev_lookup_unexpected, query_addr_range,
    };
    return &outer;
}
