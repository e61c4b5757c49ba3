//! Runs one gather: feeds the partitions' answers to its decisions, and rows to the caller.

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll};

use axum::http::StatusCode;
use futures_util::{
    future::{BoxFuture, poll_immediate},
    stream::{FuturesUnordered, StreamExt},
};
use plimsoll_core::Seconds;
use serde_json::{Value as Json, json};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};
use tokio_util::bytes::Bytes;

use super::{
    nodes::Nodes,
    out::{Left, Out},
    question::Question,
    reader::{self, News},
};
use crate::answer::{Failure, Gathering, Offer, Plan, PlanError, State, Step};
use crate::client::{Fault, Lines, MAX_ROW_BYTES, Picker, TooLong, ending};

/// Maximum queued chunks of a partition.
const CHUNKS: usize = 1;
/// Length in bytes above which a row is queued only while no other row of its partition is.
const LONG_ROW_BYTES: usize = 64 << 10;

/// Outcome of a gather, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All partitions answered.
    Whole,
    /// Some partitions answered.
    Partial,
    /// Deadline exceeded.
    Late,
    /// The query was refused.
    Refused,
    /// A partition was unavailable.
    Down,
    /// The caller left.
    Left,
}

/// All outcomes.
pub const OUTCOMES: [Outcome; 6] = [
    Outcome::Whole,
    Outcome::Partial,
    Outcome::Late,
    Outcome::Refused,
    Outcome::Down,
    Outcome::Left,
];

impl Outcome {
    /// Label value.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Whole => "whole",
            Outcome::Partial => "partial",
            Outcome::Late => "late",
            Outcome::Refused => "refused",
            Outcome::Down => "down",
            Outcome::Left => "left",
        }
    }
}

/// Result of a gather.
#[derive(Debug)]
pub struct Summary {
    /// Outcome.
    pub outcome: Outcome,
    /// Rows sent.
    pub rows: u64,
    /// Each partition whose answer ended, and its final state.
    pub partitions: Vec<(String, &'static str)>,
}

struct Source {
    /// Incoming news; `None` if no more is expected.
    news: Option<mpsc::Receiver<News>>,
    node: Option<String>,
    lines: Lines,
    picker: Option<Picker>,
    /// Line for which the gathering had no room.
    held: Option<Bytes>,
    /// Number of rows that the node stated in its last line.
    end: Option<u64>,
    /// Time at which its news ended.
    closed: Option<Instant>,
}

/// Gather in progress.
pub struct Answer {
    question: Arc<Question>,
    gathering: Gathering<Bytes>,
    sources: Vec<Source>,
    /// Polled by the gather while it waits for news: separate tasks would be woken for each chunk.
    readers: FuturesUnordered<BoxFuture<'static, ()>>,
}

impl Answer {
    /// Creates a gather; an invalid plan is an error.
    pub fn new(question: Arc<Question>, plan: Plan) -> Result<Self, PlanError> {
        let names = question.partitions.iter().map(|it| it.name.clone());
        Ok(Answer {
            gathering: Gathering::new(names, plan)?,
            sources: Vec::new(),
            readers: FuturesUnordered::new(),
            question,
        })
    }

    /// Queries all partitions and sends the answer. All queries have ended when it returns.
    pub async fn run(mut self, nodes: &Arc<Nodes>, out: &mut Out) -> Summary {
        for served in &self.question.partitions {
            let (news, receiver) = mpsc::channel(CHUNKS);
            let (nodes, question) = (Arc::clone(nodes), Arc::clone(&self.question));
            let reader = reader::read(nodes, question, served.clone(), news);
            self.readers.push(Box::pin(reader));
            self.sources.push(Source {
                news: Some(receiver),
                node: None,
                lines: Lines::default(),
                picker: None,
                held: None,
                end: None,
                closed: None,
            });
        }
        let outcome = match self.answer(out).await {
            Ok(outcome) => outcome,
            Err(Left) => Outcome::Left,
        };
        let report = self.gathering.report();
        let partitions = report.partitions.into_iter();
        let partitions = partitions.filter(|it| !it.state.is_open());
        Summary {
            outcome,
            rows: report.rows,
            partitions: partitions.map(|it| (it.name, it.state.word())).collect(),
        }
    }

    async fn answer(&mut self, out: &mut Out) -> Result<Outcome, Left> {
        let mut left = pin!(out.left());
        loop {
            match self.gathering.step() {
                Step::Row(partition, row) => {
                    self.columns(out);
                    if out.row(&row).await? && Instant::now() >= self.question.deadline {
                        self.tick();
                    }
                    self.feed(partition);
                }
                Step::Reduced(values) => {
                    out.columns(&self.question.reduced);
                    out.values(&values).await?;
                }
                Step::Wait(_) => {
                    if let Some((partition, news)) = poll_immediate(self.next()).await {
                        self.hear(partition, news);
                        continue;
                    }
                    out.pause().await?;
                    let deadline = self.question.deadline;
                    tokio::select! {
                        (partition, news) = self.next() => self.hear(partition, news),
                        () = &mut left => return Err(Left),
                        () = sleep_until(deadline) => self.tick(),
                    }
                }
                Step::Done => return self.done(out).await,
                Step::Failed(failure) => return self.failed(failure, out).await,
            }
        }
    }

    /// Next news of a partition that is open, has room for rows and has no unprocessed lines.
    async fn next(&mut self) -> (usize, Option<News>) {
        poll_fn(|context| {
            while let Poll::Ready(Some(())) = self.readers.poll_next_unpin(context) {}
            for (at, source) in self.sources.iter_mut().enumerate() {
                let has_rows = source.held.is_some() || self.gathering.room(at) == 0;
                if has_rows || !self.gathering.is_open(at) {
                    continue;
                }
                if let Some(receiver) = &mut source.news
                    && let Poll::Ready(news) = receiver.poll_recv(context)
                {
                    return Poll::Ready((at, news));
                }
            }
            Poll::Pending
        })
        .await
    }

    fn columns(&self, out: &mut Out) {
        out.columns(self.gathering.columns().unwrap_or_default());
    }

    fn tick(&mut self) {
        let passed = self.question.asked.elapsed();
        let deadline = self.question.deadline - self.question.asked;
        self.gathering.tick(Seconds::from(passed.max(deadline)));
        self.close();
    }

    /// Ends the queries that are no longer needed.
    fn close(&mut self) {
        for (at, source) in self.sources.iter_mut().enumerate() {
            if source.closed.is_none() && !self.gathering.is_open(at) {
                source.closed = Some(Instant::now());
                source.news = None;
            }
        }
    }

    fn fail(&mut self, partition: usize, state: State) {
        self.gathering.fail(partition, state);
        self.close();
    }

    fn refuse(&mut self, partition: usize, problem: &str) {
        self.lose(partition, Fault::refused(problem));
    }

    fn lose(&mut self, partition: usize, fault: Fault) {
        let node = self.sources[partition].node.as_deref().unwrap_or_default();
        let state = reader::lost(node, fault);
        self.fail(partition, state);
    }

    fn hear(&mut self, partition: usize, news: Option<News>) {
        let source = &mut self.sources[partition];
        match news {
            Some(News::Begun {
                node,
                columns,
                lines,
            }) => {
                source.node = Some(node);
                source.lines.push(lines);
                if self.gathering.begin(partition, 0, &columns) {
                    let picker = Picker::new(columns.len(), self.gathering.picks());
                    source.picker = Some(picker);
                }
            }
            Some(News::More(chunk)) => source.lines.push(chunk),
            Some(News::Lost(state)) => self.gathering.fail(partition, state),
            None => {
                source.news = None;
                match source.end {
                    _ if source.lines.has_begun() => self.refuse(partition, "ends within a line"),
                    Some(rows) => self.gathering.end(partition, 0, rows),
                    None => {
                        let why = "its answer broke off".to_owned();
                        self.gathering.fail(partition, State::Down(why));
                    }
                }
            }
        }
        self.feed(partition);
        self.close();
    }

    /// Offers received lines as long as there is room.
    fn feed(&mut self, partition: usize) {
        while self.gathering.is_open(partition) {
            let room = self.gathering.room(partition);
            let source = &mut self.sources[partition];
            if room == 0 {
                return;
            }
            let line = match source.held.take() {
                Some(line) => line,
                None => match source.lines.next_line() {
                    Ok(Some(line)) => line,
                    Ok(None) => return,
                    Err(TooLong) => {
                        let problem = format!("a line has more than {MAX_ROW_BYTES} bytes");
                        return self.refuse(partition, &problem);
                    }
                },
            };
            if line.len() > LONG_ROW_BYTES && self.gathering.has_rows(partition) {
                source.held = Some(line);
                return;
            }
            if source.end.is_some() {
                return self.refuse(partition, "there is more after its end");
            }
            match (line.first(), &source.picker) {
                (Some(b'['), Some(picker)) => match picker.pick(&line) {
                    Ok(keys) => {
                        if let Offer::Full(_, line) = self.gathering.offer(partition, 0, keys, line)
                        {
                            self.sources[partition].held = Some(line);
                            return;
                        }
                    }
                    Err(problem) => {
                        let problem = format!("a row cannot be read: {problem}");
                        return self.refuse(partition, &problem);
                    }
                },
                _ => match ending(&line) {
                    Ok(rows) => source.end = Some(rows),
                    Err(fault) => return self.lose(partition, fault),
                },
            }
        }
        self.close();
    }

    async fn done(&mut self, out: &mut Out) -> Result<Outcome, Left> {
        self.close();
        self.readers.clear();
        self.columns(out);
        let report = self.gathering.report();
        let mut told = self.partitions();
        told["rows"] = json!(report.rows);
        told["complete"] = json!(report.complete);
        out.end("end", told, None).await?;
        Ok(match report.complete {
            true => Outcome::Whole,
            false => Outcome::Partial,
        })
    }

    async fn failed(&mut self, failure: Failure, out: &mut Out) -> Result<Outcome, Left> {
        // Later news no longer counts.
        self.readers.clear();
        let report = self.gathering.report();
        let state = match &failure {
            Failure::Partition { state, .. } => state.word(),
            Failure::Nobody => {
                let mut states = report.partitions.iter().map(|it| it.state.word());
                match states.all(|word| word == "late") {
                    true => "late",
                    false => "down",
                }
            }
            _ => "refused",
        };
        let (status, outcome) = match state {
            "late" => (StatusCode::GATEWAY_TIMEOUT, Outcome::Late),
            "refused" => (StatusCode::UNPROCESSABLE_ENTITY, Outcome::Refused),
            _ => (StatusCode::BAD_GATEWAY, Outcome::Down),
        };
        let mut told = self.partitions();
        told["state"] = json!(state);
        told["problem"] = json!(failure.to_string());
        told["rows"] = json!(report.rows);
        out.end("error", told, Some(status)).await?;
        Ok(outcome)
    }

    /// Report on each partition.
    fn partitions(&self) -> Json {
        let report = self.gathering.report();
        let each = report.partitions.iter().zip(&self.sources);
        let each = each.map(|(report, source)| {
            let until = source.closed.unwrap_or_else(Instant::now);
            let delay = until - self.question.asked;
            let mut told = json!({
                "name": report.name,
                "node": source.node,
                "state": report.state.word(),
                "rows": report.rows,
                "delay_seconds": (delay.as_secs_f64() * 1e6).round() / 1e6,
            });
            if let Some(why) = report.state.why() {
                told["problem"] = json!(why);
            }
            told
        });
        json!({ "partitions": each.collect::<Vec<_>>() })
    }
}
