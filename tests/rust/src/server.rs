//! A throw-away `redis-server`: own port, own directory, own process, gone when dropped.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to answer. Generous, for machines with more tests than cores.
const START_LIMIT: Duration = Duration::from_secs(20);

/// How often a port that somebody took in the meantime is replaced by another.
const PORT_TRIES: usize = 10;

/// Says how a server is to be started.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    args: Vec<String>,
    password: Option<String>,
    port: Option<u16>,
}

impl Builder {
    /// More arguments, as on the command line: `.args(["--maxmemory", "1mb"])`.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Asks clients for this password (`requirepass`). Letters and digits, so that it needs no escapes in a URL.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        assert!(password.bytes().all(|byte| byte.is_ascii_alphanumeric()), "letters and digits only");
        self.password = Some(password.into());
        self
    }

    /// This port instead of a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    /// When it does not come up; the message ends with the server's own log.
    #[must_use]
    pub fn start(self) -> Server {
        let dir = make_dir();
        let mut why = String::new();
        for _ in 0..PORT_TRIES {
            let port = self.port.unwrap_or_else(free_port);
            match launch(&self, port, &dir) {
                Ok(child) => return Server { builder: self, port, dir, child },
                Err(error) => why = error,
            }
        }
        let _ = fs::remove_dir_all(&dir);
        panic!("{why}");
    }
}

/// A running server. Statics are never dropped: keep it in a local, or it outlives the test.
#[derive(Debug)]
pub struct Server {
    builder: Builder,
    port: u16,
    dir: PathBuf,
    child: Child,
}

impl Server {
    /// A server on a free port of 127.0.0.1 that keeps nothing on disk.
    ///
    /// # Panics
    /// As [`Builder::start`].
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// The same with a choice.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// `redis://127.0.0.1:<port>`, with the password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.builder.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{}", self.port),
            None => format!("redis://127.0.0.1:{}", self.port),
        }
    }

    /// The TCP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The unix socket; every server has one in its own directory.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        socket(&self.dir)
    }

    /// The server's directory, removed at drop.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops the process where it is (`SIGSTOP`); sockets stay open. Returns once it stands still.
    ///
    /// # Panics
    /// When the process is gone.
    pub fn pause(&self) {
        self.signal(libc::SIGSTOP);
        // The signal is only on its way when kill(2) returns.
        let mut info = empty_siginfo();
        // SAFETY: `info` is a valid siginfo_t to write to; WNOWAIT leaves the child for `Child` to reap.
        let waited = unsafe {
            libc::waitid(libc::P_PID, self.pid(), &raw mut info, libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT)
        };
        assert_eq!(waited, 0, "redis-server {} is gone", self.pid());
    }

    /// Lets a paused process go on (`SIGCONT`).
    ///
    /// # Panics
    /// When the process is gone.
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Ends the process at once (`SIGKILL`), paused or not; its connections are reset or closed by the kernel.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills it if it still runs and starts an empty one on the same port.
    ///
    /// # Panics
    /// As [`Builder::start`].
    pub fn restart(&mut self) {
        self.kill();
        let until = Instant::now() + START_LIMIT;
        loop {
            match launch(&self.builder, self.port, &self.dir) {
                Ok(child) => return self.child = child,
                // A passing connection may have drawn our port as its own.
                Err(why) => assert!(Instant::now() < until, "{why}"),
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.pid()).expect("a process id is a pid_t");
        // SAFETY: kill(2) touches no memory of ours. The child is not reaped before `kill`, so the id is still its own.
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0, "redis-server {pid}: {}", io::Error::last_os_error());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn empty_siginfo() -> libc::siginfo_t {
    // SAFETY: siginfo_t is plain data, all zeroes is a value of it.
    unsafe { std::mem::zeroed() }
}

/// A fresh directory. Short, for a unix socket's path has at most 107 bytes.
fn make_dir() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let root = std::env::temp_dir();
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = root.join(format!("bandog-redis-{}-{number}", std::process::id()));
        match fs::create_dir(&dir) {
            Ok(()) => return dir,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => panic!("cannot make {}: {error}", dir.display()),
        }
    }
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("redis.sock")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// Starts a process and waits until it answers; the error is a sentence with the server's log.
fn launch(builder: &Builder, port: u16, dir: &Path) -> Result<Child, String> {
    let program = std::env::var_os("BANDOG_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
    let log = dir.join("log");
    let mut command = Command::new(&program);
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
    command.args(["--enable-debug-command", "local", "--daemonize", "no"]);
    command.arg("--dir").arg(dir).arg("--unixsocket").arg(socket(dir));
    if let Some(password) = &builder.password {
        command.args(["--requirepass", password]);
    }
    command.args(&builder.args);
    // Complaints about options go to stderr, all else to stdout.
    let cannot = |error: io::Error| format!("cannot run {}: {error}", program.display());
    let out = fs::File::create(&log).map_err(cannot)?;
    let err = out.try_clone().map_err(cannot)?;
    let mut child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().map_err(cannot)?;

    let until = Instant::now() + START_LIMIT;
    let why = loop {
        // Asked through the socket in our own directory: whoever else has the port cannot answer there.
        if answers(&socket(dir)) {
            return Ok(child);
        }
        match child.try_wait() {
            Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(2)),
            Ok(None) => break "does not answer".to_owned(),
            Ok(Some(status)) => break format!("ended with {status}"),
            Err(error) => break error.to_string(),
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    let log = fs::read_to_string(&log).unwrap_or_default();
    Err(format!("redis-server on port {port}: {why}\n{log}"))
}

fn answers(socket: &Path) -> bool {
    let ask = || -> io::Result<[u8; 5]> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut reply = [0; 5];
        stream.read_exact(&mut reply)?;
        Ok(reply)
    };
    ask().is_ok_and(|reply| reply == *b"+PONG" || reply == *b"-NOAU")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_can_be_paused_killed_and_restarted_and_leaves_nothing() {
        let mut server = Server::builder().args(["--maxmemory", "20mb"]).start();
        assert!(answers(&server.socket()));
        assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));

        server.pause();
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        assert!(stream.read_exact(&mut [0; 5]).is_err(), "a paused server is silent");
        server.resume();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();

        let (port, pid) = (server.port(), server.pid());
        server.kill();
        assert!(!answers(&server.socket()));
        server.restart();
        assert!(answers(&server.socket()));
        assert_eq!(server.port(), port);
        assert_ne!(server.pid(), pid);

        let dir = server.dir().to_owned();
        drop(server);
        assert!(!dir.exists());
        assert!(UnixStream::connect(socket(&dir)).is_err());
    }

    #[test]
    fn a_password_is_asked_for() {
        let server = Server::builder().password("s3cret").start();
        assert_eq!(server.url(), format!("redis://:s3cret@127.0.0.1:{}", server.port()));
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"-NOAUTH");
    }

    #[test]
    #[should_panic(expected = "Bad directive")]
    fn a_server_that_does_not_come_up_says_why() {
        let _ = Server::builder().args(["--no-such-option", "1"]).port(free_port()).start();
    }
}
