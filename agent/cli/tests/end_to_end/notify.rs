//! Notifications that systemd gets from the real programs.

use crate::support;
use std::{
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::support::gather::Gather;
use crate::support::{Agent, Process, Service};

/// Starts it as systemd does: what it says until it has fed the watchdog twice, at a reload and at its end.
fn assert_tells(command: &str, config: &Path, directory: &Path) {
    let socket = UnixDatagram::bind(directory.join("notify")).unwrap();
    socket.set_read_timeout(Some(support::PATIENCE)).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args([command, "--config"])
        .arg(config)
        .env("NOTIFY_SOCKET", directory.join("notify"))
        .env(
            "WATCHDOG_USEC",
            Duration::from_millis(200).as_micros().to_string(),
        )
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut process = Process(child);
    let hears = |told: &str| {
        let mut text = [0; 256];
        let heard = (0..100).find(|_| {
            let length = socket.recv(&mut text).expect(told);
            text[..length].starts_with(told.as_bytes())
        });
        heard.expect(told);
    };
    hears("READY=1");
    hears("WATCHDOG=1");
    hears("WATCHDOG=1");
    process.signal("-HUP");
    hears("RELOADING=1\nMONOTONIC_USEC=");
    hears("READY=1");
    process.signal("-TERM");
    hears("STOPPING=1");
    assert!(process.wait().success());
}

#[test]
fn the_agent_tells_systemd_that_it_is_ready_works_reloads_and_ends() {
    let service = Service::start();
    let agent = Agent::unstarted(&service, "");
    assert_tells("agent", &agent.config_path(), agent.directory.path());
}

#[test]
fn a_gather_tells_systemd_that_it_is_ready_works_reloads_and_ends() {
    let gather = Gather::unstarted(
        "[nodes]\na = \"127.0.0.1:9\"\n[[partition]]\nname = \"p\"\nnodes = [\"a\"]\n",
    );
    assert_tells(
        "gather",
        &gather.path("gather.toml"),
        gather.directory.path(),
    );
}
