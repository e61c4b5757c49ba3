//! Protocol of the control socket: one JSON object per line, with one response line each.
//!
//! `{"command":"status"}`, `{"command":"drain","service":"stocks"}`, `{"command":"ready"}`,
//! `{"command":"force","to":{"weight":50}}`; `to` is `"up"`, `"down"`, `{"weight":N}`, `{"bound":N}` or `"auto"`.
//! Without `service` a command applies to all services.

use plimsoll_core::Cost;
use plimsoll_node::{
    control_loop::SendWords,
    overrides::{ForcedHealth, Overrides},
};
use serde::{Deserialize, Serialize};

use crate::agent_check::OutputSettings;

/// Maximum length of a request in bytes, including the line end.
pub const MAX_REQUEST: usize = 4096;

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Command to run.
    pub command: Command,
    /// Service it applies to; all services if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Value to force, for `force`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Force>,
}

/// Commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Return the state without changing it.
    Status,
    /// Tell every proxy to send no new work.
    Drain,
    /// End a drain; every proxy that polls is told `ready` once.
    Ready,
    /// Override health, weight or bound.
    Force,
}

/// Value of `force`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Force {
    /// Healthy, whatever the probe reports.
    Up,
    /// Unhealthy.
    Down,
    /// Weight in percent of the configured one, 1..=256.
    Weight(u16),
    /// Bound in cost units, clamped to the configured limits.
    Bound(f64),
    /// Return to the probe and the controller.
    Auto,
}

/// A response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Response {
    /// Whether the command succeeded.
    pub ok: bool,
    /// Reason for a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// State of the node after the command, as in `/v1/node`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<serde_json::Value>,
}

impl Response {
    /// A failure.
    pub fn refused(error: impl Into<String>) -> Self {
        Response {
            ok: false,
            error: Some(error.into()),
            node: None,
        }
    }
}

impl Request {
    /// Executes a request, or fails without changes. Returns the services it applied to.
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
                        "no service {name:?}; the services are: {}",
                        known.join(", ")
                    ));
                }
            },
        };
        let force = match (self.command, self.to) {
            (Command::Force, Some(force)) => Some(force),
            (Command::Force, None) => return Err("\"force\" needs \"to\"".into()),
            (_, Some(_)) => return Err("\"to\" is only valid with \"force\"".into()),
            (_, None) => None,
        };
        match force {
            Some(Force::Weight(percent)) if !(1..=256).contains(&percent) => {
                return Err(format!(
                    "weight must be 1..256 percent, is {percent}; to stop new work use drain"
                ));
            }
            Some(Force::Weight(_)) => {
                if let Some(service) = services.iter().find(|s| s.send == SendWords::Maxconn) {
                    return Err(format!(
                        "service {:?} has output.send = \"maxconn\": weights are not sent",
                        service.name
                    ));
                }
            }
            Some(Force::Bound(bound)) if !(bound.is_finite() && bound > 0.0) => {
                return Err(format!("bound must be above 0, is {bound}"));
            }
            _ => {}
        }
        let releases =
            matches!(self.command, Command::Status | Command::Ready) || force == Some(Force::Auto);
        if let Some(service) = services.iter().find(|it| it.mode.observes() && !releases) {
            return Err(format!(
                "service {:?} has mode = \"observe\": no proxy would get it",
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
    fn overrides_without_effect_are_rejected_but_may_be_undone() {
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
                "service \"stocks\" has mode = \"observe\": no proxy would get it"
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
