//! A bare TCP socket over loopback, polled: reads that find nothing are repeated at once.

use super::Wire;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

/// Its name in tables.
pub(crate) const NAME: &str = "bare TCP";

/// One side of a connection.
pub(crate) struct Socket(TcpStream);

/// Both sides.
pub(crate) fn pair() -> std::io::Result<(Socket, Socket)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    for socket in [&near, &far] {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        use_reno(socket);
    }
    Ok((Socket(near), Socket(far)))
}

/// The congestion control that suits loopback, as the method chooses it too. Where it is not to be
/// had the machine's default stays.
fn use_reno(socket: &TcpStream) {
    let name = b"reno";
    // SAFETY: the option's value is `name.len()` bytes at `name`.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
}

impl Wire for Socket {
    fn send(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            match self.0.write(data) {
                Ok(n) => data = &data[n..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                // The other side has ended; the measurement is over as well.
                Err(_) => return,
            }
        }
    }

    fn recv(&mut self, into: &mut [u8]) {
        let mut at = 0;
        while at < into.len() {
            match self.0.read(&mut into[at..]) {
                Ok(0) => return,
                Ok(n) => at += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(_) => return,
            }
        }
    }
}
