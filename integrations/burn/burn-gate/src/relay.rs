//! One connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncWriteExt, BufReader, copy_buf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::opening::{read_first_frame, read_head, request_like};
use crate::server::{Connection, Servers, Session};

/// How long a client may take until burn has accepted its token.
const OPENING: Duration = Duration::from_secs(10);

/// The bytes that are copied at once. Tensors are large.
const BUFFER: usize = 256 * 1024;

/// Relays a connection until either side closes it.
pub(crate) async fn relay(
    mut client: TcpStream,
    peer: SocketAddr,
    servers: Arc<Servers>,
    has_session: Arc<AtomicBool>,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    // Notices a client machine that vanishes, as burn's server does.
    SockRef::from(&client).set_tcp_keepalive(&TcpKeepalive::new().with_time(Duration::from_secs(10)))?;
    let Some((rest, mut connection, _session)) =
        timeout(OPENING, open(&mut client, peer, &servers)).await??
    else {
        return Ok(());
    };
    has_session.store(true, Ordering::Release);

    let (from_client, mut to_client) = client.split();
    let (from_server, mut to_server) = connection.stream.split();
    to_server.write_all(&rest).await?;
    let mut requests = BufReader::with_capacity(BUFFER, from_client);
    let mut responses = BufReader::with_capacity(BUFFER, from_server);
    // Not until both sides have closed: a session that waits forever would keep its server alive.
    tokio::select! {
        sent = copy_buf(&mut requests, &mut to_server) => sent,
        received = copy_buf(&mut responses, &mut to_client) => received,
    }?;
    Ok(())
}

/// Gets a session for the client: what it has sent since, the connection to burn's server, and the session
/// there. None, if the client was refused and knows.
async fn open(
    client: &mut TcpStream,
    peer: SocketAddr,
    servers: &Arc<Servers>,
) -> io::Result<Option<(Vec<u8>, Connection, Session)>> {
    let (from_client, mut to_client) = client.split();
    let mut from_client = BufReader::new(from_client);
    let head = read_head(&mut from_client).await?;
    let Some(request) = request_like(&head) else {
        to_client.write_all(servers.answers.to(&head, peer).as_bytes()).await?;
        return Ok(None);
    };
    let mut server = servers.current()?;
    let mut connection = server.connect(peer, &request).await?;
    to_client.write_all(&connection.answer).await?;
    let frame = read_first_frame(&mut from_client).await?;
    loop {
        if !is_accepted(&mut connection, &frame).await? {
            copy_buf(&mut BufReader::new(&mut connection.stream), &mut to_client).await?;
            return Ok(None);
        }
        if let Some(session) = servers.enter(server) {
            return Ok(Some((from_client.buffer().to_vec(), connection, session)));
        }
        // The client has seen only the answer of this server, and the next one's is the same.
        server = servers.current()?;
        connection = server.connect(peer, &request).await?;
    }
}

/// Whether burn's server accepts the token in this frame.
async fn is_accepted(connection: &mut Connection, frame: &[u8]) -> io::Result<bool> {
    connection.stream.write_all(frame).await?;
    // burn answers after it has looked at the token.
    tokio::select! {
        biased;
        accepted = &mut connection.authorized => Ok(accepted.is_ok()),
        answered = connection.stream.readable() => {
            answered?;
            Ok(connection.authorized.try_recv().is_ok())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;
    use crate::server::tests::servers;

    const REQUEST: &[u8] = b"GET /session HTTP/1.1\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    const ANSWER: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\n\r\n";
    const FRAME: &[u8] = b"\x82\x85\0\0\0\0token";

    /// burn's part of a handshake: the connection, and the address that it comes from.
    async fn handshake(listener: &TcpListener) -> (TcpStream, SocketAddr) {
        let (mut stream, name) = timeout(OPENING, listener.accept()).await.unwrap().unwrap();
        read_head(&mut BufReader::new(&mut stream)).await.unwrap();
        stream.write_all(ANSWER).await.unwrap();
        (stream, name)
    }

    #[tokio::test]
    async fn a_client_whose_server_ends_before_it_has_a_session_gets_one_of_the_next() {
        let servers = servers();
        let gate = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut client = TcpStream::connect(gate.local_addr().unwrap()).await.unwrap();
        let (accepted, peer) = gate.accept().await.unwrap();
        let first = servers.current().unwrap();
        let listener = first.listener();
        tokio::spawn(relay(accepted, peer, Arc::clone(&servers), Arc::default()));
        client.write_all(REQUEST).await.unwrap();
        let (_first_stream, name) = handshake(&listener).await;
        let mut answer = [0; ANSWER.len()];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, ANSWER);

        // The only session of another client.
        drop(servers.enter(first).unwrap());
        let next = servers.current().unwrap();
        let listener = next.listener();
        servers.accept(name);
        client.write_all(FRAME).await.unwrap();
        client.write_all(b"rest").await.unwrap();
        let (mut stream, name) = handshake(&listener).await;
        servers.accept(name);
        let mut received = [0; FRAME.len() + 4];
        stream.read_exact(&mut received).await.unwrap();
        assert_eq!(received, *[FRAME, b"rest"].concat());
        stream.write_all(b"hello").await.unwrap();
        let mut received = [0; 5];
        client.read_exact(&mut received).await.unwrap();
        assert_eq!(received, *b"hello");
    }
}
