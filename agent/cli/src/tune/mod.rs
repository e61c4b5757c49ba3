//! `plimsoll tune`: gains for a model and an SLA, or an analysis of given gains.

mod picture;
mod report;

use std::{
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Args;
use plimsoll_core::{PiForm, PiGains};
use plimsoll_science::{Arx, ControlLoop, Limits, tune};
use serde::Deserialize;

use report::{Loop, Report, Sla};

/// Arguments of `plimsoll tune`.
#[derive(Args, Clone, Debug)]
pub struct TuneArgs {
    /// Weights of the delays 1, 2, … periods ago: the a_i of s(k) = Σ a_i s(k-i) + Σ b_i d(k-i).
    #[arg(
        long,
        required_unless_present = "model",
        value_name = "LIST",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    a: Vec<f64>,
    /// Weights of the backlogs 1, 2, … periods ago: the b_i.
    #[arg(
        long,
        required_unless_present = "model",
        value_name = "LIST",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    b: Vec<f64>,
    /// Use the model chosen by `plimsoll identify --json`, from its output in this file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["a", "b"])]
    model: Option<PathBuf>,
    /// Proportional gain to analyse, in units of backlog per unit of delay.
    #[arg(long, requires = "ki", value_parser = gain)]
    kp: Option<f64>,
    /// Integral gain to analyse, relative to the proportional gain.
    #[arg(long, requires = "kp", value_parser = gain)]
    ki: Option<f64>,
    /// The given gains are relative to target and bound, as in agent.toml.
    #[arg(long, requires = "kp")]
    relative: bool,
    /// Delay S_t of the SLA.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    delay: Duration,
    /// Peak delay S_v that a transient may reach [default: 1.1 times the delay].
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    overshoot: Option<Duration>,
    /// Settling time T_v: the time within which a transient must be over.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    settling: Duration,
    /// Sampling period of the model and the controller.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    period: Duration,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Draw the response to a step of the target to this file, as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn gain(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(gain) if gain >= 0.0 && gain.is_finite() => Ok(gain),
        _ => Err("must be a number of at least 0".to_owned()),
    }
}

/// Runs the command.
pub fn run(args: TuneArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let plant = match &args.model {
        Some(path) => identified(path)?,
        None => Arx::new(&args.a, &args.b)?,
    };
    let sla = sla(&args)?;
    let gains = match (args.kp, args.ki) {
        (Some(kp), Some(ki)) if args.relative => PiGains {
            kp: kp / positive_gain(&plant)?,
            ki,
        },
        (Some(kp), Some(ki)) => PiGains { kp, ki },
        _ => {
            let limits = Limits {
                overshoot: sla.overshoot_seconds / sla.delay_seconds - 1.0,
                settling_periods: sla.settling_seconds / sla.period_seconds,
            };
            tune(&plant, limits)?.gains
        }
    };
    let velocity = Loop::new(&ControlLoop::new(&plant, gains, PiForm::Velocity), &sla)?;
    let literal = ControlLoop::new(&plant, gains, PiForm::DoubleIntegrating);
    let report = Report::new(&plant, gains, sla, velocity, &literal)?;
    if let Some(path) = &args.svg {
        let Some(step) = &report.velocity.step else {
            bail!("--svg: an unstable loop has no step response to draw");
        };
        std::fs::write(path, picture::svg(step, &report))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    match args.json {
        true => {
            serde_json::to_writer_pretty(&mut *out, &report)?;
            writeln!(out)?;
        }
        false => out.write_all(report.text().as_bytes())?,
    }
    Ok(())
}

fn positive_gain(plant: &Arx) -> anyhow::Result<f64> {
    let gain = plant.static_gain();
    if !(gain > 0.0 && gain.is_finite()) {
        bail!("--relative: needs a positive, finite static gain, but the model's is {gain}");
    }
    Ok(gain)
}

/// The fields of `plimsoll identify --json` that matter here.
#[derive(Deserialize)]
struct IdentifiedModels {
    chosen: Option<IdentifiedModel>,
    why: String,
}

#[derive(Deserialize)]
struct IdentifiedModel {
    a: Vec<f64>,
    b: Vec<f64>,
}

fn identified(path: &Path) -> anyhow::Result<Arx> {
    let name = || path.display().to_string();
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", name()))?;
    let said: IdentifiedModels = serde_json::from_slice(&text)
        .with_context(|| format!("{} is not output of plimsoll identify --json", name()))?;
    let Some(chosen) = said.chosen else {
        bail!("{} has no usable model: {}", name(), said.why);
    };
    Arx::new(&chosen.a, &chosen.b).with_context(name)
}

fn sla(args: &TuneArgs) -> anyhow::Result<Sla> {
    let sla = Sla {
        delay_seconds: args.delay.as_secs_f64(),
        overshoot_seconds: args.overshoot.unwrap_or(args.delay * 11 / 10).as_secs_f64(),
        settling_seconds: args.settling.as_secs_f64(),
        period_seconds: args.period.as_secs_f64(),
    };
    if sla.delay_seconds == 0.0 {
        bail!("--delay: must be above 0");
    }
    if sla.period_seconds == 0.0 {
        bail!("--period: must be above 0");
    }
    if sla.overshoot_seconds < sla.delay_seconds {
        bail!("--overshoot: must be at least the delay, {:?}", args.delay);
    }
    Ok(sla)
}
