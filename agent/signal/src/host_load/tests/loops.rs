//! Host load as read by a control loop.

use super::*;

fn of_cpu() -> LoadConfig {
    LoadConfig::Host(HostLoadConfig {
        cpu: Some(CpuConfig { cgroup: None }),
        network: None,
    })
}

/// A control loop with a simulated clock.
struct Loop {
    load: HostLoad,
    now: Instant,
}

impl Loop {
    fn new(config: &LoadConfig, tree: &Tree) -> Self {
        Loop {
            load: HostLoad::within(config, Duration::from_secs(1), tree.roots()),
            now: Instant::now(),
        }
    }

    /// Reads a second later.
    async fn read(&mut self) -> Result<(), SourceError> {
        self.now += Duration::from_secs(1);
        self.load.read(self.now).await
    }

    fn load(&self) -> Option<f64> {
        self.load.load(self.now)
    }

    fn known(&self) -> HostLoads {
        self.load.known(self.now)
    }
}

#[tokio::test]
async fn the_last_good_one_stands_for_a_while() {
    let tree = Tree::new();
    let mut load = Loop::new(&of_cpu(), &tree);
    load.read().await.unwrap();
    assert_eq!(load.load(), None);
    tree.ticks([(150, 450), (225, 375)]);
    load.read().await.unwrap();
    assert_eq!(load.load(), Some(0.375));
    // Too soon for a new reading.
    load.load.read(load.now).await.unwrap();
    assert_eq!(load.load(), Some(0.375));

    tree.write("proc/stat", "garbage");
    for _ in 0..10 {
        let problem = load.read().await.unwrap_err();
        assert!(problem.message.contains("no CPU line"), "{problem}");
        assert_eq!(load.known().cpu, Some(0.375));
        assert_eq!(load.load.read(load.now).await, Err(problem), "still so");
    }
    load.read().await.unwrap_err();
    assert_eq!((load.known(), load.load()), (HostLoads::default(), None));

    tree.ticks([(250, 550), (325, 475)]);
    load.read().await.unwrap();
    assert_eq!(load.load(), Some(0.5));
}

#[tokio::test]
async fn a_sum_is_known_where_its_parts_are() {
    let tree = Tree::new();
    tree.interfaces(&[("eth0", 0, 0)]);
    let network = NetworkConfig {
        interface: Some("eth0".into()),
        speed: Some(8e6),
    };
    let both = LoadConfig::Host(HostLoadConfig {
        cpu: Some(CpuConfig { cgroup: None }),
        network: Some(network),
    });
    let mut load = Loop::new(&both, &tree);
    load.read().await.unwrap();
    tree.ticks([(150, 450), (225, 375)]);
    tree.write("proc/net/dev", "");
    let problem = load.read().await.unwrap_err();
    assert!(problem.message.starts_with("network: "), "{problem}");
    assert_eq!((load.known().cpu, load.load()), (Some(0.375), None));
    load.load.reconfigure(&of_cpu(), Duration::from_secs(1));
    assert_eq!(load.load(), None, "another kind begins anew");
    load.load
        .reconfigure(&LoadConfig::Delay, Duration::from_secs(1));
    load.read().await.unwrap();
    assert_eq!(load.load(), None);
}

#[tokio::test]
async fn a_file_that_hangs_holds_nothing_up() {
    let tree = Tree::new();
    let stat = tree.0.path().join("proc/stat");
    fs::remove_file(&stat).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&stat)
            .status()
            .unwrap()
            .success()
    );
    let mut load = HostLoad::within(&of_cpu(), Duration::from_millis(20), tree.roots());
    for _ in 0..3 {
        let problem = load.read(Instant::now()).await.unwrap_err();
        assert!(
            problem.message.contains("were not read within"),
            "{problem}"
        );
    }
    // The file is readable again.
    release(&stat, TWO_CPUS).await;
    while load.read(Instant::now()).await.is_err() {}
}

/// Writes as soon as a reader has opened the FIFO.
async fn release(path: &Path, text: &str) {
    let (path, text) = (path.to_owned(), text.to_owned());
    let written = tokio::task::spawn_blocking(move || fs::write(path, text).unwrap());
    written.await.unwrap();
}
