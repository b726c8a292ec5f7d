//! Tests of the front of a poll: each kind of work beside looking at the port is done in the poll that finds it.

use super::Endpoint;
use crate::config::Config;
use crate::event::{Arrival, Event, Identity, Outcome, Verdict};
use crate::ids::{EndpointId, LinkId, NicId, RemoteId, RequestId, SessionId, Target};
use crate::ops::{ChunkedStorage, Ops};
use crate::origin::Source;
use crate::owner::{Events, Owner};
use crate::port::{
    Body, Close, ConnectError, HeaderBytes, Limits, LinkControl, PACKET_LEAST, Place, Port,
    SendError, Sent,
};
use crate::remote::RemoteState;
use crate::round::{Begun, Next, Rounds};
use crate::status::Status;
use crate::time::{Clock, Instant};

/// A port with active links, on which nothing arrives.
#[derive(Debug)]
struct Still;

#[derive(Debug)]
struct Deaf;

#[derive(Debug)]
struct Noon;

impl Clock for Noon {
    fn now(&self) -> Instant {
        Instant(0)
    }
}

impl Owner for Deaf {
    type Memory = Vec<u8>;
    type OpData = u64;
    type OwnerEvent = ();
    type OpStorage = ChunkedStorage<Vec<u8>, u64>;

    fn completed(&mut self, _: &mut Ops<Self>, _: &mut Events<Self>, _: RequestId, _: Outcome) {}

    fn arrived<B: crate::memory::Source + ?Sized>(
        &mut self,
        _: &mut Events<Self>,
        _: &Arrival,
        body: Option<&B>,
    ) -> Verdict {
        assert!(body.is_none_or(crate::memory::Source::is_empty));
        Verdict::Continue
    }
}

impl LinkControl for Still {
    fn limits(&self, _: LinkId) -> Limits {
        Limits {
            packet_max: PACKET_LEAST,
            streamed_max: 0,
            data_max: PACKET_LEAST,
            pull_block: PACKET_LEAST,
            remote_read: false,
            refusal_ends_link: false,
            data_links: 0,
        }
    }

    fn connect(&mut self, _: Target, _: Instant) -> Result<LinkId, ConnectError> {
        Err(ConnectError::NoRoute)
    }

    fn close(&mut self, _: LinkId, _: Close) {}

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {}
}

impl Port<Vec<u8>> for Still {
    fn send(
        &mut self,
        _: LinkId,
        _: &HeaderBytes,
        _: Body<'_, Vec<u8>>,
    ) -> Result<Sent, SendError> {
        Err(SendError::Down)
    }

    fn resume(&mut self, _: LinkId, _: &Vec<u8>, _: usize, _: usize) -> Result<Sent, SendError> {
        Err(SendError::Down)
    }

    fn detach(&mut self, _: LinkId, _: &Vec<u8>, _: usize, _: usize) {}
}

impl Rounds<Vec<u8>> for Still {
    type Lent<'a> = &'a [u8];

    fn begin_active(&mut self, _: usize) -> Begun {
        Begun::Nothing
    }

    fn begin(&mut self, _: Instant, _: usize) {
        panic!("a round over everything");
    }

    fn next(&mut self) -> Next {
        Next::End { any: false }
    }

    fn body(&self) -> &[u8] {
        &[]
    }

    fn read(&mut self, _: Place<'_, Vec<u8>>) {}

    fn skip(&mut self) {}
}

type Idle = Endpoint<Still, Noon, Deaf>;

fn idle() -> Idle {
    let identity = Identity {
        nic: NicId(1),
        endpoint: EndpointId(1),
        session: SessionId(1),
    };
    Endpoint::new(Config::default(), identity, 0, Still, Noon, Deaf)
}

fn remote(endpoint: &mut Idle) -> RemoteId {
    let name = (NicId(2), EndpointId(2));
    endpoint.remotes.add(name, Source::TRUSTED, None, 0)
}

/// Checks that a look finds the work which `make` gives to an idle endpoint, and that it is done after one poll and
/// `rest`.
fn is_seen_to(make: impl FnOnce(&mut Idle), rest: impl FnOnce(&mut Idle)) {
    let mut endpoint = idle();
    assert_eq!(endpoint.look(), Begun::Nothing);
    assert!(!endpoint.progress());
    make(&mut endpoint);
    assert_eq!(endpoint.look(), Begun::Active);
    endpoint.progress();
    rest(&mut endpoint);
    assert_eq!(endpoint.look(), Begun::Nothing);
}

#[test]
fn a_remote_whose_turn_it_is_is_seen_to() {
    is_seen_to(|it| it.ready.push_back(RemoteId::new(3, 9)), |_| {});
}

#[test]
fn credits_that_may_move_are_seen_to() {
    is_seen_to(|it| it.flow.await_draw(), |_| {});
}

#[test]
fn a_refused_stranger_is_seen_to() {
    is_seen_to(
        |it| it.refuse(LinkId::new(1, 1), 0, Status::BadEndpoint),
        |_| {},
    );
}

#[test]
fn a_tombstone_without_messages_is_seen_to() {
    let buried = |it: &mut Idle| assert_eq!(it.remotes(), 0);
    let make = |it: &mut Idle| {
        let id = remote(it);
        let mut tombstone = it.remotes.take(id).unwrap().tombstone();
        if let RemoteState::Tombstone { messages, .. } = &mut tombstone.state {
            *messages = 1;
        }
        let id = it.remotes.add_tombstone(tombstone);
        it.tombstone_read(id);
    };
    is_seen_to(make, buried);
}

#[test]
fn an_event_is_work_until_it_is_polled_out() {
    let poll_out = |it: &mut Idle| assert_eq!(it.next_event(), Some(Event::Due(7)));
    is_seen_to(|it| it.events.push_back(Event::Due(7)), poll_out);
}
