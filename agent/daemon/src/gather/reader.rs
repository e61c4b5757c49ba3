//! Asks the agents of one partition, and hands over what one of them answers, as fast as it is taken.

use std::sync::Arc;

use http_body_util::{BodyExt, Limited};
use hyper::{StatusCode, body::Incoming};
use plimsoll_core::gather::State;
use serde::Deserialize;
use tokio::{sync::mpsc, time::timeout_at};
use tokio_util::bytes::Bytes;

use super::{
    lines::{Lines, TooLong, Word},
    nodes::Nodes,
    question::Question,
};
use crate::config::{NodeAddress, Served};

/// Of the body of a refusal.
const MOST_REFUSAL_BYTES: usize = 64 << 10;

/// News of a partition. Nothing follows the last one; where that is no [`News::Lost`], the agent has said all it had to.
#[derive(Debug)]
pub enum News {
    /// An answer begins.
    Begun {
        /// Whose.
        node: String,
        /// Its columns.
        columns: Vec<String>,
        /// Lines that came with them.
        lines: Bytes,
    },
    /// More of its lines, cut anywhere.
    More(Bytes),
    /// There is no more.
    Lost(State),
}

/// Why an agent's answer is none.
struct Trouble {
    state: State,
    /// Whether another node may have one.
    elsewhere: bool,
}

impl Trouble {
    fn down(problem: impl Into<String>) -> Self {
        Trouble {
            state: State::Down(problem.into()),
            elsewhere: true,
        }
    }

    fn refused(problem: impl Into<String>) -> Self {
        Trouble {
            state: State::Refused(problem.into()),
            elsewhere: false,
        }
    }

    fn late() -> Self {
        Trouble {
            state: State::Late,
            elsewhere: false,
        }
    }
}

/// Ends where nobody takes the news any more; then so does the query.
pub async fn read(
    nodes: Arc<Nodes>,
    question: Arc<Question>,
    served: Served,
    news: mpsc::Sender<News>,
) {
    let mut last = State::Late;
    for node in nodes.order(&served) {
        let begun = begin(&nodes, &question, &served.name, node);
        let begun = timeout_at(question.deadline, begun).await;
        match begun.unwrap_or_else(|_| Err(Trouble::late())) {
            Ok((begun, body)) => {
                nodes.note(node, true);
                if news.send(begun).await.is_ok() {
                    pass(body, &news).await;
                }
                return;
            }
            Err(trouble) => {
                nodes.note(node, !trouble.elsewhere);
                last = trouble.state;
                if !trouble.elsewhere {
                    break;
                }
            }
        }
    }
    let _ = news.send(News::Lost(last)).await;
}

async fn pass(mut body: Incoming, news: &mpsc::Sender<News>) {
    while let Some(frame) = body.frame().await {
        let more = match frame.map(|frame| frame.into_data()) {
            Ok(Ok(data)) => News::More(data),
            Ok(Err(_trailers)) => continue,
            Err(error) => News::Lost(State::Down(format!("its answer broke off: {error}"))),
        };
        if news.send(more).await.is_err() {
            return;
        }
    }
}

/// Until there is the first row or none: so far another node may be asked.
async fn begin(
    nodes: &Nodes,
    question: &Question,
    partition: &str,
    node: &NodeAddress,
) -> Result<(News, Incoming), Trouble> {
    let name = &node.name;
    let body = question.to_agent(partition).ok_or_else(Trouble::late)?;
    let answer = nodes.ask(node, question.token.as_deref(), body).await;
    let answer = answer.map_err(|problem| Trouble::down(format!("node {name}: {problem}")))?;
    let (head, mut body) = answer.into_parts();
    if head.status != StatusCode::OK {
        return Err(refusal(name, head.status, body).await);
    }
    let mut lines = Lines::default();
    let too_long = |TooLong| Trouble::refused(format!("node {name}: a line is too long"));
    let first = loop {
        match lines.next().map_err(too_long)? {
            Some(line) => break line,
            None => lines.push(more(name, &mut body).await?),
        }
    };
    let columns = match serde_json::from_slice(&first) {
        Ok(Word::Columns(columns)) => columns,
        _ => {
            let problem = format!("node {name}: does not begin with its columns");
            return Err(Trouble::refused(problem));
        }
    };
    let mut rest = lines.rest();
    if rest.is_empty() {
        rest = more(name, &mut body).await?;
    }
    if let Ok(Word::Error { state, problem }) = serde_json::from_slice(&rest) {
        return Err(trouble(name, &state, problem));
    }
    let begun = News::Begun {
        node: name.clone(),
        columns,
        lines: rest,
    };
    Ok((begun, body))
}

async fn more(name: &str, body: &mut Incoming) -> Result<Bytes, Trouble> {
    loop {
        let frame = body.frame().await;
        let broke = |problem: &str| Trouble::down(format!("node {name}: broke off{problem}"));
        let frame = frame.ok_or_else(|| broke(" before its first row"))?;
        let frame = frame.map_err(|error| broke(&format!(": {error}")))?;
        if let Ok(data) = frame.into_data() {
            return Ok(data);
        }
    }
}

async fn refusal(name: &str, status: StatusCode, body: Incoming) -> Trouble {
    #[derive(Deserialize)]
    struct Refused {
        error: Error,
    }
    #[derive(Deserialize)]
    struct Error {
        state: String,
        problem: String,
    }
    let said = Limited::new(body, MOST_REFUSAL_BYTES).collect().await;
    let said = said.map(|said| said.to_bytes()).unwrap_or_default();
    let said = serde_json::from_slice(&said).map(|Refused { error }| error);
    let mut trouble = match said {
        Ok(Error { state, problem }) => trouble(name, &state, problem),
        Err(_) => Trouble::down(format!("node {name}: answers with status {status}")),
    };
    // Another node may have the partition, and fewer queries.
    trouble.elsewhere |= matches!(
        status,
        StatusCode::NOT_FOUND | StatusCode::TOO_MANY_REQUESTS
    );
    trouble
}

fn trouble(name: &str, state: &str, problem: String) -> Trouble {
    let problem = format!("node {name}: {problem}");
    match state {
        "late" => Trouble::late(),
        "refused" => Trouble::refused(problem),
        _ => Trouble::down(problem),
    }
}

/// What an agent said in the place of an end.
pub fn lost(node: &str, state: &str, problem: String) -> State {
    trouble(node, state, problem).state
}
