//! A bare TCP socket over loopback, polled: a read that finds nothing is repeated at once.

use super::{Wire, list};
use crate::buffer::Buffer;
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

/// Name in tables.
pub(crate) const NAME: &str = "bare TCP";

/// A side of a connection.
pub(crate) struct Socket(TcpStream);

/// Connects both sides.
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

/// Selects the congestion control that suits loopback, which the method selects too. If it is not
/// available the machine's default stays.
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
                // The other side has ended, and the measurement with it.
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

    fn send_list(&mut self, data: &Buffer) {
        let mut pieces: Vec<_> = data.pieces().map(IoSlice::new).collect();
        let mut left = &mut pieces[..];
        while !left.is_empty() {
            match list::send(&self.0, left) {
                Ok(n) => IoSlice::advance_slices(&mut left, n),
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(_) => return,
            }
        }
    }

    fn recv_list(&mut self, into: &mut Buffer) {
        let mut pieces: Vec<_> = into.pieces_mut().map(IoSliceMut::new).collect();
        let mut left = &mut pieces[..];
        while !left.is_empty() {
            match list::recv(&self.0, left) {
                Ok(0) => return,
                Ok(n) => IoSliceMut::advance_slices(&mut left, n),
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use crate::buffer::Layout;

    #[test]
    fn lists_of_any_length_arrive_as_they_were_sent() {
        let (mut near, mut far) = pair().unwrap();
        for (size, pieces) in [(1, 1), (1000, 64), (1025, 1025), (1 << 20, 2048)] {
            let layout = Layout::new(size, Some(pieces)).unwrap();
            let sent = Buffer::numbered(layout);
            let wanted = sent.bytes();
            // More than the socket's buffers hold, so both sides run at the same time.
            let receiver = std::thread::spawn(move || {
                let mut back = Buffer::new(layout);
                far.recv_buffer(&mut back);
                (far, back.bytes())
            });
            near.send_buffer(&sent);
            let (socket, back) = receiver.join().unwrap();
            far = socket;
            assert!(back == wanted, "{size} bytes in {pieces} pieces");
        }
    }
}
