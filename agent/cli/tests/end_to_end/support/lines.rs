//! Questions that are answered in lines of JSON.

use std::{io::Write, net::TcpStream};

use serde_json::Value;

use crate::support::http_post;

/// Path of partition queries.
pub const QUERY: &str = "/v1/partition-query";

/// A service of partitions with room for two cost units.
pub const SCATTER: &str = r#"
[[service]]
name = "scatter"
[service.sla]
delay = "1s"
[service.bound]
nominal = 2
min = 2
max = 2
[service.source]
kind = "partitions"
"#;

/// Status and lines; those of the chunked encoding left out.
pub fn ask(port: u16, path: &str, token: &str, question: &Value) -> (u16, Vec<Value>) {
    let head = format!("authorization: Bearer {token}\r\n");
    let (status, body) = http_post(port, path, &head, &question.to_string()).unwrap();
    let lines = body.lines().filter(|line| line.starts_with(['{', '[']));
    let lines = lines.map(|line| serde_json::from_str(line).unwrap());
    (status, lines.collect())
}

/// The connection on which something is asked, its answer not read.
pub fn begin(port: u16, path: &str, token: &str, question: &Value) -> TcpStream {
    let body = question.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    stream
}

/// Why there is no whole answer.
pub fn problem(lines: &[Value]) -> &str {
    let last = lines.last().unwrap();
    last["error"]["problem"].as_str().unwrap_or_default()
}
