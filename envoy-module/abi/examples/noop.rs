//! A module whose filter does nothing, for benchmarks: it shows the cost of dynamic modules themselves.

use envoy_abi::{Configuration, HttpFilter, HttpFilterConfig, Module, Stream};

struct Noop;

impl Module for Noop {
    fn name(&self) -> &'static str {
        "noop"
    }

    fn http_filter(
        &self,
        _: &Configuration,
        _: &[u8],
    ) -> Result<Box<dyn HttpFilterConfig>, String> {
        Ok(Box::new(Noop))
    }
}

impl HttpFilterConfig for Noop {
    fn filter(&self, _: &Stream<'_>) -> Box<dyn HttpFilter> {
        Box::new(Noop)
    }
}

impl HttpFilter for Noop {}

envoy_abi::module!(Noop);
