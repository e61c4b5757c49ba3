//! Cost of `plimsoll gather`: the real binary and eight stand-ins for agents, over loopback. Prints each figure with
//! its target; since machines differ, a miss is not an error.
//!
//! `cargo bench -p plimsoll --bench gather`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

const PARTITIONS: u64 = 8;
const SMALL: usize = 500;
/// Delay of the slowest partition in small answers.
const OWN: Duration = Duration::from_millis(20);
const CHUNK_BYTES: usize = 64 << 10;
/// Clock ticks a second, as Linux has them.
const TICKS: f64 = 100.0;

struct Gather {
    child: Child,
    port: u16,
    config: PathBuf,
}

impl Drop for Gather {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.config);
    }
}

impl Gather {
    fn start(agents: u16) -> Self {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = held.local_addr().unwrap().port();
        drop(held);
        let config = std::env::temp_dir().join(format!("plimsoll-bench-{port}.toml"));
        let mut text = format!(
            "[http]\nlisten = \"127.0.0.1:{port}\"\n[nodes]\nnode = \"127.0.0.1:{agents}\"\n"
        );
        for partition in 0..PARTITIONS {
            text += &format!("[[partition]]\nname = \"{partition}\"\nnodes = [\"node\"]\n");
        }
        std::fs::write(&config, text).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["gather", "--config"])
            .arg(&config)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let gather = Gather {
            child,
            port,
            config,
        };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        gather
    }

    fn proc(&self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).unwrap()
    }

    /// Seconds of a CPU so far.
    fn cpu(&self) -> f64 {
        let stat = self.proc("stat");
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let ticks = |at: usize| fields[at].parse::<f64>().unwrap();
        (ticks(11) + ticks(12)) / TICKS
    }

    /// The most memory it ever held, in MiB.
    fn memory(&self) -> f64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
        let kib: f64 = line
            .unwrap()
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap();
        kib / 1024.0
    }
}

/// Agents: `parameters` are rows a partition, bytes of a row, and whether they come after [`OWN`].
fn agents(slowest: Arc<AtomicU64>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let slowest = Arc::clone(&slowest);
            std::thread::spawn(move || agent(stream.unwrap(), &slowest));
        }
    });
    port
}

fn agent(mut stream: TcpStream, slowest: &AtomicU64) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    loop {
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        while !request.ends_with(b"}") {
            match stream.read(&mut buffer).ok()? {
                0 => return None,
                count => request.extend_from_slice(&buffer[..count]),
            }
        }
        let asked = Instant::now();
        let text = String::from_utf8(request).ok()?;
        let (_, parameters) = text.split_once("\"parameters\":[")?;
        let numbers = parameters.split([',', ']']).take(3);
        let numbers: Vec<u64> = numbers.map(|it| it.parse().unwrap()).collect();
        let (_, partition) = text.split_once("\"partition\":\"")?;
        let partition = partition.split('"').next()?.parse().ok()?;
        if numbers[2] == 1 {
            std::thread::sleep(OWN);
        }
        rows(&mut stream, partition, numbers[0], numbers[1] as usize)?;
        let own = asked.elapsed().as_nanos() as u64;
        slowest.fetch_max(own, Ordering::Relaxed);
    }
}

/// `[id, numbers…]`, as long as that; the partitions' ids take turns.
fn rows(stream: &mut TcpStream, partition: u64, count: u64, length: usize) -> Option<()> {
    const FIRST: u64 = 1_000_000_000;
    let mut row = format!("[{FIRST}").into_bytes();
    while row.len() + 11 < length {
        row.extend_from_slice(b", 0.3141592");
    }
    row.extend_from_slice(b"]\n");
    let columns = 1 + row.iter().filter(|byte| **byte == b',').count();
    let columns: Vec<String> = (0..columns).map(|at| format!("\"c{at}\"")).collect();
    let add = |out: &mut Vec<u8>, data: &[u8]| {
        out.extend(format!("{:x}\r\n", data.len()).as_bytes());
        out.extend(data);
        out.extend(b"\r\n");
    };
    let head = format!("{{\"columns\":[{}]}}\n", columns.join(","));
    let status = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk_rows = (CHUNK_BYTES / row.len()).max(1) as u64;
    let mut chunk = row.repeat(chunk_rows as usize);
    let mut out = status.as_bytes().to_vec();
    add(&mut out, head.as_bytes());
    let mut sent = 0;
    while sent < count {
        let rows = chunk_rows.min(count - sent);
        for at in 0..rows {
            let id = FIRST + (sent + at) * PARTITIONS + partition;
            let start = at as usize * row.len() + 1;
            chunk[start..start + 10].copy_from_slice(id.to_string().as_bytes());
        }
        add(&mut out, &chunk[..rows as usize * row.len()]);
        sent += rows;
        if sent < count {
            stream.write_all(&out).ok()?;
            out.clear();
        }
    }
    add(
        &mut out,
        format!("{{\"end\":{{\"rows\":{count}}}}}\n").as_bytes(),
    );
    out.extend(b"0\r\n\r\n");
    stream.write_all(&out).ok()
}

/// Bytes of an answer; the connection stays.
fn ask(stream: &mut TcpStream, buffer: &mut [u8], parameters: &str, how: &str) -> u64 {
    let body =
        format!("{{\"query\":\"q\",\"parameters\":[{parameters}],\"deadline_seconds\":60{how}}}");
    let length = body.len();
    write!(
        stream,
        "POST /v1/gather HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let (mut all, mut end) = (0, Vec::new());
    while !end.ends_with(b"\r\n0\r\n\r\n") {
        let count = stream.read(buffer).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&end));
        all += count as u64;
        end.extend_from_slice(&buffer[count.saturating_sub(3000)..count]);
        end.drain(..end.len().saturating_sub(3000));
    }
    let end = String::from_utf8_lossy(&end);
    assert!(end.contains("{\"end\":{\"complete\":true"), "{end}");
    all
}

fn main() {
    let slowest = Arc::new(AtomicU64::new(0));
    let gather = Gather::start(agents(Arc::clone(&slowest)));
    let mut stream = TcpStream::connect(("127.0.0.1", gather.port)).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut buffer = vec![0; 1 << 20];
    let merged = ",\"order_by\":[{\"column\":\"c0\"}]";

    let mut added: Vec<f64> = Vec::with_capacity(SMALL);
    for round in 0..SMALL + 20 {
        slowest.store(0, Ordering::Relaxed);
        let asked = Instant::now();
        ask(&mut stream, &mut buffer, "10, 100, 1", merged);
        let took = asked.elapsed().as_secs_f64();
        let own = slowest.load(Ordering::Relaxed) as f64 / 1e9;
        if round >= 20 {
            added.push((took - own) * 1e3);
        }
    }
    added.sort_by(f64::total_cmp);
    let (median, p99) = (added[SMALL / 2], added[SMALL * 99 / 100]);
    println!(
        "small answers, 8 partitions, over the slowest: median {median:.2} ms, p99 {p99:.2} ms (at most 5)"
    );

    for (what, length, how) in [
        ("merged, rows of 130 B", 130, merged),
        ("merged, rows of 1 kB", 1000, merged),
        ("concatenated, rows of 130 B", 130, ""),
        (
            "counted, rows of 130 B",
            130,
            ",\"reduce\":[{\"function\":\"count\"}]",
        ),
    ] {
        let rows = (1 << 30) / PARTITIONS / length;
        let (cpu, begun) = (gather.cpu(), Instant::now());
        ask(
            &mut stream,
            &mut buffer,
            &format!("{rows}, {length}, 0"),
            how,
        );
        let (cpu, took) = (gather.cpu() - cpu, begun.elapsed().as_secs_f64());
        let megabytes = (rows * PARTITIONS * length) as f64 / 1e6;
        println!(
            "{what}, 1 GiB: {:.0} MB/s of a core's time (at least 200), {:.0} MB/s by the clock",
            megabytes / cpu,
            megabytes / took
        );
    }
    println!("memory: at most {:.1} MiB (under 64)", gather.memory());
}
