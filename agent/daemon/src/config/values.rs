//! Values with a syntax of their own.

use std::{net::SocketAddr, path::PathBuf};

use plimsoll_core::Objective;
use plimsoll_net::address;

/// Where HAProxy's log lines arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogListen {
    /// One line a datagram.
    Udp(SocketAddr),
    /// Lines that end in a newline.
    Tcp(SocketAddr),
    /// A datagram socket in the file system.
    Unix(PathBuf),
}

impl std::fmt::Display for LogListen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LogListen::Udp(address) => write!(f, "udp://{address}"),
            LogListen::Tcp(address) => write!(f, "tcp://{address}"),
            LogListen::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// "mean" or "p" and a percentage between 0 and 100, both exclusive.
pub fn objective(text: &str) -> Result<Objective, String> {
    if text == "mean" {
        return Ok(Objective::Mean);
    }
    text.strip_prefix('p')
        .filter(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
        .and_then(|rest| rest.parse::<f64>().ok())
        .filter(|percent| *percent > 0.0 && *percent < 100.0)
        .map(|percent| Objective::Quantile(percent / 100.0))
        .ok_or_else(|| format!("must be \"mean\" or \"p50\" to \"p99.9\", is {text:?}"))
}

/// `udp://ip:port`, `tcp://ip:port` or `unix:///path`.
pub fn log_listen(text: &str) -> Result<LogListen, String> {
    if let Some(rest) = text.strip_prefix("udp://") {
        return address(rest).map(LogListen::Udp);
    }
    if let Some(rest) = text.strip_prefix("tcp://") {
        return address(rest).map(LogListen::Tcp);
    }
    match text.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok(LogListen::Unix(path.into())),
        _ => Err(format!(
            "must be \"udp://IP:PORT\", \"tcp://IP:PORT\" or \"unix:///PATH\", is {text:?}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives() {
        assert_eq!(objective("mean"), Ok(Objective::Mean));
        for (text, quantile) in [("p50", 0.5), ("p95", 0.95), ("p99.9", 0.999)] {
            let Ok(Objective::Quantile(q)) = objective(text) else {
                unreachable!("{text}")
            };
            assert!((q - quantile).abs() < 1e-12, "{text}: {q}");
        }
        for text in [
            "", "p", "p0", "p100", "p-1", "pNaN", "pinf", "p9e1", "95", "median",
        ] {
            assert!(objective(text).is_err(), "{text}");
        }
    }

    #[test]
    fn log_listeners() {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 81));
        assert_eq!(
            log_listen("udp://localhost:81"),
            Ok(LogListen::Udp(loopback))
        );
        assert_eq!(
            log_listen("tcp://localhost:81"),
            Ok(LogListen::Tcp(loopback))
        );
        assert!(log_listen("udp://a:1").is_err() && log_listen("unix://x").is_err());
    }
}
