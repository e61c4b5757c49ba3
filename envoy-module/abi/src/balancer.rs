//! The traits that a module implements to provide a load balancing policy.

use std::{collections::HashMap, ffi::c_void, marker::PhantomData};

use crate::{
    buffer::{EMPTY, bytes},
    sys::{self, EnvoyBuffer, LbContextEnvoyPtr, LbEnvoyPtr},
};

/// One configuration of a policy, which belongs to one cluster of Envoy.
pub trait LoadBalancerConfig: Send + Sync {
    /// Makes the policy of one worker.
    fn balancer(&self) -> Box<dyn LoadBalancer>;
}

/// The policy of one worker.
pub trait LoadBalancer {
    /// Chooses a host for an attempt, by its index in [`Hosts::healthy`]. If this returns `None` or panics, round robin
    /// chooses.
    fn choose(&mut self, hosts: &Hosts<'_>) -> Option<usize>;
}

/// A host that Envoy considers healthy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// IP address and port, as Envoy writes them.
    pub address: String,
    pub(crate) priority: u32,
    /// Index among the healthy hosts of its priority.
    pub(crate) index: u32,
    /// Index among all hosts of its priority, if Envoy lists the address there.
    whole_index: Option<usize>,
}

/// A cluster's hosts, on offer for one attempt; valid while the hook runs.
#[derive(Debug)]
pub struct Hosts<'a> {
    healthy: &'a [Host],
    balancer: LbEnvoyPtr,
    context: LbContextEnvoyPtr,
    hook: PhantomData<&'a c_void>,
}

impl<'a> Hosts<'a> {
    /// # Safety
    ///
    /// Envoy must have passed `balancer` and `context` to the hook that runs, and `'a` must end with it; `context` may be
    /// null.
    pub(crate) unsafe fn new(
        healthy: &'a [Host],
        balancer: LbEnvoyPtr,
        context: LbContextEnvoyPtr,
    ) -> Self {
        Hosts {
            healthy,
            balancer,
            context,
            hook: PhantomData,
        }
    }

    /// The healthy hosts of the first priority that has any; never empty.
    pub fn healthy(&self) -> &[Host] {
        self.healthy
    }

    /// True if the route's retry policy (`retry_host_predicate`) would rather have another host.
    pub fn is_unwanted(&self, host: &Host) -> bool {
        let index = host.whole_index.filter(|_| !self.context.is_null());
        index.is_some_and(|index| {
            // SAFETY: both pointers are good for the hook's duration; Envoy checks the index.
            unsafe {
                sys::envoy_dynamic_module_callback_lb_context_should_select_another_host(
                    self.balancer,
                    self.context,
                    host.priority,
                    index,
                )
            }
        })
    }
}

type Address = unsafe extern "C" fn(LbEnvoyPtr, u32, usize, *mut EnvoyBuffer) -> bool;

/// # Safety
///
/// `balancer` must be good for the hook that runs.
unsafe fn address(
    get: Address,
    balancer: LbEnvoyPtr,
    priority: u32,
    index: usize,
) -> Option<String> {
    let mut address = EMPTY;
    // SAFETY: `balancer` is good, as the caller promises; Envoy checks the index, and writes to a place that is ours.
    let found = unsafe { get(balancer, priority, index, &mut address) };
    // SAFETY: the bytes are copied before Envoy is called again.
    let address = found.then(|| unsafe { bytes(address) })?;
    Some(String::from_utf8_lossy(address).into_owned())
}

/// The healthy hosts of the first priority that has any. Envoy identifies the chosen host by its index among them, so a
/// module cannot choose an unhealthy one as the panic routing of Envoy's own policies does.
///
/// # Safety
///
/// `balancer` must be good for the hook that runs.
pub(crate) unsafe fn healthy(balancer: LbEnvoyPtr) -> Vec<Host> {
    // SAFETY: `balancer` is good, as the caller promises; the same holds below.
    let priorities =
        unsafe { sys::envoy_dynamic_module_callback_lb_get_priority_set_size(balancer) };
    for priority in 0..priorities as u32 {
        // SAFETY: see above.
        let count = unsafe {
            sys::envoy_dynamic_module_callback_lb_get_healthy_hosts_count(balancer, priority)
        };
        if count > 0 {
            // SAFETY: see above.
            return unsafe { healthy_of(balancer, priority, count) };
        }
    }
    Vec::new()
}

/// # Safety
///
/// `balancer` must be good for the hook that runs.
unsafe fn healthy_of(balancer: LbEnvoyPtr, priority: u32, count: usize) -> Vec<Host> {
    // SAFETY: `balancer` is good, as the caller promises; the same holds below.
    let whole =
        unsafe { sys::envoy_dynamic_module_callback_lb_get_hosts_count(balancer, priority) };
    let indices: HashMap<String, usize> = (0..whole)
        .filter_map(|index| {
            let get = sys::envoy_dynamic_module_callback_lb_get_host_address;
            // SAFETY: see above.
            Some((unsafe { address(get, balancer, priority, index) }?, index))
        })
        .collect();
    let host = |index: usize| {
        let get = sys::envoy_dynamic_module_callback_lb_get_healthy_host_address;
        // SAFETY: see above.
        let address = unsafe { address(get, balancer, priority, index) }?;
        Some(Host {
            whole_index: indices.get(&address).copied(),
            address,
            priority,
            index: index as u32,
        })
    };
    (0..count).filter_map(host).collect()
}
