//! Databases that are none, or lie: little memory, little time, and the agent goes on.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use crate::support::databases::*;
use crate::support::{Agent, Service, free_port, wait_for};

/// More than a good exchange costs, with what an allocator keeps.
const MAX_KIB: u64 = 16 << 10;

/// A step of a conversation. After the last one it stays silent, and does not hang up.
#[derive(Clone)]
enum Say {
    /// Waits for anything.
    Hear,
    /// These bytes.
    Tell(Vec<u8>),
    /// These, over and over.
    Repeat(Vec<u8>),
}

use Say::{Hear, Repeat, Tell};

/// A server that has the same conversation with whoever connects.
struct Liar {
    port: u16,
    gone: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Liar {
    fn start(script: &[Say]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let gone = Arc::new(AtomicBool::new(false));
        let (is_gone, script) = (Arc::clone(&gone), script.to_vec());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if is_gone.load(Ordering::Acquire) {
                    return;
                }
                let (script, is_gone) = (script.clone(), Arc::clone(&is_gone));
                std::thread::spawn(move || lie(stream.unwrap(), script, &is_gone));
            }
        });
        Liar {
            port,
            gone,
            thread: Some(thread),
        }
    }
}

/// Errors only mean that the agent hung up.
fn lie(mut stream: TcpStream, script: Vec<Say>, gone: &AtomicBool) {
    let mut heard = [0; 4096];
    let mut hear = |stream: &mut TcpStream| !matches!(stream.read(&mut heard), Ok(0) | Err(_));
    for step in script {
        let goes_on = match step {
            Hear => hear(&mut stream),
            Tell(bytes) => stream.write_all(&bytes).is_ok(),
            Repeat(bytes) => {
                let many = bytes.repeat(1 + 8192 / bytes.len());
                while !gone.load(Ordering::Acquire) && stream.write_all(&many).is_ok() {}
                false
            }
        };
        if !goes_on {
            return;
        }
    }
    while !gone.load(Ordering::Acquire) && hear(&mut stream) {}
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Release);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The most memory that the agent ever had, in KiB.
fn peak_memory(agent: &Agent) -> u64 {
    let process = agent.process.as_ref().unwrap().0.id();
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

fn table(kind: &str, port: u16) -> String {
    format!(
        "kind = \"{kind}\"\naddress = \"127.0.0.1:{port}\"\nuser = \"plimsoll\"\npassword_file = PASSWORD"
    )
}

/// Each is another server; what is logged, and what it says.
fn survives(kind: &str, lies: &[(&str, Vec<Say>)]) {
    let service = Service::start();
    let mut agent = unstarted(&service, &table(kind, free_port()));
    agent.start_again();
    wait_logged(&agent, "cannot connect");
    let before = peak_memory(&agent);
    for (said, script) in lies {
        let liar = Liar::start(script);
        set_jobs(&agent, &table(kind, liar.port));
        assert_eq!(agent.reload(), "applied");
        let problem = |line: &str| line.contains(&liar.port.to_string()) && line.contains(said);
        wait_for(&format!("{said:?}: {}", agent.log()), || {
            agent.log().lines().any(problem).then_some(())
        });
        let failed = failures(&agent);
        wait_for("failures", || (failures(&agent) > failed).then_some(()));
        assert_serving(&agent);
        assert_eq!(jobs(&agent), None);
    }
    let grown = peak_memory(&agent) - before;
    assert!(grown < MAX_KIB, "{grown} KiB more");
}

/// MySQL's conversation up to here, packet by packet.
fn after(bodies: &[&[u8]]) -> Vec<Say> {
    let mut script = vec![Tell(hello("mysql_native_password", CAPABLE))];
    for (sequence, body) in (2..).step_by(2).zip(bodies) {
        script.extend([Hear, Tell(packet(sequence, body))]);
    }
    script
}

fn asked(answer: &[Say]) -> Vec<Say> {
    let mut script = after(&[b"\0\0\0\x02\0\0\0"]);
    script.push(Hear);
    script.extend_from_slice(answer);
    script
}

#[test]
fn by_the_protocol_of_mysql() {
    let count = [
        packet(1, &[2]),
        packet(2, b"a"),
        packet(3, b"b"),
        packet(4, b"\xfe\0\0\0\0"),
    ];
    let row = |text: &[u8]| Tell([count.concat(), packet(5, text)].concat());
    let good = b"\x0fThreads_running\x012";
    survives(
        "mysql",
        &[
            ("no login within", vec![]),
            (
                "malformed packet",
                vec![Repeat(b"\xff\xfe garbage".to_vec())],
            ),
            ("malformed login", vec![Tell(packet(0, b"\x0ax"))]),
            ("a server older than 5.5", vec![Tell(hello("", 0))]),
            (
                "Too many connections (1040)",
                vec![Tell(packet(0, b"\xff\x10\x04Too many connections"))],
            ),
            (
                "only mysql_native_password",
                after(&[b"\xfemysql_clear_password\0x"]),
            ),
            (
                "only over a Unix socket",
                after(&[
                    b"\xfecaching_sha2_password\0abcdefghijklmnopqrst\0",
                    b"\x01\x04",
                ]),
            ),
            ("malformed login", after(&[b"\x01x"])),
            (
                "a login without an end",
                after(&[&b"\xfemysql_native_password\0abcdefghijklmnopqrst\0"[..]; 9]),
            ),
            ("no answer within", asked(&[])),
            (
                "an answer without the count",
                asked(&[Tell(packet(1, b"\xfb/etc/passwd"))]),
            ),
            (
                "an answer without the count",
                asked(&[Tell(packet(1, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"))]),
            ),
            ("an answer without Threads_running", asked(&[row(b"\xff")])),
            (
                "\"many\" is not a number",
                asked(&[row(b"\x0fThreads_running\x04many")]),
            ),
            (
                "an answer without an end",
                asked(&[row(good), Tell(packet(6, good))]),
            ),
        ],
    );
}

/// A message of PostgreSQL's.
fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[tag], &length[..], body].concat()
}

/// PostgreSQL's conversation up to the answer.
fn answered(answer: &[Say]) -> Vec<Say> {
    let logged_in = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
    let mut script = vec![Hear, Tell(logged_in), Hear];
    script.extend_from_slice(answer);
    script
}

#[test]
fn by_the_protocol_of_postgresql() {
    let columns = [
        &b"\0\x02"[..],
        b"count\0\0\0\0\0\0\0\0\0\0\x14\0\x08\xff\xff\xff\xff\0\0",
        b"has\0\0\0\0\0\0\0\0\0\0\x10\0\x01\xff\xff\xff\xff\0\0",
    ];
    let columns = message(b'T', &columns.concat());
    let row = message(b'D', b"\0\x02\0\0\0\x04many\0\0\0\x01t");
    let end = [message(b'C', b"SELECT 1\0"), message(b'Z', b"I")].concat();
    let notice = message(b'N', b"SNOTICE\0VNOTICE\0C00000\0Mhello\0\0");
    let starting = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0";
    let too_much = "an answer of more than 65536 bytes";
    survives(
        "postgresql",
        &[
            ("no login within", vec![]),
            ("postgresql at", vec![Repeat(b"garbage".to_vec())]),
            (
                too_much,
                vec![Tell(b"R\x7f\xff\xff\xff".to_vec()), Repeat(vec![0; 4096])],
            ),
            (
                too_much,
                vec![Hear, Tell(message(b'R', &[0; 4])), Repeat(notice.clone())],
            ),
            (
                "the database system is starting up (57P03)",
                vec![Hear, Tell(message(b'E', starting))],
            ),
            (
                "authentication error",
                vec![
                    Hear,
                    Tell(message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0")),
                    Hear,
                    Tell(message(b'R', b"\0\0\0\x0br=x,s=AAAA,i=2000000000")),
                ],
            ),
            ("no answer within", answered(&[])),
            (
                "an answer without the count",
                answered(&[Tell([columns.clone(), end.clone()].concat())]),
            ),
            (
                "\"many\" is not a number",
                answered(&[Tell([columns.clone(), row.clone(), end].concat())]),
            ),
            (too_much, answered(&[Tell(columns), Repeat(row)])),
            (too_much, answered(&[Repeat(notice)])),
        ],
    );
}
