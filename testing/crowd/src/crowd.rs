//! A process of clients: a loop that carries out orders with all of them.
//!
//! ```text
//!   order --> [ ... ] clients to run now --run--> more? back into the queue
//!                 ^                         `---> deadline? into the alarms
//!                 |
//!       epoll: two descriptors a client         asleep when the queue is empty
//! ```
//!
//! Owns: the clients, their epoll instance, their deadlines.
//! Out of scope: other crowds.
//! Cost: an idle client costs only its memory.

use crate::census::Census;
use crate::client::{Client, Run, Target, Task};
use crate::limits;
use crate::orders::{self, Order, Outcome, Who};
use mx_proto::{Clock, Instant};
use mx_sys::MonotonicClock;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, BufRead, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{self, Duration};

/// Clients of one server in this process.
pub struct Crowd {
    target: Target,
    members: Vec<Member>,
    epoll: OwnedFd,
    queue: VecDeque<usize>,
    alarms: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Order being carried out.
    work: Work,
    /// Working clients are polled, and the loop does not sleep.
    spin: bool,
}

struct Member {
    client: Client,
    queued: bool,
    /// Earliest alarm of the client.
    alarm: Option<Instant>,
    works: bool,
}

#[derive(Default)]
struct Work {
    outcome: Outcome,
    /// Clients that have not finished their task.
    left: usize,
}

/// Wanted limit of descriptors: more than any crowd needs.
const DESCRIPTORS: u64 = 1 << 20;

/// Maximum time of a connect.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Events taken from the kernel in one call.
const EVENTS: usize = 256;

/// Runs of clients between two polls of the kernel.
const RUNS: usize = 64;

/// Carries out the orders on standard input until it ends; answers on standard output.
pub fn serve(address: &str) -> Result<(), String> {
    end_with_parent();
    limits::raise_descriptors(DESCRIPTORS);
    let mut crowd = Crowd::new(Target::of(address)?)?;
    let mut out = io::stdout().lock();
    let mut say = |line: String| {
        let said = writeln!(out, "{line}").and_then(|()| out.flush());
        said.map_err(|why| why.to_string())
    };
    say("ready".to_owned())?;
    let mut orders = io::stdin().lock();
    loop {
        // Idle clients still have to answer their peers.
        crowd.rest_until_readable(0);
        let mut line = String::new();
        let read = orders.read_line(&mut line).map_err(|why| why.to_string())?;
        if read == 0 {
            return Ok(());
        }
        let answer = match orders::parse(&line)? {
            Order::Quit => return Ok(()),
            Order::Census => orders::text(&Census::take(0)),
            Order::Open(count) => orders::text(&crowd.open(count)),
            Order::Connect(who) => orders::text(&crowd.work(who, |_| Task::Once, TIMEOUT, false)),
            Order::Ask { who, time, spin } => {
                let task = |now: time::Instant| Task::Ask(now + time);
                orders::text(&crowd.work(who, task, time + TIMEOUT, spin))
            }
            Order::Flood { who, time } => {
                let task = |now: time::Instant| Task::Flood(now + time);
                let mut outcome = crowd.work(who, task, time, false);
                if outcome.failed == 0 {
                    // A client whose messages still wait at the end has not failed.
                    outcome.why.clear();
                }
                orders::text(&outcome)
            }
        };
        say(answer)?;
    }
}

/// Ends this process with its parent.
pub(crate) fn end_with_parent() {
    // SAFETY: takes a number.
    let _ = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

impl Crowd {
    /// Makes a crowd without clients.
    pub fn new(target: Target) -> Result<Self, String> {
        // SAFETY: plain values in, a descriptor or -1 out.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(format!("epoll: {}", io::Error::last_os_error()));
        }
        Ok(Self {
            target,
            members: Vec::new(),
            // SAFETY: a fresh descriptor, not owned elsewhere.
            epoll: unsafe { OwnedFd::from_raw_fd(fd) },
            queue: VecDeque::new(),
            alarms: BinaryHeap::new(),
            work: Work::default(),
            spin: false,
        })
    }

    /// Opens `count` more endpoints, or as many as possible.
    pub fn open(&mut self, count: usize) -> Outcome {
        let begin = time::Instant::now();
        let mut outcome = Outcome::default();
        for _ in 0..count {
            let opened = Client::open(&self.target).and_then(|client| self.take_in(client));
            if let Err(why) = opened {
                outcome.why = why.replace('\n', " ");
                break;
            }
            outcome.done += 1;
        }
        outcome.time = begin.elapsed();
        outcome
    }

    fn take_in(&mut self, client: Client) -> Result<(), String> {
        let fds = client.descriptors();
        let word = 2 * self.members.len() as u64;
        for (fd, word) in [(fds.data, word), (fds.control, word + 1)] {
            if let Some(fd) = fd {
                self.watch(fd, word)?;
            }
        }
        self.members.push(Member {
            client,
            queued: false,
            alarm: None,
            works: false,
        });
        self.queue(self.members.len() - 1);
        Ok(())
    }

    fn watch(&self, fd: RawFd, word: u64) -> Result<(), String> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: word,
        };
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: both descriptors are open and `event` outlives the call.
        match unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) } {
            0 => Ok(()),
            _ => Err(format!("epoll: {}", io::Error::last_os_error())),
        }
    }

    /// Gives a task to some clients and waits until they have finished it.
    pub fn work(
        &mut self,
        who: Who,
        task: impl Fn(time::Instant) -> Task,
        timeout: Duration,
        spin: bool,
    ) -> Outcome {
        let end = who.first.saturating_add(who.count).min(self.members.len());
        let first = who.first.min(end);
        let begin = time::Instant::now();
        self.work = Work {
            left: end - first,
            ..Work::default()
        };
        self.spin = spin;
        for place in first..end {
            let member = &mut self.members[place];
            member.client.set(task(begin));
            member.works = true;
            self.queue(place);
        }
        while self.work.left > 0 {
            let left = timeout.saturating_sub(begin.elapsed());
            if left.is_zero() {
                self.work.outcome.why = format!("{} did not end in time", self.work.left);
                break;
            }
            self.turn(left);
        }
        let mut work = std::mem::take(&mut self.work);
        for member in &mut self.members[first..end] {
            if std::mem::take(&mut member.works) {
                member.client.set(Task::Idle);
            }
        }
        self.spin = false;
        work.outcome.time = begin.elapsed();
        work.outcome.done += work.outcome.times.count();
        work.outcome
    }

    /// Keeps connections alive until `fd` is readable, or has ended.
    pub fn rest_until_readable(&mut self, fd: RawFd) {
        loop {
            let wait = if self.queue.is_empty() {
                self.sleep_ms(TIMEOUT)
            } else {
                0
            };
            let poll = |fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            };
            let mut both = [poll(fd), poll(self.epoll.as_raw_fd())];
            // SAFETY: two `pollfd`, which outlive the call.
            unsafe { libc::poll(both.as_mut_ptr(), 2, wait) };
            if both[0].revents != 0 {
                return;
            }
            self.turn(Duration::ZERO);
        }
    }

    /// Runs the clients that have something to do; without any sleeps at most `timeout`.
    fn turn(&mut self, timeout: Duration) {
        let sleep_ms = if self.queue.is_empty() {
            self.sleep_ms(timeout)
        } else {
            0
        };
        self.look(sleep_ms);
        self.ring();
        for _ in 0..self.queue.len().min(RUNS) {
            if let Some(place) = self.queue.pop_front() {
                self.run(place);
            }
        }
    }

    fn queue(&mut self, place: usize) {
        let member = &mut self.members[place];
        if !member.queued {
            member.queued = true;
            self.queue.push_back(place);
        }
    }

    fn run(&mut self, place: usize) {
        let Self { members, work, .. } = self;
        let member = &mut members[place];
        member.queued = false;
        let times = &mut work.outcome.times;
        let works = member.works;
        let mut answered = |time| {
            if works {
                times.record(time);
            }
        };
        let run = member.client.run(time::Instant::now(), &mut answered);
        let Run {
            sent,
            failed,
            over,
            more,
        } = run.unwrap_or_else(|why| {
            // The client cannot post: no descriptor or no memory is left.
            work.outcome.why = why.replace('\n', " ");
            member.client.set(Task::Idle);
            Run {
                failed: 1,
                over: true,
                ..Run::default()
            }
        });
        if works {
            work.outcome.done += sent;
            work.outcome.failed += failed;
        }
        if over && member.works {
            member.works = false;
            work.left -= 1;
        }
        let again = more || (self.spin && member.works);
        let deadline = member.client.deadline();
        if let Some(at) = deadline
            && member.alarm.is_none_or(|known| at < known)
        {
            member.alarm = Some(at);
            self.alarms.push(Reverse((at, place)));
        }
        if again {
            self.queue(place);
        }
    }

    /// Queues the clients whose descriptors are readable; waits at most `ms` milliseconds.
    fn look(&mut self, ms: i32) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let epoll = self.epoll.as_raw_fd();
        // SAFETY: `events` is writable for as many entries as are asked for.
        let n = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), EVENTS as i32, ms) };
        for event in &events[..usize::try_from(n).unwrap_or(0)] {
            let place = (event.u64 / 2) as usize;
            if event.u64 % 2 == 1 {
                self.members[place].client.note_control();
            }
            self.queue(place);
        }
    }

    /// Queues the clients whose deadline has come.
    fn ring(&mut self) {
        if self.alarms.is_empty() {
            return;
        }
        let now = MonotonicClock.now();
        while let Some(Reverse((at, place))) = self.alarms.peek().copied() {
            if at > now {
                break;
            }
            self.alarms.pop();
            let member = &mut self.members[place];
            if member.alarm == Some(at) {
                member.alarm = None;
                self.queue(place);
            }
        }
    }

    /// Returns the milliseconds to sleep: until the next alarm, and at most `timeout`.
    fn sleep_ms(&self, timeout: Duration) -> i32 {
        let alarm = self
            .alarms
            .peek()
            .map(|Reverse((at, _))| at.since(MonotonicClock.now()));
        let sleep_ms = alarm.map_or(timeout, |alarm| alarm.min(timeout));
        // A deadline has passed at the end of its millisecond.
        i32::try_from(sleep_ms.as_millis() + 1).unwrap_or(i32::MAX)
    }
}
