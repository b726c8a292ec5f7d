//! Memory handles, put and get.

use super::{begin, class_of, peer_of};
use crate::abi::{
    NA_BUSY, NA_INVALID_ARG, NA_MEM_TYPE_HOST, NA_OPNOTSUPPORTED, NA_OVERFLOW, na_cb, na_cb_type,
    na_class, na_context, na_return, na_segment,
};
use crate::memory::{Handle, Local, SEGMENTS_MAX, SERIALIZED};
use crate::operation::Operation;
use libc::{c_int, c_ulong, c_void};
use std::ptr;
use std::slice;

const OF_MESSAGES: bool = true;

entries! {
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
        // SAFETY: a class and a handle of ours, which Mercury no longer uses.
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
            let what = ((class, context, op), na_cb_type::Put, (callback, arg));
            transfer(what, (local, local_offset, len), (remote, remote_offset), peer)
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
            let what = ((class, context, op), na_cb_type::Get, (callback, arg));
            transfer(what, (local, local_offset, len), (remote, remote_offset), peer)
        }
    }
}

/// Ends the access to a handle's memory, if registered.
fn deregister(class: *mut na_class, handle: &mut Handle) -> Result<(), na_return> {
    if let Handle::Local(local) = handle
        && let Some(key) = local.key.take()
    {
        // SAFETY: a class of ours.
        unsafe { class_of(class) }?.with(|engine| Ok(engine.deregister(key)))?;
    }
    Ok(())
}

/// Begins a get or a put.
///
/// # Safety
///
/// As for [`begin`]; handles and an address of ours, and memory that stays valid until the transfer has completed.
unsafe fn transfer(
    (what, kind, callback): (
        (*mut na_class, *mut na_context, *mut Operation),
        na_cb_type,
        (na_cb, *mut c_void),
    ),
    (local, offset, len): (*mut Handle, u64, usize),
    (remote, remote_offset): (*mut Handle, u64),
    peer: *mut c_void,
) -> Result<(), na_return> {
    // SAFETY: the caller's promise.
    let (local, remote, peer) = unsafe { (local.as_ref(), remote.as_ref(), peer_of(peer)?) };
    let Some(Handle::Local(local)) = local else {
        return Err(NA_INVALID_ARG);
    };
    let key = match remote {
        Some(Handle::Remote { key, .. }) => *key,
        // Memory of this process, which accesses itself.
        Some(Handle::Local(own)) => own.key.ok_or(NA_INVALID_ARG)?,
        None => return Err(NA_INVALID_ARG),
    };
    let memory = local.part(offset, len as u64)?;
    // SAFETY: the caller's promise.
    unsafe {
        begin(what, kind, callback, |_, engine, op| {
            engine.transfer(op, &peer, (key, remote_offset), memory)
        })
    }
}
