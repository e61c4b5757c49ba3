//! The operators' control socket.

mod protocol;

use std::{
    io,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::http::{NodeContext, node_view};

pub use protocol::{Command, Force, MAX_REQUEST, Request, Response};

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 16;
/// Time without a request after which a connection is closed.
const IDLE_LIMIT: Duration = Duration::from_secs(30);
/// Timeout for writing an answer.
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// Creates the socket, accessible by owner and group. Replaces a stale socket, but not that of a live agent.
pub fn bind(path: &Path) -> anyhow::Result<UnixListener> {
    let shown = path.display();
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            bail!("control.socket: {shown} exists and is not a socket")
        }
        Ok(_) if std::os::unix::net::UnixStream::connect(path).is_ok() => {
            bail!("control.socket: another agent answers on {shown}")
        }
        _ => {}
    }
    // Bound under another name until its mode is set, then moved into place.
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let _ = std::fs::remove_file(&beside);
    let listener = UnixListener::bind(&beside)
        .with_context(|| format!("control.socket: cannot bind {shown}"))?;
    let placed = std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o660))
        .and_then(|()| std::fs::rename(&beside, path));
    if let Err(error) = placed {
        let _ = std::fs::remove_file(&beside);
        return Err(error).with_context(|| format!("control.socket: cannot place {shown}"));
    }
    Ok(listener)
}

/// Serves operators until `shutdown`.
pub async fn serve(
    listener: UnixListener,
    context: NodeContext,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let accept = async {
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let context = context.clone();
                    tokio::spawn(async move {
                        if let Err(error) = connection(stream, &context).await {
                            debug!(%error, "control connection aborted");
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    warn!(%error, "cannot accept on the control socket");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    };
    tokio::select! {
        () = accept => {}
        () = shutdown.cancelled() => {}
    }
    Ok(())
}

async fn connection(stream: UnixStream, context: &NodeContext) -> io::Result<()> {
    let user = stream.peer_cred().map(|peer| peer.uid()).ok();
    let (read, mut write) = stream.into_split();
    let mut reader = BufReader::with_capacity(MAX_REQUEST, read);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut reader).take(MAX_REQUEST as u64);
        if timeout(IDLE_LIMIT, limited.read_until(b'\n', &mut line)).await?? == 0 {
            return Ok(());
        }
        let too_long = line.len() >= MAX_REQUEST && !line.ends_with(b"\n");
        let response = if too_long {
            Response::refused(format!("the request exceeds {MAX_REQUEST} bytes"))
        } else {
            answer(&line, user, context).await
        };
        let mut text = serde_json::to_vec(&response).map_err(io::Error::other)?;
        text.push(b'\n');
        timeout(WRITE_LIMIT, write.write_all(&text)).await??;
        if too_long {
            return Ok(());
        }
    }
}

async fn answer(line: &[u8], user: Option<u32>, context: &NodeContext) -> Response {
    let request: Request = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(error) => return Response::refused(format!("not understood: {error}")),
    };
    let settings = context.settings.load_full();
    let overrides = &context.overrides;
    let services = match request.apply(overrides, &settings) {
        Ok(services) => services,
        Err(error) => return Response::refused(error),
    };
    if matches!(request.command, Command::Drain | Command::Ready) {
        // For a drain, so that a crash before the next poll is repaired; for a ready, since another operator or a
        // forgotten run may have drained the node.
        for service in &services {
            for id in context
                .proxies
                .ids(service, Instant::now(), settings.agent_check.proxy_lease)
            {
                overrides.owe_ready(&id);
            }
        }
    }
    if request.command != Command::Status {
        info!(?request, user, "operator");
        if let Err(error) = overrides.save().await {
            return Response::refused(format!(
                "applied, but not saved, so a restart will lose it: {error:#}"
            ));
        }
    }
    match serde_json::to_value(node_view(context)) {
        Ok(node) => Response {
            ok: true,
            error: None,
            node: Some(node),
        },
        Err(error) => Response::refused(error.to_string()),
    }
}
