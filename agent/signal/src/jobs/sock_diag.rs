//! Socket counts from the kernel over netlink, see sock_diag(7).

use std::{
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink},
};

/// `TCPDIAG_GETSOCK`. For TCP, its successor scans the whole table once per address family.
const GET_TCP: u16 = 18;
/// `SOCK_DIAG_BY_FAMILY`.
const GET_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;
const HEADER_BYTES: usize = 16;
/// `UDIAG_SHOW_NAME | UDIAG_SHOW_VFS | UDIAG_SHOW_RQLEN`, and the attribute types of the reply.
const SHOW_UNIX: u32 = 1 | 2 | 0x10;
const UNIX_NAME: u16 = 0;
const UNIX_INODE: u16 = 1;
const UNIX_QUEUE: u16 = 4;
/// Size of `struct unix_diag_msg`, which is followed by attributes.
const UNIX_BYTES: usize = 16;
/// Maximum size of one datagram from the kernel.
const BUFFER_BYTES: usize = 32 << 10;

/// A netlink socket. After an error, replies to the failed request may still arrive: open a new socket.
#[derive(Debug)]
pub struct SockDiag {
    socket: OwnedFd,
    buffer: Box<[u8]>,
    sequence: u32,
}

impl SockDiag {
    /// Opens a socket. Fails where netlink is not permitted, as in some containers.
    pub fn open() -> io::Result<Self> {
        // The kernel prepares its reply within the system calls, so a read never has to wait.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let diag = Some(netlink::SOCK_DIAG);
        let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, diag)?;
        Ok(SockDiag {
            socket,
            buffer: vec![0; BUFFER_BYTES].into(),
            sequence: 0,
        })
    }

    /// Number of established connections with this local port in this network namespace, IPv4 and IPv6.
    pub fn established(&mut self, port: u16) -> io::Result<u32> {
        let mut count = 0;
        self.each_tcp(ESTABLISHED, port, |_queued| count += 1)?;
        Ok(count)
    }

    /// Number of connections waiting to be accepted on this port, summed over its listeners; `None` without a
    /// listener. The cost does not depend on the number of established connections.
    pub fn listen_backlog(&mut self, port: u16) -> io::Result<Option<u32>> {
        let mut sum = None;
        self.each_tcp(LISTEN, port, |queued| {
            sum = Some(sum.unwrap_or(0_u32).saturating_add(queued));
        })?;
        Ok(sum)
    }

    fn each_tcp(&mut self, state: u8, port: u16, mut each: impl FnMut(u32)) -> io::Result<()> {
        // Any address family, no extensions; of the socket id, the local port only.
        let mut question = vec![0; 4];
        question.extend(port.to_be_bytes());
        question.extend([0; 46]);
        question.extend((1_u32 << state).to_ne_bytes());
        question.extend([0; 4]);
        self.dump(GET_TCP, &question, |message| {
            // Family, state, two more bytes, then the socket id, which begins with the local port.
            let [_, its_state] = field(message, 0)?;
            let local = u16::from_be_bytes(field(message, 4)?);
            let queued = u32::from_ne_bytes(field(message, 56)?);
            if its_state == state && local == port {
                each(queued);
            }
            Some(())
        })
    }

    /// Number of connections waiting to be accepted on the unix socket at this path; `None` without a listener.
    pub fn unix_listen_backlog(&mut self, path: &Path) -> io::Result<Option<u32>> {
        // The socket may be bound by another path to the same file, such as /run for /var/run.
        let inode = std::fs::metadata(path).ok().map(|file| file.ino() as u32);
        let file_name = path.file_name();
        let mut sum = None;
        let mut question = vec![AddressFamily::UNIX.as_raw() as u8, 0, 0, 0];
        question.extend((1_u32 << LISTEN).to_ne_bytes());
        question.extend([0; 4]);
        question.extend(SHOW_UNIX.to_ne_bytes());
        question.extend([0; 8]);
        self.dump(GET_BY_FAMILY, &question, |message| {
            let [_, _, state] = field(message, 0)?;
            let (mut bound, mut bound_inode, mut queued) = (None, None, None);
            let mut rest = message.get(UNIX_BYTES..)?;
            while !rest.is_empty() {
                let length = usize::from(u16::from_ne_bytes(field(rest, 0)?));
                let value = rest.get(4..length)?;
                match u16::from_ne_bytes(field(rest, 2)?) {
                    UNIX_NAME => bound = Some(value.strip_suffix(b"\0").unwrap_or(value)),
                    UNIX_INODE => bound_inode = Some(u32::from_ne_bytes(field(value, 0)?)),
                    UNIX_QUEUE => queued = Some(u32::from_ne_bytes(field(value, 0)?)),
                    _ => {}
                }
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
            let (Some(bound), Some(queued)) = (bound, queued) else {
                return Some(());
            };
            let bound = Path::new(std::ffi::OsStr::from_bytes(bound));
            let is_same = inode.is_some() && bound_inode == inode && bound.file_name() == file_name;
            if state == LISTEN && (bound == path || is_same) {
                sum = Some(sum.unwrap_or(0_u32).saturating_add(queued));
            }
            Some(())
        })?;
        Ok(sum)
    }

    /// Sends a dump request and calls `each` for every reply; `None` from it means that the reply is truncated.
    fn dump(
        &mut self,
        kind: u16,
        question: &[u8],
        mut each: impl FnMut(&[u8]) -> Option<()>,
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = Vec::with_capacity(HEADER_BYTES + question.len());
        request.extend(((HEADER_BYTES + question.len()) as u32).to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend(DUMP.to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        // `nlmsg_pid`
        request.extend([0; 4]);
        request.extend(question);
        net::send(&self.socket, &request, SendFlags::empty())?;
        loop {
            let buffer = &mut self.buffer[..];
            let (read, whole) = net::recv(&self.socket, buffer, RecvFlags::TRUNC)?;
            if whole > read {
                return Err(malformed("a netlink message is longer than 32 KiB"));
            }
            if one_datagram(&self.buffer[..read], self.sequence, kind, &mut each)? {
                return Ok(());
            }
        }
    }
}

/// Parses one datagram of a dump. Returns true if it ends the dump.
fn one_datagram(
    mut rest: &[u8],
    sequence: u32,
    wanted: u16,
    each: &mut impl FnMut(&[u8]) -> Option<()>,
) -> io::Result<bool> {
    while !rest.is_empty() {
        let short = || malformed("a netlink message is truncated");
        let length = u32::from_ne_bytes(field(rest, 0).ok_or_else(short)?) as usize;
        let kind = u16::from_ne_bytes(field(rest, 4).ok_or_else(short)?);
        let answers = u32::from_ne_bytes(field(rest, 8).ok_or_else(short)?);
        let message = rest.get(HEADER_BYTES..length).ok_or_else(short)?;
        if answers != sequence {
            return Err(malformed("a netlink reply is to another request"));
        }
        if matches!(kind, NLMSG_DONE | NLMSG_ERROR) {
            let status = i32::from_ne_bytes(field(message, 0).ok_or_else(short)?);
            if status < 0 {
                return Err(Errno::from_raw_os_error(status.saturating_neg()).into());
            }
            return Ok(true);
        }
        if kind == wanted {
            each(message).ok_or_else(short)?;
        }
        // Messages are aligned to 4 bytes.
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
