//! Process of a node, seen from outside.
//!
//! ```text
//!   spawn --> runs --SIGSTOP--> frozen --SIGCONT--> runs --> exits, or kill -9 --> reaped
//! ```
//!
//! The kernel kills it when the director dies.
//!
//! Owns: the pid, until it is reaped.

use super::args::{Args, Place};
use super::line::{LINE_FD, Line, RECORDER_FD};
use super::recorder::{self, Recorder};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A process that was started and is not reaped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pub(crate) line: Line,
    pub(crate) recorder: Recorder,
}

/// Reserves the descriptor numbers of a node's line and recorder in this process.
pub(crate) fn reserve_descriptors() -> io::Result<()> {
    let nothing = File::open("/dev/null")?;
    for fd in [LINE_FD, RECORDER_FD] {
        // SAFETY: takes numbers.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 && nothing.as_raw_fd() != fd {
            // SAFETY: the number is free, and stays taken from now on.
            unsafe { libc::dup3(nothing.as_raw_fd(), fd, libc::O_CLOEXEC) };
        }
    }
    if nothing.as_raw_fd() <= RECORDER_FD {
        // It has one of the numbers, and must keep it.
        let _ = std::os::fd::IntoRawFd::into_raw_fd(nothing);
    }
    Ok(())
}

/// Duplicates a descriptor to a number from 10 on, out of the way of the child's.
fn high(fd: &impl AsRawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers.
    let copy = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 10) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

impl Process {
    pub(crate) fn spawn(
        args: &Args,
        place: &Place,
        seed: u64,
        environment: &[(&'static str, String)],
    ) -> io::Result<Self> {
        let (line, far) = Line::pair()?;
        let memory = recorder::memory()?;
        let recorder = Recorder::open(&memory)?;
        let (far, memory) = (high(&far)?, high(&memory)?);
        let (far_fd, memory_fd) = (far.as_raw_fd(), memory.as_raw_fd());
        let director = std::process::id();

        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--node");
        let numbers = [
            place.index as u64,
            place.life.into(),
            place.nodes as u64,
            place.base.into(),
        ];
        command.args(numbers.map(|number| number.to_string()));
        command.args(["--port", args.port, "--seed", &seed.to_string()]);
        command.arg("--library").arg(&args.library);
        command.envs(environment.iter().map(|(name, value)| (*name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let prepare = move || {
            // SAFETY: takes numbers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            // SAFETY: takes nothing.
            if unsafe { libc::getppid() } as u32 != director {
                return Err(io::ErrorKind::NotFound.into());
            }
            for (from, to) in [(far_fd, LINE_FD), (memory_fd, RECORDER_FD)] {
                // SAFETY: numbers of this process that nothing else uses (`reserve_descriptors`).
                if unsafe { libc::dup2(from, to) } < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: it makes system calls only.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn()?;
        Ok(Self {
            child,
            line,
            recorder,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal. The process is not reaped, so its pid is still its own.
    pub(crate) fn signal(&self, signal: libc::c_int) {
        // SAFETY: takes numbers.
        unsafe { libc::kill(self.pid() as libc::pid_t, signal) };
    }

    /// Returns the exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Kills it by SIGKILL, and reaps it.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns the stacks of its threads, if there is a debugger.
    pub(crate) fn stacks(&self) -> String {
        let mut command = Command::new("gdb");
        command.args(["-nx", "-batch", "-ex", "set pagination off"]);
        command.args(["-ex", "thread apply all backtrace 40"]);
        command.args(["-p", &self.pid().to_string()]);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command.stdout(Stdio::piped());
        let Ok(mut gdb) = command.spawn() else {
            return "(no gdb)\n".into();
        };
        let out = gdb.stdout.take();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(mut out) = out {
                let _ = io::Read::read_to_string(&mut out, &mut text);
            }
            text
        });
        let timeout = Instant::now() + Duration::from_secs(60);
        while matches!(gdb.try_wait(), Ok(None)) && Instant::now() < timeout {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = gdb.kill();
        let _ = gdb.wait();
        let text = reader.join().unwrap_or_default();
        let from = text.find("\nThread").unwrap_or(0);
        text[from..].trim_start().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
