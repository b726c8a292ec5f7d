//! Polling, and sleeping until polling is useful.

use super::{Descriptor, class_of};
use crate::abi::{NA_INVALID_ARG, NA_NOMEM, NA_TIMEOUT, na_class, na_context, na_return};
use crate::context::Context;
use libc::c_uint;
use mx_sys::Progress;
use mx_sys::slot::Engine as _;
use std::time::Duration;

const OF_MESSAGES: bool = true;

entries! {
    fn poll_get_fd(class: *mut na_class, context: *mut na_context) -> Descriptor {
        // SAFETY: a class and a context of ours.
        let fd = unsafe { class_of(class) }.and_then(|class| class.with(|engine| {
            let ports = engine.endpoint().port().set().0;
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

/// Polls once. Returns whether completions have been added since the last call.
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
        slot.disarm();
        slot.note_control();
    }
    slot.progress();
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
