//! Access to Redis for operators, and for dispatchers that cannot connect to it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use plimsoll_wire::{
    GoneDispatcher, PlacedDispatcher, PlacementAnswer, PlacementMessage, PlacementOperation,
    PlacementView,
};
use redis::Value;
use tokio::sync::{Mutex as AsyncMutex, watch};

use super::{
    PlacementBoard, PlacementConfig, PlacementSettings,
    calls::{Calls, Status},
};
use crate::ring::{LinkSettings, told};

/// After a failure, Redis is not tried again for this long; requests in the meantime get the same error.
const PAUSE: Duration = Duration::from_millis(250);
/// Age up to which a view is reused.
const MAX_VIEW_AGE: Duration = Duration::from_millis(250);
/// Maximum number of moving sets that are listed.
const MAX_LISTED: usize = 100;

const DONE: PlacementAnswer = PlacementAnswer::Ok {
    version: None,
    deltas: Vec::new(),
};

/// Why a request failed.
#[derive(Debug)]
pub enum GateError {
    /// There is no `[placement]`, or none for that cluster.
    NoPlacement(String),
    /// The request is invalid.
    Refused(String),
    /// The request conflicts with the current state.
    Conflict(String),
    /// Redis is unavailable or returned an error.
    Redis(String),
}

type Held = Option<(LinkSettings, String, Calls)>;
/// Time of the view, the settings it was made with, and the view.
type Shown = Option<(Instant, LinkSettings, PlacementSettings, Arc<PlacementView>)>;

/// A connection that is opened on first use.
#[derive(Debug)]
pub struct Gate {
    config: watch::Receiver<Arc<Option<PlacementConfig>>>,
    board: Arc<PlacementBoard>,
    held: AsyncMutex<Held>,
    trouble: Mutex<Option<(String, Instant)>>,
    /// The last view; the lock also serialises requests for the next one.
    shown: AsyncMutex<Shown>,
}

impl Gate {
    /// Creates a gate without a connection.
    pub fn new(
        config: watch::Receiver<Arc<Option<PlacementConfig>>>,
        board: Arc<PlacementBoard>,
    ) -> Self {
        Gate {
            config,
            board,
            held: AsyncMutex::default(),
            trouble: Mutex::default(),
            shown: AsyncMutex::default(),
        }
    }

    /// Checks that placement is configured.
    pub fn is_there(&self) -> Result<(), GateError> {
        self.settings(None).map(drop)
    }

    fn settings(
        &self,
        cluster: Option<&str>,
    ) -> Result<(LinkSettings, PlacementSettings), GateError> {
        let config = Arc::clone(&self.config.borrow());
        let Some(PlacementConfig {
            link,
            settings: placement,
            ..
        }) = &*config
        else {
            let problem = "this agent has no [placement]";
            return Err(GateError::NoPlacement(problem.into()));
        };
        match cluster {
            Some(cluster) if cluster != placement.cluster => {
                let problem = format!(
                    "cluster: this agent's placement is for {:?}, not for {cluster:?}",
                    placement.cluster
                );
                Err(GateError::NoPlacement(problem))
            }
            _ => Ok((link.clone(), placement.clone())),
        }
    }

    /// Runs calls within the timeout of Redis.
    async fn run<T, F: Future<Output = anyhow::Result<T>>>(
        &self,
        link: &LinkSettings,
        cluster: &str,
        calls: impl FnOnce(Calls) -> F,
    ) -> Result<T, GateError> {
        let trouble = {
            let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            trouble.clone()
        };
        if let Some((problem, at)) = trouble
            && at.elapsed() < PAUSE
        {
            return Err(GateError::Redis(problem));
        }
        let limit = 2 * link.timeout;
        let both = async {
            let connection = self.connection(link, cluster).await?;
            calls(connection).await
        };
        let problem = match tokio::time::timeout(limit, both).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(problem)) => told(&problem),
            Err(_) => format!("no answer in {}", humantime::format_duration(limit)),
        };
        // An error from the library itself: the connection is fine.
        if let Some((_, said)) = problem.split_once("plimsoll: ")
            && !problem.contains("damaged")
        {
            return Err(GateError::Refused(said.to_owned()));
        }
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        *trouble = Some((problem.clone(), Instant::now()));
        drop(trouble);
        if let Ok(mut held) = self.held.try_lock() {
            *held = None;
        }
        Err(GateError::Redis(problem))
    }

    async fn connection(&self, link: &LinkSettings, cluster: &str) -> anyhow::Result<Calls> {
        let mut held = self.held.lock().await;
        if let Some((of, name, calls)) = &*held
            && of == link
            && name == cluster
        {
            return Ok(calls.clone());
        }
        let calls = Calls::open(link, cluster).await?;
        *held = Some((link.clone(), cluster.to_owned(), calls.clone()));
        Ok(calls)
    }

    /// Relays a message of a dispatcher or an operator.
    pub async fn carry(&self, message: &PlacementMessage) -> Result<PlacementAnswer, GateError> {
        let (link, placement) = self.settings(message.cluster.as_deref())?;
        let version = message.version.to_string();
        let busy = match message.busy.is_empty() {
            true => "-".to_owned(),
            false => message.busy.join(" "),
        };
        let loads = message.loads.iter();
        let loads: Vec<String> = loads.map(|(set, cost)| format!("{set} {cost:e}")).collect();
        let loads = match loads.is_empty() {
            true => "-".to_owned(),
            false => loads.join(" "),
        };
        let id = message.id.as_str();
        let (function, words) = match message.op {
            PlacementOperation::Join => ("join", vec![id]),
            PlacementOperation::Report => (
                "report",
                vec![id, message.generation.as_str(), &version, &busy, &loads],
            ),
            PlacementOperation::Leave => ("leave", vec![id, if message.idle { "1" } else { "0" }]),
            PlacementOperation::Forget => return self.forget(&link, &placement, id).await,
            PlacementOperation::Move => return self.wish(&link, &placement, message).await,
        };
        let carried = self
            .run(&link, &placement.cluster, async |mut calls| {
                match calls.carry(function, &words).await {
                    Err(problem) if told(&problem).contains("UNKNOWN") => Ok(None),
                    answer => answer.map(Some),
                }
            })
            .await?;
        match carried {
            None => Ok(PlacementAnswer::Unknown),
            Some(answer) => answer_of(answer)
                .ok_or_else(|| GateError::Redis("an answer that cannot be read".into())),
        }
    }

    async fn forget(
        &self,
        link: &LinkSettings,
        placement: &PlacementSettings,
        id: &str,
    ) -> Result<PlacementAnswer, GateError> {
        let forgotten = self.run(link, &placement.cluster, async |mut calls| {
            calls.forget(id).await
        });
        match forgotten.await? {
            true => Ok(DONE),
            false => Err(GateError::Refused(format!("id: no dispatcher {id:?}"))),
        }
    }

    /// Rejects moves that the keeper would not carry out.
    async fn wish(
        &self,
        link: &LinkSettings,
        placement: &PlacementSettings,
        message: &PlacementMessage,
    ) -> Result<PlacementAnswer, GateError> {
        let PlacementMessage { set, node, .. } = message;
        let known = set.parse();
        let known = known.map_err(|problem: plimsoll_core::placement::NoSet| {
            GateError::Refused(format!("set: {problem}"))
        })?;
        if let Some(pinned) = placement.pins.get(&known) {
            let problem = format!("set: {set} is pinned to {pinned} in placement.pins");
            return Err(GateError::Conflict(problem));
        }
        let (status, nodes) = self
            .run(link, &placement.cluster, async |mut calls| {
                Ok((calls.status().await?, calls.nodes().await?.1))
            })
            .await?;
        if !nodes.contains_key(node) {
            let names: Vec<&str> = nodes.keys().map(String::as_str).collect();
            let problem = format!("node: {node:?} is not live; live: {}", names.join(", "));
            return Err(GateError::Refused(problem));
        }
        if status.lease_left.is_zero() {
            let problem = "no keeper at the moment: try again shortly";
            return Err(GateError::Conflict(problem.into()));
        }
        let silent = status.dispatchers.iter();
        let mut silent = silent.filter(|known| is_silent(known, placement));
        if let Some((id, silence, _)) = silent.next() {
            let problem = format!(
                "dispatcher {id} has been silent for {:.0} s; moves are blocked until it reports or is forgotten",
                silence.as_secs_f64()
            );
            return Err(GateError::Conflict(problem));
        }
        self.run(link, &placement.cluster, async |mut calls| {
            calls.wish(set, node).await
        })
        .await?;
        Ok(DONE)
    }

    /// State of the placement for display, at most [`MAX_VIEW_AGE`] old.
    pub async fn show(&self) -> Result<Arc<PlacementView>, GateError> {
        let (link, placement) = self.settings(None)?;
        let mut shown = self.shown.lock().await;
        if let Some((at, of, placed, view)) = &*shown
            && at.elapsed() < MAX_VIEW_AGE
            && (of, placed) == (&link, &placement)
        {
            return Ok(Arc::clone(view));
        }
        let status = self
            .run(&link, &placement.cluster, async |mut calls| {
                calls.status().await
            })
            .await?;
        let view = Arc::new(self.view(&placement, &status));
        *shown = Some((Instant::now(), link, placement, Arc::clone(&view)));
        Ok(view)
    }

    fn view(&self, placement: &PlacementSettings, status: &Status) -> PlacementView {
        let known = self.board.known();
        let entries = known.as_deref().map(|known| &known.entries);
        let moving = entries.into_iter().flat_map(|entries| entries.iter());
        let moving = moving.filter(|(_, state)| state.starts_with('>'));
        let moving = moving
            .map(|(set, _)| set.to_owned())
            .take(MAX_LISTED)
            .collect();
        let seconds = |duration: Duration| (duration.as_secs_f64() * 1000.0).round() / 1000.0;
        let dispatchers = status.dispatchers.iter().map(|known| {
            let (id, silence, version) = known;
            PlacedDispatcher {
                id: id.clone(),
                silent_seconds: seconds(*silence),
                is_silent: is_silent(known, placement),
                version: *version,
            }
        });
        let gone = status.gone.iter().map(|(id, age)| GoneDispatcher {
            id: id.clone(),
            since_seconds: seconds(*age),
        });
        let per_node = entries.map(|entries| {
            let counts = entries.per_node().into_iter();
            counts
                .map(|(node, count)| (node.to_owned(), count as u64))
                .collect()
        });
        PlacementView {
            cluster: placement.cluster.clone(),
            when_lost: Some(placement.when_lost.word().to_owned()),
            lease_seconds: Some(seconds(placement.lease)),
            generation: status.generation.clone(),
            version: status.version,
            open_in_seconds: seconds(status.open_in),
            keeper: (!status.lease_left.is_zero()).then(|| status.keeper.clone()),
            epoch: status.epoch,
            known_version: known.as_deref().map_or(0, |known| known.version),
            named: entries.map_or(0, |entries| entries.named() as u64),
            nodes: per_node,
            moving,
            dispatchers: dispatchers.collect(),
            gone: gone.collect(),
            last_plan: serde_json::from_str(&status.plan).ok(),
        }
    }
}

/// Whether the keeper considers the dispatcher silent.
fn is_silent(
    (_, silence, version): &(String, Duration, u64),
    placement: &PlacementSettings,
) -> bool {
    *silence > placement.lease || *version == 0
}

/// Parses the library's response; `None` if it is malformed.
fn answer_of(answer: Value) -> Option<PlacementAnswer> {
    let list = match answer {
        Value::Int(_) => return Some(DONE),
        Value::Array(list) => list,
        _ => return None,
    };
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    let whole = |value: &Value| match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    let texts = |values: &[Value]| values.iter().map(text).collect::<Option<Vec<String>>>();
    let entries = |values: &[Value]| {
        let pairs = values.chunks_exact(2);
        let pairs = pairs.map(|pair| Some((text(&pair[0])?, text(&pair[1])?)));
        pairs.collect::<Option<Vec<(String, String)>>>()
    };
    Some(match (text(list.first()?)?.as_str(), &list[1..]) {
        ("open", [generation, version, lease, limit, when_lost, table @ ..]) => {
            PlacementAnswer::Open {
                generation: text(generation)?,
                version: whole(version)?,
                lease_ms: whole(lease)?,
                request_limit_ms: whole(limit)?,
                when_lost: text(when_lost)?,
                entries: entries(table)?,
            }
        }
        ("wait", [wait]) => PlacementAnswer::Wait {
            wait_ms: whole(wait)?,
        },
        ("ok", [version, deltas @ ..]) => PlacementAnswer::Ok {
            version: Some(whole(version)?),
            deltas: texts(deltas)?,
        },
        ("table", [generation, version, table @ ..]) => PlacementAnswer::Table {
            generation: text(generation)?,
            version: whole(version)?,
            entries: entries(table)?,
        },
        _ => return None,
    })
}
