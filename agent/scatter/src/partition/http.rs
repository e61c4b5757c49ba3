//! Queries to a service with an agent's protocol (docs/scatter.md). Closing the connection cancels a query.

use std::sync::Arc;

use axum::body::Bytes;
use futures_util::FutureExt;
use http_body_util::Full;
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    client::conn::http1::{self, SendRequest},
    header::{HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Asked, Out, Trouble,
    pool::{Pool, Pooled},
};
use crate::{
    client::{
        BUFFER_BYTES, Begun, Fault, HOPS, MAX_ROW_BYTES, Picker, Question, TooLong, begin, ending,
        more, request, told,
    },
    partition::PartitionService,
};

/// Connection to a service.
#[derive(Debug)]
pub struct Session {
    sender: SendRequest<Full<Bytes>>,
    /// Task that drives the connection.
    _driver: AbortOnDropHandle<hyper::Result<()>>,
    is_used: bool,
}

impl Pooled for Session {
    type Server = PartitionService;

    async fn open(service: &PartitionService) -> Result<Self, Trouble> {
        let down = |problem: String| Trouble::from(Fault::Down(problem));
        let opened = TcpStream::connect(&service.url.connect).await;
        let opened = opened.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        let stream = opened.map_err(|error| down(format!("cannot connect: {error}")))?;
        let secured = service.caller.secure(&service.url, stream).await;
        let stream = secured.map_err(|problem| down(format!("cannot connect: {problem}")))?;
        let opened = http1::Builder::new()
            .max_buf_size(BUFFER_BYTES)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, connection) = opened.map_err(|error| down(told(&error)))?;
        Ok(Session {
            sender,
            // Its errors also surface in the request.
            _driver: AbortOnDropHandle::new(tokio::spawn(connection)),
            is_used: false,
        })
    }

    fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    async fn close(self) {}
}

impl Session {
    async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        self.is_used = true;
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }
}

/// Runs a query until it is complete, the deadline is exceeded or the caller leaves.
pub async fn run(pool: &Arc<Pool<Session>>, asked: &Asked, out: &mut Out) -> Result<(), Trouble> {
    let gone = out.gone();
    // Dropping the branch not taken closes its connection.
    tokio::select! {
        ended = timeout_at(asked.deadline, answer(pool, asked, out)) => {
            ended.unwrap_or(Err(Trouble::Late))
        }
        () = gone => Err(Trouble::Late),
    }
}

async fn answer(pool: &Arc<Pool<Session>>, asked: &Asked, out: &mut Out) -> Result<(), Trouble> {
    let mut session = pool.take().await?;
    let was_kept = session.is_used;
    let mut answer = session.send(question(&pool.server, asked)?).await;
    // Retry if the service had closed a kept connection, but not after a malformed response.
    if answer
        .as_ref()
        .is_err_and(|error| was_kept && !error.is_parse())
    {
        pool.clear();
        session = pool.open().await?;
        answer = session.send(question(&pool.server, asked)?).await;
    }
    let answer = answer.map_err(|error| Fault::Down(told(&error)))?;
    let ended = pass(answer, asked.limit, out).await;
    let is_read = match &ended {
        Ok(is_read) => *is_read,
        Err(fault) => matches!(
            fault,
            Fault::Refused {
                status: Some(_),
                ..
            }
        ),
    };
    if is_read {
        pool.put(session);
    }
    Ok(ended.map(drop)?)
}

fn question(service: &PartitionService, asked: &Asked) -> Result<Request<Full<Bytes>>, Trouble> {
    let wrong = |error: hyper::http::Error| Trouble::Refused(error.to_string());
    let question = Question {
        partition: &asked.partition.name,
        query: Some(&asked.text),
        sql: None,
        parameters: &asked.parameters,
        limit: asked.limit,
    };
    let body = question.body(asked.deadline).ok_or(Trouble::Late)?;
    let url = &service.url;
    let mut request = request(&url.path, "plimsoll", &service.caller, body).map_err(wrong)?;
    let host = HeaderValue::from_str(&url.authority).map_err(|error| wrong(error.into()))?;
    request.headers_mut().insert(HOST, host);
    // Otherwise the service, if it is an agent, might wait for a core that this query holds here.
    let hops = HeaderValue::from(asked.hops + 1);
    request.headers_mut().insert(HOPS, hops);
    Ok(request)
}

/// Forwards an answer. Returns whether it was read to its end, as it is not beyond the limit.
async fn pass(
    answer: Response<Incoming>,
    limit: Option<u64>,
    out: &mut Out,
) -> Result<bool, Fault> {
    let Begun {
        columns,
        mut lines,
        mut body,
    } = begin(answer).await?;
    let picker = Picker::new(columns.len(), &[]);
    let too_long = |TooLong| Fault::refused(format!("a line has more than {MAX_ROW_BYTES} bytes"));
    let mut end = None;
    out.columns(&columns);
    loop {
        while let Some(line) = lines.next_line().map_err(too_long)? {
            if end.is_some() {
                return Err(Fault::refused("there is more after its end"));
            }
            if line.first() != Some(&b'[') {
                end = Some(ending(&line)?);
                continue;
            }
            let picked = picker.pick(&line);
            picked.map_err(|problem| Fault::refused(format!("a row cannot be read: {problem}")))?;
            if Some(out.rows()) == limit {
                out.end().await;
                return Ok(false);
            }
            out.row(&line).await;
        }
        let next = match more(&mut body).now_or_never() {
            Some(next) => next,
            None => {
                // Before the first row the whole query may still be refused.
                if out.rows() > 0 {
                    out.flush().await;
                }
                more(&mut body).await
            }
        };
        let broke = |error| Fault::Down(format!("broke off: {}", told(&error)));
        match next.map_err(broke)? {
            Some(chunk) => lines.push(chunk),
            None => break,
        }
    }
    let came = out.rows();
    match end {
        _ if lines.has_begun() => Err(Fault::refused("ends within a line")),
        None => Err(Fault::Down("its answer broke off".to_owned())),
        Some(rows) if rows != came => {
            let problem = format!("{came} rows arrived of {rows} sent");
            Err(Fault::Down(problem))
        }
        Some(_) => {
            out.end().await;
            Ok(true)
        }
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        let of = |problem| format!("HTTP service: {problem}");
        match fault {
            Fault::Late => Trouble::Late,
            // Another node may have room.
            Fault::Refused {
                status: Some(StatusCode::TOO_MANY_REQUESTS),
                problem,
            } => Trouble::Busy(of(problem)),
            Fault::Refused { problem, .. } => Trouble::Refused(of(problem)),
            Fault::Down(problem) => Trouble::Down(of(problem)),
        }
    }
}
