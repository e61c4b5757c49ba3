//! Parsing and validation of a gather's query.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::http::StatusCode;
use plimsoll_core::Seconds;
use plimsoll_net::{Caller, Refusal, parse_body};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::answer::{Function, How, OrderKey, Plan, Reduction};
use crate::{
    client,
    gather::{GatherConfig, Served},
};

const MAX_PARAMETERS: usize = 100;

/// The body of `POST /v1/gather`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    query: Option<String>,
    sql: Option<String>,
    #[serde(default)]
    parameters: Vec<Value>,
    limit: Option<u64>,
    #[serde(default)]
    order_by: Vec<Order>,
    #[serde(default)]
    reduce: Vec<Reduce>,
    partitions: Option<Vec<String>>,
    deadline_seconds: Option<f64>,
    #[serde(default)]
    partial: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    column: String,
    #[serde(default)]
    descending: bool,
    nulls_first: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reduce {
    function: Word,
    column: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Count,
    Sum,
    Min,
    Max,
}

impl Word {
    fn function(self) -> Function {
        match self {
            Word::Count => Function::Count,
            Word::Sum => Function::Sum,
            Word::Min => Function::Min,
            Word::Max => Function::Max,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Word::Count => "count",
            Word::Sum => "sum",
            Word::Min => "min",
            Word::Max => "max",
        }
    }
}

/// Validated query.
#[derive(Debug)]
pub struct Question {
    body: Body,
    /// Partitions to query.
    pub partitions: Vec<Served>,
    /// Columns of the one row of a reduction.
    pub reduced: Vec<String>,
    /// Time of arrival.
    pub asked: Instant,
    /// Time by which the answer must end.
    pub deadline: Instant,
    /// Credentials for the agents.
    pub caller: Caller,
}

impl Question {
    /// Parses and validates a body that arrived at `asked`.
    pub fn read(
        body: &[u8],
        asked: Instant,
        config: &GatherConfig,
    ) -> Result<(Arc<Self>, Plan), Refusal> {
        let bad = |problem: String| (StatusCode::BAD_REQUEST, problem);
        let mut body: Body = parse_body(body).map_err(bad)?;
        match (&body.query, &body.sql) {
            (Some(_), None) => {}
            (None, Some(_)) if config.free_sql => {}
            (None, Some(_)) => {
                let problem = "sql: queries are asked by name only";
                return Err((StatusCode::FORBIDDEN, problem.to_owned()));
            }
            _ => {
                let problem = "must have either query, the name of one, or sql";
                return Err(bad(problem.to_owned()));
            }
        }
        if body.parameters.len() > MAX_PARAMETERS {
            let count = body.parameters.len();
            let problem = format!("parameters: {count}, maximum {MAX_PARAMETERS}");
            return Err(bad(problem));
        }
        let range = 1..=i64::MAX as u64;
        if body.limit.is_some_and(|limit| !range.contains(&limit)) {
            return Err(bad(format!("limit: must be from 1 to {}", i64::MAX)));
        }
        let longest = config.max_deadline.as_secs_f64();
        let seconds = body.deadline_seconds;
        let seconds = seconds.unwrap_or(config.deadline.as_secs_f64());
        if !(seconds > 0.0 && seconds <= longest) {
            let problem = format!("deadline_seconds: must be above 0, to {longest}, is {seconds}");
            return Err(bad(problem));
        }
        let partitions = partitions(body.partitions.take(), config).map_err(bad)?;
        let reduced = body.reduce.iter().map(|it| match &it.column {
            Some(column) => format!("{}({column})", it.function.text()),
            None => it.function.text().to_owned(),
        });
        let reduced = reduced.collect();
        let deadline = Duration::from_secs_f64(seconds);
        let plan = Plan {
            how: how(&mut body).map_err(bad)?,
            limit: body.limit,
            partial: body.partial,
            deadline: Seconds::from(deadline),
        };
        let question = Question {
            partitions,
            reduced,
            asked,
            deadline: asked + deadline,
            caller: config.agents.clone(),
            body,
        };
        Ok((Arc::new(question), plan))
    }

    /// Body of the query to a partition's agent; `None` if the deadline is exceeded.
    pub fn to_agent(&self, partition: &str) -> Option<String> {
        let question = client::Question {
            partition,
            query: self.body.query.as_deref(),
            sql: self.body.sql.as_deref(),
            parameters: &self.body.parameters,
            limit: self.body.limit,
        };
        question.body(self.deadline)
    }
}

fn partitions(wanted: Option<Vec<String>>, config: &GatherConfig) -> Result<Vec<Served>, String> {
    let Some(wanted) = wanted else {
        return Ok(config.partitions.clone());
    };
    let wanted: BTreeSet<String> = wanted.into_iter().collect();
    if wanted.is_empty() {
        return Err("partitions: must name at least one".to_owned());
    }
    let known = |name: &&String| config.partitions.iter().any(|it| it.name == **name);
    if let Some(unknown) = wanted.iter().find(|name| !known(name)) {
        return Err(format!("partitions: there is none named {unknown:?}"));
    }
    let all = config.partitions.iter();
    Ok(all
        .filter(|it| wanted.contains(&it.name))
        .cloned()
        .collect())
}

fn how(body: &mut Body) -> Result<How, String> {
    let order = std::mem::take(&mut body.order_by);
    let reduce = std::mem::take(&mut body.reduce);
    match (order.is_empty(), reduce.is_empty()) {
        (true, true) => Ok(How::Concatenate),
        (false, false) => Err("reduce: one row has no order_by".to_owned()),
        (false, true) => {
            let keys = order.into_iter().map(|key| OrderKey {
                column: key.column,
                descending: key.descending,
                // The same default as PostgreSQL.
                nulls_first: key.nulls_first.unwrap_or(key.descending),
            });
            Ok(How::Merge(keys.collect()))
        }
        (true, false) => {
            let reductions = reduce.into_iter().map(|it| Reduction {
                function: it.function.function(),
                column: it.column,
            });
            Ok(How::Reduce(reductions.collect()))
        }
    }
}
