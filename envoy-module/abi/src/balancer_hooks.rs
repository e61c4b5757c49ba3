//! The hooks of a load balancing policy that Envoy calls. A module must export all of them.

use crate::{
    balancer::{Host, Hosts, LoadBalancer, LoadBalancerConfig, healthy},
    buffer::bytes,
    guard::guard,
    made,
    sys::{
        EnvoyBuffer, LbConfigEnvoyPtr, LbConfigModulePtr, LbContextEnvoyPtr, LbEnvoyPtr,
        LbModulePtr,
    },
};

struct Config(Box<dyn LoadBalancerConfig>);

/// One worker's policy and hosts. Envoy does not call a hook of it while another one runs.
struct Balancer {
    /// `None` if the module's policy panicked when it was made.
    policy: Option<Box<dyn LoadBalancer>>,
    /// `None` until a choice needs them, and again when the cluster's hosts have changed.
    hosts: Option<Vec<Host>>,
    turn: usize,
}

impl Balancer {
    /// # Safety
    ///
    /// `lb_new` must have made `balancer`, and nothing else may use it before `'a` ends.
    unsafe fn of<'a>(balancer: LbModulePtr) -> &'a mut Balancer {
        let balancer: *mut Balancer = balancer.cast_mut().cast();
        // SAFETY: as the caller promises; Envoy calls one worker's hooks one after the other.
        unsafe { &mut *balancer }
    }

    /// # Safety
    ///
    /// Envoy must have passed both pointers to the hook that runs.
    unsafe fn choose(&mut self, lb: LbEnvoyPtr, context: LbContextEnvoyPtr) -> Option<(u32, u32)> {
        // SAFETY: Envoy passed `lb` to this hook, as the caller promises.
        let hosts = self.hosts.get_or_insert_with(|| unsafe { healthy(lb) });
        if hosts.is_empty() {
            return None;
        }
        // SAFETY: Envoy passed both pointers to this hook, as the caller promises; `offer` does not outlive this call.
        let offer = unsafe { Hosts::new(hosts, lb, context) };
        let policy = &mut self.policy;
        let chosen = guard(|| policy.as_mut()?.choose(&offer)).flatten();
        let host = chosen
            .and_then(|index| hosts.get(index))
            .unwrap_or_else(|| {
                self.turn = (self.turn + 1) % hosts.len();
                &hosts[self.turn]
            });
        Some((host.priority, host.index))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_lb_config_new(
    _lb_config_envoy_ptr: LbConfigEnvoyPtr,
    _name: EnvoyBuffer,
    config: EnvoyBuffer,
) -> LbConfigModulePtr {
    // SAFETY: Envoy keeps the text for the duration of the hook.
    let text = unsafe { bytes(config) };
    made(|module| Ok(Config(module.load_balancer(text)?))).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_lb_config_destroy(
    config_module_ptr: LbConfigModulePtr,
) {
    let config: *mut Config = config_module_ptr.cast_mut().cast();
    // SAFETY: `lb_config_new` made it from a box, and Envoy has no balancers of it any longer.
    let config = unsafe { Box::from_raw(config) };
    guard(|| drop(config));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_lb_new(
    config_module_ptr: LbConfigModulePtr,
    _lb_envoy_ptr: LbEnvoyPtr,
) -> LbModulePtr {
    let config: *const Config = config_module_ptr.cast();
    // SAFETY: `lb_config_new` made it from a box; Envoy holds it as long as it has balancers.
    let config = unsafe { &*config };
    let balancer = Balancer {
        policy: guard(|| config.0.balancer()),
        hosts: None,
        turn: 0,
    };
    Box::into_raw(Box::new(balancer)).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_lb_choose_host(
    lb_envoy_ptr: LbEnvoyPtr,
    lb_module_ptr: LbModulePtr,
    context_envoy_ptr: LbContextEnvoyPtr,
    result_priority: *mut u32,
    result_index: *mut u32,
) -> bool {
    // SAFETY: `lb_new` made it for this worker, and Envoy destroys it after its other hooks.
    let balancer = unsafe { Balancer::of(lb_module_ptr) };
    // SAFETY: Envoy passed both pointers to this hook.
    let chosen = guard(|| unsafe { balancer.choose(lb_envoy_ptr, context_envoy_ptr) });
    let Some((priority, index)) = chosen.flatten() else {
        return false;
    };
    // SAFETY: Envoy gives places to write to.
    unsafe { result_priority.write(priority) };
    // SAFETY: as above.
    unsafe { result_index.write(index) };
    true
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_lb_on_host_membership_update(
    _lb_envoy_ptr: LbEnvoyPtr,
    lb_module_ptr: LbModulePtr,
    _num_hosts_added: usize,
    _num_hosts_removed: usize,
) {
    // SAFETY: `lb_new` made it for this worker, and Envoy destroys it after its other hooks.
    let balancer = unsafe { Balancer::of(lb_module_ptr) };
    guard(|| balancer.hosts = None);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_lb_destroy(lb_module_ptr: LbModulePtr) {
    let balancer: *mut Balancer = lb_module_ptr.cast_mut().cast();
    // SAFETY: `lb_new` made it from a box, and this is its last hook.
    let balancer = unsafe { Box::from_raw(balancer) };
    guard(|| drop(balancer));
}
