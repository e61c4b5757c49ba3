//! The control socket's protocol: one JSON object a line, one answer line for each.
//!
//! `{"command":"status"}`, `{"command":"drain","service":"stocks"}`, `{"command":"ready"}`,
//! `{"command":"force","to":{"weight":50}}`; `to` is `"up"`, `"down"`, `{"weight":N}`,
//! `{"bound":N}` or `"auto"`. Without `service` all services are meant.

use plimsoll_core::Cost;
use plimsoll_node::{
    control_loop::SendWords,
    overrides::{ForcedHealth, Overrides},
};
use serde::{Deserialize, Serialize};

use crate::agent_check::OutputSettings;

/// Longest request in bytes, line end included.
pub const MAX_REQUEST: usize = 4096;

/// One request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What to do.
    pub command: Command,
    /// For which service; for all without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// With `force`: what to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Force>,
}

/// The commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Change nothing, report all.
    Status,
    /// Tell every proxy to send no new work.
    Drain,
    /// Undo a drain; every proxy that polls is told `ready` once.
    Ready,
    /// Set health, weight or bound by hand.
    Force,
}

/// What `force` sets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Force {
    /// Healthy, whatever the probe says.
    Up,
    /// Not healthy.
    Down,
    /// This weight, 1..=256 percent of the configured one.
    Weight(u16),
    /// This bound in cost units, held within the configured limits.
    Bound(f64),
    /// Back to probe and controller.
    Auto,
}

/// One answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Response {
    /// Whether it was done.
    pub ok: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The node after it, as `/v1/node` gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<serde_json::Value>,
}

impl Response {
    /// A refusal.
    pub fn refused(error: impl Into<String>) -> Self {
        Response {
            ok: false,
            error: Some(error.into()),
            node: None,
        }
    }
}

impl Request {
    /// Does what is asked, or changes nothing and says why. Gives the services it meant.
    pub fn apply(
        &self,
        overrides: &Overrides,
        settings: &OutputSettings,
    ) -> Result<Vec<String>, String> {
        let services: Vec<_> = match &self.service {
            None => settings.services().iter().collect(),
            Some(name) => match settings.service(name) {
                Some(service) => vec![service],
                None => {
                    let known: Vec<_> = settings
                        .services()
                        .iter()
                        .map(|s| s.name.as_str())
                        .collect();
                    return Err(format!(
                        "no service {name:?} here; there is: {}",
                        known.join(", ")
                    ));
                }
            },
        };
        let force = match (self.command, self.to) {
            (Command::Force, Some(force)) => Some(force),
            (Command::Force, None) => return Err("\"force\" needs \"to\"".into()),
            (_, Some(_)) => return Err("\"to\" goes with \"force\" only".into()),
            (_, None) => None,
        };
        match force {
            Some(Force::Weight(percent)) if !(1..=256).contains(&percent) => {
                return Err(format!(
                    "a weight is 1..256 percent, not {percent}; to stop new work use drain"
                ));
            }
            Some(Force::Weight(_)) => {
                if let Some(service) = services.iter().find(|s| s.send == SendWords::Maxconn) {
                    return Err(format!(
                        "service {:?} has output.send = \"maxconn\": no weight is sent",
                        service.name
                    ));
                }
            }
            Some(Force::Bound(bound)) if !(bound.is_finite() && bound > 0.0) => {
                return Err(format!("a bound is above 0, not {bound}"));
            }
            _ => {}
        }
        let releases =
            matches!(self.command, Command::Status | Command::Ready) || force == Some(Force::Auto);
        if let Some(service) = services.iter().find(|it| it.mode.observes() && !releases) {
            return Err(format!(
                "service {:?} has mode = \"observe\": no proxy would be told",
                service.name
            ));
        }
        for service in &services {
            overrides.change(&service.name, |set| match (self.command, force) {
                (Command::Status, _) => {}
                (Command::Drain, _) => set.drain = true,
                (Command::Ready, _) => set.drain = false,
                (_, Some(Force::Up)) => set.health = Some(ForcedHealth::Up),
                (_, Some(Force::Down)) => set.health = Some(ForcedHealth::Down),
                (_, Some(Force::Weight(percent))) => set.weight_percent = Some(percent),
                (_, Some(Force::Bound(bound))) => set.bound = Some(Cost(bound)),
                (_, Some(Force::Auto) | None) => {
                    set.health = None;
                    set.weight_percent = None;
                    set.bound = None;
                }
            });
        }
        Ok(services
            .into_iter()
            .map(|service| service.name.clone())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::agent_check::{ServiceOutput, settings_tests};
    use plimsoll_core::ServiceMode;

    fn settings() -> OutputSettings {
        settings_tests::settings(vec![
            service("stocks", SendWords::Both),
            service("orders", SendWords::Maxconn),
        ])
    }

    fn service(name: &str, send: SendWords) -> ServiceOutput {
        ServiceOutput {
            name: name.into(),
            identities: vec![],
            send,
            mode: ServiceMode::Enforce,
        }
    }

    fn apply(overrides: &Overrides, request: &str) -> Result<Vec<String>, String> {
        apply_to(overrides, request, &settings())
    }

    fn apply_to(
        overrides: &Overrides,
        request: &str,
        settings: &OutputSettings,
    ) -> Result<Vec<String>, String> {
        let request: Request = serde_json::from_str(request).map_err(|e| e.to_string())?;
        request.apply(overrides, settings)
    }

    #[test]
    fn what_nobody_would_be_told_is_refused_and_may_be_undone() {
        let mut observed = service("stocks", SendWords::Both);
        observed.mode = ServiceMode::Observe;
        let settings = settings_tests::settings(vec![observed]);
        let overrides = Overrides::default();
        overrides.change("stocks", |set| set.drain = true);
        for request in [
            r#"{"command":"drain"}"#,
            r#"{"command":"force","to":"down"}"#,
            r#"{"command":"force","to":{"bound":5}}"#,
        ] {
            let problem = apply_to(&overrides, request, &settings).unwrap_err();
            assert_eq!(
                problem,
                "service \"stocks\" has mode = \"observe\": no proxy would be told"
            );
        }
        for request in [
            r#"{"command":"status"}"#,
            r#"{"command":"ready"}"#,
            r#"{"command":"force","to":"auto"}"#,
        ] {
            apply_to(&overrides, request, &settings).unwrap();
        }
        assert!(overrides.of("stocks").is_default());
    }

    #[test]
    fn sets_and_releases() {
        let overrides = Overrides::default();
        apply(&overrides, r#"{"command":"drain"}"#).unwrap();
        assert!(overrides.of("stocks").drain && overrides.of("orders").drain);
        apply(
            &overrides,
            r#"{"command":"force","service":"stocks","to":{"weight":50}}"#,
        )
        .unwrap();
        apply(
            &overrides,
            r#"{"command":"force","service":"stocks","to":{"bound":12.5}}"#,
        )
        .unwrap();
        apply(
            &overrides,
            r#"{"command":"force","service":"stocks","to":"down"}"#,
        )
        .unwrap();
        assert_eq!(overrides.of("stocks").weight_percent, Some(50));
        assert_eq!(overrides.forced_bound("stocks"), Some(Cost(12.5)));
        assert_eq!(overrides.forced_bound("orders"), None);
        apply(&overrides, r#"{"command":"force","to":"auto"}"#).unwrap();
        assert!(
            overrides.of("stocks").drain,
            "auto leaves the drain to ready"
        );
        apply(&overrides, r#"{"command":"ready","service":"stocks"}"#).unwrap();
        assert!(overrides.of("stocks").is_default());
        assert!(overrides.of("orders").drain);
    }

    #[test]
    fn refuses_and_changes_nothing() {
        let overrides = Overrides::default();
        for request in [
            r#"{"command":"drain","service":"nope"}"#,
            r#"{"command":"force"}"#,
            r#"{"command":"drain","to":"up"}"#,
            r#"{"command":"force","to":{"weight":0}}"#,
            r#"{"command":"force","to":{"weight":257}}"#,
            r#"{"command":"force","to":{"weight":-1}}"#,
            r#"{"command":"force","service":"orders","to":{"weight":50}}"#,
            r#"{"command":"force","to":{"bound":0}}"#,
            r#"{"command":"force","to":{"bound":null}}"#,
            r#"{"command":"reboot"}"#,
            r#"{"command":"drain","servcie":"stocks"}"#,
            "[]",
            "",
        ] {
            assert!(apply(&overrides, request).is_err(), "{request}");
        }
        assert!(overrides.of("stocks").is_default() && overrides.of("orders").is_default());
    }
}
