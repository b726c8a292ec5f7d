//! Another user of this machine: its limits on memory, and on endpoints that it may claim.

use super::strangers::Rogue;
use super::{Event, Node, link_up};
use crate::LocalOptions;
use crate::handshake::ControlMessage;
use crate::socket::Socket;
use mx_port_base::origin::Origin;
use mx_proto::port::{LinkControl, Sent};
use mx_proto::{Clock, LinkId};
use std::time::{Duration, Instant};

/// Process of another user, which runs `what` and lives until the guard is dropped. `None`, with a message: not
/// permitted.
struct Other(i32);

impl Other {
    fn new(user: u32, what: impl FnOnce()) -> Option<Self> {
        // SAFETY: plain system call.
        if unsafe { libc::geteuid() } != 0 {
            eprintln!("SKIPPED: only root can be another user");
            return None;
        }
        // SAFETY: the child uses nothing that another thread may have left locked but the allocator, which the C
        // library hands over consistent, and ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: plain system calls; the first ends the child with the test.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::setuid(user) == 0 {
                    what();
                }
                loop {
                    libc::pause();
                }
            }
        }
        assert!(child > 0);
        Some(Self(child))
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // SAFETY: our child, which has not been waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Polls the server until `done`, for at most 20 s.
fn serve(server: &mut Node, mut done: impl FnMut(&mut Node) -> bool) -> Duration {
    let began = Instant::now();
    while !done(server) {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "it takes too long"
        );
        server.poll_until_idle();
        std::thread::yield_now();
    }
    began.elapsed()
}

/// Keeps a value until the process is killed.
fn stay<T>(_kept: T) {
    loop {
        std::thread::park();
    }
}

#[test]
fn another_user_that_attaches_without_end_keeps_no_peer_out() {
    let options = LocalOptions {
        bytes: 16 << 20,
        max_links: 400,
        ..LocalOptions::default()
    };
    let mut server = Node::with_options(options);
    let name = server.name();
    let attack = move || {
        let mut rogue = Node::with_limit(2000);
        for _ in 0..200 {
            let board = name.board;
            let _ = rogue
                .port
                .connect_to(board, name.endpoint, rogue.clock.now());
            rogue.clock.advance(Duration::from_millis(60));
            rogue.poll_until_idle();
        }
        // The links stay, with their memory.
        loop {
            rogue.poll_until_idle();
            std::thread::yield_now();
        }
    };
    let Some(_attacker) = Other::new(65_533, attack) else {
        return;
    };
    serve(&mut server, |it| it.port.stats().over_share > 0);
    let held = server.port.stats().bytes;
    assert!(held > 4 << 20 && held <= 8 << 20, "{held} bytes");
    // A third user gets in meanwhile.
    let honest = move || {
        let mut honest = Node::new();
        let board = name.board;
        let link = honest
            .port
            .connect_to(board, name.endpoint, honest.clock.now())
            .unwrap();
        while !honest.log.events.contains(&Event::Up(link)) {
            honest.poll_until_idle();
        }
        while honest.send(link, b"honest").is_err() {
            honest.poll_until_idle();
        }
        stay(honest);
    };
    let _honest = Other::new(65_532, honest);
    let took = serve(&mut server, |it| it.bodies() == [b"honest"]);
    let left = server.port.stats().bytes;
    eprintln!("another user held {held} bytes of 16 MiB; a third one got in after {took:?}");
    assert!(left >= held);
    // The strangers were not introduced in time; those that were still waiting to be accepted time out after them.
    serve(&mut server, |it| {
        it.clock.advance(Duration::from_millis(5001));
        it.poll_until_idle();
        it.port.link_count() == 1
    });
    assert!(server.port.stats().unbound > 10);
}

#[test]
fn user_may_claim_only_endpoints_that_it_has_open() {
    let server = Node::new();
    let mine = Node::new();
    let (of_mine, closed) = (mine.name().endpoint, 4_000_000_000);
    assert!(!server.port.user_has(65_533, of_mine), "ours is not theirs");
    assert!(!server.port.user_has(65_533, closed));
    let theirs = super::fresh_name();
    let listen = move || {
        let listener = Socket::listen(theirs).unwrap();
        stay(listener);
    };
    let Some(_other) = Other::new(65_533, listen) else {
        return;
    };
    let began = Instant::now();
    while !server.port.user_has(65_533, theirs.endpoint) {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::yield_now();
    }
    assert!(!server.port.user_has(65_532, theirs.endpoint));
    // Root and our user may claim any endpoint.
    assert!(server.port.user_has(0, theirs.endpoint));
}

#[test]
fn who_is_asked_about_its_endpoint_is_not_disturbed() {
    let (mut server, mut asked) = (Node::new(), Node::new());
    let link = link_up(&mut server, &mut asked);
    // SAFETY: plain system call.
    let me = unsafe { libc::geteuid() };
    assert_eq!(server.port.origin(link), Origin::User(me));
    asked.take();
    for _ in 0..10 {
        assert!(!server.port.user_has(65_531, asked.name().endpoint));
    }
    asked.poll_until_idle();
    assert_eq!((asked.port.link_count(), asked.take()), (1, vec![]));
    assert_eq!(server.send(link, b"on"), Ok(Sent::Whole));
    asked.poll_until_idle();
    assert_eq!(asked.bodies(), [b"on"]);
}

/// Makes only this thread another user: real, effective and saved; `u32::MAX` keeps one. Returns false if not
/// permitted.
fn become_user(real: u32, effective: u32, saved: u32) -> bool {
    // SAFETY: plain system call, which the C library does not repeat on other threads.
    unsafe { libc::syscall(libc::SYS_setresuid, real, effective, saved) == 0 }
}

/// Returns the result of `what`, run as root on a thread of its own, which may become another user; polls the server
/// meanwhile and once more. `None`: not root.
fn beside_root<T: Send>(server: &mut Node, what: impl FnOnce() -> T + Send) -> Option<T> {
    // SAFETY: plain system call.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: only root can become another user");
        return None;
    }
    std::thread::scope(|scope| {
        let running = scope.spawn(what);
        serve(server, |_| running.is_finished());
        server.poll_until_idle();
        Some(running.join().unwrap())
    })
}

/// Creates a link to the server that is up, and whose first packet has been sent.
fn call(client: &mut Node, (board, endpoint): (u32, u32)) -> LinkId {
    let link = client.port.connect_to(board, endpoint, client.clock.now());
    let link = link.unwrap();
    while !client.log.events.contains(&Event::Up(link)) {
        client.poll_until_idle();
    }
    while client.send(link, b"hello") != Ok(Sent::Whole) {
        client.poll_until_idle();
    }
    link
}

#[test]
fn process_acts_as_its_current_user() {
    let mut server = Node::new();
    let to = (server.name().board, server.name().endpoint);
    let (mut root, mut user) = (Node::new(), Node::new());
    let ours = beside_root(&mut server, move || {
        // The saved user is still the one that listened.
        assert!(become_user(u32::MAX, 65_530, u32::MAX));
        call(&mut root, to);
        assert!(become_user(u32::MAX, 0, u32::MAX));
        assert!(become_user(65_530, 65_530, 65_530));
        call(&mut user, to);
        [(0, root), (65_530, user)]
    });
    let Some(ours) = ours else { return };
    let events = server.log.events.iter();
    let links = events.filter_map(|event| match event {
        Event::Packet(link, _) => Some(*link),
        _ => None,
    });
    let come: Vec<_> = links
        .map(|link| (server.port.origin(link), server.port.endpoint(link)))
        .collect();
    let expected = ours.each_ref().map(|(uid, node)| {
        assert_eq!(node.port.listener.user(), *uid);
        (Origin::User(*uid), Some(node.name().endpoint))
    });
    assert_eq!(come, expected);
    assert_eq!(server.port.stats().denied, 0);
}

#[test]
fn no_user_speaks_for_an_endpoint_of_another() {
    let (mut server, mine) = (Node::new(), Node::new());
    let (name, of_mine) = (server.name(), mine.name().endpoint);
    let tried = beside_root(&mut server, move || {
        assert!(become_user(65_529, 65_529, 65_529));
        let own = super::fresh_name();
        let _listener = Socket::listen(own).unwrap();
        let say = |endpoint, user: Option<u32>| {
            let socket = Socket::new().unwrap();
            socket.connect(name).unwrap();
            let hello = ControlMessage::Hello {
                asymmetric: true,
                endpoint,
            };
            match user {
                Some(user) => socket.send_as(user, &hello.encode())?,
                None => socket.send(&hello.encode(), None)?,
            }
            while !super::readable(Some(socket.raw())) {
                std::thread::yield_now();
            }
            Ok::<_, std::io::Error>(Rogue::hear(&socket))
        };
        let denied = ControlMessage::Denied;
        for user in [None, Some(65_529)] {
            let welcome = say(own.endpoint, user).unwrap();
            assert!(matches!(welcome, ControlMessage::Welcome { .. }));
            assert_eq!(say(of_mine, user).unwrap(), denied);
            assert_eq!(say(4_000_000_000, user).unwrap(), denied);
        }
        // The process is not root, and cannot claim to be.
        for user in [0, 65_528] {
            let refused = say(of_mine, Some(user)).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        }
    });
    let expected = tried.map_or(0, |()| 4);
    assert_eq!(server.port.stats().denied, expected);
}
