//! Start and end of classes, contexts and operations.

use super::{class_of, text};
use crate::abi::{
    NA_INVALID_ARG, NA_NOMEM, NA_OP_MULTI, NA_OPT_MULTI_RECV, NA_PROTONOSUPPORT, NA_SUCCESS,
    na_class, na_context, na_info, na_init_info, na_protocol_info, na_return,
};
use crate::address::{self, CLASS, PROTOCOLS};
use crate::class::{Class, Request};
use crate::context::Context;
use crate::engine::Engine;
use crate::libna::{Layout, libna};
use crate::operation::Operation;
use libc::{c_char, c_ulong, c_void};
use std::ffi::CString;
use std::mem;
use std::ptr;

const OF_MESSAGES: bool = false;

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
            let name = CString::new(protocol).map_err(|_| NA_INVALID_ARG)?;
            // SAFETY: three strings; Mercury frees the allocated entry.
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
        // SAFETY: Mercury passes a class, and no longer uses it.
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
        // SAFETY: Mercury's arguments, valid for either function.
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
            // SAFETY: made by `context_create`; the engine no longer knows it.
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
                // A pending operation ends without its callback.
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
