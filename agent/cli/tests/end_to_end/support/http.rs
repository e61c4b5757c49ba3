//! A client of one request.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

const GET_TIMEOUT: Duration = Duration::from_secs(20);
/// More than the deadlines that tests give questions: whatever the machine is busy with, the program's own ends first.
const POST_TIMEOUT: Duration = Duration::from_secs(60);

pub fn http_get(port: u16, path: &str) -> Option<(u16, String)> {
    let (status, _, body) = http_get_with(port, path, "")?;
    Some((status, body))
}

/// Status, head and body, for a request with a further line.
pub fn http_get_with(port: u16, path: &str, head: &str) -> Option<(u16, String, String)> {
    exchange(port, &format!("GET {path}"), head, "", GET_TIMEOUT)
}

/// `head` are further lines, each with its end.
pub fn http_post(port: u16, path: &str, head: &str, body: &str) -> Option<(u16, String)> {
    let head = format!("{head}content-length: {}\r\n", body.len());
    let (status, _, body) = exchange(port, &format!("POST {path}"), &head, body, POST_TIMEOUT)?;
    Some((status, body))
}

fn exchange(
    port: u16,
    what: &str,
    head: &str,
    body: &str,
    timeout: Duration,
) -> Option<(u16, String, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(timeout)).ok()?;
    // An answer may come before the body was taken; then the connection is reset after it.
    let _ = write!(
        stream,
        "{what} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{head}\r\n{body}"
    );
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, head.to_ascii_lowercase(), body.to_owned()))
}

/// A connection of another one of this host's loopback addresses.
pub fn connect_from(address: &str, port: u16) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let connected = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(SocketAddr::new(address.parse().unwrap(), 0))?;
        socket.connect(([127, 0, 0, 1], port).into()).await
    });
    let stream = connected.unwrap().into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream
}
