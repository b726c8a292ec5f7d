//! A port with its events, and another process that has one.
//!
//! The other process is the same program again, running an ignored test `the_other_process`.

#![allow(dead_code, reason = "every test program uses another part of it")]

use crate::signal;
use mx_port_base::clock::MonotonicClock;
use mx_port_local::{LocalOptions, LocalPort};
use mx_proto::port::{Body, HeaderBytes, LinkControl, LinkDown, Port, SendError};
use mx_proto::{Clock, LinkId, Source};
use mx_sim::Polled;
use mx_sim::{Ear, Hearing, header_of};
use std::collections::VecDeque;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A time after which something counts as hanging.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) const ROLE: &str = "LOCAL_PROCESSES_ROLE";
pub(crate) const BOARD: &str = "LOCAL_PROCESSES_BOARD";
pub(crate) const ENDPOINT: &str = "LOCAL_PROCESSES_ENDPOINT";

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Up,
    Down(LinkDown),
    Packet(Vec<u8>),
    Writable,
}

#[derive(Default)]
pub(crate) struct Events(pub(crate) Vec<(LinkId, Event)>);

impl Ear for Events {
    fn on_up(&mut self, link: LinkId) {
        self.0.push((link, Event::Up));
    }
    fn on_down(&mut self, link: LinkId, reason: LinkDown) {
        self.0.push((link, Event::Down(reason)));
    }
    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, _: &HeaderBytes, body: &B) {
        self.0.push((link, Event::Packet(body.to_vec())));
    }
    fn on_writable(&mut self, link: LinkId) {
        self.0.push((link, Event::Writable));
    }
}

/// A port, and its events that the test has not looked at yet.
pub(crate) struct Node {
    pub(crate) port: LocalPort,
    pub(crate) events: VecDeque<(LinkId, Event)>,
}

impl Node {
    pub(crate) fn open(board: u32, endpoint: u32) -> Self {
        Self::open_with(board, endpoint, LocalOptions::default())
    }

    pub(crate) fn open_with(board: u32, endpoint: u32, options: LocalOptions) -> Self {
        Self {
            port: LocalPort::with_options(4, board, endpoint, options).unwrap(),
            events: VecDeque::new(),
        }
    }

    pub(crate) fn poll(&mut self) -> bool {
        let mut sink = Events::default();
        let any = Polled::poll(
            &mut self.port,
            MonotonicClock.now(),
            64,
            &mut Hearing(&mut sink),
        );
        // Accepted as an endpoint accepts its peers, because the link of a stranger ends after a
        // while.
        for (link, _) in &sink.0 {
            self.port.accept(*link);
        }
        self.events.extend(sink.0);
        any
    }

    /// Sleeps until there is something to do, the port's deadline or `most` has passed.
    pub(crate) fn doze(&mut self, most: Duration) {
        if !self.port.arm() {
            return;
        }
        let fds = self.port.descriptors();
        let mut poll = [fds.control, fds.data].map(|fd| libc::pollfd {
            fd: fd.unwrap(),
            events: libc::POLLIN,
            revents: 0,
        });
        let left = self
            .port
            .deadline()
            .map_or(most, |at| at.since(MonotonicClock.now()).min(most));
        // SAFETY: two valid elements.
        unsafe { libc::poll(poll.as_mut_ptr(), 2, left.as_millis() as i32 + 1) };
        self.port.disarm();
    }

    /// Polls and sleeps until `done`; at most 20 seconds.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let end = MonotonicClock.now().after(LONG);
        while !done(self) {
            assert!(MonotonicClock.now() < end, "20 seconds without: {what}");
            if !self.poll() {
                // Some conditions do not wake the thread.
                self.doze(Duration::from_millis(5));
            }
        }
    }

    /// Returns the next event; waits for it at most 20 seconds.
    pub(crate) fn next(&mut self) -> (LinkId, Event) {
        self.until("an event", |node| !node.events.is_empty());
        self.events.pop_front().unwrap()
    }

    pub(crate) fn connect(&mut self, board: u32, endpoint: u32) -> LinkId {
        let link = self
            .port
            .connect_to(board, endpoint, MonotonicClock.now())
            .unwrap();
        assert_eq!(self.next(), (link, Event::Up));
        link
    }

    pub(crate) fn try_send(&mut self, link: LinkId, bytes: &[u8]) -> Result<(), SendError> {
        let header = header_of(0, bytes.len());
        let body = Body::<Vec<u8>>::Bytes(bytes);
        Port::send(&mut self.port, link, &header, body).map(|_| ())
    }

    /// Sends a packet, and waits for room. Packets that arrive meanwhile are kept.
    pub(crate) fn send(&mut self, link: LinkId, bytes: &[u8]) {
        while self.try_send(link, bytes) == Err(SendError::WouldBlock) {
            while !self
                .events
                .iter()
                .any(|event| *event == (link, Event::Writable))
            {
                self.poll();
            }
            self.events
                .retain(|event| *event != (link, Event::Writable));
        }
    }

    pub(crate) fn packet(&mut self) -> (LinkId, Vec<u8>) {
        match self.next() {
            (link, Event::Packet(bytes)) => (link, bytes),
            other => panic!("not a packet: {other:?}"),
        }
    }
}

/// Another process that plays `role`, and is killed when the test fails.
pub(crate) struct Other(pub(crate) Child);

impl Other {
    /// Runs the ignored test of that name, with more variables in its environment.
    pub(crate) fn start(
        test: &str,
        role: &str,
        board: u32,
        endpoint: u32,
        more: &[(&str, String)],
    ) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(ROLE, role)
            .env(BOARD, board.to_string())
            .env(ENDPOINT, endpoint.to_string())
            .envs(more.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    pub(crate) fn signal(&self, signal: i32) {
        signal::send(&self.0, signal);
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a board and an endpoint that no other test uses.
pub(crate) fn fresh() -> (u32, u32) {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 13 + seed * 101 + (at >> 8)) as u8)
        .collect()
}
