//! A module for tests that panics in the hooks listed in its configuration, separated by commas. The hook `start` is
//! listed in the environment variable `PANICS`, as it runs before there is a configuration.

use std::{
    env,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use envoy_abi::{
    Answer, ConfigScheduler, Configuration, Gauge, Hosts, HttpFilter, HttpFilterConfig,
    LoadBalancer, LoadBalancerConfig, Module, Next, Stream, guard, panics,
};

const LABEL: &str = "module";

struct Panics;

/// The hooks that panic, separated by commas.
#[derive(Clone)]
struct Plan(String);

impl Plan {
    fn of(config: &[u8]) -> Self {
        Plan(String::from_utf8_lossy(config).into_owned())
    }

    fn reach(&self, hook: &str) {
        assert!(!self.0.split(',').any(|it| it == hook), "as it was told to");
    }
}

struct Config {
    plan: Plan,
    gauge: Option<Gauge>,
    /// Taken out before the configuration is dropped.
    scheduler: Arc<Mutex<Option<ConfigScheduler>>>,
}

struct Filter {
    plan: Plan,
}

impl Module for Panics {
    fn name(&self) -> &'static str {
        Plan(env::var("PANICS").unwrap_or_default()).reach("start");
        "panics"
    }

    fn http_filter(
        &self,
        configuration: &Configuration,
        config: &[u8],
    ) -> Result<Box<dyn HttpFilterConfig>, String> {
        let plan = Plan::of(config);
        plan.reach("config");
        let scheduler = Arc::new(Mutex::new(Some(configuration.scheduler())));
        let waker = scheduler.clone();
        let wake = move || waker.lock().ok()?.as_ref().map(ConfigScheduler::wake);
        let own = plan.clone();
        thread::spawn(move || {
            while wake().is_some() {
                // Guarded like the work of the real module's thread.
                guard(|| own.reach("thread"));
                thread::sleep(Duration::from_millis(10));
            }
        });
        Ok(Box::new(Config {
            plan,
            gauge: configuration.define_gauge("panics", &[LABEL]),
            scheduler,
        }))
    }

    fn load_balancer(&self, config: &[u8]) -> Result<Box<dyn LoadBalancerConfig>, String> {
        let plan = Plan::of(config);
        plan.reach("config");
        Ok(Box::new(Policy { plan }))
    }
}

struct Policy {
    plan: Plan,
}

impl LoadBalancerConfig for Policy {
    fn balancer(&self) -> Box<dyn LoadBalancer> {
        self.plan.reach("balancer");
        let plan = self.plan.clone();
        Box::new(Balancer { plan })
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        self.plan.reach("config drop");
    }
}

struct Balancer {
    plan: Plan,
}

impl LoadBalancer for Balancer {
    fn choose(&mut self, _: &Hosts<'_>) -> Option<usize> {
        self.plan.reach("choose");
        Some(0)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.plan.reach("drop");
    }
}

impl HttpFilterConfig for Config {
    fn filter(&self, _: &Stream<'_>) -> Box<dyn HttpFilter> {
        self.plan.reach("filter");
        let plan = self.plan.clone();
        Box::new(Filter { plan })
    }

    fn on_wake(&self, configuration: &Configuration) {
        if let Some(gauge) = self.gauge {
            configuration.set(gauge, &["panics"], panics());
        }
        let header = |name, value: &str| (name, value.to_owned());
        let headers = [
            header(":method", "GET"),
            header(":path", "/"),
            header("host", "x"),
        ];
        // Any answer will do.
        let _ = configuration.call("queries", &headers, None, Duration::from_secs(1));
        self.plan.reach("config wake");
    }

    fn on_answer(&self, _: &Configuration, _: u64, _: Answer) {
        self.plan.reach("config answer");
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        if let Ok(mut scheduler) = self.scheduler.lock() {
            scheduler.take();
        }
        self.plan.reach("config drop");
    }
}

impl HttpFilter for Filter {
    fn on_request_headers(&mut self, stream: &mut Stream<'_>) -> Next {
        self.plan.reach("request headers");
        let scheduler = stream.scheduler();
        thread::spawn(move || scheduler.wake());
        Next::Wait
    }

    fn on_wake(&mut self, _: &mut Stream<'_>) -> Next {
        self.plan.reach("wake");
        Next::Continue
    }

    fn on_response_headers(&mut self, _: &mut Stream<'_>) {
        self.plan.reach("response headers");
    }

    fn on_complete(&mut self, _: &mut Stream<'_>) {
        self.plan.reach("complete");
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        self.plan.reach("drop");
    }
}

envoy_abi::module!(Panics);
