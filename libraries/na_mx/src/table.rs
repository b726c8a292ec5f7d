//! The table of operations that Mercury finds in the plugin, and the functions in it.
//!
//! ```text
//!   Mercury --> function: caught panics, pointers --> Class, Engine --> code
//! ```
//!
//! The table is complete when the plugin has been loaded. Four of its entries depend on libna's version.
//!
//! Owns: the exported table.
//! Out of scope: what the functions do.

use crate::abi::{
    NA_BUSY, NA_FAULT, NA_INVALID_ARG, NA_MEM_TYPE_HOST, NA_MSGSIZE, NA_NOMEM, NA_OP_MULTI,
    NA_OPNOTSUPPORTED, NA_OPT_MULTI_RECV, NA_OVERFLOW, NA_PROTOCOL_ERROR, NA_PROTONOSUPPORT,
    NA_SUCCESS, NA_TIMEOUT, na_cb, na_cb_type, na_class, na_context, na_info, na_init_info,
    na_protocol_info, na_return, na_segment,
};
use crate::address::{self, CLASS, PROTOCOLS, Peer};
use crate::class::{Class, Request};
use crate::context::Context;
use crate::engine::{Engine, Kind};
use crate::libna::{self, Layout, libna};
use crate::memory::{Handle, Local, SEGMENTS_MAX, SERIALIZED};
use crate::operation::{Operation, Room};
use libc::{c_char, c_int, c_uint, c_ulong, c_void};
use mx_boundary::caught;
use mx_sys::UserMemory;
use mx_sys::cancellation::Off;
use std::ffi::CStr;
use std::mem;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

/// A pointer to a function of the table.
type Entry = AtomicPtr<c_void>;

/// Mercury's `na_class_ops`.
#[repr(C)]
pub struct Table {
    class_name: &'static CStr1,
    entries: [Entry; ENTRIES],
}

/// The first byte of a string for C.
#[repr(transparent)]
pub(crate) struct CStr1(u8);

/// Entries of the longest table behind the name.
const ENTRIES: usize = 51;

static NAME: [CStr1; 3] = [CStr1(b'm'), CStr1(b'x'), CStr1(0)];

/// The table, by the name that Mercury looks for.
// SAFETY: a name of the plugin's own, which Mercury expects.
#[unsafe(no_mangle)]
pub static na_mx_class_ops_g: Table = Table {
    class_name: &NAME[0],
    entries: [const { Entry::new(ptr::null_mut()) }; ENTRIES],
};

/// Fills the table. Without a libna that is known the plugin says that it supports no protocol.
pub(crate) fn fill() {
    crate::class::start_logging();
    let layout = caught("load", libna::look).flatten();
    let functions = layout.map_or_else(unusable, functions);
    for (entry, function) in na_mx_class_ops_g.entries.iter().zip(functions) {
        entry.store(function.cast_mut(), Ordering::Release);
    }
}

/// Lists functions as pointers, in the order of the table.
macro_rules! pointers {
    ($($name:ident)*) => { [$($name as *const c_void),*] };
}

/// A function that is left out.
const NONE: *const c_void = ptr::null();

/// The functions that Mercury calls before it has chosen a plugin.
fn unusable() -> Vec<*const c_void> {
    pointers![NONE check_protocol initialize].into()
}

/// The functions, as a layout wants them. Left out, as Mercury's own plugins do: `cleanup`, sizes of headers, which are 0, and
/// message buffers, which are ordinary memory. The flags of `addr_deserialize`, its last argument in the newest layout, are not
/// looked at.
fn functions(layout: Layout) -> Vec<*const c_void> {
    let [context] = match layout {
        Layout::A | Layout::B => pointers![context_create_in],
        Layout::C => pointers![context_create],
    };
    let polling: &[_] = match layout {
        Layout::A => &pointers![progress cancel],
        Layout::B | Layout::C => &pointers![poll poll_wait cancel],
    };
    let fixed = pointers![
        get_protocol_info check_protocol initialize finalize NONE has_opt_feature
        context context_destroy op_create op_destroy
        addr_lookup addr_free addr_set_remove addr_self addr_dup addr_cmp addr_is_self addr_to_string
        addr_get_serialize_size addr_serialize addr_deserialize
        msg_get_max_unexpected_size msg_get_max_expected_size NONE NONE msg_get_max_tag NONE NONE
        NONE msg_send_unexpected msg_recv_unexpected msg_multi_recv_unexpected
        NONE msg_send_expected msg_recv_expected
        mem_handle_create mem_handle_create_segments mem_handle_free mem_handle_get_max_segments
        mem_register mem_deregister mem_handle_get_serialize_size mem_handle_serialize mem_handle_deserialize
        put get poll_get_fd poll_try_wait
    ];
    [&fixed, polling].concat()
}

/// Declares functions of the table: what a panic or an error answers stands behind the type.
macro_rules! entries {
    ($(
        $(#[$attribute:meta])*
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $answer:ty $body:block
    )*) => {$(
        $(#[$attribute])*
        unsafe extern "C" fn $name($($argument: $type),*) -> $answer {
            let _off = Off::new();
            <$answer as Answer>::of(caught(stringify!($name), move || $body))
        }
    )*};
}

/// The answer of a function to the result of its body, `None` after a panic.
trait Answer: Sized {
    /// The type of bodies.
    type Body;

    fn of(body: Option<Self::Body>) -> Self;
}

impl Answer for na_return {
    type Body = Result<(), Self>;

    fn of(body: Option<Self::Body>) -> Self {
        match body {
            Some(Ok(())) => NA_SUCCESS,
            Some(Err(code)) => code,
            None => NA_PROTOCOL_ERROR,
        }
    }
}

macro_rules! plain_answers {
    ($($type:ty: $none:expr),*) => {$(
        impl Answer for $type {
            type Body = Self;

            fn of(body: Option<Self>) -> Self {
                body.unwrap_or($none)
            }
        }
    )*};
}

plain_answers!(bool: false, usize: 0, u32: 0, (): (), *mut Operation: ptr::null_mut());

/// The descriptor of a context, or -1.
#[repr(transparent)]
struct Descriptor(c_int);

impl Answer for Descriptor {
    type Body = Self;

    fn of(body: Option<Self>) -> Self {
        body.unwrap_or(Self(-1))
    }
}

/// The class behind Mercury's.
///
/// # Safety
///
/// A class that `initialize` has accepted, until `finalize`.
unsafe fn class_of<'a>(class: *const na_class) -> Result<&'a Class, na_return> {
    // SAFETY: the caller's promise.
    let class = unsafe {
        class
            .as_ref()
            .and_then(|class| class.plugin_class.cast::<Class>().as_ref())
    };
    class.ok_or(NA_INVALID_ARG)
}

/// The string at a pointer, if there is one.
///
/// # Safety
///
/// NULL, or a string.
unsafe fn text<'a>(pointer: *const c_char) -> Result<Option<&'a str>, na_return> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) }.to_str();
    text.map(Some).map_err(|_| NA_INVALID_ARG)
}

/// The peer behind an address, of which Mercury keeps its reference.
///
/// # Safety
///
/// An address that this plugin has given out and that has not been freed.
unsafe fn peer_of(addr: *mut c_void) -> Result<Arc<Peer>, na_return> {
    let peer = addr.cast::<Peer>().cast_const();
    if peer.is_null() {
        return Err(NA_INVALID_ARG);
    }
    // SAFETY: the caller's promise: there is a reference, and this makes one more.
    unsafe {
        Arc::increment_strong_count(peer);
        Ok(Arc::from_raw(peer))
    }
}

/// Gives Mercury a reference of a peer.
///
/// # Safety
///
/// A pointer to write to.
unsafe fn give(peer: Arc<Peer>, into: *mut *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { *into = Arc::into_raw(peer).cast_mut().cast() };
}

/// The number of a context; 0 for one that is none of ours.
///
/// # Safety
///
/// A context of Mercury's.
unsafe fn number_of(context: *mut na_context) -> u8 {
    // SAFETY: the caller's promise; the number never changes.
    unsafe {
        (*context)
            .plugin_context
            .cast::<Context>()
            .as_ref()
            .map_or(0, |own| own.id)
    }
}

/// Begins an operation: `post` makes it one of the endpoint's.
///
/// # Safety
///
/// A class, a context and an operation of Mercury's, which keeps them until the operation has completed.
unsafe fn begin(
    (class, context, op): (*mut na_class, *mut na_context, *mut Operation),
    kind: na_cb_type,
    callback: (na_cb, *mut c_void),
    post: impl FnOnce(&Class, &mut Engine, &mut Operation) -> Result<(), na_return>,
) -> Result<(), na_return> {
    // SAFETY: the caller's promise.
    let class = unsafe { class_of(class) }?;
    if op.is_null() || context.is_null() {
        return Err(NA_INVALID_ARG);
    }
    class.with(|engine| {
        // SAFETY: the caller's promise; the engine is locked.
        let op = unsafe { &mut *op };
        if op.busy {
            return Err(NA_BUSY);
        }
        op.begin(kind, context, callback);
        post(class, engine, op).inspect_err(|_| op.busy = false)
    })
}

/// The memory of a message.
///
/// # Safety
///
/// A buffer that the program keeps until the operation has completed.
unsafe fn message(buf: *const c_void, len: usize, max: usize) -> Result<UserMemory, na_return> {
    if len > max {
        return Err(NA_MSGSIZE);
    }
    // SAFETY: the caller's promise.
    unsafe { UserMemory::new(buf.cast_mut(), len) }.map_err(|_| NA_FAULT)
}

entries! {
    fn get_protocol_info(
        info: *const na_info,
        into: *mut *mut na_protocol_info,
    ) -> na_return {
        let libna = libna().ok_or(NA_PROTONOSUPPORT)?;
        // SAFETY: Mercury passes NULL or a description, whose strings are NULL or strings.
        let wanted = unsafe { info.as_ref().map(|info| text(info.protocol_name)).transpose()?.flatten() };
        let mut first = ptr::null_mut();
        let all = [CLASS].into_iter().chain(PROTOCOLS);
        for protocol in all.filter(|it| wanted.is_none_or(|wanted| wanted == *it)) {
            let name = std::ffi::CString::new(protocol).map_err(|_| NA_INVALID_ARG)?;
            // SAFETY: three strings; Mercury frees what it has allocated.
            let entry = unsafe {
                (libna.protocol_info_alloc)(c"mx".as_ptr(), name.as_ptr(), c"".as_ptr())
            };
            if entry.is_null() {
                return Err(NA_NOMEM);
            }
            // SAFETY: an entry that has just been allocated.
            unsafe { (*entry).next = first };
            first = entry;
        }
        // SAFETY: a pointer to write to.
        unsafe { *into = first };
        Ok(())
    }

    fn check_protocol(protocol: *const c_char) -> bool {
        // SAFETY: Mercury passes a string.
        let protocol = unsafe { text(protocol) }.ok().flatten();
        libna().is_some() && protocol.and_then(address::route_of).is_some()
    }

    fn initialize(class: *mut na_class, info: *const na_info, _listen: bool) -> na_return {
        let libna = libna().ok_or(NA_PROTONOSUPPORT)?;
        // SAFETY: Mercury passes a class and a description of it.
        let (class, info) = unsafe { (class.as_mut(), info.as_ref()) };
        let (Some(class), Some(info)) = (class, info) else {
            return Err(NA_INVALID_ARG);
        };
        let init = match libna.layout {
            Layout::A => info.init_info.cast::<na_init_info>(),
            Layout::B | Layout::C => (&raw const info.init_info).cast(),
        };
        // SAFETY: NULL, or a description whose beginning has this layout; strings are NULL or strings.
        let (init, protocol, host) = unsafe {
            (init.as_ref(), text(info.protocol_name)?, text(info.host_name)?)
        };
        let request = Request {
            protocol: protocol.unwrap_or(CLASS),
            host,
            sizes: init.map_or((0, 0), |init| (init.max_unexpected_size, init.max_expected_size)),
        };
        let opened = mx_sys::thread::apart("mx-open", || Class::open(&request, libna))?;
        class.plugin_class = Box::into_raw(Box::new(opened)).cast();
        Ok(())
    }

    fn finalize(class: *mut na_class) -> na_return {
        // SAFETY: Mercury passes a class, and uses it no more.
        let class = unsafe { class.as_mut() }.ok_or(NA_INVALID_ARG)?;
        let own = mem::replace(&mut class.plugin_class, ptr::null_mut()).cast::<Class>();
        if !own.is_null() {
            // SAFETY: made by `initialize`.
            unsafe { Box::from_raw(own) }.close();
        }
        Ok(())
    }

    fn has_opt_feature(_class: *mut na_class, flags: c_ulong) -> bool {
        flags & !NA_OPT_MULTI_RECV == 0
    }

    fn context_create(
        class: *mut na_class,
        _context: *mut na_context,
        into: *mut *mut c_void,
        id: u8,
    ) -> na_return {
        // SAFETY: a class of ours, and a pointer to write to.
        let class = unsafe { class_of(class) }?;
        let context = Box::into_raw(Box::new(Context::new(id)));
        class.with(|engine| {
            engine.add_context(context);
            Ok(())
        })?;
        // SAFETY: as above.
        unsafe { *into = context.cast() };
        Ok(())
    }

    fn context_create_in(class: *mut na_class, into: *mut *mut c_void, id: u8) -> na_return {
        // SAFETY: what Mercury passes to either function.
        match unsafe { context_create(class, ptr::null_mut(), into, id) } {
            NA_SUCCESS => Ok(()),
            code => Err(code),
        }
    }

    fn context_destroy(class: *mut na_class, context: *mut c_void) -> na_return {
        // SAFETY: a class of ours.
        let class = unsafe { class_of(class) }?;
        let context = context.cast::<Context>();
        class.with(|engine| {
            engine.remove_context(context);
            Ok(())
        })?;
        if !context.is_null() {
            // SAFETY: made by `context_create`; the engine does not know it any more.
            drop(unsafe { Box::from_raw(context) });
        }
        Ok(())
    }

    fn op_create(_class: *mut na_class, flags: c_ulong) -> *mut Operation {
        let _ = flags & NA_OP_MULTI;
        Box::into_raw(Box::new(Operation::new()))
    }

    fn op_destroy(class: *mut na_class, op: *mut Operation) -> () {
        if op.is_null() {
            return;
        }
        // SAFETY: a class of ours, and an operation made by `op_create`; the engine is locked.
        unsafe {
            if let Ok(class) = class_of(class) {
                // One that is under way ends without its callback.
                let abandon = |engine: &mut Engine| {
                    engine.abandon(&mut *op);
                    Ok(())
                };
                let _ = class.with(abandon);
                if (*op).request.is_some() {
                    log::error!("an operation was destroyed while a peer's card may read its memory: it is kept");
                    return;
                }
            }
        }
        // SAFETY: as above, and nothing else has it.
        drop(unsafe { Box::from_raw(op) });
    }

    fn addr_lookup(
        class: *mut na_class,
        name: *const c_char,
        into: *mut *mut c_void,
    ) -> na_return {
        // SAFETY: a class of ours, a string and a pointer to write to.
        let (class, name) = unsafe { (class_of(class)?, text(name)?) };
        look_up(class, name.ok_or(NA_INVALID_ARG)?, into)
    }

    fn addr_free(class: *mut na_class, addr: *mut c_void) -> () {
        if addr.is_null() {
            return;
        }
        // SAFETY: a reference that Mercury gives back.
        let peer = unsafe { Arc::from_raw(addr.cast::<Peer>().cast_const()) };
        if peer.removed.load(Ordering::Relaxed)
            // SAFETY: a class of ours.
            && let Ok(class) = unsafe { class_of(class) }
        {
            let _ = class.with(|engine| {
                engine.forget(&peer);
                Ok(())
            });
        }
    }

    fn addr_set_remove(_class: *mut na_class, addr: *mut c_void) -> na_return {
        // SAFETY: an address of ours.
        unsafe { peer_of(addr) }?.removed.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn addr_self(class: *mut na_class, into: *mut *mut c_void) -> na_return {
        // SAFETY: a class of ours, and a pointer to write to.
        unsafe { give(Arc::clone(&class_of(class)?.own), into) };
        Ok(())
    }

    fn addr_dup(
        _class: *mut na_class,
        addr: *mut c_void,
        into: *mut *mut c_void,
    ) -> na_return {
        // SAFETY: an address of ours, and a pointer to write to.
        unsafe { give(peer_of(addr)?, into) };
        Ok(())
    }

    fn addr_cmp(_class: *mut na_class, one: *mut c_void, other: *mut c_void) -> bool {
        // SAFETY: NULL, or addresses of ours.
        let (one, other) = unsafe { (peer_of(one), peer_of(other)) };
        matches!((one, other), (Ok(one), Ok(other)) if one.is_same(&other))
    }

    fn addr_is_self(_class: *mut na_class, addr: *mut c_void) -> bool {
        // SAFETY: NULL, or an address of ours.
        unsafe { peer_of(addr) }.is_ok_and(|peer| peer.is_own())
    }

    fn addr_to_string(
        _class: *mut na_class,
        buf: *mut c_char,
        size: *mut usize,
        addr: *mut c_void,
    ) -> na_return {
        // SAFETY: an address of ours.
        let peer = unsafe { peer_of(addr) }?;
        let bytes = peer.text().as_bytes();
        // SAFETY: a size, and that many bytes, if any.
        unsafe {
            let room = mem::replace(&mut *size, bytes.len() + 1);
            if buf.is_null() {
                return Ok(());
            }
            if room <= bytes.len() {
                return Err(NA_OVERFLOW);
            }
            ptr::copy_nonoverlapping(bytes.as_ptr(), buf.cast(), bytes.len());
            *buf.add(bytes.len()) = 0;
        }
        Ok(())
    }

    fn addr_get_serialize_size(_class: *mut na_class, addr: *mut c_void) -> usize {
        // SAFETY: an address of ours.
        unsafe { peer_of(addr) }.map_or(0, |peer| peer.text().len() + 1)
    }

    fn addr_serialize(
        class: *mut na_class,
        buf: *mut c_void,
        len: usize,
        addr: *mut c_void,
    ) -> na_return {
        let mut size = len;
        // SAFETY: what Mercury passes; the text is what a peer looks up.
        match unsafe { addr_to_string(class, buf.cast(), &raw mut size, addr) } {
            NA_SUCCESS => Ok(()),
            code => Err(code),
        }
    }

    fn addr_deserialize(
        class: *mut na_class,
        into: *mut *mut c_void,
        buf: *const c_void,
        len: usize,
    ) -> na_return {
        if buf.is_null() {
            return Err(NA_INVALID_ARG);
        }
        // SAFETY: a class of ours, and that many bytes.
        let (class, bytes) = unsafe { (class_of(class)?, slice::from_raw_parts(buf.cast::<u8>(), len)) };
        let text = CStr::from_bytes_until_nul(bytes).map_err(|_| NA_INVALID_ARG)?;
        look_up(class, text.to_str().map_err(|_| NA_INVALID_ARG)?, into)
    }

    fn msg_get_max_unexpected_size(class: *const na_class) -> usize {
        // SAFETY: a class of ours.
        unsafe { class_of(class) }.map_or(0, |class| class.unexpected_max)
    }

    fn msg_get_max_expected_size(class: *const na_class) -> usize {
        // SAFETY: a class of ours.
        unsafe { class_of(class) }.map_or(0, |class| class.expected_max)
    }

    fn msg_get_max_tag(_class: *const na_class) -> u32 {
        u32::MAX
    }

    fn msg_send_unexpected(
        class: *mut na_class,
        context: *mut na_context,
        callback: na_cb,
        arg: *mut c_void,
        buf: *const c_void,
        len: usize,
        _data: *mut c_void,
        dest: *mut c_void,
        dest_id: u8,
        tag: u32,
        op: *mut Operation,
    ) -> na_return {
        // SAFETY: Mercury's arguments, which it keeps until the operation has completed.
        unsafe {
            let peer = peer_of(dest)?;
            let kind = na_cb_type::SendUnexpected;
            begin((class, context, op), kind, (callback, arg), |class, engine, op| {
                let memory = message(buf, len, class.unexpected_max)?;
                engine.send(op, &peer, Kind::Unexpected.bits(dest_id, tag), memory)
            })
        }
    }

    fn msg_recv_unexpected(
        class: *mut na_class,
        context: *mut na_context,
        callback: na_cb,
        arg: *mut c_void,
        buf: *mut c_void,
        len: usize,
        _data: *mut c_void,
        op: *mut Operation,
    ) -> na_return {
        let kind = na_cb_type::RecvUnexpected;
        // SAFETY: Mercury's arguments, which it keeps until the operation has completed.
        unsafe { receive_unexpected((class, context, op), kind, (callback, arg), (buf, len)) }
    }

    fn msg_multi_recv_unexpected(
        class: *mut na_class,
        context: *mut na_context,
        callback: na_cb,
        arg: *mut c_void,
        buf: *mut c_void,
        len: usize,
        _data: *mut c_void,
        op: *mut Operation,
    ) -> na_return {
        let kind = na_cb_type::MultiRecvUnexpected;
        // SAFETY: Mercury's arguments, which it keeps until the operation has completed.
        unsafe { receive_unexpected((class, context, op), kind, (callback, arg), (buf, len)) }
    }

    fn msg_send_expected(
        class: *mut na_class,
        context: *mut na_context,
        callback: na_cb,
        arg: *mut c_void,
        buf: *const c_void,
        len: usize,
        _data: *mut c_void,
        dest: *mut c_void,
        dest_id: u8,
        tag: u32,
        op: *mut Operation,
    ) -> na_return {
        // SAFETY: Mercury's arguments, which it keeps until the operation has completed.
        unsafe {
            let peer = peer_of(dest)?;
            let kind = na_cb_type::SendExpected;
            begin((class, context, op), kind, (callback, arg), |class, engine, op| {
                let memory = message(buf, len, class.expected_max)?;
                engine.send(op, &peer, Kind::Expected.bits(dest_id, tag), memory)
            })
        }
    }

    fn msg_recv_expected(
        class: *mut na_class,
        context: *mut na_context,
        callback: na_cb,
        arg: *mut c_void,
        buf: *mut c_void,
        len: usize,
        _data: *mut c_void,
        source: *mut c_void,
        _source_id: u8,
        tag: u32,
        op: *mut Operation,
    ) -> na_return {
        // SAFETY: Mercury's arguments, which it keeps until the operation has completed.
        unsafe {
            let peer = peer_of(source)?;
            let kind = na_cb_type::RecvExpected;
            begin((class, context, op), kind, (callback, arg), |_, engine, op| {
                let memory = message(buf, len, usize::MAX)?;
                let bits = Kind::Expected.bits(number_of(context), tag);
                engine.receive_expected(op, &peer, bits, memory)
            })
        }
    }

    fn mem_handle_create(
        _class: *mut na_class,
        buf: *mut c_void,
        len: usize,
        flags: c_ulong,
        into: *mut *mut Handle,
    ) -> na_return {
        let local = Local::new(&[na_segment { base: buf, len }], flags)?;
        // SAFETY: a pointer to write to.
        unsafe { *into = Box::into_raw(Box::new(Handle::Local(local))) };
        Ok(())
    }

    fn mem_handle_create_segments(
        _class: *mut na_class,
        segments: *mut na_segment,
        count: usize,
        flags: c_ulong,
        into: *mut *mut Handle,
    ) -> na_return {
        if segments.is_null() || count > SEGMENTS_MAX {
            return Err(NA_INVALID_ARG);
        }
        // SAFETY: that many segments, and a pointer to write to.
        unsafe {
            let local = Local::new(slice::from_raw_parts(segments, count), flags)?;
            *into = Box::into_raw(Box::new(Handle::Local(local)));
        }
        Ok(())
    }

    fn mem_handle_free(class: *mut na_class, handle: *mut Handle) -> () {
        if handle.is_null() {
            return;
        }
        // SAFETY: a class and a handle of ours, which Mercury uses no more.
        unsafe {
            deregister(class, &mut *handle).ok();
            drop(Box::from_raw(handle));
        }
    }

    fn mem_handle_get_max_segments(_class: *const na_class) -> usize {
        SEGMENTS_MAX
    }

    fn mem_register(
        class: *mut na_class,
        handle: *mut Handle,
        mem_type: c_int,
        _device: u64,
    ) -> na_return {
        // SAFETY: a class and a handle of ours.
        let (class, handle) = unsafe { (class_of(class)?, handle.as_mut()) };
        let Some(Handle::Local(local)) = handle else {
            return Err(NA_INVALID_ARG);
        };
        if mem_type != NA_MEM_TYPE_HOST {
            return Err(NA_OPNOTSUPPORTED);
        }
        if local.key.is_some() {
            return Err(NA_BUSY);
        }
        let (memory, rights) = (local.whole()?, local.rights);
        local.key = Some(class.with(|engine| Ok(engine.register(memory, rights)))?);
        Ok(())
    }

    fn mem_deregister(class: *mut na_class, handle: *mut Handle) -> na_return {
        // SAFETY: a class and a handle of ours.
        let handle = unsafe { handle.as_mut() }.ok_or(NA_INVALID_ARG)?;
        deregister(class, handle)
    }

    fn mem_handle_get_serialize_size(_class: *mut na_class, _handle: *mut Handle) -> usize {
        SERIALIZED
    }

    fn mem_handle_serialize(
        _class: *mut na_class,
        buf: *mut c_void,
        len: usize,
        handle: *mut Handle,
    ) -> na_return {
        // SAFETY: a handle of ours.
        let bytes = unsafe { handle.as_ref() }.ok_or(NA_INVALID_ARG)?.serialize()?;
        if buf.is_null() || len < bytes.len() {
            return Err(NA_OVERFLOW);
        }
        // SAFETY: that many bytes.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), buf.cast(), bytes.len()) };
        Ok(())
    }

    fn mem_handle_deserialize(
        _class: *mut na_class,
        into: *mut *mut Handle,
        buf: *const c_void,
        len: usize,
    ) -> na_return {
        if buf.is_null() {
            return Err(NA_INVALID_ARG);
        }
        // SAFETY: that many bytes, and a pointer to write to.
        unsafe {
            let handle = Handle::deserialize(slice::from_raw_parts(buf.cast(), len))?;
            *into = Box::into_raw(Box::new(handle));
        }
        Ok(())
    }

    fn put(
        class: *mut na_class,
        context: *mut na_context,
        callback: na_cb,
        arg: *mut c_void,
        local: *mut Handle,
        local_offset: u64,
        remote: *mut Handle,
        remote_offset: u64,
        len: usize,
        peer: *mut c_void,
        _peer_id: u8,
        op: *mut Operation,
    ) -> na_return {
        // SAFETY: Mercury's arguments, which it keeps until the operation has completed.
        unsafe {
            let (memory, key, peer) = transfer((local, local_offset, len), remote, peer)?;
            begin((class, context, op), na_cb_type::Put, (callback, arg), |_, engine, op| {
                engine.put(op, &peer, (key, remote_offset), memory)
            })
        }
    }

    fn get(
        class: *mut na_class,
        context: *mut na_context,
        callback: na_cb,
        arg: *mut c_void,
        local: *mut Handle,
        local_offset: u64,
        remote: *mut Handle,
        remote_offset: u64,
        len: usize,
        peer: *mut c_void,
        _peer_id: u8,
        op: *mut Operation,
    ) -> na_return {
        // SAFETY: Mercury's arguments, which it keeps until the operation has completed.
        unsafe {
            let (memory, key, peer) = transfer((local, local_offset, len), remote, peer)?;
            begin((class, context, op), na_cb_type::Get, (callback, arg), |_, engine, op| {
                engine.get(op, &peer, (key, remote_offset), memory)
            })
        }
    }

    fn poll_get_fd(class: *mut na_class, context: *mut na_context) -> Descriptor {
        // SAFETY: a class and a context of ours.
        let fd = unsafe { class_of(class) }.and_then(|class| class.with(|engine| {
            let ports = mx_sys::slot::Engine::endpoint(engine).port().set().0;
            // SAFETY: as above; the engine is locked.
            let own = unsafe { own_context(context) }?;
            own.descriptor(ports).map_err(|error| {
                log::error!("no descriptor to sleep on: {error}");
                NA_NOMEM
            })
        }));
        Descriptor(fd.unwrap_or(-1))
    }

    fn poll_try_wait(class: *mut na_class, context: *mut na_context) -> bool {
        // SAFETY: a class and a context of ours.
        let may = unsafe { class_of(class) }.and_then(|class| class.with(|engine| {
            // SAFETY: as above; the engine is locked.
            Ok(engine.falls_asleep(unsafe { own_context(context) }?))
        }));
        may.unwrap_or(false)
    }

    fn poll(class: *mut na_class, context: *mut na_context, _count: *mut c_uint) -> na_return {
        // SAFETY: a class and a context of ours.
        unsafe { poll_once(class, context).map(|_| ()) }
    }

    fn poll_wait(
        class: *mut na_class,
        context: *mut na_context,
        timeout_ms: c_uint,
        _count: *mut c_uint,
    ) -> na_return {
        // SAFETY: a class and a context of ours.
        unsafe { wait(class, context, timeout_ms) }
    }

    fn progress(class: *mut na_class, context: *mut na_context, timeout_ms: c_uint) -> na_return {
        // SAFETY: a class and a context of ours.
        unsafe { wait(class, context, timeout_ms) }
    }

    fn cancel(class: *mut na_class, _context: *mut na_context, op: *mut Operation) -> na_return {
        // SAFETY: a class and an operation of ours; the engine is locked.
        unsafe {
            if op.is_null() {
                return Err(NA_INVALID_ARG);
            }
            class_of(class)?.with(|engine| {
                engine.cancel(&mut *op);
                Ok(())
            })
        }
    }
}

fn look_up(class: &Class, text: &str, into: *mut *mut c_void) -> Result<(), na_return> {
    let target = address::look_up(text, class.route)?;
    let peer = class.with(|engine| Ok(engine.peer_at(target)))?;
    // SAFETY: Mercury passes a pointer to write to.
    unsafe { give(peer, into) };
    Ok(())
}

/// Ends the access to a handle's memory, if there is any.
fn deregister(class: *mut na_class, handle: &mut Handle) -> Result<(), na_return> {
    if let Handle::Local(local) = handle
        && let Some(key) = local.key.take()
    {
        // SAFETY: a class of ours.
        unsafe { class_of(class) }?.with(|engine| Ok(engine.deregister(key)))?;
    }
    Ok(())
}

/// # Safety
///
/// As for [`begin`]; the buffer is the library's until the operation has completed.
unsafe fn receive_unexpected(
    what: (*mut na_class, *mut na_context, *mut Operation),
    kind: na_cb_type,
    callback: (na_cb, *mut c_void),
    (buf, len): (*mut c_void, usize),
) -> Result<(), na_return> {
    if buf.is_null() && len > 0 {
        return Err(NA_FAULT);
    }
    // SAFETY: the caller's promise.
    unsafe {
        begin(what, kind, callback, |_, engine, op| {
            op.bits = Kind::Unexpected.bits(number_of(what.1), 0);
            op.room = Room {
                start: buf.cast(),
                len,
            };
            engine.receive_unexpected(op)
        })
    }
}

/// The parts of a transfer: own memory, the peer's region, the peer.
///
/// # Safety
///
/// Handles and an address of ours; the memory is kept until the transfer has completed.
unsafe fn transfer(
    (local, offset, len): (*mut Handle, u64, usize),
    remote: *mut Handle,
    peer: *mut c_void,
) -> Result<(UserMemory, mx_proto::RegionKey, Arc<Peer>), na_return> {
    // SAFETY: the caller's promise.
    let (local, remote, peer) = unsafe { (local.as_ref(), remote.as_ref(), peer_of(peer)?) };
    let Some(Handle::Local(local)) = local else {
        return Err(NA_INVALID_ARG);
    };
    let key = match remote {
        Some(Handle::Remote { key, .. }) => *key,
        // Of this process, which reaches itself.
        Some(Handle::Local(own)) => own.key.ok_or(NA_INVALID_ARG)?,
        None => return Err(NA_INVALID_ARG),
    };
    Ok((local.part(offset, len as u64)?, key, peer))
}

/// # Safety
///
/// A context of Mercury's, while the engine is locked.
unsafe fn own_context<'a>(context: *mut na_context) -> Result<&'a mut Context, na_return> {
    // SAFETY: the caller's promise.
    let own = unsafe {
        context
            .as_ref()
            .map(|context| context.plugin_context.cast::<Context>())
    };
    // SAFETY: made by `context_create`.
    own.and_then(|own| unsafe { own.as_mut() })
        .ok_or(NA_INVALID_ARG)
}

/// Polls once. Returns whether completions have been added since the last time.
///
/// # Safety
///
/// A class and a context of ours.
unsafe fn poll_once(class: *mut na_class, context: *mut na_context) -> Result<bool, na_return> {
    // SAFETY: the caller's promise.
    let class = unsafe { class_of(class) }?;
    let mut slot = class.lock_for_poll();
    // SAFETY: as above; the engine is locked.
    let own = unsafe { own_context(context) }?;
    let slept = own.wake_up();
    if slept {
        mx_sys::Progress::disarm(&mut *slot);
        mx_sys::Progress::note_control(&mut *slot);
    }
    mx_sys::Progress::progress(&mut *slot);
    let any = own.take_completions();
    if let Some(engine) = slot.engine() {
        engine.settle();
    }
    Ok(any)
}

/// Waits for a completion.
///
/// # Safety
///
/// A class and a context of ours.
unsafe fn wait(
    class: *mut na_class,
    context: *mut na_context,
    timeout_ms: c_uint,
) -> Result<(), na_return> {
    // SAFETY: the caller's promise.
    if unsafe { poll_once(class, context) }? {
        return Ok(());
    }
    if timeout_ms == 0 {
        return Err(NA_TIMEOUT);
    }
    // SAFETY: as above.
    let class = unsafe { class_of(class) }?;
    let timeout = Duration::from_millis(timeout_ms.into());
    let found = class.wait(timeout, |_| {
        // SAFETY: as above; the engine is locked.
        let own = unsafe { own_context(context) }.ok()?;
        own.take_completions().then_some(())
    });
    found.ok_or(NA_TIMEOUT)
}
