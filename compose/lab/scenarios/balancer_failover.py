"""One of several proxies dies; its clients go to the others."""

from compose.lab.scenarios.kill import Kill
from compose.lab.timeline import Fault


class BalancerFailover(Kill):
    name = "balancer-failover"
    fault = Fault("one of the proxies is killed", lambda planned, _: [list(planned.proxies)[-1]])
    min_proxies = 2
