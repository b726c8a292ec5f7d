//! Addresses.

use super::{class_of, give, peer_of, text};
use crate::abi::{NA_INVALID_ARG, NA_OVERFLOW, NA_SUCCESS, na_class, na_return};
use crate::address::{self, Peer};
use crate::class::Class;
use libc::{c_char, c_void};
use std::ffi::CStr;
use std::mem;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const OF_MESSAGES: bool = false;

entries! {
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
        // SAFETY: a reference that Mercury returns.
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
        // SAFETY: Mercury's arguments; the text is the one that a peer looks up.
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
}

fn look_up(class: &Class, text: &str, into: *mut *mut c_void) -> Result<(), na_return> {
    let target = address::look_up(text, class.route)?;
    let peer = class.with(|engine| Ok(engine.peer_at(target)))?;
    // SAFETY: Mercury passes a pointer to write to.
    unsafe { give(peer, into) };
    Ok(())
}
