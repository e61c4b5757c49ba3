//! Queries MySQL and MariaDB for `Threads_running`.
//!
//! The exchange is two packets each way, so it is implemented here on the packets of `mysql_common`: no memory is
//! reserved for a length that the server claims beyond [`MAX_PACKET`].

use mysql_common::{
    auth::plugins::{AuthProc, ChallengeResponsePlugin, Context},
    constants::CapabilityFlags,
    io::ParseBuf,
    packets::{AuthPlugin, AuthSwitchRequest, HandshakePacket, HandshakeResponse},
    proto::MySerialize,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};

use super::{
    not_let_in,
    stream::{Budget, Stream},
};
use crate::jobs::DatabaseConfig;

const QUESTION: &str = "SHOW GLOBAL STATUS LIKE 'Threads_running'";
const COM_QUERY: u8 = 3;
/// First byte of a packet, which gives its type.
const OK: u8 = 0x00;
const MORE: u8 = 0x01;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;
/// Maximum number of packets in a login; three are usual.
const MAX_PACKETS: usize = 8;
const MAX_PACKET: usize = 16 << 10;
/// Error codes of rejected logins ("Access denied").
const NOT_LET_IN: [u16; 4] = [1044, 1045, 1130, 1698];

/// A logged-in connection.
pub struct Connection {
    stream: BufReader<Stream>,
    budget: Budget,
    sequence: u8,
}

impl Connection {
    /// Logs in.
    pub async fn open(config: &DatabaseConfig, stream: Stream) -> Result<Self, String> {
        let mut connection = Connection {
            budget: stream.budget(),
            stream: BufReader::with_capacity(1 << 10, stream),
            sequence: 0,
        };
        connection.log_in(config).await?;
        Ok(connection)
    }

    /// Number of active clients other than this connection.
    pub async fn jobs(&mut self) -> Result<f64, String> {
        self.budget.renew();
        self.sequence = 0;
        let question = [&[COM_QUERY], QUESTION.as_bytes()].concat();
        self.send(&question).await?;
        let columns = self.packet().await?;
        match *columns.as_slice() {
            // Two columns: their definitions and an end packet follow.
            [2] => {}
            [ERROR, ..] => return Err(said(&columns).1),
            _ => return Err("an answer without the count".to_owned()),
        }
        for _ in 0..3 {
            self.packet().await?;
        }
        let row = self.packet().await?;
        let mut cells = row.as_slice();
        let name = cell(&mut cells);
        if !name.is_some_and(|name| name.eq_ignore_ascii_case("Threads_running")) {
            return Err("an answer without Threads_running".to_owned());
        }
        let value = cell(&mut cells).unwrap_or_default();
        let running: u32 = value
            .parse()
            .map_err(|_| format!("{value:?} is not a number of threads"))?;
        let end = self.packet().await?;
        if end.first() != Some(&END) {
            return Err("an answer without an end".to_owned());
        }
        // One of the running threads serves this query.
        Ok(f64::from(running.saturating_sub(1)))
    }

    async fn log_in(&mut self, config: &DatabaseConfig) -> Result<(), String> {
        let first = self.packet().await?;
        if first.first() == Some(&ERROR) {
            return Err(refused(config, &first));
        }
        let hello: HandshakePacket<'_> = ParseBuf(&first).parse(()).map_err(no_sense)?;
        let wanted = CapabilityFlags::CLIENT_PROTOCOL_41
            | CapabilityFlags::CLIENT_SECURE_CONNECTION
            | CapabilityFlags::CLIENT_PLUGIN_AUTH;
        if !hello.capabilities().contains(wanted) {
            return Err("a server older than 5.5".to_owned());
        }
        let plugin = hello.auth_plugin();
        // The server's default may be another plugin than this user's.
        let plugin = plugin.filter(is_known);
        let mut plugin = plugin.unwrap_or(AuthPlugin::MysqlNativePassword);
        let mut login = Login {
            password: config.password.as_ref().map_or("", |it| it.text()),
            is_local: self.stream.get_ref().is_local,
            scramble: hello.nonce(),
        };
        let mut steps = plugin.init().map_err(no_sense)?;
        let scrambled = login.answer(&mut steps, None)?;
        let response = HandshakeResponse::new(
            Some(scrambled),
            (5, 5, 3),
            Some(config.user.as_bytes()),
            None::<Vec<u8>>,
            Some(plugin.borrow()),
            wanted,
            None,
            MAX_PACKET as u32,
        );
        let mut bytes = Vec::new();
        response.serialize(&mut bytes);
        self.send(&bytes).await?;
        for _ in 0..MAX_PACKETS {
            let packet = self.packet().await?;
            match *packet.as_slice() {
                [OK, ..] => return Ok(()),
                [ERROR, ..] => return Err(refused(config, &packet)),
                [MORE, ref challenge @ ..] => {
                    let full = [4];
                    if *challenge == full && !login.is_local {
                        // The peer is not authenticated: over TCP it may be anyone.
                        return Err(format!(
                            "user {:?} needs to send its password in clear text, which is allowed only over a Unix socket: see jobs.address",
                            config.user
                        ));
                    }
                    let answer = login.answer(&mut steps, Some(challenge))?;
                    if !answer.is_empty() {
                        self.send(&answer).await?;
                    }
                }
                [END, _, ..] => {
                    let asked: AuthSwitchRequest<'_> =
                        ParseBuf(&packet).parse(()).map_err(no_sense)?;
                    plugin = asked.auth_plugin().into_owned();
                    if !is_known(&plugin) {
                        let name = String::from_utf8_lossy(plugin.as_bytes()).into_owned();
                        return Err(format!(
                            "user {:?} requires authentication by {name:?}: only mysql_native_password, caching_sha2_password and logins without a password are supported",
                            config.user
                        ));
                    }
                    login.scramble = asked.plugin_data().to_vec();
                    steps = plugin.init().map_err(no_sense)?;
                    let answer = login.answer(&mut steps, None)?;
                    self.send(&answer).await?;
                }
                _ => return Err("malformed login".to_owned()),
            }
        }
        Err("a login without an end".to_owned())
    }

    async fn packet(&mut self) -> Result<Vec<u8>, String> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head).await.map_err(broken)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
        if length > MAX_PACKET || head[3] != self.sequence {
            return Err("malformed packet".to_owned());
        }
        self.sequence = self.sequence.wrapping_add(1);
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.map_err(broken)?;
        Ok(body)
    }

    async fn send(&mut self, body: &[u8]) -> Result<(), String> {
        let length = (body.len() as u32).to_le_bytes();
        let head = [length[0], length[1], length[2], self.sequence];
        self.sequence = self.sequence.wrapping_add(1);
        let packet = [&head, body].concat();
        self.stream.write_all(&packet).await.map_err(broken)
    }
}

/// Context of the authentication plugins.
struct Login<'a> {
    password: &'a str,
    is_local: bool,
    scramble: Vec<u8>,
}

impl Login<'_> {
    fn answer(&self, steps: &mut AuthProc, challenge: Option<&[u8]>) -> Result<Vec<u8>, String> {
        let challenge = challenge.unwrap_or(&self.scramble);
        let answer = steps.run(self, challenge).map_err(no_sense)?;
        Ok(answer.data().unwrap_or_default().to_vec())
    }
}

impl Context for &Login<'_> {
    fn pass(&self) -> &[u8] {
        self.password.as_bytes()
    }

    fn is_ipc_transport(&self) -> bool {
        self.is_local
    }

    fn is_tls_transport(&self) -> bool {
        false
    }

    fn scramble(&self) -> &[u8] {
        &self.scramble
    }

    fn server_key_pem(&self) -> Option<&[u8]> {
        None
    }
}

fn is_known(plugin: &AuthPlugin<'_>) -> bool {
    matches!(
        plugin,
        AuthPlugin::MysqlNativePassword | AuthPlugin::CachingSha2Password
    )
}

/// Next text cell of a row. Supports lengths of one byte only, enough for this query.
fn cell<'a>(row: &mut &'a [u8]) -> Option<&'a str> {
    let (length, rest) = row.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(*length))?;
    *row = rest;
    std::str::from_utf8(text).ok()
}

/// Code and text of an error packet.
fn said(packet: &[u8]) -> (u16, String) {
    let Some(([_, low, high], text)) = packet.split_first_chunk::<3>() else {
        return (0, "an error without a number".to_owned());
    };
    let number = u16::from_le_bytes([*low, *high]);
    // Skip the SQL state, if present.
    let text = match text {
        [b'#', _, _, _, _, _, text @ ..] => text,
        text => text,
    };
    (
        number,
        format!("{} ({number})", String::from_utf8_lossy(text)),
    )
}

fn refused(config: &DatabaseConfig, packet: &[u8]) -> String {
    let (number, text) = said(packet);
    if NOT_LET_IN.contains(&number) {
        not_let_in(config, &text)
    } else {
        text
    }
}

fn broken(error: std::io::Error) -> String {
    format!("connection lost: {error}")
}

fn no_sense(error: impl std::fmt::Display) -> String {
    format!("malformed login: {error}")
}
