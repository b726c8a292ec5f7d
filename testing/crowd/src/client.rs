//! A client: a method with ports of its own, and its task.
//!
//! ```text
//!   ask:    receive posted --> request, 8 bytes, unexpected --> server --> answer, 8 bytes --> again
//!   flood:  message, 8 bytes, unexpected --> server      as many at a time as are accepted
//! ```
//!
//! A client never waits: its crowd calls [`Client::run`] when its descriptors are readable or its
//! deadline has come.
//!
//! Owns: the method, the buffers of its operations, the time of its request.
//! Out of scope: other clients, epoll.

use crate::server::{ANSWER, SIZE};
use bmi_method::abi::types::bmi_method_addr;
use bmi_method::address;
use bmi_method::config::Config;
use bmi_method::match_layout::KEY;
use bmi_method::method::{Host, Method, Post, PostKind, PostOutcome, Settings};
use bmi_method::peer::table::PeerKey;
use bmi_method::peer_name;
use mx_proto::port::{LinkControl, WakeDescriptors};
use mx_proto::{Endpoint, Instant, NicId, Route};
use mx_sys::{EndpointChoice, OpenOptions};
use mx_sys::{HostPorts, ROUTE_TCP};
use mx_sys::{MonotonicClock, UserMemory, nic};
use std::net::{IpAddr, Ipv4Addr};
use std::ptr::NonNull;
use std::time::{self, Duration};

/// Destination of all clients of a crowd.
#[derive(Clone, Debug)]
pub struct Target {
    name: peer_name::PeerName,
    nic: NicId,
}

impl Target {
    /// Parses `mx://host:endpoint`.
    pub fn of(address: &str) -> Result<Self, String> {
        let Ok(Some(name)) = peer_name::parse(address) else {
            return Err(format!("'{address}' is not an mx:// address"));
        };
        let found = nic::resolve(&name.host, name.board);
        let nic = found.map_err(|why| format!("{address}: {why}"))?.nic;
        Ok(Self { name, nic })
    }
}

/// A client's task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// Nothing: the client is idle, connected or not.
    Idle,
    /// Ask once.
    Once,
    /// Ask repeatedly until that time.
    Ask(time::Instant),
    /// Send messages without answers until that time.
    Flood(time::Instant),
}

/// Result of a call of [`Client::run`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// Messages accepted while flooding.
    pub sent: u64,
    /// Operations that ended with an error.
    pub failed: u64,
    /// The client has finished its task.
    pub over: bool,
    /// The client has to run again at once.
    pub more: bool,
}

/// A client of the server.
pub struct Client {
    method: Method<HostPorts, MonotonicClock>,
    server: NonNull<bmi_method_addr>,
    key: PeerKey,
    /// Buffers to send from and receive into; operations use them while they are pending.
    buffers: Box<Buffers>,
    task: Task,
    /// Time of the request that has not been answered.
    asked: Option<time::Instant>,
    /// Operations posted and not ended.
    pending: usize,
}

struct Buffers {
    request: [u8; SIZE],
    answer: [u8; SIZE],
}

/// Messages that a flooding client sends in one turn.
const TURN: usize = 16;

/// Messages of a flooding client that may wait for their link.
const WAITING: usize = 16;

/// User pointers that tell completions apart.
const RECEIVE: usize = 1;
const SEND: usize = 2;

impl Client {
    /// Opens an endpoint on 127.0.0.1 with the environment's settings. Fails if there is no
    /// descriptor, port number or memory for it.
    pub fn open(target: &Target) -> Result<Self, String> {
        let (config, _) = Config::load(None);
        let options = OpenOptions {
            policy: ROUTE_TCP,
            tcp_bind: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            ..config.mx.open_options(EndpointChoice::Any)
        };
        let (ports, identity) = HostPorts::open(options).map_err(|why| why.to_string())?;
        let own = peer_name::PeerName {
            host: nic::machine_name().to_owned(),
            board: None,
            endpoint: Some(identity.endpoint.0),
            route: Route::AUTO,
        };
        let settings = Settings {
            // The last client of a storm waits longer than the first.
            connect_timeout: Some(Duration::from_secs(60)),
            ..Settings::default()
        };
        let endpoint_config = ports.endpoint_config(&config.mx.endpoint);
        let endpoint_config = endpoint_config.map_err(|why| why.to_string())?;
        let host = Host::new(&settings);
        let endpoint = Endpoint::new(endpoint_config, identity, KEY, *ports, MonotonicClock, host);
        let mut method = Method::new(settings, own.to_string(), endpoint);
        let server = address::create(target.name.clone(), Some(target.nic));
        let server = server.ok_or("no memory for the address object")?;
        let key = method
            .attach(server.as_ptr(), &target.name, &[target.nic], true)
            .map_err(|why| why.to_string())?;
        Ok(Self {
            method,
            server,
            key,
            buffers: Box::new(Buffers {
                request: [7; SIZE],
                answer: [0; SIZE],
            }),
            task: Task::Idle,
            asked: None,
            pending: 0,
        })
    }

    /// Returns the descriptors to sleep on.
    pub fn descriptors(&self) -> WakeDescriptors {
        self.method.endpoint().descriptors()
    }

    /// Returns the time at which the client has to run although nothing arrives.
    pub fn deadline(&self) -> Option<Instant> {
        self.method.deadline()
    }

    /// Notes that the control descriptor is readable.
    pub fn note_control(&mut self) {
        self.method.endpoint_mut().port_mut().note_control();
    }

    /// Sets a task, which begins with the next [`Self::run`].
    pub fn set(&mut self, task: Task) {
        self.task = task;
    }

    /// Handles what has arrived and continues the task. Passes the time of each answer to
    /// `answered`.
    pub fn run(
        &mut self,
        now: time::Instant,
        answered: &mut dyn FnMut(Duration),
    ) -> Result<Run, String> {
        let mut run = Run::default();
        loop {
            self.carry_on(now, &mut run)?;
            let mut busy = self.method.progress();
            while let Some(done) = self.method.pop_done(0) {
                busy = true;
                self.pending = self.pending.saturating_sub(1);
                run.failed += u64::from(done.error != 0);
                if done.user_ptr.addr() == RECEIVE
                    && let Some(asked) = self.asked.take()
                {
                    if done.error == 0 {
                        answered(asked.elapsed());
                    }
                    self.next_task(time::Instant::now(), &mut run);
                }
            }
            if !busy || run.more {
                break;
            }
        }
        // Something arrived meanwhile, so the client may not sleep.
        run.more |= !self.method.endpoint_mut().arm();
        Ok(run)
    }

    /// Posts the operations of the task.
    fn carry_on(&mut self, now: time::Instant, run: &mut Run) -> Result<(), String> {
        match self.task {
            Task::Once | Task::Ask(_) if self.asked.is_none() && self.pending == 0 => {
                self.asked = Some(time::Instant::now());
                self.receive()?;
                self.send(ANSWER)?;
            }
            Task::Flood(until) if now >= until => {
                // Messages that wait for their link are ignored: the server has stopped counting.
                self.task = Task::Idle;
                run.over = true;
            }
            Task::Flood(_) => {
                let mut turn = TURN;
                while turn > 0 && self.pending < WAITING {
                    self.send(0)?;
                    run.sent += 1;
                    turn -= 1;
                }
                // A client that can send no more waits until messages have left.
                run.more = turn == 0;
            }
            _ => {}
        }
        Ok(())
    }

    fn next_task(&mut self, now: time::Instant, run: &mut Run) {
        let goes_on = matches!(self.task, Task::Ask(until) if now < until);
        if !goes_on && !matches!(self.task, Task::Idle) {
            self.task = Task::Idle;
            run.over = true;
        }
    }

    fn receive(&mut self) -> Result<(), String> {
        let answer = self.buffers.answer.as_mut_ptr();
        self.post(PostKind::Recv, answer, ANSWER, RECEIVE)
    }

    fn send(&mut self, tag: i32) -> Result<(), String> {
        let request = self.buffers.request.as_mut_ptr();
        self.post(PostKind::SendUnexpected, request, tag, SEND)
    }

    fn post(&mut self, kind: PostKind, at: *mut u8, tag: i32, word: usize) -> Result<(), String> {
        // SAFETY: `at` is one of the buffers, which live as long as the method and are moved with
        // their box only; they are not touched elsewhere.
        let memory = unsafe { UserMemory::new(at.cast(), SIZE) }.map_err(|why| why.to_string())?;
        let mut post = Post {
            kind,
            addr: self.server,
            memory,
            tag,
            class: 0,
            user_ptr: std::ptr::without_provenance_mut(word),
            context: 0,
        };
        let posted = self.method.post(self.key, &mut post, &mut 0);
        match posted.map_err(|why| why.to_string())? {
            PostOutcome::Pending => self.pending += 1,
            // Reported by no completion, even if the answer was there before it was asked for.
            PostOutcome::Complete { .. } => {}
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The server is told at once. Pending operations never end; their buffers are freed after
        // the method.
        self.method.close();
        address::remove(self.server.as_ptr());
    }
}
