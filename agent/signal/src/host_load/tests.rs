//! Host load of simulated machines and containers, from directories of files, and of this machine.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use proptest::prelude::*;
use tempfile::TempDir;

use super::settings::{CpuConfig, NetworkConfig};
use super::{files::Roots, *};

const TWO_CPUS: &str = "cpu  300 0 0 700 0 0 0 0 0 0\ncpu0 100 0 0 400 0 0 0 0 0 0\n\
                        cpu1 200 0 0 300 0 0 0 0 0 0\nintr 1 2 3\n";
const QUIET: &str = "0.10 0.20 0.30 2/148 10011\n";
const HEADINGS: &str =
    "Inter-|   Receive  |  Transmit\n face |bytes    packets |bytes    packets\n";

/// `/proc` and `/sys` of a machine with two CPUs and no control groups.
struct Tree(TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Tree(tempfile::tempdir().unwrap());
        tree.write("proc/stat", TWO_CPUS);
        tree.write("proc/loadavg", QUIET);
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn cgroup(&self, path: &str, text: &str) {
        self.write(&format!("sys/fs/cgroup/{path}"), text);
    }

    /// Sets the CPU times of the next reading: used and idle, per CPU.
    fn ticks(&self, each: [(u64, u64); 2]) {
        let line = |name: &str, (used, idle)| format!("cpu{name} {used} 0 0 {idle} 0 0 0 0 0 0\n");
        let [one, two] = each;
        let all = (one.0 + two.0, one.1 + two.1);
        let text = line(" ", all) + &line("0", one) + &line("1", two);
        self.write("proc/stat", &text);
    }

    fn interfaces(&self, each: &[(&str, u64, u64)]) {
        let mut text = HEADINGS.to_owned();
        for (name, received, sent) in each {
            text += &format!("{name:>6}: {received} 9 0 0 0 0 0 0 {sent} 9 0 0 0 0 0 0\n");
        }
        self.write("proc/net/dev", &text);
    }

    fn thread(&self, number: u32, state: char) {
        // A process name that resembles the rest of the line.
        let text = format!("{number} (a) R b) {state} 1 1 1 0 -1\n");
        self.write(&format!("proc/{number}/task/{number}/stat"), &text);
    }

    fn roots(&self) -> Roots {
        Roots {
            proc: self.0.path().join("proc"),
            sys: self.0.path().join("sys"),
        }
    }

    fn cpu(&self, cgroup: Option<&str>) -> Reader<cpu::CpuReader> {
        Reader(cpu::CpuReader::new(cgroup.map(PathBuf::from)), self.roots())
    }

    fn network(
        &self,
        interface: Option<&str>,
        speed: Option<f64>,
    ) -> Reader<network::NetworkReader> {
        let interface = interface.map(str::to_owned);
        let config = NetworkConfig { interface, speed };
        Reader(network::NetworkReader::new(config), self.roots())
    }
}

struct Reader<T>(T, Roots);

impl Reader<cpu::CpuReader> {
    fn read(&mut self) -> Result<Option<f64>, String> {
        self.0.read(&self.1, 1.0)
    }
}

impl Reader<network::NetworkReader> {
    fn read(&mut self) -> Result<Option<f64>, String> {
        self.0.read(&self.1, 1.0)
    }
}

#[track_caller]
fn is(read: Result<Option<f64>, String>, load: f64) {
    let read = read.unwrap().unwrap();
    assert!((read - load).abs() < 1e-9, "{read}, not {load}");
}

#[test]
fn of_a_machine() {
    let tree = Tree::new();
    let mut cpu = tree.cpu(None);
    assert_eq!(cpu.read(), Ok(None), "the first has nothing before it");
    tree.ticks([(150, 450), (225, 375)]);
    is(cpu.read(), 75.0 / 200.0);
    // Both CPUs are saturated; eight processes are runnable, this one included.
    tree.ticks([(250, 450), (325, 375)]);
    tree.write("proc/loadavg", "2.50 1.00 0.30 8/148 10011\n");
    is(cpu.read(), (2.5 + 7.0) / 4.0);
    // No time has passed: the load is unknown.
    assert_eq!(
        cpu.read(),
        Err("no time has passed between two readings".into())
    );
    tree.ticks([(0, 10), (0, 10)]);
    assert_eq!(cpu.read(), Err("a counter decreased".into()));
    tree.ticks([(10, 10), (0, 20)]);
    is(cpu.read(), 0.5);
}

#[test]
fn of_a_kernel_as_old_as_the_thesis() {
    let tree = Tree::new();
    let stat = |busy: u64, idle: u64| {
        format!(
            "cpu  0 0 0 0\ncpu0 {busy} 9838026 13861517 6524674171\n\
             cpu1 112404224 17779419 16989459 {idle}\n"
        )
    };
    let mut cpu = tree.cpu(None);
    tree.write("proc/stat", &stat(74_115_796, 6_475_316_408));
    cpu.read().unwrap();
    tree.write("proc/stat", &stat(74_116_820, 6_475_317_432));
    is(cpu.read(), 0.5);
}

#[test]
fn of_a_container_of_version_2() {
    let tree = Tree::new();
    tree.write("proc/self/cgroup", "0::/\n");
    tree.write("proc/self/task/7/stat", "");
    for (file, text) in [
        ("cgroup.controllers", "cpu memory\n"),
        ("cpu.max", "50000 100000\n"),
        ("cpu.stat", "usage_usec 1000000\nuser_usec 1\n"),
        ("cgroup.threads", "7\n8\n9\n0\n404\n"),
        ("below/cgroup.threads", "10\n"),
    ] {
        tree.cgroup(file, text);
    }
    for (thread, state) in [(7, 'R'), (8, 'R'), (9, 'S'), (10, 'R')] {
        tree.thread(thread, state);
    }
    let mut cpu = tree.cpu(None);
    assert_eq!(cpu.read(), Ok(None));
    // 0.2 CPUs used of a quota of 0.5; the load of the machine does not matter.
    tree.ticks([(900, 400), (900, 300)]);
    tree.cgroup("cpu.stat", "user_usec 1\nusage_usec 1200000\n");
    is(cpu.read(), 0.4);
    // The whole quota is used for two minutes, with two threads besides the agent's own.
    for minute in 0..120 {
        let used = 1_700_000 + 500_000 * minute;
        tree.cgroup("cpu.stat", &format!("usage_usec {used}\n"));
        let load = cpu.read().unwrap().unwrap();
        assert!(load >= 1.0, "{load}");
    }
    // (average + 2) / (2 · 0.5), with an average near 2; or average / 0.5.
    tree.cgroup("cpu.stat", "usage_usec 61700000\n");
    let load = cpu.read().unwrap().unwrap();
    assert!((3.4..4.0).contains(&load), "{load}");
    // A larger quota resets the reading.
    tree.cgroup("cpu.max", "max 100000\n");
    assert_eq!(cpu.read(), Ok(None), "the machine's from here on");
    tree.ticks([(950, 450), (950, 350)]);
    is(cpu.read(), 0.5);
}

#[test]
fn of_many_threads_some_stand_for_all() {
    let tree = Tree::new();
    tree.write("proc/self/cgroup", "0::/\n");
    tree.cgroup("cgroup.controllers", "cpu\n");
    // The same four threads every time.
    tree.cgroup("cgroup.threads", &"1\n2\n3\n4\n".repeat(512));
    for (thread, state) in [(1, 'R'), (2, 'R'), (3, 'S'), (4, 'S')] {
        tree.thread(thread, state);
    }
    let group = cgroup::Group::find(&tree.roots(), None).unwrap().unwrap();
    let queue = group.queue(&tree.roots(), Path::new("")).unwrap();
    assert_eq!(queue.running, 1024.0);
}

#[test]
fn the_tightest_limit_above_counts() {
    let tree = Tree::new();
    tree.write("proc/self/cgroup", "0::/pod/agent\n");
    for (file, text) in [
        ("cgroup.controllers", "cpu\n"),
        ("pod/cpu.max", "100000 100000\n"),
        ("pod/cpu.stat", "usage_usec 0\n"),
        ("pod/agent/cpu.max", "150000 100000\n"),
        ("pod/agent/cpu.stat", "usage_usec 0\n"),
        ("other/cpu.max", "max 100000\n"),
        ("other/cpu.stat", "usage_usec 0\n"),
    ] {
        tree.cgroup(file, text);
    }
    let (mut own, mut named) = (tree.cpu(None), tree.cpu(Some("/pod/agent")));
    let mut other = tree.cpu(Some("/other"));
    for reader in [&mut own, &mut named, &mut other] {
        assert_eq!(reader.read(), Ok(None));
    }
    tree.cgroup("pod/cpu.stat", "usage_usec 600000\n");
    tree.ticks([(150, 450), (225, 375)]);
    is(own.read(), 0.6);
    is(named.read(), 0.6);
    is(other.read(), 75.0 / 200.0);
    let problem = tree.cpu(Some("/none")).read().unwrap_err();
    assert!(
        problem.ends_with("/none: no such control group"),
        "{problem}"
    );
}

#[test]
fn of_containers_of_version_1() {
    for (own, below) in [
        ("/", ""),
        ("/docker/abc", "/docker/abc"),
        ("/docker/abc", ""),
    ] {
        let tree = Tree::new();
        tree.write(
            "proc/self/cgroup",
            &format!("3:cpuset:{own}\n2:cpu,cpuacct:{own}\n1:name=systemd:/x\n0::/\n"),
        );
        tree.cgroup("cpuset/tasks", "");
        tree.cgroup(&format!("cpu{below}/cpu.cfs_quota_us"), "150000\n");
        tree.cgroup(&format!("cpu{below}/cpu.cfs_period_us"), "100000\n");
        let usage = format!("cpuacct{below}/cpuacct.usage");
        tree.cgroup(&usage, "1000000000\n");
        let mut cpu = tree.cpu(None);
        assert_eq!(cpu.read(), Ok(None));
        tree.cgroup(&usage, "1300000000\n");
        is(cpu.read(), 0.2);
        // The quota was removed.
        tree.cgroup(&format!("cpu{below}/cpu.cfs_quota_us"), "-1\n");
        assert_eq!(cpu.read(), Ok(None));
    }
}

#[test]
fn of_some_of_the_cpus() {
    let tree = Tree::new();
    tree.write("proc/self/cgroup", "0::/\n");
    tree.cgroup("cgroup.controllers", "cpuset\n");
    tree.cgroup("cpuset.cpus.effective", "1,5-7\n");
    let mut cpu = tree.cpu(None);
    assert_eq!(cpu.read(), Ok(None));
    tree.ticks([(999, 400), (225, 375)]);
    is(cpu.read(), 0.25);
    // A set of all CPUs is no limit.
    tree.cgroup("cpuset.cpus.effective", "0-1\n");
    assert_eq!(cpu.read(), Ok(None));
}

#[test]
fn of_the_network() {
    let tree = Tree::new();
    tree.write("sys/class/net/eth0/speed", "1000\n");
    tree.write("sys/class/net/eth1/speed", "100\n");
    tree.write("sys/class/net/virtual/speed", "-1\n");
    let base = [
        ("lo", 0, 0),
        ("eth0", 0, 0),
        ("eth1", 0, 0),
        ("virtual", 0, 0),
    ];
    tree.interfaces(&base);
    let mut all = tree.network(None, None);
    let mut named = tree.network(Some("lo"), Some(8e9));
    let mut unknown = tree.network(Some("virtual"), None);
    assert_eq!(all.read(), Ok(None));
    assert_eq!(named.read(), Ok(None));
    let problem = unknown.read().unwrap_err();
    assert!(problem.contains("set load.speed"), "{problem}");
    // One link is used to a tenth, the other to half.
    let more = [
        ("lo", 250_000_000, 250_000_000),
        ("eth0", 12_500_000, 1),
        ("eth1", 0, 6_250_000),
        ("virtual", u64::MAX, 0),
    ];
    tree.interfaces(&more);
    is(all.read(), 1.0);
    is(named.read(), 0.25 / 0.75);

    // One interface is gone, one has reset its counters, one is new.
    tree.interfaces(&[("eth1", 0, 0), ("eth2", 5, 5)]);
    let problem = all.read().unwrap_err();
    assert!(problem.ends_with("eth1: a counter decreased"), "{problem}");
    assert!(named.read().unwrap_err().contains("no interface lo"));
    tree.write("sys/class/net/eth2/speed", "10\n");
    tree.interfaces(&[("eth1", 1_250_000, 0), ("eth2", 5, 5)]);
    is(all.read(), 0.1 / 0.9);
    tree.interfaces(&[("lo", 0, 0)]);
    let problem = all.read().unwrap_err();
    assert!(problem.contains("load.interface"), "{problem}");
}

#[test]
fn what_cannot_be_read_has_a_reason() {
    let tree = Tree::new();
    let long = "x".repeat(5 << 20);
    // (file, text, error message)
    let cases = [
        ("stat", "", "stat: no CPU line"),
        ("stat", "cpu0 1 2\n", "stat: a CPU with 2 times"),
        ("stat", "cpu0 1 2 -3 4\n", "stat: \"-3\" is not a number"),
        ("stat", long.as_str(), "stat: longer than 4194304 bytes"),
        ("loadavg", "", "loadavg: \"\" is not a number"),
        (
            "loadavg",
            "0.1 0.1 0.1 x/2 3",
            "loadavg: \"x\" is not a number",
        ),
        ("loadavg", long.as_str(), "loadavg: longer than 65536 bytes"),
    ];
    for (file, text, said) in cases {
        tree.ticks([(100, 400), (200, 300)]);
        tree.write("proc/loadavg", QUIET);
        let mut cpu = tree.cpu(None);
        cpu.read().unwrap();
        tree.ticks([(150, 450), (225, 375)]);
        tree.write(&format!("proc/{file}"), text);
        let problem = cpu.read().unwrap_err();
        assert!(problem.ends_with(said), "{problem}");
    }
    let mut network = tree.network(None, None);
    for (text, said) in [
        (
            format!("{HEADINGS}eth0 1 2\n"),
            "a line without an interface",
        ),
        (
            format!("{HEADINGS}../x: 1 2\n"),
            "an interface without a name",
        ),
        (format!("{HEADINGS}eth0: 1 2 3\n"), "\"\" is not a number"),
        (long, "longer than 4194304 bytes"),
    ] {
        tree.write("proc/net/dev", &text);
        let problem = network.read().unwrap_err();
        assert!(problem.ends_with(said), "{problem}");
    }
    // A directory stands for any other unreadable file.
    fs::remove_file(tree.0.path().join("proc/net/dev")).unwrap();
    assert!(
        network
            .read()
            .unwrap_err()
            .contains("net/dev: No such file")
    );
    fs::create_dir(tree.0.path().join("proc/net/dev")).unwrap();
    assert!(
        network
            .read()
            .unwrap_err()
            .contains("net/dev: Is a directory")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_there_makes_it_panic(
        texts in prop::collection::vec("([a-z0-9 :.,/\\n-]|cpu0? |0::/|[0-9]{15,30}){0,60}", 8), version_2: bool,
    ) {
        let tree = Tree::new();
        let files = [
            "proc/stat", "proc/loadavg", "proc/net/dev", "proc/self/cgroup", "sys/fs/cgroup/cpu.max",
            "sys/fs/cgroup/cpu.stat", "sys/fs/cgroup/cpuacct/cpuacct.usage", "sys/fs/cgroup/cpuset.cpus.effective",
        ];
        if version_2 {
            tree.cgroup("cgroup.controllers", "cpu\n");
        }
        let (mut cpu, mut network) = (tree.cpu(None), tree.network(None, None));
        for (file, text) in files.iter().zip(&texts) {
            tree.write(file, text);
            for read in [cpu.read(), network.read()] {
                prop_assert!(read.is_err() || read.unwrap().is_none_or(|load| load.is_finite() && load >= 0.0));
            }
        }
    }
}

#[test]
fn of_this_machine() {
    let mut cpu = cpu::CpuReader::new(None);
    let roots = Roots::default();
    assert_eq!(cpu.read(&roots, 0.0), Ok(None));
    let load = loop {
        match cpu.read(&roots, 0.001) {
            Ok(load) => break load.unwrap(),
            // Retry until a tick has passed; a hypervisor may decrease the stolen time.
            Err(problem) => assert!(
                problem.contains("no time") || problem.contains("went back"),
                "{problem}"
            ),
        }
    };
    assert!((0.0..1e6).contains(&load), "{load}");
    let config = NetworkConfig {
        interface: Some("lo".into()),
        speed: Some(1e9),
    };
    let mut network = network::NetworkReader::new(config);
    assert_eq!(network.read(&roots, 0.0), Ok(None));
    assert!(network.read(&roots, 1.0).unwrap().unwrap() < 99.1);
}

mod loops;
