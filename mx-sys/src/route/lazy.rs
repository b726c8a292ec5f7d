//! A port that is opened with the endpoint, or for the first address that asks for it.

use crate::thread;
use mx_proto::port::ConnectError;
use std::{fmt, io};

/// Opens a port, or says in the log why it cannot be had.
type Later<P> = Box<dyn FnOnce() -> Option<Box<P>> + Send>;

/// The port, or the way to it.
pub(super) struct Lazy<P> {
    pub(super) port: Option<P>,
    /// It was opened with the endpoint: it carries what may take any route.
    pub(super) offered: bool,
    later: Option<Later<P>>,
    /// The name of what carries its packets; empty before it is open.
    pub(super) provider: String,
    provider_of: fn(&P) -> &str,
}

impl<P> Lazy<P> {
    /// One that is open, or is opened by `later`, if that is given.
    pub(super) fn new(
        port: Option<P>,
        later: Option<Later<P>>,
        provider_of: fn(&P) -> &str,
    ) -> Self {
        Self {
            offered: port.is_some(),
            provider: port.as_ref().map_or("", provider_of).to_owned(),
            port,
            later,
            provider_of,
        }
    }

    /// The port. If it is opened now, `wake` has sleepers wait for it.
    pub(super) fn get(
        &mut self,
        name: &str,
        wake: impl FnOnce(&mut P) -> io::Result<()>,
    ) -> Result<&mut P, ConnectError> {
        if self.port.is_none()
            && let Some(open) = self.later.take()
        {
            self.open(open, name, wake);
        }
        self.port.as_mut().ok_or_else(|| {
            log::debug!("the {name} port is not open");
            ConnectError::NoRoute
        })
    }

    /// Opens the port. Not inlined: a port would be part of every caller's stack frame.
    #[cold]
    #[inline(never)]
    fn open(&mut self, open: Later<P>, name: &str, wake: impl FnOnce(&mut P) -> io::Result<()>) {
        let Some(mut port) = open() else { return };
        match wake(&mut port) {
            Ok(()) => {
                (self.provider_of)(&port).clone_into(&mut self.provider);
                self.port = Some(*port);
            }
            Err(error) => log::error!("{name}: cannot wait for its descriptors: {error}"),
        }
    }
}

/// Opens a port for an address that asks for it. Any call may come to this, with less stack than opening takes.
pub(super) fn later<P: Send + 'static, E: fmt::Display + Send>(
    name: &'static str,
    open: impl FnOnce() -> Result<P, E> + Send + 'static,
    provider_of: fn(&P) -> &str,
) -> Option<Later<P>> {
    let open = move || open().map(Box::new);
    Some(Box::new(move || match thread::apart("mx-open", open) {
        Ok(port) => {
            let provider = provider_of(&port);
            log::info!("{name} port over {provider}, for an address with {name}@");
            Some(port)
        }
        Err(error) => {
            log::error!("no {name} port, which an address with {name}@ needs: {error}");
            None
        }
    }))
}

impl<P> fmt::Debug for Lazy<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lazy")
            .field("open", &self.port.is_some())
            .field("offered", &self.offered)
            .field("provider", &self.provider)
            .finish_non_exhaustive()
    }
}
