//! Another process of the same user, over shared memory: the kernel lets it speak for every endpoint of
//! that user, and all that it lacks is what only the two that are connected know.
//!
//! ```text
//!   victim --- messages ---> server <--- "I am the victim" --- impostor, packets of its own
//!          <--- answers ----
//! ```

use crate::node::{KEY, Node, waiting};
use mx_proto::wire::{HELLO_LEN, Header, Kind, VERSION};
use mx_proto::{Identity, RemoteId, SessionId, Status};
use mx_sys::{PortMap, ROUTE_LOCAL};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The version of the control messages of shared memory.
const LOCAL_VERSION: u32 = 4;

const ATTEMPTS: u64 = 30;

/// A link over shared memory of which no memory was handed over: packets go over its socket.
struct Impostor(OwnedFd);

impl Impostor {
    /// A link to that endpoint, in the name of another.
    fn call(to: &Identity, as_whom: &Identity) -> Self {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: plain system call; what it returns is owned by nothing else.
        let impostor = Self(unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, kind, 0)) });
        let name = format!("\0mx-{}-0-{}", PortMap::default().base(), to.endpoint.0);
        // SAFETY: plain integers, for which all zeroes is a value.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path.iter_mut().zip(name.as_bytes()) {
            *to = *from as libc::c_char;
        }
        let len = offset_of!(libc::sockaddr_un, sun_path) + name.len();
        let (at, len) = ((&raw const address).cast(), len as libc::socklen_t);
        // SAFETY: `address` is valid for `len` bytes for the time of the call.
        let connected = unsafe { libc::connect(impostor.0.as_raw_fd(), at, len) };
        assert_eq!(connected, 0, "{}", io::Error::last_os_error());
        let mut hello = [0; 24];
        hello[..8].copy_from_slice(b"mx-hello");
        hello[8..12].copy_from_slice(&LOCAL_VERSION.to_le_bytes());
        hello[16..20].copy_from_slice(&as_whom.endpoint.0.to_le_bytes());
        assert!(impostor.send(&hello));
        let welcome = impostor.hear().expect("an answer");
        assert_eq!(welcome[..8], *b"mx-welcm");
        impostor
    }

    /// False: the link is over.
    fn send(&self, message: &[u8]) -> bool {
        let (fd, bytes, len) = (self.0.as_raw_fd(), message.as_ptr().cast(), message.len());
        // SAFETY: `message` is valid for its length.
        let sent = unsafe { libc::send(fd, bytes, len, libc::MSG_NOSIGNAL) };
        sent == len as isize
    }

    /// The next message; `None`: the link is over, or nothing comes for a while.
    fn hear(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 70_000];
        let begin = Instant::now();
        loop {
            let fd = self.0.as_raw_fd();
            // SAFETY: `bytes` is valid for its length.
            let got = unsafe { libc::recv(fd, bytes.as_mut_ptr().cast(), bytes.len(), 0) };
            match got {
                1.. => return Some(bytes[..got as usize].to_vec()),
                -1 if begin.elapsed() < Duration::from_millis(20) => {
                    std::thread::sleep(Duration::from_micros(200));
                }
                _ => return None,
            }
        }
    }

    /// Introduces itself as `me`, whatever it is. `denies`: and has nothing of what was before.
    fn introduce(&self, me: &Identity, to: &Identity, epoch: u16, denies: bool) {
        let mut hello = [0x5a; HELLO_LEN];
        hello[0..4].copy_from_slice(b"MXs1");
        hello[4..6].copy_from_slice(&VERSION.to_le_bytes());
        hello[6..8].copy_from_slice(&epoch.to_le_bytes());
        hello[8..12].copy_from_slice(&KEY.to_le_bytes());
        hello[12..16].copy_from_slice(&me.endpoint.0.to_le_bytes());
        hello[16..24].copy_from_slice(&me.nic.0.to_le_bytes());
        hello[24..32].copy_from_slice(&me.session.0.to_le_bytes());
        hello[32..40].copy_from_slice(&to.nic.0.to_le_bytes());
        hello[40..44].copy_from_slice(&to.endpoint.0.to_le_bytes());
        hello[44..48].fill(0);
        let denied = if denies { u32::MAX } else { 0 };
        let mut header = Header::new(Kind::Connect, 7, denied);
        header.body_len = HELLO_LEN as u32;
        assert!(self.send(&[header.emit().as_slice(), &hello].concat()));
    }

    /// Says goodbye, as if it were the one whose name it has.
    fn part(&self) {
        self.send(&Header::new(Kind::Disconnect, 0, 0).emit());
    }

    /// The kinds of the packets that have come: control messages are shorter.
    fn packets(&self) -> Vec<Kind> {
        let heard = std::iter::from_fn(|| self.hear());
        let packets = heard.filter_map(|message| {
            let header = message.first_chunk()?;
            Some(Header::parse(header).unwrap().kind)
        });
        packets.collect()
    }
}

/// Whether a message is something of what was sent to the victim.
fn is_content(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Eager | Kind::Offer | Kind::Pull | Kind::Data | Kind::Notify | Kind::Withdraw
    )
}

/// Whether that remote is there.
fn has(node: &Node, remote: RemoteId) -> bool {
    let engine = node.shared.lock();
    engine.endpoint.remote_identity(remote).is_some()
}

/// A message from one to the other, which has the returned remote for its sender.
fn ask(from: &Node, remote: RemoteId, to: &Node, bits: u64) -> Option<RemoteId> {
    if !has(from, remote) || from.send_all(remote, bits, b"ask") != Status::Success {
        return None;
    }
    let mut bytes = [0; 3];
    let asked = to.receive(bits, &mut bytes);
    (asked.status == Status::Success && bytes == *b"ask").then_some(asked.remote)
}

/// The server answers the victim after a impostor has called, too. The result is what went wrong.
fn attack(attempt: u64) -> Result<(), String> {
    let (server, victim) = (Node::any(), Node::any());
    let to_server = victim.connect(server.target(ROUTE_LOCAL)).unwrap();
    let to_victim = ask(&victim, to_server, &server, 1).unwrap();
    // Another life, or the same one, with the number of this association or another.
    let (session, epoch) = match attempt % 3 {
        0 => (SessionId(1000 + attempt), 1),
        1 => (victim.identity.session, 1),
        _ => (victim.identity.session, 2),
    };
    let me = Identity {
        session,
        ..victim.identity
    };
    let impostor = Impostor::call(&server.identity, &me);
    impostor.introduce(&me, &server.identity, epoch, attempt % 2 == 1);
    let mut heard = impostor.packets();
    impostor.part();
    heard.extend(impostor.packets());
    if !has(&server, to_victim) {
        return Err("the server has lost the victim".to_owned());
    }
    let mut answer = [0; 6];
    waiting(victim.post(2, &mut answer, 2));
    let sent = server.send_all(to_victim, 2, b"answer");
    let got = victim.try_done(2, Duration::from_secs(2));
    heard.extend(impostor.packets());
    if got.is_none_or(|done| done.status != Status::Success) || answer != *b"answer" {
        return Err(format!(
            "the answer ended with {sent:?}, at the victim with {got:?}"
        ));
    }
    if heard.iter().copied().any(is_content) {
        return Err(format!("the impostor has heard {heard:?}"));
    }
    match ask(&victim, to_server, &server, 3) {
        Some(from) if from == to_victim => Ok(()),
        other => Err(format!(
            "the victim is {other:?} at the server, it was {to_victim:?}"
        )),
    }
}

#[test]
fn another_process_of_the_user_gets_nothing_of_a_peer_that_it_claims_to_be() {
    let won: Vec<_> = (0..ATTEMPTS)
        .filter_map(|attempt| Some((attempt, attack(attempt).err()?)))
        .collect();
    assert!(won.is_empty(), "{} of {ATTEMPTS}: {won:#?}", won.len());
}
