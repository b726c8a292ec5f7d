//! The other side of every measurement: carries out requests, one message each.
//!
//! | request          | action                                                            |
//! |------------------|-------------------------------------------------------------------|
//! | Echo             | sends each message back (`idle` > 0: sleeps while it waits)        |
//! | Sink             | receives all messages, then sends one byte                         |
//! | Flood            | sends empty messages with tags from `tag` on                       |
//! | Memory           | sends the number of bytes that this process has allocated          |
//! | Quit             | ends                                                               |

use crate::args::Args;
use crate::bmi::Bmi;
use crate::buffer::{Buffer, Layout};
use crate::messages::Messages;
use crate::mx::Mx;
use std::io::Write;

/// Receives that a sink has posted at a time.
pub(crate) const WINDOW: usize = 64;
/// Buffers that they share in turn, when messages are large.
pub(crate) const BUFFERS: usize = 4;

/// A request to a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) what: What,
    pub(crate) layout: Layout,
    pub(crate) count: usize,
    pub(crate) idle_ms: i32,
    pub(crate) tag: i32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Echo = 1,
    Sink = 2,
    Flood = 3,
    Quit = 4,
    Memory = 5,
}

impl Request {
    /// Request to quit.
    pub(crate) const QUIT: Self = Self {
        what: What::Quit,
        layout: Layout::whole(0),
        count: 0,
        idle_ms: 0,
        tag: 0,
    };

    pub(crate) fn words(&self) -> [u64; 6] {
        let Self {
            what,
            layout,
            count,
            idle_ms,
            tag,
        } = *self;
        [
            what as u64,
            layout.size as u64,
            count as u64,
            idle_ms as u64,
            tag as u64,
            // A list has at least one piece, so 0 stands for none.
            layout.pieces.unwrap_or(0) as u64,
        ]
    }

    fn parse(words: &[u64]) -> Result<Self, String> {
        let &[what, size, count, idle_ms, tag, pieces] = words else {
            return Err(format!("a request of {} words", words.len()));
        };
        let what = match what {
            1 => What::Echo,
            2 => What::Sink,
            3 => What::Flood,
            4 => What::Quit,
            5 => What::Memory,
            _ => return Err(format!("request {what}")),
        };
        if size > 1 << 30 {
            return Err(format!("messages of {size} bytes"));
        }
        let pieces = (pieces > 0).then_some(pieces as usize);
        Ok(Self {
            what,
            layout: Layout::new(size as usize, pieces)?,
            count: count as usize,
            idle_ms: idle_ms as i32,
            tag: tag as i32,
        })
    }
}

/// Serves the method's side until it is told to quit, or for ever.
pub(crate) fn serve(args: &Args, address: &str, for_ever: bool) -> Result<(), String> {
    begin(args, for_ever);
    let bmi = Bmi::start(&args.library, Some(address))?;
    answer(&bmi, address, for_ever)
}

/// Serves libmyriexpress's side until it is told to quit.
pub(crate) fn serve_mx(args: &Args) -> Result<(), String> {
    begin(args, false);
    let mx = Mx::start(&args.mx_library)?;
    answer(&mx, &mx.place()?.to_string(), false)
}

fn begin(args: &Args, for_ever: bool) {
    if args.pin {
        crate::pin::to_core(1);
    }
    if !for_ever {
        end_with_parent();
    }
}

/// Prints its address, and carries out requests.
fn answer<M: Messages>(side: &M, place: &str, for_ever: bool) -> Result<(), String> {
    println!("ready on {place}");
    std::io::stdout()
        .flush()
        .map_err(|error| error.to_string())?;
    loop {
        let (from, words) = side.next_request()?;
        let request = Request::parse(&words)?;
        let outcome = match request.what {
            What::Echo => echo(side, from, request),
            What::Sink => sink(side, from, request),
            What::Flood => flood(side, from, request),
            What::Memory => tell_memory(side, from, request),
            What::Quit if for_ever => Ok(()),
            What::Quit => return Ok(()),
        };
        match outcome {
            Err(error) if for_ever => eprintln!("bmi_mx_perf: {error}"),
            other => other?,
        }
    }
}

/// Ends this process with its parent: if the measuring process is killed, nothing else ends the
/// peer.
pub(crate) fn end_with_parent() {
    // SAFETY: takes a number.
    let _ = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

fn echo<M: Messages>(side: &M, from: M::Remote, request: Request) -> Result<(), String> {
    let Request {
        layout,
        count,
        idle_ms,
        tag,
        ..
    } = request;
    // Two buffers: the next receive is posted before the answer is sent.
    let mut buffers = [Buffer::new(layout), Buffer::new(layout)];
    // SAFETY: the buffers outlive every operation, for all are waited for or the process ends; a
    // buffer is received into again only after the send from it has been waited for.
    let mut pending = usize::from(!unsafe { side.recv_buffer(from, &mut buffers[0], tag)? });
    for round in 0..count {
        side.wait(pending, idle_ms)?;
        pending = 0;
        let [first, second] = &mut buffers;
        let (arrived, next) = if round % 2 == 0 {
            (first, second)
        } else {
            (second, first)
        };
        if round + 1 < count {
            // SAFETY: as above.
            pending += usize::from(!unsafe { side.recv_buffer(from, next, tag)? });
        }
        // SAFETY: as above.
        pending += usize::from(!unsafe { side.send_buffer(from, arrived, tag)? });
    }
    side.wait(pending, idle_ms)
}

fn sink<M: Messages>(side: &M, from: M::Remote, request: Request) -> Result<(), String> {
    let Request {
        layout, count, tag, ..
    } = request;
    let mut buffers: Vec<_> = (0..BUFFERS).map(|_| Buffer::new(layout)).collect();
    let (mut posted, mut done) = (0, 0);
    while done < count {
        while posted < count && posted - done < WINDOW {
            // SAFETY: the buffers outlive every operation, for all are waited for; that several
            // receives share one is of no consequence, for what arrives is not read.
            if unsafe { side.recv_buffer(from, &mut buffers[posted % BUFFERS], tag)? } {
                done += 1;
            }
            posted += 1;
        }
        if done < posted {
            done += side.test(0)?;
        }
    }
    // SAFETY: a static byte.
    if !unsafe { side.send(from, &[1], tag)? } {
        side.wait(1, 10)?;
    }
    Ok(())
}

fn flood<M: Messages>(side: &M, from: M::Remote, request: Request) -> Result<(), String> {
    let mut under_way = 0;
    for n in 0..request.count {
        // SAFETY: an empty message has no bytes to outlive.
        if !unsafe { side.send(from, &[], request.tag + n as i32)? } {
            under_way += 1;
        }
        if under_way > WINDOW {
            under_way -= side.test(0)?;
        }
    }
    side.wait(under_way, 10)
}

fn tell_memory<M: Messages>(side: &M, from: M::Remote, request: Request) -> Result<(), String> {
    // SAFETY: takes nothing.
    let info = unsafe { libc::mallinfo2() };
    let bytes = (info.uordblks + info.hblkhd) as u64;
    let answer = bytes.to_le_bytes();
    // SAFETY: waited for right below.
    if !unsafe { side.send(from, &answer, request.tag)? } {
        side.wait(1, 10)?;
    }
    Ok(())
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn requests_survive_the_wire_and_nonsense_is_refused() {
        let request = Request {
            what: What::Sink,
            layout: Layout::new(7, Some(3)).unwrap(),
            count: 9,
            idle_ms: 10,
            tag: 5,
        };
        let back = Request::parse(&request.words()).unwrap();
        assert_eq!(
            (back.what, back.layout, back.count, back.tag),
            (What::Sink, request.layout, 9, 5)
        );
        assert!(Request::parse(&[1, 2]).is_err());
        assert!(Request::parse(&[1, 7, 0, 0, 0, 0]).is_ok_and(|one| one.layout.pieces.is_none()));
        for bad in [
            [9, 0, 0, 0, 0, 0],
            [1, u64::MAX, 0, 0, 0, 0],
            [1, 7, 0, 0, 0, 8],
            [1, 1 << 30, 0, 0, 0, u64::MAX],
        ] {
            assert!(Request::parse(&bad).is_err(), "{bad:?}");
        }
    }
}
