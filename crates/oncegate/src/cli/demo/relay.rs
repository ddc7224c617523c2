//! A wire between sender and gate that can lose an answer: the moment between "it is stored" and "the sender knows".

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, copy, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The sender's end of a connection whose answer came and went no further; dropping it breaks the connection.
pub(super) struct Unanswered {
    _sender: TcpStream,
}

/// Carries the next request to the gate, waits until the gate begins to answer, and keeps that to itself.
pub(super) async fn lose_next_answer(listener: &TcpListener, gate: SocketAddr) -> Result<Unanswered, String> {
    let lost = async {
        let (mut sender, _) = listener.accept().await?;
        let mut gate = TcpStream::connect(gate).await?;
        let (mut from_sender, _) = sender.split();
        let (mut from_gate, mut to_gate) = gate.split();
        let answer_begins = async { from_gate.read(&mut [0; 1]).await };
        tokio::select! {
            begun = answer_begins => begun.map(drop)?,
            // The sender waits for its answer, so its half does not end first.
            carried = copy(&mut from_sender, &mut to_gate) => carried.map(drop)?,
        }
        Ok::<_, std::io::Error>(Unanswered { _sender: sender })
    };
    lost.await.map_err(|e| format!("the wire between sender and gate: {e}"))
}

/// From now on a wire like any other.
pub(super) fn pass_on(listener: TcpListener, gate: SocketAddr) -> Passing {
    Passing(tokio::spawn(async move {
        while let Ok((mut sender, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut gate) = TcpStream::connect(gate).await {
                    // Either side may hang up; the sender tries again.
                    let _ = copy_bidirectional(&mut sender, &mut gate).await;
                }
            });
        }
    }))
}

/// Ends with its scene.
pub(super) struct Passing(JoinHandle<()>);

impl Drop for Passing {
    fn drop(&mut self) {
        self.0.abort();
    }
}
