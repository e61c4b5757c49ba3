//! TLS of servers and clients, by certificates in PEM files that are read anew when they change.

use std::{
    fmt::Display,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, Error, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName,
        pem::{self, PemObject},
    },
    server::WebPkiClientVerifier,
    sign::CertifiedKey,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

use crate::{HttpUrl, Reread, host_of};

/// PEM files of one end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificate, with those between it and its authority, and the private key.
    pub own: Option<(PathBuf, PathBuf)>,
    /// Authorities of the other end's certificate.
    pub authorities: Option<PathBuf>,
}

/// One of [`TlsFiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// The own certificate.
    Certificate,
    /// Its key.
    Key,
    /// The authorities.
    Authorities,
}

/// Error of a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct TlsProblem {
    /// Which one.
    pub file: TlsFile,
    /// With its name.
    pub problem: String,
}

fn wrong<T>(file: TlsFile, path: &Path, problem: impl Display) -> Result<T, TlsProblem> {
    let problem = format!("{}: {problem}", path.display());
    Err(TlsProblem { file, problem })
}

type Own = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl TlsFiles {
    /// What `make` makes of the files, anew when they change.
    ///
    /// # Errors
    ///
    /// A file that cannot be used.
    fn watch<T>(
        &self,
        make: impl Fn(&TlsFiles) -> Result<T, TlsProblem> + Send + Sync + 'static,
    ) -> Result<Reread<T>, TlsProblem> {
        let own = self.own.iter();
        let files = own.flat_map(|(certificate, key)| [certificate, key]);
        let files = files.chain(&self.authorities).cloned().collect();
        let this = self.clone();
        Reread::new(files, move || make(&this))
    }

    /// The own certificate and its key.
    fn own(&self) -> Result<Option<Own>, TlsProblem> {
        self.own.as_ref().map(own).transpose()
    }

    fn authorities(&self) -> Result<Option<RootCertStore>, TlsProblem> {
        self.authorities.as_deref().map(trusted).transpose()
    }
}

fn own((certificate, key): &(PathBuf, PathBuf)) -> Result<Own, TlsProblem> {
    let chain = certificates(TlsFile::Certificate, certificate)?;
    let private = match std::fs::read(key).map(|text| PrivateKeyDer::from_pem_slice(&text)) {
        Ok(Ok(private)) => private,
        Ok(Err(pem::Error::NoItemsFound)) => {
            return wrong(TlsFile::Key, key, "holds no PEM private key");
        }
        Ok(Err(error)) => return wrong(TlsFile::Key, key, error),
        Err(error) => return wrong(TlsFile::Key, key, error),
    };
    let provider = ring::default_provider();
    match CertifiedKey::from_der(chain.clone(), private.clone_key(), &provider) {
        Ok(_) => Ok((chain, private)),
        Err(Error::InconsistentKeys(_)) => {
            let problem = format!("is not the key of {}", certificate.display());
            wrong(TlsFile::Key, key, problem)
        }
        Err(error @ Error::InvalidCertificate(_)) => {
            wrong(TlsFile::Certificate, certificate, error)
        }
        Err(error) => wrong(TlsFile::Key, key, error),
    }
}

fn trusted(path: &Path) -> Result<RootCertStore, TlsProblem> {
    let mut trusted = RootCertStore::empty();
    for found in certificates(TlsFile::Authorities, path)? {
        if let Err(error) = trusted.add(found) {
            return wrong(TlsFile::Authorities, path, error);
        }
    }
    Ok(trusted)
}

fn certificates(file: TlsFile, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsProblem> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) => return wrong(file, path, error),
    };
    match CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>() {
        Ok(found) if found.is_empty() => wrong(file, path, "holds no PEM certificate"),
        Ok(found) => Ok(found),
        Err(error) => wrong(file, path, error),
    }
}

/// What is made of the files, by the certificates in force. It is the same as another of the same files.
pub struct Tls<T> {
    files: TlsFiles,
    made: Arc<Reread<T>>,
}

/// TLS of a server.
pub type ServerTls = Tls<ServerConfig>;
/// TLS of a client.
pub type ClientTls = Tls<ClientConfig>;
/// TLS by a library that takes texts.
pub type TextTls = Tls<TlsTexts>;

impl<T> Tls<T> {
    fn made_by(
        files: TlsFiles,
        make: impl Fn(&TlsFiles) -> Result<T, TlsProblem> + Send + Sync + 'static,
    ) -> Result<Self, TlsProblem> {
        let made = Arc::new(files.watch(make)?);
        Ok(Tls { files, made })
    }
}

impl<T> Clone for Tls<T> {
    fn clone(&self) -> Self {
        Tls {
            files: self.files.clone(),
            made: Arc::clone(&self.made),
        }
    }
}

impl<T> PartialEq for Tls<T> {
    fn eq(&self, other: &Self) -> bool {
        self.files == other.files
    }
}

impl<T> Eq for Tls<T> {}

impl<T> std::fmt::Debug for Tls<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.files.fmt(f)
    }
}

impl ServerTls {
    /// With this certificate and key. Where there are authorities, clients must have a certificate of them.
    ///
    /// # Errors
    ///
    /// A file that cannot be used.
    pub fn new(own: (PathBuf, PathBuf), authorities: Option<PathBuf>) -> Result<Self, TlsProblem> {
        let files = TlsFiles {
            own: Some(own.clone()),
            authorities,
        };
        Tls::made_by(files, move |files| {
            server(&own, files.authorities.as_deref())
        })
    }

    /// Whether clients must show a certificate.
    pub fn wants_certificates(&self) -> bool {
        self.files.authorities.is_some()
    }

    /// Accepts clients by the certificates in force.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.made.current())
    }
}

fn server(
    pair: &(PathBuf, PathBuf),
    authorities: Option<&Path>,
) -> Result<ServerConfig, TlsProblem> {
    let builder = ServerConfig::builder();
    let builder = match authorities {
        Some(path) => match WebPkiClientVerifier::builder(Arc::new(trusted(path)?)).build() {
            Ok(verifier) => builder.with_client_cert_verifier(verifier),
            Err(error) => return wrong(TlsFile::Authorities, path, error),
        },
        None => builder.with_no_client_auth(),
    };
    let (chain, key) = own(pair)?;
    let mut config = match builder.with_single_cert(chain, key) {
        Ok(config) => config,
        Err(error) => return wrong(TlsFile::Certificate, &pair.0, error),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

impl ClientTls {
    /// Without authorities, the system's are trusted.
    ///
    /// # Errors
    ///
    /// A file that cannot be used.
    pub fn new(files: TlsFiles) -> Result<Self, TlsProblem> {
        Tls::made_by(files, client)
    }

    /// The certificates in force.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.made.current()
    }

    /// Speaks TLS to the server of the URL.
    pub async fn connect(
        &self,
        url: &HttpUrl,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host_of(&url.connect).to_owned());
        let name = name.map_err(io::Error::other)?;
        TlsConnector::from(self.config())
            .connect(name, stream)
            .await
    }
}

fn client(files: &TlsFiles) -> Result<ClientConfig, TlsProblem> {
    let trusted = match files.authorities()? {
        Some(trusted) => trusted,
        None => system(),
    };
    let builder = ClientConfig::builder().with_root_certificates(trusted);
    match (files.own()?, &files.own) {
        (Some((chain, key)), Some((path, _))) => match builder.with_client_auth_cert(chain, key) {
            Ok(config) => Ok(config),
            Err(error) => wrong(TlsFile::Certificate, path, error),
        },
        _ => Ok(builder.with_no_client_auth()),
    }
}

/// The system's authorities, but for those that cannot be read.
fn system() -> RootCertStore {
    let mut trusted = RootCertStore::empty();
    trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    trusted
}

/// The texts of [`TlsFiles`], for a library that makes its TLS of them.
pub struct TlsTexts {
    /// Certificate and key.
    pub own: Option<(Vec<u8>, Vec<u8>)>,
    /// The authorities.
    pub authorities: Option<Vec<u8>>,
}

impl TextTls {
    /// Checks the files.
    ///
    /// # Errors
    ///
    /// A file that cannot be used.
    pub fn new(files: TlsFiles) -> Result<Self, TlsProblem> {
        Tls::made_by(files, texts)
    }

    /// The texts in force.
    pub fn texts(&self) -> Arc<TlsTexts> {
        self.made.current()
    }
}

fn texts(files: &TlsFiles) -> Result<TlsTexts, TlsProblem> {
    files.own()?;
    files.authorities()?;
    let read = |file, path: &PathBuf| match std::fs::read(path) {
        Ok(text) => Ok(text),
        Err(error) => wrong(file, path, error),
    };
    let own = files.own.as_ref().map(|(certificate, key)| {
        let certificate = read(TlsFile::Certificate, certificate)?;
        Ok((certificate, read(TlsFile::Key, key)?))
    });
    let authorities = files.authorities.as_ref();
    let authorities = authorities.map(|path| read(TlsFile::Authorities, path));
    Ok(TlsTexts {
        own: own.transpose()?,
        authorities: authorities.transpose()?,
    })
}
