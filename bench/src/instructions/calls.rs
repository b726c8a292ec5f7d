//! Counted calls: those of the method, and those of UCX for the same purpose.
//!
//! | call      | method        | UCX                                                                  |
//! |-----------|---------------|----------------------------------------------------------------------|
//! | post_recv | `post_recv`   | `ucp_tag_recv_nbx`                                                   |
//! | post_send | `post_send`   | `ucp_tag_send_nbx`                                                   |
//! | test      | `testcontext` | `ucp_worker_progress`, `ucp_request_check_status`, `ucp_request_free` |
//!
//! Owns: both sides' messages of 8 B.

use crate::bmi::Bmi;
use crate::messages::Messages;
use crate::reference::sides::{Tagged, from_hex, to_hex};
use crate::reference::ucx::Endpoint;
use bmi_host::method::Address;
use std::ffi::OsStr;

const SIZE: usize = 8;
const TAG: i32 = 100;

/// A side of a ping-pong that has at most one message under way in each direction.
pub(super) trait Calls {
    /// Posts a receive; returns true if it is complete already.
    fn post_recv(&mut self) -> Result<bool, String>;

    /// Posts a send; returns true if it is complete already.
    fn post_send(&mut self) -> Result<bool, String>;

    /// Returns the number of operations that have ended.
    fn test(&mut self) -> Result<usize, String>;
}

/// The method with a peer.
pub(super) struct Method {
    bmi: Bmi,
    peer: Address,
    data: Box<[u8; SIZE]>,
    back: Box<[u8; SIZE]>,
}

/// The method, before its peer has sent anything.
pub(super) struct Listening(Bmi);

impl Listening {
    pub(super) fn accept(self) -> Result<Method, String> {
        let (peer, _) = self.0.next_request()?;
        Ok(Method::new(self.0, peer))
    }
}

impl Method {
    pub(super) fn listen(library: &OsStr, address: &str) -> Result<Listening, String> {
        Bmi::start(library, Some(address)).map(Listening)
    }

    pub(super) fn connect(library: &OsStr, address: &str) -> Result<Self, String> {
        let bmi = Bmi::start(library, None)?;
        let peer = bmi.lookup(address)?;
        bmi.request(peer, &[])?;
        Ok(Self::new(bmi, peer))
    }

    fn new(bmi: Bmi, peer: Address) -> Self {
        Self {
            bmi,
            peer,
            data: Box::new([1; SIZE]),
            back: Box::new([0; SIZE]),
        }
    }
}

impl Calls for Method {
    #[inline]
    fn post_recv(&mut self) -> Result<bool, String> {
        // SAFETY: the buffer goes after the method, which goes with its operations, and is not
        // looked at.
        unsafe { self.bmi.recv(self.peer, &mut self.back[..], TAG) }
    }

    #[inline]
    fn post_send(&mut self) -> Result<bool, String> {
        // SAFETY: as above, and it is never changed.
        unsafe { self.bmi.send(self.peer, &self.data[..], TAG) }
    }

    #[inline]
    fn test(&mut self) -> Result<usize, String> {
        self.bmi.test(0)
    }
}

/// UCX with a peer, or before it has one.
pub(super) struct Ucx(Endpoint);

impl Ucx {
    /// Opens a worker; returns its address, too.
    pub(super) fn open() -> Result<(Self, String), String> {
        let mut endpoint = Endpoint::open()?;
        endpoint.make_buffers(2, SIZE)?;
        let address = to_hex(&endpoint.address()?);
        Ok((Self(endpoint), address))
    }

    /// Connects to the worker at that address.
    pub(super) fn to(mut self, address: &str) -> Result<Self, String> {
        let address = from_hex(address).ok_or("a peer without address")?;
        self.0.connect(&address)?;
        Ok(self)
    }

    /// Opens a worker and connects it.
    pub(super) fn connect(address: &str) -> Result<(Self, String), String> {
        let (opened, own) = Self::open()?;
        Ok((opened.to(address)?, own))
    }
}

impl Calls for Ucx {
    #[inline]
    fn post_recv(&mut self) -> Result<bool, String> {
        self.0.recv(1)?;
        Ok(self.0.take_received() > 0)
    }

    #[inline]
    fn post_send(&mut self) -> Result<bool, String> {
        self.0.send(0).map(|pending| pending == 0)
    }

    #[inline]
    fn test(&mut self) -> Result<usize, String> {
        self.0.poll()?;
        Ok(self.0.take_received() + self.0.take_sent())
    }
}
