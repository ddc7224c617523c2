//! A way to a server that can be cut: what a network does to connections, at a moment that the test chooses.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

/// Forwards connections to a port of this machine, until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    open: Mutex<Vec<[TcpStream; 2]>>,
    refuses: AtomicBool,
    ends: AtomicBool,
    /// What is looked for in what clients send, and in how many of them it is still acted on.
    loses: Mutex<(Vec<u8>, u32)>,
    lost: AtomicU32,
}

impl Proxy {
    /// Begins to forward.
    ///
    /// # Panics
    /// When this machine has no port left.
    #[must_use]
    pub fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        let this = Self { port, shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.ends.load(Ordering::SeqCst) {
                    return;
                }
                // Dropped: the other side sees a connection that was taken and closed at once.
                if shared.refuses.load(Ordering::SeqCst) {
                    continue;
                }
                if let Ok(server) = TcpStream::connect(("127.0.0.1", target)) {
                    shared.join(client, server);
                }
            }
        });
        this
    }

    /// Where it listens, on `127.0.0.1`.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts every connection that is open; says how many there were.
    pub fn cut(&self) -> usize {
        let open = std::mem::take(&mut *self.shared.lock());
        let alive = open.iter().filter(|[client, server]| {
            // Both: the server must not go on for somebody who is gone.
            let cut = client.shutdown(Shutdown::Both).is_ok();
            let _ = server.shutdown(Shutdown::Both);
            cut
        });
        alive.count()
    }

    /// Takes connections and closes them at once, until it is told to stop.
    pub fn refuse(&self, refuses: bool) {
        self.shared.refuses.store(refuses, Ordering::SeqCst);
    }

    /// Of the next `count` messages that hold these bytes, e.g. `COMMIT`, the server is told, and nobody is told what
    /// it
    /// says: the connection is cut instead. A message must come in one piece, which short ones do.
    pub fn lose_answers_to(&self, bytes: &[u8], count: u32) {
        *self.shared.loses() = (bytes.to_vec(), count);
    }

    /// How many answers were lost so far.
    #[must_use]
    pub fn lost(&self) -> u32 {
        self.shared.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes who listens, so that it sees the end.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        let both = |stream: &TcpStream| [stream.try_clone().unwrap(), stream.try_clone().unwrap()];
        let ([from_client, to_client], [from_server, to_server]) = (both(&client), both(&server));
        self.lock().push([client, server]);
        let loses = Arc::new(AtomicBool::new(false));
        let (upward, shared) = (Arc::clone(&loses), Arc::clone(self));
        thread::spawn(move || {
            copy(from_client, to_server, |bytes| {
                let mut loses = shared.loses();
                let (needle, left) = &mut *loses;
                if *left > 0 && bytes.windows(needle.len()).any(|window| window == needle) {
                    *left -= 1;
                    upward.store(true, Ordering::SeqCst);
                }
                true
            });
        });
        let shared = Arc::clone(self);
        thread::spawn(move || {
            copy(from_server, to_client, |_| {
                let lost = loses.load(Ordering::SeqCst);
                shared.lost.fetch_add(u32::from(lost), Ordering::SeqCst);
                !lost
            });
        });
    }

    fn loses(&self) -> MutexGuard<'_, (Vec<u8>, u32)> {
        self.loses.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<[TcpStream; 2]>> {
        self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Copies until one side ends or `pass` says no; then both sides are cut.
fn copy(mut from: TcpStream, mut to: TcpStream, pass: impl Fn(&[u8]) -> bool) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if !pass(&buffer[..read]) || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}
