use std::time::Duration;

use plimsoll_net::DatabaseAddress;
use plimsoll_settings::Secret;
use plimsoll_signal::jobs::{
    DatabaseConfig, DatabaseKind,
    database::{mysql::Connection, stream::Stream},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    runtime::Builder,
};

const MAX_SENT: usize = 128 << 10;
/// A login takes a few hundred bytes.
const MAX_TOLD: usize = 16 << 10;
const PASSWORD: &str = "a password";
const LOCAL: u8 = 1;
const HAS_PASSWORD: u8 = 2;

/// What a server sends to a login and a query, after a byte of flags.
pub fn mysql_handshake(data: &[u8]) {
    let Some((flags, sent)) = data.split_first().filter(|(_, sent)| sent.len() < MAX_SENT) else {
        return;
    };
    let is_local = flags & LOCAL != 0;
    let password = (flags & HAS_PASSWORD != 0).then(|| Secret::new(PASSWORD.to_owned()));
    let config = DatabaseConfig {
        table: "jobs",
        kind: DatabaseKind::MySql,
        address: DatabaseAddress::Tcp("127.0.0.1:3306".to_owned()),
        user: "plimsoll".to_owned(),
        password,
        timeout: Duration::from_secs(1),
    };
    let runtime = Builder::new_current_thread().build().unwrap();
    let (jobs, told) = runtime.block_on(async {
        let (client, mut server) = duplex(MAX_SENT);
        server.write_all(sent).await.unwrap();
        server.shutdown().await.unwrap();
        let jobs = count(&config, Stream::new(Box::new(client), is_local)).await;
        let mut told = Vec::new();
        server.read_to_end(&mut told).await.unwrap();
        (jobs, told)
    });
    assert!(jobs.is_err() || (0.0..=f64::from(u32::MAX)).contains(&jobs.unwrap()));
    assert!(told.len() <= MAX_TOLD);
    // Anyone may be at the other end of a TCP connection.
    let has_password = told
        .windows(PASSWORD.len())
        .any(|part| part == PASSWORD.as_bytes());
    assert!(is_local || !has_password);
}

async fn count(config: &DatabaseConfig, stream: Stream) -> Result<f64, String> {
    Connection::open(config, stream).await?.jobs().await
}
