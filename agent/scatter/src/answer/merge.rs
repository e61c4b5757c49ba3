//! Merge of many streams of rows into one.

use std::{cmp::Ordering, collections::VecDeque};

use super::{
    Failure, How, Keys, Kind, MAX_COLUMNS, MAX_PARTITIONS, Plan, PlanError, QUEUED, Report, State,
    Value,
    reduce::{Reduced, Unfit},
    report::PartitionReport,
};
use plimsoll_core::Seconds;

/// Next step of a gathering.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<T> {
    /// A row of the partition at this place in the map.
    Row(usize, T),
    /// The single row of a reduction.
    Reduced(Vec<Value>),
    /// Waits for more from this partition, or from any partition if `None`.
    Wait(Option<usize>),
    /// The answer is complete.
    Done,
    /// The gathering failed.
    Failed(Failure),
}

/// Result of offering a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Offer<T> {
    /// The row was accepted.
    Taken,
    /// The queue is full; the row is returned.
    Full(Keys, T),
    /// The row is dropped: it arrived after the end or the deadline, or belongs to a second answer.
    Ignored,
}

struct Row<T> {
    keys: Keys,
    payload: T,
}

struct Source<T> {
    report: PartitionReport,
    /// Number of the answer that counts, the first to begin.
    answer: Option<u64>,
    queue: VecDeque<Row<T>>,
    /// Keys of the last row that left.
    last: Keys,
    reduced: Vec<Reduced>,
}

/// Combines the partitions' answers into one. Partitions are identified by their place in the map.
pub struct Gathering<T> {
    plan: Plan,
    sources: Vec<Source<T>>,
    columns: Option<Vec<String>>,
    picks: Vec<usize>,
    kinds: Vec<Option<Kind>>,
    /// Partitions with queued rows in merge order, the next one last.
    heads: Vec<usize>,
    /// Partition whose turn it is in a concatenation.
    turn: usize,
    rows: u64,
    failure: Option<Failure>,
    is_reduced: bool,
    /// Whether every open partition has a row, so that the next step is a row without further checks.
    is_flowing: bool,
}

impl<T> Gathering<T> {
    /// Creates a gathering over partitions with these names; names beyond [`MAX_PARTITIONS`] are ignored.
    pub fn new(
        names: impl IntoIterator<Item = String>,
        plan: Plan,
    ) -> Result<Gathering<T>, PlanError> {
        plan.check()?;
        let reduced: Vec<Reduced> = match &plan.how {
            How::Reduce(reductions) => reductions.iter().map(Reduced::new).collect(),
            _ => Vec::new(),
        };
        let sources = names.into_iter().take(MAX_PARTITIONS).map(|name| Source {
            report: PartitionReport {
                name,
                state: State::Waiting,
                rows: 0,
                ignored: 0,
            },
            answer: None,
            queue: VecDeque::with_capacity(QUEUED),
            last: Keys::new(),
            reduced: reduced.clone(),
        });
        let mut gathering = Gathering {
            sources: sources.collect(),
            columns: None,
            picks: Vec::new(),
            kinds: Vec::new(),
            heads: Vec::new(),
            turn: 0,
            rows: 0,
            failure: None,
            is_reduced: false,
            is_flowing: false,
            plan,
        };
        gathering.stop_at_limit();
        Ok(gathering)
    }

    /// Begins a partition's answer with these columns. False if its rows will be ignored.
    pub fn begin(&mut self, partition: usize, answer: u64, columns: &[String]) -> bool {
        let Some(source) = self.sources.get_mut(partition) else {
            return false;
        };
        if source.answer.is_some() || !source.report.state.is_open() {
            return false;
        }
        source.answer = Some(answer);
        source.report.state = State::Answering;
        match self.check_columns(columns) {
            Ok(()) => true,
            Err(why) => {
                self.fail(partition, State::Refused(why));
                false
            }
        }
    }

    fn check_columns(&mut self, columns: &[String]) -> Result<(), String> {
        if columns.len() > MAX_COLUMNS {
            let count = columns.len();
            return Err(format!("{count} columns, maximum {MAX_COLUMNS}"));
        }
        if let Some(known) = &self.columns {
            return match known == columns {
                true => Ok(()),
                false => Err(format!(
                    "columns {columns:?} differ from those of other partitions, {known:?}"
                )),
            };
        }
        let place = |wanted: &str| {
            let place = columns.iter().position(|column| column == wanted);
            place.ok_or_else(|| format!("no column {wanted:?} among {columns:?}"))
        };
        self.picks = self
            .plan
            .columns()
            .into_iter()
            .map(place)
            .collect::<Result<_, _>>()?;
        self.kinds = vec![None; self.picks.len()];
        self.columns = Some(columns.to_vec());
        Ok(())
    }

    /// Columns of the answer, once a partition has begun.
    pub fn columns(&self) -> Option<&[String]> {
        self.columns.as_deref()
    }

    /// Indexes of the columns whose values [`Gathering::offer`] takes, once a partition has begun.
    pub fn picks(&self) -> &[usize] {
        &self.picks
    }

    /// Whether more rows of a partition are wanted.
    pub fn is_open(&self, partition: usize) -> bool {
        let source = self.sources.get(partition);
        source.is_some_and(|it| it.report.state.is_open())
    }

    /// Whether rows of a partition are queued.
    pub fn has_rows(&self, partition: usize) -> bool {
        let source = self.sources.get(partition);
        source.is_some_and(|it| !it.queue.is_empty())
    }

    /// Number of rows of a partition that may be offered now, 0 to [`QUEUED`].
    pub fn room(&self, partition: usize) -> usize {
        let source = self.sources.get(partition);
        source.map_or(0, |it| QUEUED - it.queue.len().min(QUEUED))
    }

    /// Offers a row of a partition: its values at [`Gathering::picks`], and the payload that [`Step::Row`] returns.
    pub fn offer(&mut self, partition: usize, answer: u64, keys: Keys, payload: T) -> Offer<T> {
        let Some(source) = self.sources.get_mut(partition) else {
            return Offer::Ignored;
        };
        let is_wanted = source.report.state == State::Answering && self.failure.is_none();
        if !is_wanted || source.answer != Some(answer) {
            source.report.ignored += 1;
            return Offer::Ignored;
        }
        if source.queue.len() >= QUEUED {
            return Offer::Full(keys, payload);
        }
        if keys.len() != self.picks.len() {
            source.report.ignored += 1;
            let why = format!(
                "a row has {} of the {} columns needed",
                keys.len(),
                self.picks.len()
            );
            self.fail(partition, State::Refused(why));
            return Offer::Ignored;
        }
        if let Err(failure) = self.check_kinds(partition, &keys) {
            self.failure.get_or_insert(failure);
            self.is_flowing = false;
            return Offer::Ignored;
        }
        let source = &mut self.sources[partition];
        match &self.plan.how {
            How::Concatenate => source.queue.push_back(Row { keys, payload }),
            How::Merge(order) => {
                let before = source.queue.back().map_or(&source.last, |row| &row.keys);
                if !before.is_empty() && by(order, before, &keys) == Ordering::Greater {
                    source.report.ignored += 1;
                    let row = source.report.rows + 1;
                    let why =
                        format!("rows are not in order: row {row} sorts before its predecessor");
                    self.fail(partition, State::Refused(why));
                    return Offer::Ignored;
                }
                source.queue.push_back(Row { keys, payload });
                if source.queue.len() == 1 {
                    self.place(partition);
                }
            }
            How::Reduce(reductions) => {
                let mut keys = keys.into_iter();
                for (reduced, reduction) in source.reduced.iter_mut().zip(reductions) {
                    let value = reduction.column.as_ref().and_then(|_| keys.next());
                    if let Err(unfit) = reduced.take(value) {
                        let column = reduction.column.clone().unwrap_or_default();
                        self.failure = Some(failure_of(unfit, column));
                        return Offer::Ignored;
                    }
                }
            }
        }
        self.sources[partition].report.rows += 1;
        Offer::Taken
    }

    fn check_kinds(&mut self, partition: usize, keys: &[Value]) -> Result<(), Failure> {
        for (at, key) in keys.iter().enumerate() {
            let Some(kind) = key.kind() else { continue };
            let known = *self.kinds[at].get_or_insert(kind);
            if known != kind {
                return Err(Failure::Mixed {
                    column: self.plan.columns()[at].to_owned(),
                    name: self.sources[partition].report.name.clone(),
                    kinds: [known, kind],
                });
            }
        }
        Ok(())
    }

    /// Ends a partition's answer of this many rows; if fewer or more arrived, the partition fails.
    pub fn end(&mut self, partition: usize, answer: u64, rows: u64) {
        let Some(source) = self.sources.get_mut(partition) else {
            return;
        };
        if source.answer != Some(answer) || source.report.state != State::Answering {
            return;
        }
        let came = source.report.rows;
        if rows == came {
            source.report.state = State::Answered;
        } else {
            let why = format!("{came} rows arrived of {rows} sent");
            self.fail(partition, State::Down(why));
        }
    }

    /// Ends a partition in this state. Rows that arrived before still count, except in a reduction.
    pub fn fail(&mut self, partition: usize, state: State) {
        let Some(source) = self.sources.get_mut(partition) else {
            return;
        };
        if source.report.state.is_open() {
            source.report.state = state;
            self.is_flowing = false;
        }
    }

    /// Advances time; partitions that have not ended by the deadline become [`State::Late`].
    pub fn tick(&mut self, now: Seconds) {
        if now.get() >= self.plan.deadline.get() {
            self.is_flowing = false;
            for source in self.sources.iter_mut() {
                if source.report.state.is_open() {
                    source.report.state = State::Late;
                }
            }
        }
    }

    /// Returns the next step. To be called until it is [`Step::Done`] or [`Step::Failed`].
    pub fn step(&mut self) -> Step<T> {
        if self.is_flowing
            && let Some(partition) = self.heads.pop()
        {
            return self.leave(partition);
        }
        if let Some(failure) = self.failed() {
            self.failure = Some(failure.clone());
            return Step::Failed(failure);
        }
        let is_open = |source: &Source<T>| source.report.state.is_open();
        match &self.plan.how {
            How::Concatenate => {
                let count = self.sources.len();
                let turns = (0..count).map(|more| (self.turn + more) % count);
                let mut ready = turns.filter(|at| !self.sources[*at].queue.is_empty());
                if let Some(partition) = ready.next() {
                    self.turn = partition + 1;
                    return self.leave(partition);
                }
                match self.sources.iter().any(is_open) {
                    true => Step::Wait(None),
                    false => Step::Done,
                }
            }
            How::Merge(_) => {
                let lacks = |source: &Source<T>| is_open(source) && source.queue.is_empty();
                if let Some(partition) = self.sources.iter().position(lacks) {
                    return Step::Wait(Some(partition));
                }
                self.is_flowing = true;
                match self.heads.pop() {
                    Some(partition) => self.leave(partition),
                    None => Step::Done,
                }
            }
            How::Reduce(_) if self.sources.iter().any(is_open) => Step::Wait(None),
            How::Reduce(_) if self.is_reduced => Step::Done,
            How::Reduce(_) => self.reduce(),
        }
    }

    fn failed(&self) -> Option<Failure> {
        if self.failure.is_some() {
            return self.failure.clone();
        }
        let report = |source: &Source<T>| {
            let PartitionReport { name, state, .. } = source.report.clone();
            Failure::Partition { name, state }
        };
        let is_lost =
            |source: &&Source<T>| !source.report.state.is_open() && !source.report.state.is_fine();
        let mut lost = self.sources.iter().filter(is_lost);
        if self.plan.partial {
            let all = lost.count() == self.sources.len();
            // Rows of an incomplete partition do not count in a reduction.
            let is_reduced = matches!(self.plan.how, How::Reduce(_));
            let nothing = self.sources.iter().all(|source| source.report.rows == 0);
            return (all && (is_reduced || nothing)).then_some(Failure::Nobody);
        }
        lost.next().map(report)
    }

    /// Takes a partition's first row out; ends the answer if it reaches the limit.
    fn leave(&mut self, partition: usize) -> Step<T> {
        let source = &mut self.sources[partition];
        let Some(Row { keys, payload }) = source.queue.pop_front() else {
            return Step::Wait(Some(partition));
        };
        if matches!(self.plan.how, How::Merge(_)) {
            source.last = keys;
            match source.queue.is_empty() {
                true => self.is_flowing = false,
                false => self.place(partition),
            }
        }
        self.rows += 1;
        self.stop_at_limit();
        Step::Row(partition, payload)
    }

    fn stop_at_limit(&mut self) {
        if self.plan.limit.is_some_and(|limit| self.rows >= limit) {
            self.heads.clear();
            for source in &mut self.sources {
                source.report.rows -= source.queue.len() as u64;
                source.queue.clear();
                if source.report.state.is_open() {
                    source.report.state = State::Enough;
                }
            }
        }
    }

    /// Inserts a partition into the merge order by its first row.
    fn place(&mut self, partition: usize) {
        let How::Merge(order) = &self.plan.how else {
            return;
        };
        let first = |at: usize| self.sources[at].queue.front().map(|row| &row.keys);
        let Some(keys) = first(partition) else { return };
        let is_later = |other: &usize| {
            let others = first(*other).map_or(Ordering::Equal, |others| by(order, others, keys));
            others.then_with(|| other.cmp(&partition)) == Ordering::Greater
        };
        let at = self.heads.partition_point(is_later);
        self.heads.insert(at, partition);
    }

    fn reduce(&mut self) -> Step<T> {
        self.is_reduced = true;
        let How::Reduce(reductions) = &self.plan.how else {
            return Step::Done;
        };
        let mut all: Vec<Reduced> = reductions.iter().map(Reduced::new).collect();
        let mut values = Vec::with_capacity(all.len());
        let whole = |source: &&mut Source<T>| source.report.state == State::Answered;
        for source in self.sources.iter_mut().filter(whole) {
            for (at, one) in std::mem::take(&mut source.reduced).into_iter().enumerate() {
                if let Err(unfit) = all[at].join(one) {
                    let column = reductions[at].column.clone().unwrap_or_default();
                    self.failure = Some(failure_of(unfit, column));
                }
            }
        }
        for (reduced, reduction) in all.into_iter().zip(reductions) {
            match reduced.value() {
                Ok(value) => values.push(value),
                Err(unfit) => {
                    let column = reduction.column.clone().unwrap_or_default();
                    self.failure = Some(failure_of(unfit, column));
                }
            }
        }
        match &self.failure {
            Some(failure) => Step::Failed(failure.clone()),
            None => {
                self.rows = 1;
                Step::Reduced(values)
            }
        }
    }

    /// State of each partition.
    pub fn report(&self) -> Report {
        let partitions = self.sources.iter().map(|source| source.report.clone());
        let all = self.sources.iter().all(|it| it.report.state.is_fine());
        Report {
            rows: self.rows,
            complete: all && self.failure.is_none(),
            partitions: partitions.collect(),
        }
    }
}

fn by(order: &[super::OrderKey], one: &[Value], other: &[Value]) -> Ordering {
    let pairs = order.iter().zip(one.iter().zip(other));
    let mut each = pairs.map(|(key, (one, other))| key.compare(one, other));
    each.find(|it| it.is_ne()).unwrap_or(Ordering::Equal)
}

fn failure_of(unfit: Unfit, column: String) -> Failure {
    match unfit {
        Unfit::NoNumber(kind) => Failure::NoNumber { column, kind },
        Unfit::Overflow => Failure::Overflow { column },
    }
}
