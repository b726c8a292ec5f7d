//! A port that is opened with the endpoint, or for the first address that asks for it.

use super::host_port::HostPort;
use crate::thread;
use mx_proto::Memory;
use mx_proto::port::ConnectError;
use std::{fmt, io};

/// Opens a port; logs the reason and returns `None` on failure.
type Later<M> = Box<dyn FnOnce() -> Option<Box<dyn HostPort<M>>> + Send>;

/// An open port, or the function that opens it.
pub(super) struct Lazy<M> {
    pub(super) port: Option<Box<dyn HostPort<M>>>,
    /// Whether the port was opened with the endpoint, so that targets without a route of their own may use it.
    pub(super) offered: bool,
    later: Option<Later<M>>,
}

impl<M: Memory + 'static> Lazy<M> {
    /// Holds an open port.
    pub(super) fn open(port: impl HostPort<M>) -> Self {
        Self {
            port: Some(Box::new(port)),
            offered: true,
            ..Self::never()
        }
    }

    /// Holds a function that opens the port for an address that asks for it. Runs on a thread of its own: any call may
    /// come to this, with less stack than opening takes.
    pub(super) fn later<P: HostPort<M>, E: fmt::Display + Send>(
        name: &'static str,
        open: impl FnOnce() -> Result<P, E> + Send + 'static,
        provider_of: fn(&P) -> &str,
    ) -> Self {
        let open = move || open().map(Box::new);
        let later: Later<M> = Box::new(move || match thread::apart("mx-open", open) {
            Ok(port) => {
                let provider = provider_of(&port);
                log::info!("{name} port over {provider}, for an address with {name}@");
                Some(port)
            }
            Err(error) => {
                log::error!("cannot open the {name} port for an address with {name}@: {error}");
                None
            }
        });
        Self {
            later: Some(later),
            ..Self::never()
        }
    }

    /// Holds no port, now or later.
    pub(super) fn never() -> Self {
        Self {
            port: None,
            offered: false,
            later: None,
        }
    }

    /// Returns the port, opening it if necessary. `wake` adds a newly opened port to the sleepers' descriptors.
    pub(super) fn get(
        &mut self,
        name: &str,
        wake: impl FnOnce(&mut dyn HostPort<M>) -> io::Result<()>,
    ) -> Result<&mut dyn HostPort<M>, ConnectError> {
        if self.port.is_none()
            && let Some(open) = self.later.take()
            && let Some(mut port) = open()
        {
            match wake(&mut *port) {
                Ok(()) => self.port = Some(port),
                Err(error) => log::error!("{name}: cannot wait for its descriptors: {error}"),
            }
        }
        self.port.as_deref_mut().ok_or_else(|| {
            log::debug!("the {name} port is not open");
            ConnectError::NoRoute
        })
    }
}

impl<M> fmt::Debug for Lazy<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lazy")
            .field("open", &self.port.is_some())
            .field("offered", &self.offered)
            .finish_non_exhaustive()
    }
}
