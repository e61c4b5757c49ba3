//! `[http.tls]` of servers, `[tls]` of clients.

use std::{
    cell::OnceCell,
    path::{Path, PathBuf},
};

use plimsoll_net::{Caller, ClientTls, HttpUrl, ServerTls, TlsFile, TlsFiles, TlsProblem};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Checked, Wrong, token, wrong};

/// With this table it speaks TLS alone, 1.2 or 1.3: [http-api.md](http-api.md#tls). PEM files, read at start and
/// reload, and within a second or so of a change; if they cannot be used then, that is logged, and those read before
/// stay in use. Connections go on.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[http.tls]")]
pub struct ServerTlsSection {
    /// File with its certificate, followed by those between it and its authority.
    #[schemars(extend("x-values" = "path", "x-default" = "required"))]
    certificate_file: PathBuf,
    /// File with the certificate's private key.
    #[schemars(extend("x-values" = "path", "x-default" = "required"))]
    key_file: PathBuf,
    /// File with authorities. With it, clients must show a certificate of one of them, those that check its health,
    /// too.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    client_ca_file: Option<PathBuf>,
}

/// Trusted authorities and client certificate for `https://` addresses and for partition databases with `tls = true`.
/// PEM files, reloaded as those of `[http.tls]`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[tls]")]
pub struct TlsSection {
    /// File with the authorities that are trusted, in place of the system's.
    #[schemars(extend("x-values" = "path", "x-default" = "the system's"))]
    pub ca_file: Option<PathBuf>,
    /// File with the client certificate, sent where a server requests one; needs `key_file`.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    pub certificate_file: Option<PathBuf>,
    /// File with the certificate's private key; needs `certificate_file`.
    #[schemars(extend("x-values" = "path", "x-default" = "none"))]
    pub key_file: Option<PathBuf>,
}

/// The TLS of an HTTP server.
pub fn server_tls(raw: Option<&ServerTlsSection>) -> Checked<Option<ServerTls>> {
    let Some(raw) = raw else { return Ok(None) };
    let own = (raw.certificate_file.clone(), raw.key_file.clone());
    let tls = ServerTls::new(own, raw.client_ca_file.clone());
    tls.map(Some)
        .map_err(|problem| at_file("http.tls", "client_ca_file", problem))
}

/// The files of a client, at this table.
pub fn client_files(table: &str, raw: &TlsSection) -> Checked<TlsFiles> {
    let own = match (&raw.certificate_file, &raw.key_file) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        (Some(_), None) => return wrong(format!("{table}.certificate_file"), "needs key_file"),
        (None, Some(_)) => return wrong(format!("{table}.key_file"), "needs certificate_file"),
    };
    Ok(TlsFiles {
        own,
        authorities: raw.ca_file.clone(),
    })
}

/// A problem with one of these files, at its key.
pub fn at_file(table: &str, authorities: &str, problem: TlsProblem) -> Wrong {
    let key = match problem.file {
        TlsFile::Certificate => "certificate_file",
        TlsFile::Key => "key_file",
        TlsFile::Authorities => authorities,
    };
    Wrong {
        key: format!("{table}.{key}"),
        problem: problem.problem,
    }
}

/// `[tls]`: the TLS of all that a program asks, made when it is first needed.
#[derive(Debug)]
pub struct SharedTls {
    files: TlsFiles,
    made: OnceCell<ClientTls>,
}

impl SharedTls {
    /// Checks the files, if there are any.
    pub fn new(raw: &TlsSection) -> Checked<Self> {
        let shared = SharedTls {
            files: client_files("tls", raw)?,
            made: OnceCell::new(),
        };
        if shared.files != TlsFiles::default() {
            shared.get()?;
        }
        Ok(shared)
    }

    /// Credentials of a caller: a token from a file at this key, and the TLS if one of its URLs needs it.
    pub fn caller<'a>(
        &self,
        key: &str,
        token_file: Option<&Path>,
        urls: impl IntoIterator<Item = &'a HttpUrl>,
    ) -> Checked<Caller> {
        let is_needed = urls.into_iter().any(|url| url.is_tls);
        Ok(Caller {
            token: token(key, token_file)?,
            tls: is_needed.then(|| self.get()).transpose()?,
        })
    }

    /// The TLS.
    pub fn get(&self) -> Checked<ClientTls> {
        if let Some(made) = self.made.get() {
            return Ok(made.clone());
        }
        let made = ClientTls::new(self.files.clone());
        let made = made.map_err(|problem| at_file("tls", "ca_file", problem))?;
        Ok(self.made.get_or_init(|| made).clone())
    }
}
