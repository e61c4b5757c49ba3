//! Queries the agents of one partition, and forwards the answer of one of them with backpressure.

use std::sync::Arc;

use hyper::{StatusCode, body::Incoming};
use tokio::{sync::mpsc, time::timeout_at};
use tokio_util::bytes::Bytes;

use super::{nodes::Nodes, question::Question};
use crate::answer::State;
use crate::{
    client::{self, Begun, Fault, Word, more},
    gather::{NodeAddress, Served},
};

/// News of a partition. If the last one is not [`News::Lost`], the agent's response has ended.
#[derive(Debug)]
pub enum News {
    /// An answer begins.
    Begun {
        /// Name of the node.
        node: String,
        /// Its columns.
        columns: Vec<String>,
        /// Lines received together with the columns.
        lines: Bytes,
    },
    /// More bytes of its lines, split anywhere.
    More(Bytes),
    /// The answer failed.
    Lost(State),
}

/// Failure of an agent's answer.
struct Trouble {
    state: State,
    /// Whether another node may be able to answer.
    elsewhere: bool,
}

impl Trouble {
    fn of(node: &str, fault: Fault) -> Self {
        // Another node may have the partition, and room for the query.
        let elsewhere = match &fault {
            Fault::Late => false,
            Fault::Refused { status, .. } => matches!(
                *status,
                Some(StatusCode::NOT_FOUND | StatusCode::TOO_MANY_REQUESTS)
            ),
            Fault::Down(_) => true,
        };
        Trouble {
            state: lost(node, fault),
            elsewhere,
        }
    }
}

/// State of a partition after a node's fault.
pub fn lost(node: &str, fault: Fault) -> State {
    match fault {
        Fault::Late => State::Late,
        Fault::Refused { problem, .. } => State::Refused(format!("node {node}: {problem}")),
        Fault::Down(problem) => State::Down(format!("node {node}: {problem}")),
    }
}

/// Queries a partition and sends the news. Ends, and cancels the query, when the receiver is dropped.
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
        match begun.unwrap_or(Err(Fault::Late)) {
            Ok((begun, body)) => {
                nodes.note(node, true);
                if news.send(begun).await.is_ok() {
                    pass(body, &news).await;
                }
                return;
            }
            Err(fault) => {
                let trouble = Trouble::of(&node.name, fault);
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
    while let Some(more) = more(&mut body).await.transpose() {
        let more = match more {
            Ok(data) => News::More(data),
            Err(error) => News::Lost(State::Down(format!("its answer broke off: {error}"))),
        };
        if news.send(more).await.is_err() {
            return;
        }
    }
}

/// Begins an answer up to the first row or the end; until then another node may be queried instead.
async fn begin(
    nodes: &Nodes,
    question: &Question,
    partition: &str,
    node: &NodeAddress,
) -> Result<(News, Incoming), Fault> {
    let body = question.to_agent(partition).ok_or(Fault::Late)?;
    let answer = nodes.ask(node, &question.caller, body).await;
    let begun = client::begin(answer.map_err(Fault::Down)?).await?;
    let Begun {
        columns,
        lines,
        mut body,
    } = begun;
    let mut rest = lines.rest();
    if rest.is_empty() {
        rest = client::first(&mut body).await?;
    }
    if let Ok(Word::Error { state, problem }) = serde_json::from_slice(&rest) {
        return Err(Fault::said(&state, problem));
    }
    let begun = News::Begun {
        node: node.name.clone(),
        columns,
        lines: rest,
    };
    Ok((begun, body))
}
