//! One service of the page, in words.

use std::time::{Duration, Instant};

use plimsoll_core::Objective;
use plimsoll_node::{
    history::Point,
    state::{ServiceState, unix_now},
};
use plimsoll_wire::{ForcedHealth, NodeService, Override, ProxyView};

use super::{
    chart::{self, Chart, Line, Series, in_words, level, path, series},
    figures::{UNKNOWN, age, age_in_seconds, delay, figure, percent, with_unit},
    nodes::{NodeRow, Others},
    reasons,
};
use crate::{
    agent_check::OutputSettings,
    envoy::{Standing, standing},
    http::silence_limit,
};

/// A section of the page.
pub struct ServicePart {
    /// Unique on the page.
    pub id: String,
    /// As configured.
    pub name: String,
    /// Address for proxies.
    pub address: Option<String>,
    /// In a word or two.
    pub state: &'static str,
    /// Class of its style.
    pub class: &'static str,
    /// Warnings for operators.
    pub notices: Vec<String>,
    /// The figures that are drawn.
    pub charts: Vec<Chart>,
    /// Names and values of the others.
    pub facts: Vec<(&'static str, String)>,
    /// Of the last step: its label value and its meaning.
    pub reason: Option<(&'static str, &'static str)>,
    /// Proxies that share the bound.
    pub proxies: Vec<ProxyView>,
    /// The other nodes.
    pub nodes: Vec<NodeRow>,
    /// Number of nodes that are left out.
    pub left_out: usize,
    figures: Option<Figures>,
}

/// Current figures, which the charts compare with the past; `None` where unknown.
struct Figures {
    observes: bool,
    objective: String,
    sla: f64,
    delay: Option<f64>,
    jobs: Option<f64>,
    bound_jobs: f64,
    weight_percent: u16,
    forced_weight: Option<u16>,
    ended: Option<f64>,
    would_refuse: Option<f64>,
}

impl ServicePart {
    /// A service that was not stepped yet.
    pub fn unstepped(id: String, name: &str) -> Self {
        ServicePart {
            id,
            name: name.to_owned(),
            address: None,
            state: "starting",
            class: "unknown",
            notices: vec!["No first step yet: nothing is known.".to_owned()],
            charts: Vec::new(),
            facts: Vec::new(),
            reason: None,
            proxies: Vec::new(),
            nodes: Vec::new(),
            left_out: 0,
            figures: None,
        }
    }

    /// Without charts and other nodes.
    pub fn new(
        id: String,
        state: &ServiceState,
        view: NodeService,
        settings: &OutputSettings,
        now: Instant,
    ) -> Self {
        let silence = now.saturating_duration_since(state.stepped);
        let is_stuck = silence > silence_limit(settings.period);
        let (word, class) = standing_of(state, &view, is_stuck);
        let reason = state.decision.reason;
        ServicePart {
            id,
            name: state.service.clone(),
            address: view.address.clone(),
            state: word,
            class,
            notices: notices(state, &view, is_stuck.then_some(silence)),
            charts: Vec::new(),
            facts: facts(state, &view),
            reason: Some((reason.as_str(), reasons::in_words(reason))),
            figures: Some(Figures::new(state, &view, is_stuck)),
            proxies: view.proxies,
            nodes: Vec::new(),
            left_out: 0,
        }
    }

    /// Adds the charts.
    pub fn with_charts(mut self, points: &[Option<Point>], period: Duration) -> Self {
        if let Some(figures) = &self.figures {
            self.charts = figures.charts(&self.id, points, period);
        }
        self
    }

    /// Adds the other nodes.
    pub fn with_others(mut self, others: Others) -> Self {
        (self.nodes, self.left_out) = others.rows();
        self
    }
}

fn standing_of(
    state: &ServiceState,
    view: &NodeService,
    is_stuck: bool,
) -> (&'static str, &'static str) {
    if is_stuck {
        return ("unknown", "unknown");
    }
    if state.observes() {
        return ("observed only", "observed");
    }
    match standing(view.health, view.set.health, view.set.drain) {
        Standing::Healthy if view.source_error.is_some() => ("up, source fails", "unknown"),
        Standing::Healthy => ("up", "up"),
        Standing::Unhealthy => ("down", "down"),
        Standing::Draining => ("drained", "down"),
    }
}

fn notices(state: &ServiceState, view: &NodeService, stuck: Option<Duration>) -> Vec<String> {
    let mut notices = Vec::new();
    if let Some(silence) = stuck {
        let silence = age(silence);
        notices.push(format!(
            "The control loop is stuck: its last step was {silence} ago. Nothing here is of now."
        ));
    }
    if let Some(error) = &view.source_error {
        let last = view.observed_at.map_or_else(
            || "It has not worked since the agent's start".to_owned(),
            |at| {
                let since = age_in_seconds(&(unix_now() - at));
                format!("The last observation was {since} ago")
            },
        );
        notices.push(format!(
            "The source fails: {error}. {last}; delay and jobs are unknown."
        ));
    }
    let unseen = view.sight.and_then(|sight| Some((sight, sight.unseen?)));
    if let Some((sight, unseen)) = unseen {
        notices.push(format!(
            "The source is blind to {} of the delay: by jobs over throughput it is {} times what it says.",
            delay(unseen),
            figure(sight.ratio)
        ));
    }
    if let Some(detail) = &view.health_detail {
        notices.push(format!("Not healthy: {detail}."));
    }
    let set = overridden(&view.set);
    if !set.is_empty() {
        notices.push(format!("Set by hand: {set}."));
    }
    if state.observes() {
        notices.push(
            "Only observed (mode = \"observe\"): no proxy is told the bound, the weight or the state.".to_owned(),
        );
    }
    notices
}

fn overridden(set: &Override) -> String {
    let words = [
        set.drain.then(|| "drain".to_owned()),
        set.health.map(|health| match health {
            ForcedHealth::Up => "health up".to_owned(),
            ForcedHealth::Down => "health down".to_owned(),
        }),
        set.weight_percent
            .map(|percent| format!("weight {percent}\u{a0}%")),
        set.bound
            .map(|bound| format!("bound {} cost units", figure(bound))),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn facts(state: &ServiceState, view: &NodeService) -> Vec<(&'static str, String)> {
    let decision = &view.decision;
    let bound = match state.observes() {
        true => "Bound, if obeyed",
        false => "Bound",
    };
    let (cost, jobs) = (figure(decision.bound), figure(decision.bound_jobs));
    let capacity = view.capacity.flatten();
    let capacity = capacity.map_or_else(
        || "unknown: nothing has waited yet".to_owned(),
        |it| format!("{} cost units", figure(it)),
    );
    let requests = match view.observed_seconds {
        Some(seconds) => {
            let (finished, failed) = (view.finished, view.failed);
            format!(
                "{finished} finished and {failed} failed in {}",
                delay(seconds)
            )
        }
        None => UNKNOWN.to_owned(),
    };
    let mut facts = vec![
        (bound, format!("{cost} cost units, {jobs} jobs")),
        ("Capacity", capacity),
        ("Last period", requests),
    ];
    if let Some(role) = &state.role {
        let role = role.standing.map_or(UNKNOWN, |it| it.role.as_str());
        facts.push(("Database", role.to_owned()));
    }
    if view.shed.asked || view.shed.fraction > 0.0 {
        let part = percent(view.shed.fraction);
        facts.push(match view.shed.asked {
            true => ("Envoy is told to refuse", format!("{part} of the traffic")),
            false => (
                "Envoy would be told to refuse",
                format!("{part} of the traffic; none has asked of late"),
            ),
        });
    }
    facts
}

impl Figures {
    fn new(state: &ServiceState, view: &NodeService, is_stuck: bool) -> Self {
        let is_seen = view.observed_seconds.is_some() && !is_stuck;
        let now = |figure: Option<f64>| figure.filter(|_| is_seen);
        Figures {
            observes: state.observes(),
            objective: match state.settings.sla.objective {
                Objective::Mean => "Mean delay".to_owned(),
                Objective::Quantile(share) => {
                    format!("Delay of {} of the requests", percent(share))
                }
            },
            sla: view.settings.sla.delay,
            delay: now(view.decision.measured_delay),
            jobs: now(view.jobs),
            bound_jobs: view.decision.bound_jobs,
            weight_percent: view.weight_percent,
            forced_weight: view.set.weight_percent,
            ended: now(view.flow.map(|flow| flow.ended)),
            would_refuse: now(view.would_refuse),
        }
    }

    fn charts(&self, id: &str, points: &[Option<Point>], period: Duration) -> Vec<Chart> {
        let drawn = Drawn { id, points, period };
        vec![
            self.delay(&drawn),
            self.jobs(&drawn),
            self.weight(&drawn),
            self.work(&drawn),
        ]
    }

    fn delay(&self, drawn: &Drawn) -> Chart {
        let is_bad = self.delay.is_some_and(|delay| delay > self.sla);
        let sla = delay(self.sla);
        let beside = match self.delay {
            Some(_) if is_bad => format!("over the SLA, {sla}"),
            Some(measured) => format!("{} of the SLA, {sla}", percent(measured / self.sla)),
            None => format!("SLA {sla}"),
        };
        Chart {
            is_bad,
            ..drawn.chart(
                "delay",
                self.objective.clone(),
                (self.delay.map(delay), beside),
                delay,
                [
                    ("limit", "SLA".to_owned(), level(self.sla)),
                    ("measured", "delay".to_owned(), drawn.of(|it| it.delay)),
                ],
            )
        }
    }

    fn jobs(&self, drawn: &Drawn) -> Chart {
        let bound = figure(self.bound_jobs);
        let (beside, limit) = match self.observes {
            true => (
                format!("the bound would allow {bound}"),
                "bound, if obeyed".to_owned(),
            ),
            false => (format!("the bound allows {bound}"), "bound".to_owned()),
        };
        drawn.chart(
            "jobs",
            "Jobs".to_owned(),
            (self.jobs.map(figure), beside),
            figure,
            [
                ("limit", limit, drawn.of(|it| Some(it.bound_jobs))),
                ("measured", "jobs".to_owned(), drawn.of(|it| it.jobs)),
            ],
        )
    }

    fn weight(&self, drawn: &Drawn) -> Chart {
        let weight = f64::from(self.weight_percent);
        let (title, beside) = match (self.observes, self.forced_weight) {
            (true, _) => ("Weight, if obeyed", "of the configured weight".to_owned()),
            (false, None) => ("Weight", "of the configured weight".to_owned()),
            (false, Some(forced)) => (
                "Weight, if not set by hand",
                format!("set to {forced}\u{a0}%"),
            ),
        };
        let worded = |weight: f64| with_unit(weight, "%");
        let line = drawn.of(|it| Some(f64::from(it.weight_percent)));
        drawn.chart(
            "weight",
            title.to_owned(),
            (Some(worded(weight)), beside),
            worded,
            [("measured", "weight".to_owned(), line)],
        )
    }

    fn work(&self, drawn: &Drawn) -> Chart {
        let worded = |rate: f64| with_unit(rate, "/s");
        let ended = (
            "measured",
            "ended".to_owned(),
            drawn.of(|point| point.ended),
        );
        let now = self.ended.map(worded);
        let title = "Work ended, cost units".to_owned();
        if !self.observes {
            let beside = "well or failed".to_owned();
            return drawn.chart("work", title, (now, beside), worded, [ended]);
        }
        let refused = self.would_refuse.map_or(UNKNOWN.to_owned(), worded);
        let line = (
            "would",
            "would be refused".to_owned(),
            drawn.of(|point| point.would_refuse),
        );
        let beside = format!("would be refused: {refused}");
        drawn.chart("work", title, (now, beside), worded, [line, ended])
    }
}

/// Data of all charts of a service.
struct Drawn<'a> {
    id: &'a str,
    points: &'a [Option<Point>],
    period: Duration,
}

impl Drawn<'_> {
    fn of(&self, figure: impl Fn(&Point) -> Option<f64>) -> Series {
        series(self.points, figure)
    }

    /// A chart of lines by class, name and values.
    fn chart<const N: usize>(
        &self,
        name: &str,
        title: String,
        (value, beside): (Option<String>, String),
        worded: impl Fn(f64) -> String,
        lines: [(&'static str, String, Series); N],
    ) -> Chart {
        let most = chart::top(&lines.each_ref().map(|(_, _, values)| values));
        let top = most.unwrap_or(1.0);
        let told = |(_, name, values): &(_, String, Series)| {
            format!("{name}: {}.", in_words(values, &worded))
        };
        Chart {
            id: format!("{}-{name}", self.id),
            title,
            value: value.unwrap_or_else(|| UNKNOWN.to_owned()),
            beside,
            is_bad: false,
            top: most.map(&worded),
            told: lines.each_ref().map(told).join(" "),
            lines: lines
                .into_iter()
                .map(|(class, name, values)| Line {
                    class,
                    name,
                    path: path(&values, top, self.period),
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        agent_check::{answer_tests::state, settings_tests},
        http::node::service,
    };

    fn part(state: &ServiceState, now: Instant) -> ServicePart {
        let settings = settings_tests::settings(Vec::new());
        let part = ServicePart::new("s".into(), state, service(state), &settings, now);
        part.with_charts(&[], settings.period)
    }

    #[test]
    fn nothing_of_a_loop_that_is_stuck_is_shown_as_if_it_were_of_now() {
        let mut state = state(1.0, 100);
        state.jobs = Some(3.0);
        state.observed_seconds = Some(1.0);
        let jobs = |part: &ServicePart| part.charts[1].value.clone();
        let fresh = part(&state, state.stepped);
        assert_eq!((fresh.state, &*jobs(&fresh)), ("up", "3"));
        let stuck = part(&state, state.stepped + Duration::from_secs(90));
        assert_eq!((stuck.state, &*jobs(&stuck)), ("unknown", UNKNOWN));
        assert!(stuck.notices[0].contains("its last step was 1m 30s ago"));
    }

    #[test]
    fn a_delay_over_the_sla_is_told_by_more_than_a_colour() {
        let mut state = state(1.0, 100);
        state.observed_seconds = Some(1.0);
        let sla = state.settings.sla.delay;
        for (factor, beside) in [(0.5, "50\u{a0}% of the SLA, "), (2.0, "over the SLA, ")] {
            state.decision.measured_delay = Some(plimsoll_core::Seconds(factor * sla.get()));
            let chart = &part(&state, state.stepped).charts[0];
            assert!(chart.beside.starts_with(beside), "{}", chart.beside);
            assert_eq!(chart.is_bad, factor > 1.0);
        }
    }

    #[test]
    fn what_no_envoy_was_told_is_not_shown_as_if_it_were_in_force() {
        let state = state(1.0, 100);
        let told = |asked| {
            let mut view = service(&state);
            view.shed.fraction = 0.25;
            view.shed.asked = asked;
            facts(&state, &view).pop()
        };
        let part = "25\u{a0}% of the traffic";
        assert_eq!(told(true), Some(("Envoy is told to refuse", part.into())));
        let expected = format!("{part}; none has asked of late");
        assert_eq!(
            told(false),
            Some(("Envoy would be told to refuse", expected))
        );
    }

    #[test]
    fn a_blind_source_is_told() {
        let mut state = state(1.0, 100);
        state.sight = Some(plimsoll_core::Sight {
            ratio: 5.04,
            unseen: Some(plimsoll_core::Seconds(0.4)),
        });
        let shown = part(&state, state.stepped);
        let expected = "The source is blind to 400\u{a0}ms of the delay: by jobs over throughput it is 5.04 times what it says.";
        assert_eq!(shown.notices, [expected]);
    }
}
