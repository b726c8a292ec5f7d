//! Messages.

use super::{begin, class_of, message, number_of, peer_of};
use crate::abi::{NA_FAULT, na_cb, na_cb_type, na_class, na_context, na_return};
use crate::engine::Kind;
use crate::operation::{Operation, Room};
use libc::c_void;

const OF_MESSAGES: bool = true;

entries! {
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
}

/// # Safety
///
/// As for [`begin`]; the buffer belongs to the library until the operation has completed.
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
