//! The kernel's own list of TCP connections, asked over netlink (sock_diag(7)) for those that are wanted.

use std::io;

use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink},
};

/// `TCPDIAG_GETSOCK`. Its successor `SOCK_DIAG_BY_FAMILY` goes through the whole table once for each family.
const GET_SOCKETS: u16 = 18;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
const ESTABLISHED: u8 = 1;
const HEADER_BYTES: usize = 16;
/// Of `struct inet_diag_req`: family, ext and the like, a socket's id, states, dbs.
const REQUEST_BYTES: usize = HEADER_BYTES + 4 + 48 + 8;
/// What the kernel fills at a time at most.
const BUFFER_BYTES: usize = 32 << 10;

/// A netlink socket. After an error it may still be answered to the question before: open another one.
#[derive(Debug)]
pub struct SockDiag {
    socket: OwnedFd,
    buffer: Box<[u8]>,
    sequence: u32,
}

impl SockDiag {
    /// Fails where netlink is not permitted, as in some containers.
    pub fn open() -> io::Result<Self> {
        // The kernel answers within the calls, so there is never anything to wait for.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let diag = Some(netlink::SOCK_DIAG);
        let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, diag)?;
        Ok(SockDiag {
            socket,
            buffer: vec![0; BUFFER_BYTES].into(),
            sequence: 0,
        })
    }

    /// Connections of this network namespace with this local port, over IPv4 and IPv6.
    pub fn established(&mut self, port: u16) -> io::Result<u32> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = request(port, self.sequence);
        net::send(&self.socket, &request, SendFlags::empty())?;
        let mut count = 0;
        loop {
            let buffer = &mut self.buffer[..];
            let (read, whole) = net::recv(&self.socket, buffer, RecvFlags::TRUNC)?;
            if whole > read {
                return Err(malformed("a message of the kernel is longer than 32 KiB"));
            }
            if count_in(&self.buffer[..read], self.sequence, port, &mut count)? {
                return Ok(count);
            }
        }
    }
}

fn request(port: u16, sequence: u32) -> Vec<u8> {
    let mut request = Vec::with_capacity(REQUEST_BYTES);
    request.extend((REQUEST_BYTES as u32).to_ne_bytes());
    request.extend(GET_SOCKETS.to_ne_bytes());
    request.extend(DUMP.to_ne_bytes());
    request.extend(sequence.to_ne_bytes());
    // From nobody in particular; any family, nothing on top of what every answer has.
    request.extend([0; 4 + 4]);
    // The id: the local port, and nothing else.
    request.extend(port.to_be_bytes());
    request.extend([0; 46]);
    request.extend((1_u32 << ESTABLISHED).to_ne_bytes());
    request.extend([0; 4]);
    request
}

/// Adds up the connections of one datagram. Returns whether it was the last one.
fn count_in(mut rest: &[u8], sequence: u32, port: u16, count: &mut u32) -> io::Result<bool> {
    while !rest.is_empty() {
        let short = || malformed("a message of the kernel is cut off");
        let length = u32::from_ne_bytes(field(rest, 0).ok_or_else(short)?) as usize;
        let kind = u16::from_ne_bytes(field(rest, 4).ok_or_else(short)?);
        let answers = u32::from_ne_bytes(field(rest, 8).ok_or_else(short)?);
        let message = rest.get(HEADER_BYTES..length).ok_or_else(short)?;
        if answers != sequence {
            return Err(malformed("the kernel answers another question"));
        }
        match kind {
            NLMSG_DONE | NLMSG_ERROR => {
                let status = i32::from_ne_bytes(field(message, 0).ok_or_else(short)?);
                if status < 0 {
                    return Err(Errno::from_raw_os_error(status.saturating_neg()).into());
                }
                return Ok(true);
            }
            // The family, the state, and after two bytes more the local port.
            GET_SOCKETS => {
                let [_, state] = field(message, 0).ok_or_else(short)?;
                let local = u16::from_be_bytes(field(message, 4).ok_or_else(short)?);
                *count += u32::from(state == ESTABLISHED && local == port);
            }
            _ => {}
        }
        // Messages begin at multiples of 4.
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn malformed(problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}
