//! Events of a port, told to a sink: for tests and benchmarks of a port without an endpoint.

use mx_proto::port::{HeaderBytes, LinkDown, Place, RemoteUse};
use mx_proto::round::{Next, PortEvent, Rounds};
use mx_proto::{Instant, LinkId, Memory, Source};

/// Hears of the events of a port.
pub trait Sink<M: Memory> {
    /// [`PortEvent::Up`].
    fn on_up(&mut self, link: LinkId);

    /// [`PortEvent::Down`].
    fn on_down(&mut self, link: LinkId, reason: LinkDown);

    /// [`PortEvent::Packet`].
    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, header: &HeaderBytes, body: &B);

    /// [`PortEvent::Part`]: where the packet's body belongs. `None`: it is skipped.
    fn place(&mut self, link: LinkId, header: &HeaderBytes, begin: bool) -> Option<Place<'_, M>>;

    /// [`PortEvent::Placed`].
    fn on_placed(&mut self, link: LinkId, header: &HeaderBytes);

    /// [`PortEvent::Writable`].
    fn on_writable(&mut self, link: LinkId);

    /// [`PortEvent::RemoteActivity`].
    fn on_remote_activity(&mut self, _link: LinkId, _what: RemoteUse) {}

    /// [`PortEvent::RemoteRead`].
    fn on_remote_read(&mut self, link: LinkId, token: u64, ok: bool);

    /// [`PortEvent::PlacesShort`].
    fn on_places_short(&mut self) {}
}

/// Whole rounds of a port.
pub trait Polled<M: Memory>: Rounds<M> + Sized {
    /// Tells a sink of all events of a round. Returns whether anything has happened.
    #[inline]
    fn poll<S: Sink<M>>(&mut self, now: Instant, budget: usize, sink: &mut S) -> bool {
        self.begin(now, budget);
        tell_all(self, sink)
    }
}

impl<M: Memory, P: Rounds<M>> Polled<M> for P {}

/// Tells a sink of all events of a round that has begun. The first packet is an event, the second is taken by the port's
/// front, and so on, so that the two are tested side by side.
#[inline]
pub fn tell_all<M: Memory, P: Rounds<M>, S: Sink<M>>(port: &mut P, sink: &mut S) -> bool {
    let mut front = true;
    loop {
        let ended = port.take_packets(|link, header, body| {
            front = !front;
            if front {
                sink.on_packet(link, header, body);
            }
            front
        });
        if let Some(any) = ended {
            return any;
        }
        let event = match port.next() {
            Next::Event(event) => event,
            Next::End { any } => return any,
        };
        match event {
            PortEvent::Packet { link, header } => sink.on_packet(link, &header, &port.body()),
            PortEvent::Part {
                link,
                header,
                begin,
            } => match sink.place(link, &header, begin) {
                Some(place) => port.read(place),
                None => port.skip(),
            },
            PortEvent::Placed { link, header } => sink.on_placed(link, &header),
            PortEvent::Up(link) => sink.on_up(link),
            PortEvent::Down(link, reason) => sink.on_down(link, reason),
            PortEvent::Writable(link) => sink.on_writable(link),
            PortEvent::RemoteActivity(link, what) => sink.on_remote_activity(link, what),
            PortEvent::RemoteRead { link, token, ok } => sink.on_remote_read(link, token, ok),
            PortEvent::PlacesShort => sink.on_places_short(),
        }
    }
}
